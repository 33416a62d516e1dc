"""Drafters without a model on the command line, and `nocka ngram`."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import redis

from api_cli import ngram_header
from api_cli.client import Client
from db.records import Finished
from tests.api_cli.conftest import Nocka, PlayedWorker

MINI = ("--target", "mini-target")
HEADER = {
    "version": 1,
    "order": 3,
    "tokenizer_sha256": "ab" * 32,
    "vocab_size": 7,
    "tokens": 14,
    "min_count": 2,
    "levels": [{"order": 2, "contexts": 3}, {"order": 3, "contexts": 1234}],
}


@pytest.fixture
def ngram(tmp_path: Path) -> Path:
    path = tmp_path / "pl.ngram"
    path.write_bytes((ngram_header.MAGIC + json.dumps(HEADER).encode()).ljust(4095) + b"\n" + bytes(99))
    return path


@pytest.mark.parametrize(
    ("options", "label"),
    [
        (["--drafter", "lookup"], "lookup k=16"),
        (["--drafter", "suffix", "--k", 8], "suffix k=8"),
        (["--drafter", "staged"], "staged k=2"),
        (["--drafter", "staged", "--draft", "mini-draft", "--ngram", "pl.ngram"], "staged k=2 mini-draft pl.ngram"),
        (["--drafter", "intersect", "--draft", "mini-draft-bytes"], "intersect k=2 mini-draft-bytes"),
        (["--drafter", "ngram", "--ngram", "pl.ngram", "--k", 3], "ngram k=3 pl.ngram"),
        (["--ngram", "pl.ngram", "--k", 2], "ngram k=2 pl.ngram"),
        (["--draft", "mini-draft-bytes", "--k", 2], "cross context k=2 mini-draft-bytes"),
        (["--draft", "mini-draft-bytes", "--translation", "direct"], "cross direct k=2 mini-draft-bytes"),
        ([], "auto"),
        (["--ngram", "pl.ngram", "--draft", "mini-draft"], "auto mini-draft pl.ngram"),
        (["--drafter", "auto"], "auto mini-draft-bytes"),
    ],
)
def test_every_drafter_can_be_asked_for(
    nocka: Nocka,
    reports: Path,
    ngram: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    label: str,
) -> None:
    """With its own default k; the file's path is made absolute, since the worker runs elsewhere."""
    monkeypatch.chdir(ngram.parent)
    result = nocka("submit", reports, *MINI, *options)

    assert result.exit_code == 0, result.stderr
    with Client.open() as client:
        (cell,) = client.cells("last")
    assert cell.label == label
    assert cell.ngram == (str(ngram) if "pl.ngram" in label else None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--drafter", "suffix", "--k", "-1"], "not -1 under suffix"),
        (["--drafter", "suffix", "--k", "100"], "not 100 under suffix"),
        (["--drafter", "neural", "--draft", "mini-draft", "--translation", "naive"], "nothing under neural"),
        (["--drafter", "lookup", "--draft", "mini-draft"], "leave --draft out"),
        (["--drafter", "intersect"], "--draft NAME"),
        (["--drafter", "ngram"], "nocka ngram build"),
        (["--drafter", "ngram", "--ngram", "brak.ngram"], "there is no file"),
        (["--drafter", "ngram", "--ngram", "raporty/raport-1.txt"], "is no n-gram file"),
        (["--drafter", "suffix", "--ngram", "pl.ngram"], "leave --ngram out"),
    ],
)
def test_a_bad_combination_is_refused_before_anything_is_queued(
    broker: redis.Redis,
    nocka: Nocka,
    reports: Path,
    ngram: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    said: str,
) -> None:
    """Exit code 2, a sentence that says what to type, an empty store."""
    monkeypatch.chdir(ngram.parent)
    result = nocka("submit", reports, *MINI, *options)

    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    with Client.open() as client:
        assert client.jobs() == []


def test_info_says_what_a_file_holds(nocka: Nocka, ngram: Path) -> None:
    """In words and as JSON; whatever else is refused by name."""
    said = nocka("ngram", "info", ngram).stdout

    assert "234 of order 3" in said and "14 tokens" in said
    assert json.loads(nocka("ngram", "info", ngram, "--json").stdout) == HEADER
    assert "no n-gram file" in nocka("ngram", "info", __file__).stderr


def test_build_queues_a_job_with_absolute_paths(
    broker: redis.Redis, nocka: Nocka, reports: Path, worker: PlayedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder stands for its text files; only the id goes to standard output."""
    monkeypatch.chdir(reports.parent)
    trust = ("--trust-remote-code", "mini-target")
    result = nocka("ngram", "build", "raporty", "-o", "out.ngram", "--order", 2, *MINI, *trust, "--detach")

    assert result.exit_code == 0, result.stderr
    claim = worker.client.store.claim("test/1-a")
    assert claim is not None and claim.task is not None
    assert claim.job_id == result.stdout.strip()
    assert claim.task.corpora == tuple(str(reports / f"raport-{number}.txt") for number in (1, 2, 3))
    assert (claim.task.output, claim.task.order) == (str(reports.parent / "out.ngram"), 2)
    assert claim.cell.trust_remote_code == ("mini-target",)
    assert broker.llen("rq:queue:nocka") == 1


def test_build_follows_the_job(broker: redis.Redis, nocka: Nocka, reports: Path, worker: PlayedWorker) -> None:
    """It ends with what was built, and with 3 and the reason where it failed."""

    def play(outcome: Finished | tuple[str, str]) -> None:
        while not worker.end(lambda claim: outcome):
            pass

    for outcome, code, said in [
        (Finished(text="/o: 5 contexts", finish_reason="stop", metrics={}, config={}), 0, "Built /o: 5 contexts"),
        (("ngram_not_built", "/a.txt is gone"), 3, "/a.txt is gone"),
    ]:
        player = threading.Thread(target=play, args=(outcome,))
        player.start()
        result = nocka("ngram", "build", reports, "-o", reports / "o.ngram", *MINI)
        player.join()
        assert (result.exit_code, said in result.stderr) == (code, True), result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["brak.txt", "-o", "o"], "no such file"),
        (["pusty", "-o", "o"], "no .txt"),
        (["raporty", "-o", "nie/ma/o"], "its folder is not there"),
        (["raporty", "-o", "raporty"], "this is a folder"),
        (["raporty", "-o", "o", "--order", "9"], "9"),
        (["raporty", "-o", "o", "--target", "mini-targt"], "mini-target"),
    ],
)
def test_a_build_that_cannot_work_is_refused(
    nocka: Nocka, reports: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    """Before anything is queued."""
    monkeypatch.chdir(reports.parent)
    Path("pusty").mkdir()
    target = [] if "--target" in arguments else MINI
    result = nocka("ngram", "build", *arguments, *target)

    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
