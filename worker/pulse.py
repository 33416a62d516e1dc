"""The worker's heartbeat in the store, and its watch over the heartbeats of others."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import threading
import time
from collections.abc import Iterable, Iterator

import structlog

from db.errors import StoreError
from db.leases import LEASE_S
from db.records import WorkerRecord
from db.store import Store
from worker.jobs.slice import Shift

BEAT_EVERY_S = 15.0

log = structlog.get_logger("worker")


@contextlib.contextmanager
def beating(store: Store, shift: Shift) -> Iterator[None]:
    """Beat on a thread of its own, since the main thread is inside the model for minutes; leave at the end."""
    done = threading.Event()
    store.beat(shift.worker, os.getpid(), None, None)
    thread = threading.Thread(target=_beat, args=(store, shift, done), name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(5)
        with contextlib.suppress(StoreError):
            store.leave(shift.worker)


def _beat(store: Store, shift: Shift, done: threading.Event) -> None:
    watch = Watch(LEASE_S)
    while not done.wait(BEAT_EVERY_S):
        try:
            store.beat(shift.worker, os.getpid(), shift.running, shift.progress_at)
            others = [worker for worker in store.workers() if worker.name != shift.worker]
            for name in watch.silent(others, time.monotonic()):
                log.warning("took back what a silent worker held", worker=name, items=store.reclaim_from(name))
        except StoreError as error:
            log.warning("the store did not take a heartbeat", reason=str(error))


class Watch:
    """Tells which workers have been silent for a lease, by this process's own steady clock.

    No two machines' clocks are compared, and while this machine sleeps its steady clock stands still: neither a clock
    that jumps nor a lid that was closed is taken for a death.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._heard: dict[str, tuple[dt.datetime, float]] = {}

    def silent(self, workers: Iterable[WorkerRecord], now_s: float) -> list[str]:
        """The names of those whose last beat has been the same one for a lease. *now_s* is monotonic."""
        before, self._heard = self._heard, {}
        for worker in workers:
            seen_at, since_s = before.get(worker.name, (None, now_s))
            self._heard[worker.name] = worker.seen_at, since_s if seen_at == worker.seen_at else now_s
        return [name for name, (_, since_s) in self._heard.items() if now_s - since_s >= self._lease_s]
