"""The store and the clock: what is not due is not claimed, what is cut off expires, and what is finished stays."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest

from db.records import Finished
from db.specs import JobSpec
from db.status import JobState, ResultState
from db.store import Store

BuildJob = Callable[..., JobSpec]
EVENING = dt.datetime(2026, 1, 31, 21, 0, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


class SetClock:
    """Shows what it is set to."""

    def __init__(self) -> None:
        self.now = EVENING

    def __call__(self) -> dt.datetime:
        return self.now


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def night(open_here: Callable[[], Store], clock: SetClock) -> Store:
    return Store(open_here().engine, clock)


def test_a_job_outside_its_window_is_passed_over_and_due_within_it(
    night: Store, clock: SetClock, job: BuildJob, finished: Finished
) -> None:
    """A less urgent job runs meanwhile; what runs when the window closes is to be given back, uncharged."""
    job_id = night.submit(job(2, priority=5, window="22:00-06:00"))
    other = night.submit(job(1))
    assert night.next_job() == other
    meanwhile = night.claim("mac/1")
    assert meanwhile is not None and meanwhile.job_id == other
    assert night.claim("mac/1") is None and night.next_job() is None

    clock.now = EVENING + HOUR
    assert night.next_job() == job_id
    running = night.claim("mac/1")
    assert running is not None and running.job_id == job_id and night.holds(running)
    clock.now = EVENING + 9 * HOUR
    assert not night.holds(running)
    assert night.give_back(running)
    assert night.claim("mac/1") is None
    clock.now = EVENING + 25 * HOUR
    again = night.claim("mac/1")
    assert again is not None and again.attempt == 1


def test_a_job_begins_no_earlier_than_it_may(night: Store, clock: SetClock, job: BuildJob) -> None:
    """To the second."""
    job_id = night.submit(job(1, not_before=EVENING + HOUR))
    clock.now = EVENING + HOUR - dt.timedelta(seconds=1)
    assert night.next_job() is None and night.claim("mac/1") is None
    clock.now = EVENING + HOUR
    assert night.next_job() == job_id and night.claim("mac/1") is not None


def test_what_a_deadline_cuts_off_expires_and_what_is_finished_stays(
    night: Store, clock: SetClock, job: BuildJob, finished: Finished
) -> None:
    """The running item is given back first; the job is done, and `retry` runs the rest without the deadline."""
    job_id = night.submit(job(3, deadline=EVENING + HOUR))
    first = night.claim("mac/1")
    assert first is not None and night.finish(first, finished)
    running = night.claim("mac/1")
    assert running is not None
    clock.now = EVENING + HOUR
    assert not night.holds(running)
    assert night.next_job() == job_id
    assert night.claim("mac/2") is None
    assert night.job(job_id).state is JobState.RUNNING
    assert night.give_back(running)
    assert night.claim("mac/1") is None

    record = night.job(job_id)
    assert (record.state, record.counts.done, record.counts.expired) == (JobState.DONE, 1, 2)
    assert record.finished_at == clock.now
    cut_off = list(night.results(job_id, states={ResultState.EXPIRED}))
    assert {result.error_code for result in cut_off} == {"deadline_passed"}
    assert [result.attempts for result in cut_off] == [0, 0]

    assert night.retry(job_id, {ResultState.EXPIRED}) == 2
    assert night.job(job_id).schedule is None
    for _ in range(2):
        claim = night.claim("mac/1")
        assert claim is not None and night.finish(claim, finished)
    assert night.job(job_id).counts.done == 3


def test_hours_of_work_are_counted_over_attempts(
    night: Store, clock: SetClock, job: BuildJob, finished: Finished
) -> None:
    """Half an hour given back and half an hour in the running item make one."""
    job_id = night.submit(job(2, max_hours=1.0))
    taken = night.claim("mac/1")
    clock.now += HOUR / 2
    assert taken is not None and night.give_back(taken)
    clock.now += 5 * HOUR
    taken = night.claim("mac/1")
    clock.now += HOUR / 2 - dt.timedelta(seconds=1)
    assert taken is not None and night.holds(taken)
    clock.now += dt.timedelta(seconds=1)
    assert not night.holds(taken)
    assert night.give_back(taken)
    assert night.claim("mac/1") is None
    assert {result.error_code for result in night.results(job_id)} == {"hours_used"}
    assert night.job(job_id).worked_s == 3600.0


def test_a_paused_job_expires_once_it_goes_on(night: Store, clock: SetClock, job: BuildJob) -> None:
    """Nothing happens to it while it is held."""
    job_id = night.submit(job(1, deadline=EVENING + HOUR))
    night.pause(job_id)
    clock.now = EVENING + 2 * HOUR
    assert night.claim("mac/1") is None
    assert night.job(job_id).counts.waiting == 1
    night.resume(job_id)
    assert night.claim("mac/1") is None
    assert night.job(job_id).state is JobState.DONE


def test_an_expired_job_does_not_stand_in_the_way(night: Store, clock: SetClock, job: BuildJob) -> None:
    """The same look that expires one takes the next."""
    night.submit(job(1, priority=5, deadline=EVENING))
    due = night.submit(job(1))
    claim = night.claim("mac/1")
    assert claim is not None and claim.job_id == due
