"""What becomes of single items and jobs inside the worker."""

from __future__ import annotations

from collections.abc import Callable

import redis

from db.settings import Settings
from db.status import JobState, ResultState
from db.store import Store
from tests.worker.echo import Journal
from tests.worker.helpers import Start, until


def ended(store: Store, job_id: str) -> bool:
    return store.job(job_id).finished_at is not None


def test_a_failing_item_harms_no_other(
    store: Store, broker: redis.Redis, start: Start, submit: Callable[..., str]
) -> None:
    """Each error stays with its item, with a code; the text of a document never comes into the log."""
    job_id = submit("dobre", "TOO-LONG", "CRASH tajemnica", "MEMORY", "też dobre")
    worker = start("echo_worker.py")
    until(lambda: ended(store, job_id))
    found = [(result.state, result.error_code, result.error_message) for result in store.results(job_id)]
    assert found == [
        (ResultState.DONE, None, None),
        (ResultState.FAILED, "prompt_too_long", "9 tokens, and there is room for 8"),
        (ResultState.FAILED, "generation_failed", "ValueError: cannot digest CRASH tajemnica"),
        (ResultState.FAILED, "generation_failed", "MemoryError"),
        (ResultState.DONE, None, None),
    ]
    assert store.job(job_id).state is JobState.DONE
    assert worker.said("ValueError")
    assert not worker.said("tajemnica")


def test_a_model_that_cannot_be_loaded_fails_the_job_until_it_is_mended(
    settings: Settings, store: Store, broker: redis.Redis, start: Start, submit: Callable[..., str]
) -> None:
    """The job fails with what was needed and what to type, once and not for each item; `retry` runs it."""
    job_id = submit("raz", "dwa", target="absent")
    other = submit("trzy", target="broken", wake=False)
    start("echo_worker.py")
    until(lambda: ended(store, job_id) and ended(store, other))

    job = store.job(job_id)
    assert (job.state, job.error_code) == (JobState.FAILED, "model_not_loadable")
    assert job.error_message == "needs 99 GB, there are 2; type: nocka models"
    assert {result.error_code for result in store.results(job_id)} == {"model_not_loadable"}
    assert store.job(other).error_message == "KeyError: 'model_type'"
    assert Journal(settings.home).read() == []

    (settings.home / "mended").touch()
    assert store.retry(job_id) == 2
    until(lambda: store.job(job_id).state is JobState.DONE)


def test_a_folder_that_is_not_there_fails_the_job(
    store: Store, broker: redis.Redis, start: Start, submit: Callable[..., str]
) -> None:
    """A local model that was moved away is named."""
    job_id = submit("raz", target="/nowhere/model")
    start("echo_worker.py")
    until(lambda: ended(store, job_id))
    assert store.job(job_id).error_code == "model_unavailable"
    assert "/nowhere/model" in (store.job(job_id).error_message or "")


def test_cancel_ends_the_running_item_and_the_waiting_ones(
    settings: Settings, store: Store, broker: redis.Redis, start: Start, submit: Callable[..., str]
) -> None:
    """What is finished stays, the item in mid-generation stops within seconds, and the next job runs."""
    job_id = submit("pierwsze", "słowo " * 2_000, "trzecie")
    worker = start("echo_worker.py")
    journal = Journal(settings.home)
    until(lambda: journal.count("begin") == 2)
    store.cancel(job_id)
    until(lambda: journal.count("interrupted") == 1, within_s=4)

    after = submit("następne")
    until(lambda: ended(store, after))
    states = [result.state for result in store.results(job_id)]
    assert states == [ResultState.DONE, ResultState.CANCELLED, ResultState.CANCELLED]
    assert store.job(job_id).state is JobState.CANCELLED
    assert worker.code is None


def test_cancel_between_items_keeps_what_is_finished(
    settings: Settings, store: Store, broker: redis.Redis, start: Start, submit: Callable[..., str]
) -> None:
    """No item begins after the cancel, and none is left in between."""
    job_id = submit(*["krótkie zdanie"] * 200)
    start("echo_worker.py")
    journal = Journal(settings.home)
    until(lambda: journal.count("committed") >= 3)
    store.cancel(job_id)
    counts = store.job(job_id).counts
    after = submit("następne")
    until(lambda: ended(store, after))
    assert counts.done >= 3
    assert counts.done + counts.cancelled == 200
    assert store.job(job_id).counts == counts
    assert journal.count("committed") == counts.done + 1


def test_pause_hands_the_running_item_back_within_two_seconds_and_resume_goes_on(
    settings: Settings, store: Store, broker: redis.Redis, start: Start, submit: Callable[..., str]
) -> None:
    """Nothing is charged, the worker takes other jobs meanwhile, and nothing finished runs again."""
    job_id = submit("pierwsze", "słowo " * 1_500, "trzecie")
    start("echo_worker.py")
    journal = Journal(settings.home)
    until(lambda: journal.count("begin") == 2)
    store.pause(job_id)
    until(lambda: journal.count("interrupted") == 1, within_s=2)
    until(lambda: [result.attempts for result in store.results(job_id)] == [1, 0, 0])
    between = submit("tymczasem")
    until(lambda: ended(store, between))
    assert store.job(job_id).state is JobState.PAUSED

    store.resume(job_id)
    until(lambda: journal.count("begin") == 4, within_s=10)
    store.cancel(job_id)
    assert store.job(job_id).counts.done == 1


def test_the_more_urgent_job_goes_first(
    settings: Settings, store: Store, broker: redis.Redis, start: Start, submit: Callable[..., str]
) -> None:
    """A job of higher priority starts after the running item, within the slice, and without a wake-up of its own."""
    slow = submit(*["słowo " * 30] * 20)
    start("echo_worker.py")
    journal = Journal(settings.home)
    until(lambda: journal.count("begin") >= 1)
    urgent = submit("pilne", "też pilne", priority=10, wake=False)
    begun = journal.count("begin")
    until(lambda: ended(store, urgent))
    first, second = store.results(urgent)
    assert first.finished_at is not None and second.finished_at is not None
    before = [r for r in store.results(slow) if r.finished_at is not None and r.finished_at < second.finished_at]
    # The one that was running, and one more where it was claimed between the submit and the count.
    assert len(before) <= begun + 1
    assert store.job(slow).counts.waiting > 10


def test_a_result_says_how_it_was_made(
    store: Store, broker: redis.Redis, start: Start, submit: Callable[..., str]
) -> None:
    """The decoder's configuration and the decoding options are kept with the result."""
    job_id = submit("raz dwa")
    start("echo_worker.py")
    until(lambda: ended(store, job_id))
    (result,) = store.results(job_id)
    assert result.config["target"] == {"source": "echo", "dtype": "auto"}
    assert result.config["decoding"]["max_tokens"] == 256
    assert result.completion_tokens == 2
