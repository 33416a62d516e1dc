"""The supervisor: what dies is started again, and nothing outlives it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
import redis

from db.settings import Settings
from db.status import JobState, ResultState
from db.store import Store
from tests.worker.echo import Journal
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


def up(settings: Settings, supervisor: Process) -> int:
    """Wait for the worker under *supervisor* and return its process id."""
    until(lambda: supervisor.code is None and worker_pid(settings) is not None, within_s=60)
    pid = worker_pid(settings)
    assert pid is not None
    return pid


@pytest.mark.slow
def test_ctrl_c_ends_everything_in_order(settings: Settings, start: Start) -> None:
    """As shipped, with the real engine: SIGINT drains the worker, stops the broker and exits 0."""
    supervisor = start("worker.supervisor")
    worker = up(settings, supervisor)
    supervisor.signal(signal.SIGINT)
    assert supervisor.wait(30) == 0
    assert not alive(worker)
    assert not answers(settings.broker_socket)
    assert supervisor.said("worker stopped")
    assert supervisor.said("broker stopped")


def test_what_dies_is_started_again(settings: Settings, store: Store, start: Start, submit: Callable[..., str]) -> None:
    """kill -9 of the worker and of the broker under a job is told by name and costs seconds; the job ends."""
    supervisor = start("echo_supervisor.py")
    first = up(settings, supervisor)
    job_id = submit(*["zdanie do powtórzenia"] * 60)
    until(lambda: Journal(settings.home).count("committed") > 3)
    os.kill(first, signal.SIGKILL)
    with redis.Redis.from_url(settings.redis_url) as connection:
        os.kill(connection.info("server")["process_id"], signal.SIGKILL)
    until(lambda: worker_pid(settings) not in (None, first))
    until(lambda: store.job(job_id).state is JobState.DONE)
    assert supervisor.said("cause=SIGKILL")
    assert supervisor.said("broker ended and is started again")


def test_an_item_that_kills_the_worker_is_put_aside(
    settings: Settings, store: Store, start: Start, submit: Callable[..., str]
) -> None:
    """Three deaths, each after all the others had their turn; it fails with the signal and the log's last lines."""
    job_id = submit("raz", "ABORT", "dwa", "trzy", wake=False)
    supervisor = start("echo_supervisor.py")
    until(lambda: store.job(job_id).state is JobState.DONE, within_s=60)
    aside = store.result(job_id, "item-1")[0]
    assert (aside.state, aside.error_code, aside.attempts) == (ResultState.FAILED, "worker_crashed", 3)
    assert "SIGABRT" in (aside.error_message or "")
    assert "command buffer exited" in (aside.error_message or "")
    assert store.job(job_id).counts.done == 3
    begun = [custom_id for event, custom_id in Journal(settings.home).read() if event == "begin"]
    assert begun == ["item-0", "item-1", "item-2", "item-3", "item-1", "item-1"]
    assert supervisor.said("command buffer exited")


def test_a_drain_under_a_job_is_quick(
    settings: Settings, store: Store, start: Start, submit: Callable[..., str]
) -> None:
    """SIGTERM in mid-item: all is down in seconds, and nothing was charged."""
    supervisor = start("echo_supervisor.py")
    up(settings, supervisor)
    job_id = submit("słowo " * 3_000)
    until(lambda: Journal(settings.home).count("begin") == 1)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait(10) == 0
    assert [result.attempts for result in store.results(job_id)] == [0]


def test_nothing_outlives_a_killed_supervisor(settings: Settings, start: Start) -> None:
    """A second one is refused; kill -9 of the first ends worker and broker within seconds."""
    supervisor = start("echo_supervisor.py")
    worker = up(settings, supervisor)
    second = start("worker.supervisor")
    assert second.wait() == 1
    assert second.said(f"another supervisor is already running here (process {supervisor.pid}")

    supervisor.kill()
    until(lambda: not alive(worker) and not answers(settings.broker_socket), within_s=20)


def test_restarts_come_slower_and_slower() -> None:
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
