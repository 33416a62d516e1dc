"""Whoever can write to Redis cannot make the worker run anything but `advance`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from rq import Queue, Retry
from rq.job import Callback, Job
from rq.serializers import DefaultSerializer, JSONSerializer

from db.settings import ADVANCE, QUEUE, Settings
from db.status import JobState
from db.store import Store
from tests.worker.helpers import Start, until
from worker.resident import SafeJob, refusal


def forge(broker: redis.Redis) -> int:
    """Queue what an intruder would; how many of them must be refused."""
    queue = Queue(QUEUE, connection=broker, serializer=JSONSerializer)
    pickled = Queue(QUEUE, connection=broker, serializer=DefaultSerializer)
    queue.enqueue("os.system", "true")
    queue.enqueue("forgery.mark")
    queue.enqueue("worker.jobs.slice.begin", None)
    queue.enqueue(ADVANCE, "a", "b")
    queue.enqueue(ADVANCE, job_id="no-argument")
    queue.enqueue(ADVANCE, ["a", "list"])
    pickled.enqueue("forgery.mark")
    pickled.enqueue(ADVANCE, "pickled")
    queue.enqueue("forgery.mark", on_failure=Callback("forgery.mark"), retry=Retry(max=9))
    stray = queue.enqueue(ADVANCE, "x")
    broker.hset(stray.key, "origin", "elsewhere")
    garbled = queue.enqueue(ADVANCE, "x")
    broker.hset(garbled.key, "created_at", "the day before yesterday")
    unparsed = queue.enqueue(ADVANCE, "x")
    broker.hset(unparsed.key, "data", b"\x80\x04not json")
    broker.rpush(queue.key, b"\xff\xfe no utf-8")
    return 13


def test_forged_jobs_are_refused_and_never_run(
    settings: Settings, store: Store, broker: redis.Redis, start: Start, submit: Callable[..., str]
) -> None:
    """`os.system`, pickles, unknown functions and broken fields are removed and logged; the worker goes on."""
    refused = forge(broker)
    job_id = submit("uczciwa praca", wake=False)
    callbacks = {"on_success": Callback("forgery.mark"), "on_failure": Callback("forgery.mark")}
    Queue(QUEUE, connection=broker, serializer=JSONSerializer).enqueue(ADVANCE, job_id, **callbacks)
    broker.rpush(f"rq:queue:{QUEUE}", "no-such-job")
    worker = start("echo_worker.py")

    until(lambda: worker.output.read_text("utf-8").count("refused a job") == refused)
    until(lambda: store.job(job_id).state is JobState.DONE)
    until(lambda: broker.llen(f"rq:queue:{QUEUE}") == 0)
    assert worker.code is None
    assert not (settings.home / "intruded").exists()
    later = submit("następna praca")
    until(lambda: store.job(later).state is JobState.DONE)
    until(lambda: not broker.keys("rq:job:*") and not broker.keys("*intermediate*") and not broker.keys("rq:wip:*"))


def test_the_job_itself_refuses(broker: redis.Redis) -> None:
    """A forged job does not run by any other way into RQ either, and its callbacks are nobody's."""
    queue = Queue(QUEUE, connection=broker, serializer=JSONSerializer)
    forged = queue.enqueue("forgery.mark", on_success=Callback("forgery.mark"), on_stopped=Callback("forgery.mark"))
    job = SafeJob.fetch(forged.id, broker, JSONSerializer)
    with pytest.raises(PermissionError, match="no function of nocka"):
        job.perform()
    assert job.success_callback is None
    assert job.failure_callback is None
    assert job.stopped_callback is None


def test_a_wakeup_passes(broker: redis.Redis) -> None:
    """What the client queues is not refused."""
    queued = Queue(QUEUE, connection=broker, serializer=JSONSerializer).enqueue(ADVANCE, "20261130-0122-x7k2")
    assert refusal(Job.fetch(queued.id, broker, JSONSerializer)) is None
