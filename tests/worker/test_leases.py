"""A worker that vanishes gives back what it held; one that lives, or that only slept, keeps it."""

from __future__ import annotations

import datetime as dt
import os
import signal
import time
from collections.abc import Callable

import pytest
import redis

from db.records import Finished, WorkerRecord
from db.status import ResultState
from db.store import Store
from tests.worker.helpers import Start, until
from worker import pulse
from worker.pulse import Watch

LONG = " ".join(["słowo"] * 400)
T0 = dt.datetime(2026, 11, 30, 22, tzinfo=dt.UTC)


def seen(name: str, second: int) -> WorkerRecord:
    at = T0 + dt.timedelta(seconds=second)
    machine = name.partition("/")[0]
    fields = {"name": name, "machine": machine, "pid": 1, "result_id": None, "progress_at": None}
    return WorkerRecord(started_at=T0, seen_at=at, lease_until=at, **fields)


def test_silence_is_measured_by_our_own_clock() -> None:
    """Only a beat that stays the same for a lease of our steady clock is silence, whatever their clock says."""
    watch = Watch(lease_s=90.0)

    assert watch.silent([seen("a/1", 0), seen("b/1", 0)], now_s=0.0) == []
    assert watch.silent([seen("a/1", 0), seen("b/1", -7200)], now_s=89.0) == [], "a clock that jumps back still beats"
    assert watch.silent([seen("a/1", 0), seen("b/1", -7200)], now_s=90.0) == ["a/1"]
    assert watch.silent([seen("b/1", -7200)], now_s=178.0) == []
    assert watch.silent([seen("b/1", -7200)], now_s=179.0) == ["b/1"]


def test_a_wall_clock_that_jumps_is_no_death() -> None:
    """After an hour's sleep of this machine, in which its steady clock stood still, nobody is silent."""
    watch = Watch(lease_s=90.0)
    watch.silent([seen("a/1", 0)], now_s=10.0)

    assert watch.silent([seen("a/1", 3600)], now_s=11.0) == []
    assert watch.silent([seen("a/1", 3600)], now_s=100.9) == []
    assert watch.silent([seen("a/1", 3600)], now_s=101.0) == ["a/1"]


def test_a_late_worker_cannot_overwrite(store: Store, submit: Callable[..., str]) -> None:
    """What was taken back from a worker is another's; the first one's answer, come late, is not stored."""
    job_id = submit("Litwo", wake=False)
    store.beat("a/1", 1, None, None)
    late = store.claim("a/1")
    assert late is not None

    assert store.reclaim_from("a/1") == 1
    assert store.workers() == []
    second = store.claim("b/1")
    assert second is not None and second.fence > late.fence
    finished = Finished(text="nie", finish_reason="stop", metrics={}, config={})
    assert not store.finish(late, finished)
    assert not store.holds(late)
    assert store.finish(second, Finished(text="tak", finish_reason="stop", metrics={}, config={}))
    assert [result.text for result in store.results(job_id)] == ["tak"]


def test_the_third_silence_puts_an_item_aside(store: Store, submit: Callable[..., str]) -> None:
    """An item that takes its machine down with it does so three times and no more."""
    job_id = submit("Litwo", wake=False)
    for number in range(3):
        assert store.claim(f"a/{number}") is not None
        assert store.reclaim_from(f"a/{number}") == 1

    [result] = store.results(job_id)
    assert (result.state, result.error_code) == (ResultState.FAILED, "worker_crashed")


def test_a_worker_that_vanished_gives_its_results_back(
    store: Store, broker: redis.Redis, submit: Callable[..., str], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim of a worker that will never beat again is run by one that lives."""
    job_id = submit("Litwo ojczyzno moja", wake=False)
    store.beat("elsewhere/1", 1, None, None)
    assert store.claim("elsewhere/1") is not None
    monkeypatch.setenv("ECHO_BEAT_EVERY_S", "0.2")
    monkeypatch.setenv("ECHO_LEASE_S", "1.0")
    start("echo_worker.py")

    until(lambda: store.job(job_id).counts.done == 1)
    assert [worker.name for worker in store.workers()] != ["elsewhere/1"]


def test_a_frozen_worker_that_wakes_up_drops_its_item(
    store: Store, broker: redis.Redis, submit: Callable[..., str], start: Start
) -> None:
    """Frozen, taken for dead, woken again: it notices, and each result is there once."""
    job_id = submit(LONG)
    worker = start("echo_worker.py")
    until(lambda: store.job(job_id).counts.running == 1)
    [record] = store.workers()
    assert record.pid == worker.pid
    os.kill(worker.pid, signal.SIGSTOP)
    assert store.reclaim_from(record.name) == 1
    claim = store.claim("b/1")
    assert claim is not None
    assert store.finish(claim, Finished(text="tak", finish_reason="stop", metrics={}, config={}))
    os.kill(worker.pid, signal.SIGCONT)

    until(lambda: worker.said("dropped"))
    assert [(result.text, result.attempts) for result in store.results(job_id)] == [("tak", 2)]


def test_beats_tell_a_stalled_item_from_a_dead_worker(
    store: Store, broker: redis.Redis, submit: Callable[..., str], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deaf item's beats go on while its progress stands; a worker that ends leaves no row."""
    job_id = submit("DEAF " + LONG)
    monkeypatch.setenv("ECHO_BEAT_EVERY_S", "0.1")
    worker = start("echo_worker.py")
    until(lambda: store.job(job_id).counts.running == 1)
    time.sleep(0.3)
    until(lambda: store.workers()[0].progress_at is not None)
    first = store.workers()[0]
    until(lambda: store.workers()[0].seen_at > first.seen_at)
    assert store.workers()[0].progress_at == first.progress_at
    assert store.workers()[0].result_id == first.result_id is not None

    worker.signal(signal.SIGTERM)
    worker.wait()
    assert store.workers() == []


def test_the_shipped_beat_is_well_within_the_lease() -> None:
    """Five beats may be lost before a worker counts as vanished."""
    assert pulse.LEASE_S >= 5 * pulse.BEAT_EVERY_S
