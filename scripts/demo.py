"""The main job on `examples/`, start to end, with the models that ship here. `make demo` runs it.

Everything lives in `.demo/`, which is wiped first: a broker and a resident worker are started, the folder is submitted
as a small evaluation (plain, and drafts from a model with another tokenizer), the answers and figures are shown, and
whatever was started is stopped again, also after an error or Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import redis
from rich.console import Console
from rich.table import Table

from db.connect import open_store
from db.records import ResultRecord
from db.settings import Settings, load_settings
from db.status import ResultState

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".demo"
SUBMIT = [
    *("submit", "examples/", "--target", "mini-target", "--draft", "mini-draft-bytes"),
    *("--drafter", "cross", "--translation", "context", "--k", "2"),
    *("--max-tokens", "48", "--temperature", "0.7", "--seed", "7"),
    *("--compare-plain", "--wait"),
]
READY_WITHIN_S, STOPPED_WITHIN_S = 60.0, 20.0

if not sys.stdout.isatty():
    os.environ.setdefault("COLUMNS", "120")
console = Console(highlight=False)


def main() -> int:
    started = time.monotonic()
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(mode=0o700)
    for name in [name for name in os.environ if name.startswith("NOCKA_")]:
        del os.environ[name]
    os.environ["NOCKA_HOME"] = str(HOME)
    settings = load_settings()
    with running_worker(settings):
        nocka(*SUBMIT)
        nocka("results", "last")
        agreed = summary(settings)
    console.print(f"\nDone in {time.monotonic() - started:.0f} s; broker and worker are stopped.")
    farewell(settings)
    return 0 if agreed else 1


@contextlib.contextmanager
def running_worker(settings: Settings) -> Iterator[None]:
    """Broker and worker under their supervisor, ready to take jobs; stopped on the way out, whatever happened."""
    log = HOME / "supervisor.log"
    console.print("Starting the broker and one resident worker ...")
    with log.open("wb") as output:
        supervisor = subprocess.Popen(
            [sys.executable, "-P", "-m", "worker.supervisor"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A terminal's Ctrl-C reaches this script, which then stops the supervisor.
            start_new_session=True,
        )
    try:
        wait_until_ready(supervisor, settings)
        yield
    except (Exception, SystemExit):
        console.print(
            f"The last lines of {log}:",
            *log.read_text("utf-8", "replace").splitlines()[-15:],
            sep="\n  ",
            soft_wrap=True,
        )
        raise
    finally:
        stop(supervisor)


def wait_until_ready(supervisor: subprocess.Popen[bytes], settings: Settings) -> None:
    """Return when a worker is registered with the broker. Raises SystemExit when that takes too long."""
    client = redis.Redis.from_url(settings.redis_url)
    deadline = time.monotonic() + READY_WITHIN_S
    while supervisor.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(redis.RedisError):
            if client.scard("rq:workers"):
                client.close()
                return
        time.sleep(0.1)
    raise SystemExit("the worker did not come up")


def stop(supervisor: subprocess.Popen[bytes]) -> None:
    """Ask the supervisor to drain and stop; end its process group when it does not."""
    supervisor.terminate()
    try:
        supervisor.wait(STOPPED_WITHIN_S)
    except subprocess.TimeoutExpired:
        os.killpg(supervisor.pid, signal.SIGKILL)
        supervisor.wait()


def nocka(*words: str) -> None:
    """Show the command and run it as a user would. Raises SystemExit when it fails."""
    console.print(f"\n[bold]$ nocka {' '.join(words)}[/bold]", soft_wrap=True)
    code = subprocess.run([Path(sys.executable).with_name("nocka"), *words], cwd=ROOT, check=False).returncode
    if code:
        raise SystemExit(f"nocka {words[0]} ended with exit code {code}")


def summary(settings: Settings) -> bool:
    """Print one line per cell, read from the store; whether every text equals the plain one."""
    store = open_store(settings)
    cells: dict[str, list[ResultRecord]] = {}
    for result in store.results(store.job("last").id):
        cells.setdefault(result.cell_label, []).append(result)
    plain = {result.custom_id: result.text for result in cells["plain"]}
    title = "By cell, read from the store (equal: texts that are plain's own)"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column("cell", no_wrap=True)
    for column in ("items", "tokens", "tok/s", "rounds", "accepted", "equal"):
        table.add_column(column, justify="right", no_wrap=True)
    agreed = True
    for label, results in cells.items():
        same = sum(r.state is ResultState.DONE and r.text == plain[r.custom_id] for r in results)
        agreed = agreed and same == len(results)
        table.add_row(label, *figures(results), f"{same} of {len(results)}")
    console.print()
    console.print(table)
    return agreed


def figures(results: list[ResultRecord]) -> list[str]:
    """Items, tokens, tokens a second, rounds and acceptance over one cell."""
    tokens = sum(result.completion_tokens or 0 for result in results)
    # From each result's own rate, so that this is the rate of decoding and not of waiting in between.
    decode_s = sum((r.completion_tokens or 0) / r.tokens_per_s for r in results if r.tokens_per_s)
    proposed = sum(result.metrics.get("proposed", 0) for result in results)
    accepted = sum(result.metrics.get("accepted", 0) for result in results)
    return [
        str(len(results)),
        str(tokens),
        f"{tokens / decode_s:.1f}" if decode_s else "",
        str(sum(result.rounds or 0 for result in results)),
        f"{accepted / proposed:.1%}" if proposed else "",
    ]


def farewell(settings: Settings) -> None:
    database = settings.database_url.removeprefix("sqlite:///")
    home, command = HOME.relative_to(ROOT), ".venv/bin/nocka"
    console.print(
        f"The database is {database}\n"
        "What to type next:\n"
        f"  NOCKA_HOME={home} {command} results last --format md\n"
        f"  NOCKA_HOME={home} {command} show last structured/przepis-pierogi.txt\n"
        f"  NOCKA_HOME={home} {command} up          # and submit your own texts from another terminal",
        soft_wrap=True,
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
