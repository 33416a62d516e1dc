"""
The resident worker: one process, one set of models in memory, all work on the main thread.

`python -P -m worker`: with -P, or a folder named `worker` in the current directory would run instead.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

import psutil  # type: ignore[import-untyped]
import structlog

from db.connect import open_store
from db.errors import NockaError
from db.settings import Settings, load_settings
from db.store import Store
from worker import crash, logs
from worker.engine.energy import Counter, Meter, NoCounter, open_counter
from worker.jobs import slice as job_slice
from worker.jobs.needs import LoadsModels
from worker.jobs.slice import Shift, never
from worker.lock import exclusive
from worker.machine import machine_name, worker_name
from worker.parent import end_with_parent
from worker.pulse import beating
from worker.resident import ResidentWorker
from worker.wakeups import Wakeups, connect

log = structlog.get_logger("worker")


def main() -> int:
    """Serve until a signal says to stop: 0, or 1 when it could not begin or had to give up."""
    parser = argparse.ArgumentParser(prog="python -P -m worker", description="Run nocka's resident worker.")
    parser.add_argument("--parent", type=int, metavar="PID", help="end when PID is no longer the parent process")
    arguments = parser.parse_args()
    logs.configure()
    try:
        settings = load_settings()
        logs.configure(json_lines=settings.json_logs, file=settings.log_dir / "worker.log")
        with exclusive(settings.lock_path, "worker"):
            # The engine takes seconds to import; a second worker is refused before that.
            from worker.engine.build import Models

            end_with_parent(arguments.parent)
            supervised = arguments.parent is not None
            worn_out = Limits(settings) if supervised else never
            serve(settings, open_store(settings), Models(), worn_out, Meter(_counter()))
    except NockaError as error:
        log.error(str(error), code=error.code)
        return 1
    return 0


class Limits:
    """When a supervised worker has worked enough: memory that grows over a night is given back by starting anew."""

    def __init__(self, settings: Settings) -> None:
        self._items = settings.restart_after_items
        self._size_bytes = settings.restart_above_bytes
        self._process = psutil.Process()

    def __call__(self, begun: int) -> bool:
        if self._items is not None and begun >= self._items:
            return True
        return self._size_bytes is not None and self._process.memory_info().rss > self._size_bytes


def _counter() -> Counter | None:
    try:
        return open_counter()
    except NoCounter as error:
        log.info("energy is not measured", reason=str(error))
        return None


def serve(
    settings: Settings,
    store: Store,
    models: LoadsModels,
    worn_out: Callable[[int], bool] = never,
    meter: Meter | None = None,
) -> None:
    """
    Give back what a killed worker held, then work until a signal drains. Call it under the lock.

    The first SIGTERM or SIGINT hands the running item back and returns; the second ends the process at once.
    """
    machine = machine_name(settings.home)
    name = worker_name(machine)
    wakeups = Wakeups(connect(settings.redis_url))
    shift = Shift(store, models, wakeups, name, worn_out, settings.runs_on_done, meter)
    _drain_on_signals(shift)
    lost = store.reclaim(machine, crash.read(settings.log_dir))
    crash.forget(settings.log_dir)
    if lost:
        log.warning("took back items of a worker that died", items=lost)
    job_slice.begin(shift)
    with beating(store, shift):
        ResidentWorker(settings.redis_url, shift).serve()
    log.info("worker stopped", worker=name)


def _drain_on_signals(shift: Shift) -> None:
    def handle(signum: int, frame: FrameType | None) -> None:
        if shift.draining:
            os._exit(128 + signum)
        shift.drain()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, handle)


if __name__ == "__main__":
    sys.exit(main())
