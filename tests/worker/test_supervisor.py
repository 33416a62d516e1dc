"""The supervisor: what dies is started again, and nothing outlives it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import redis

from db.settings import Settings
from tests.worker.helpers import Process, Start, alive, until
from worker.blas import openblas, worker_environment
from worker.broker import answers
from worker.supervisor import Child, cause_of


def worker_pid(settings: Settings) -> int | None:
    """Of the worker that Redis knows to be alive."""
    try:
        with redis.Redis.from_url(settings.redis_url) as connection:
            workers = [connection.hgetall(key) for key in connection.scan_iter("rq:worker:*")]
    except redis.RedisError:
        return None
    pids = [int(found[b"pid"]) for found in workers if b"pid" in found and b"death" not in found]
    return next((pid for pid in pids if alive(pid)), None)


@pytest.fixture
def up(settings: Settings, start: Start) -> Process:
    """A supervisor as shipped, with its broker and its worker ready."""
    supervisor = start("worker.supervisor")
    until(lambda: worker_pid(settings) is not None, within_s=30)
    return supervisor


def test_a_killed_worker_is_started_again_and_a_signal_ends_all(settings: Settings, up: Process) -> None:
    """kill -9 is told with its name and mended in seconds; SIGINT drains, stops the broker and exits 0."""
    first = worker_pid(settings)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(lambda: worker_pid(settings) not in (None, first), within_s=30)
    assert up.said("SIGKILL")
    second = worker_pid(settings)
    assert second is not None

    up.signal(signal.SIGINT)
    assert up.wait(15) == 0
    assert not alive(second)
    assert not answers(settings.broker_socket)


def test_nothing_outlives_a_killed_supervisor(settings: Settings, up: Process, start: Start) -> None:
    """kill -9 of the supervisor ends worker and broker within seconds, and the next one starts on the same home."""
    worker = worker_pid(settings)
    assert worker is not None
    second = start("worker.supervisor")
    assert second.wait(10) == 1
    assert second.said("another supervisor is already running here")

    up.kill()
    until(lambda: not alive(worker) and not answers(settings.broker_socket), within_s=10)


def test_restarts_come_slower_and_slower(tmp_path: Path) -> None:
    """1, 2, 4 ... 30 seconds between starts, and from the beginning again after a healthy minute."""
    child = Child("child", ["/bin/sh", "-c", "exit 3"], {})
    now_s = 0.0
    waits = []
    for _ in range(7):
        waits.append(next_start_after_death(child, now_s))
        now_s += waits[-1]
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    assert next_start_after_death(child, now_s, lived_s=61) == 1


def next_start_after_death(child: Child, now_s: float, lived_s: float = 0.0) -> float:
    """Seconds after a death at which the child is started again, to the second."""
    child.tend(now_s)
    assert child.ended(5)
    child.tend(now_s + lived_s)
    for waited_s in range(1, 60):
        child.tend(now_s + lived_s + waited_s)
        if not child.ended(0) or child._process is not None:
            child.ended(5)
            child._process = None
            return waited_s
    raise AssertionError("never started again")


def test_an_exit_code_is_told_in_words() -> None:
    """A signal by its name."""
    assert [cause_of(code) for code in (-9, -6, 1)] == ["SIGKILL", "SIGABRT", "exit code 1"]


def test_openblas_is_preloaded_where_it_is_installed() -> None:
    """With the user's own settings kept; elsewhere the environment stays as it is."""
    given = {"LD_PRELOAD": "/lib/mine.so", "OPENBLAS_NUM_THREADS": "1"}
    library = openblas()
    expected = given if library is None else {**given, "LD_PRELOAD": f"{library} /lib/mine.so"}
    assert worker_environment(given) == expected
    assert worker_environment(expected) == expected
