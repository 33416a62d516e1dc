"""Kill -9, wiped brokers, lost wake-ups: every result comes once, and none that was finished runs again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable

import pytest
import redis
from sqlalchemy import select

from db.settings import Settings
from db.status import AttemptOutcome, JobState, ResultState
from db.store import Store
from db.tables import attempts
from tests.worker.echo import Journal
from tests.worker.helpers import Start, until

POINTS = ("before-claim", "after-claim", "mid-generation", "after-commit", "after-acknowledgement")


def done(store: Store, job_id: str) -> bool:
    return store.job(job_id).state is JobState.DONE


def test_five_kills_lose_nothing_and_repeat_nothing(
    settings: Settings, store: Store, broker: redis.Redis, start: Start, submit: Callable[..., str]
) -> None:
    """30 results after a kill -9 at each point and a restart; a finished result never runs again."""
    job_id = submit(*(f"zdanie numer {number} do powtórzenia" for number in range(30)))
    journal = Journal(settings.home)

    for number, point in enumerate(POINTS, start=1):
        worker = start("echo_worker.py")
        until(lambda number=number: journal.count("committed") >= 3 * number)
        (settings.home / f"kill-{point}").touch()
        assert worker.wait() == -signal.SIGKILL
        assert (settings.home / f"killed-{point}").exists()
    start("echo_worker.py")
    until(lambda: done(store, job_id))

    results = list(store.results(job_id))
    assert [result.text for result in results] == [f"zdanie numer {n} do powtórzenia" for n in range(30)]
    seen: set[str] = set()
    for event, custom_id in journal.read():
        assert custom_id not in seen, f"{custom_id} was finished and then: {event}"
        if event == "committed":
            seen.add(custom_id)
    assert len(seen) == 30
    assert sum(result.attempts for result in results) <= 30 + len(POINTS)
    with store.engine.begin() as connection:
        outcomes = connection.scalars(select(attempts.c.outcome)).all()
    assert outcomes.count(AttemptOutcome.DONE) == 30
    # after-claim and mid-generation held one, after-commit where the next was claimed with it.
    assert 2 <= outcomes.count(AttemptOutcome.LOST) <= 3


def test_a_wiped_broker_costs_nothing(
    settings: Settings, store: Store, start: Start, submit: Callable[..., str]
) -> None:
    """The broker dies in mid-job and its files are gone: the job ends from the store, and the next one is taken."""
    first = start("worker.broker")
    until(lambda: first.said("broker ready"))
    job_id = submit(*(f"zdanie {number} o niczym" for number in range(40)))
    worker = start("echo_worker.py")
    journal = Journal(settings.home)
    until(lambda: journal.count("committed") >= 3)

    with redis.Redis(unix_socket_path=str(settings.broker_socket)) as client:
        server_pid = client.info("server")["process_id"]
    first.kill()
    os.kill(server_pid, signal.SIGKILL)
    shutil.rmtree(settings.broker_dir)
    until(lambda: journal.count("committed") >= 12)
    second = start("worker.broker")
    until(lambda: done(store, job_id))

    until(lambda: second.said("broker ready"))
    assert [event for event, _ in journal.read()].count("committed") == 40
    assert worker.code is None
    after = submit("jeszcze jedno", wake=False)
    until(lambda: done(store, after))


def test_a_worker_works_without_any_broker(store: Store, start: Start, submit: Callable[..., str]) -> None:
    """Redis away from the first moment: what is due is taken from the store, and the process stays."""
    job_id = submit("ala ma kota", "kot ma alę", wake=False)
    worker = start("echo_worker.py")
    until(lambda: done(store, job_id))
    assert worker.code is None
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_lost_wakeup_costs_seconds(
    store: Store, broker: redis.Redis, start: Start, submit: Callable[..., str]
) -> None:
    """A job in the store that no wake-up announced is found by looking."""
    worker = start("echo_worker.py")
    until(lambda: worker.said("waiting for jobs"))
    job_id = submit("nikt nie zawołał", wake=False)
    until(lambda: done(store, job_id), within_s=12)


def test_a_second_worker_is_refused(settings: Settings, broker: redis.Redis, start: Start) -> None:
    """One worker for each home: the second says so and exits 1, the first goes on."""
    first = start("echo_worker.py")
    until(lambda: first.said("waiting for jobs"))
    second = start("worker")
    assert second.wait() == 1
    assert second.said(f"another worker is already running here (process {first.pid}")
    assert first.code is None


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_hands_the_running_item_back_uncharged(
    signum: int, settings: Settings, store: Store, broker: redis.Redis, start: Start, submit: Callable[..., str]
) -> None:
    """SIGTERM and Ctrl-C drain: exit code 0 within seconds, the attempt not counted, the next worker takes it."""
    job_id = submit("słowo " * 2_000)
    worker = start("echo_worker.py")
    until(lambda: Journal(settings.home).count("begin") == 1)
    worker.signal(signum)
    assert worker.wait(5) == 0
    (result,) = store.results(job_id)
    assert (result.state, result.attempts) == (ResultState.WAITING, 0)


def test_a_second_signal_ends_at_once(
    settings: Settings, store: Store, broker: redis.Redis, start: Start, submit: Callable[..., str]
) -> None:
    """An item that cannot be interrupted does not hold the process after the second signal, and is taken back later."""
    job_id = submit("DEAF " * 1_000)
    worker = start("echo_worker.py")
    until(lambda: Journal(settings.home).count("begin") == 1)
    worker.signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(0.5)
    worker.signal(signal.SIGTERM)
    assert worker.wait(5) == 128 + signal.SIGTERM
    assert [result.state for result in store.results(job_id)] == [ResultState.RUNNING]
    start("echo_worker.py")
    until(lambda: Journal(settings.home).count("begin") == 2)
