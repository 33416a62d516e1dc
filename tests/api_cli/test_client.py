"""Store first, then the queue; and the queue may be away."""

from __future__ import annotations

import json
import threading
import time
import zlib
from pathlib import Path

import pytest
import redis

from api_cli.client import Client
from api_cli.enqueue import broker_version, enqueue, registered_workers
from api_cli.presence import local_worker
from db.errors import BrokerError
from db.settings import load_settings
from db.specs import CellSpec, ItemSpec, JobKind, JobSpec
from db.status import JobState
from tests.api_cli.conftest import PlayedWorker, finished

SPEC = JobSpec(
    kind=JobKind.GENERATION,
    name="proba",
    cells=(CellSpec(target="mini-target"),),
    items=(ItemSpec(custom_id="a", text="Ala"), ItemSpec(custom_id="b", text="kot")),
)


def test_a_wake_up_is_the_functions_name_and_the_jobs_id(broker: redis.Redis) -> None:
    """Redis holds an id in JSON, no document and no pickle; the job has no timeout and no retry."""
    with Client.open() as client:
        submitted = client.submit(SPEC)

    (rq_id,) = broker.lrange("rq:queue:nocka", 0, -1)
    stored = broker.hgetall(b"rq:job:" + rq_id)
    data = json.loads(zlib.decompress(stored[b"data"]))

    assert submitted.not_woken is None
    assert data == ["worker.jobs.slice.advance", None, [submitted.job_id], {}]
    assert stored[b"timeout"] == b"-1"
    assert b"retries_left" not in stored


def test_a_broker_that_is_away_loses_nothing(isolated_environment: Path) -> None:
    """The job is in the store and the caller learns why nobody was woken."""
    with Client.open() as client:
        submitted = client.submit(SPEC)

        assert "nocka up" in str(submitted.not_woken)
        assert client.status("last").id == submitted.job_id


def test_every_question_to_a_missing_broker_is_a_broker_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """No foreign error escapes, and no password shows in the message."""
    monkeypatch.setenv("NOCKA_REDIS_URL", "redis://user:sekret@127.0.0.1:1/0")
    settings = load_settings()

    for ask in (broker_version, registered_workers, lambda settings: enqueue(settings, "x")):
        with pytest.raises(BrokerError, match="NOCKA_REDIS_URL") as caught:
            ask(settings)
        assert "sekret" not in str(caught.value)


def test_the_broker_names_itself(broker: redis.Redis) -> None:
    """Valkey is not called Redis, although its INFO has that field too."""
    assert broker_version(load_settings()).startswith("valkey 9.")


def test_workers_are_those_with_a_living_key(broker: redis.Redis) -> None:
    """A name in RQ's set whose key has expired is no worker, and looking changes nothing."""
    broker.sadd("rq:workers", "rq:worker:zywy", "rq:worker:martwy")
    broker.hset("rq:worker:zywy", "birth", "now")

    assert registered_workers(load_settings()) == ["zywy"]
    assert broker.scard("rq:workers") == 2


def test_waiting_ends_with_the_job(broker: redis.Redis, worker: PlayedWorker) -> None:
    """Progress is called from the first look to the last."""
    with Client.open() as client:
        job_id = client.submit(SPEC).job_id
        seen: list[int] = []
        thread = threading.Thread(target=lambda: (time.sleep(0.2), worker.end(lambda claim: finished("tak"))))
        thread.start()

        job = client.wait(job_id, lambda job: seen.append(job.counts.done), poll_s=0.02)
        thread.join()

    assert job.state is JobState.DONE
    assert (seen[0], seen[-1]) == (0, 2)


def test_retry_wakes_a_worker_again(broker: redis.Redis, worker: PlayedWorker) -> None:
    """What failed waits again; what is done stays done."""
    with Client.open() as client:
        job_id = client.submit(SPEC).job_id
        worker.end(lambda claim: finished("tak") if claim.item.custom_id == "a" else ("oops", "nie"))
        assert client.first_error(client.status(job_id)) == "b: oops: nie"
        broker.flushall()

        submitted, count = client.retry(job_id)

        assert (count, submitted.not_woken, broker.llen("rq:queue:nocka")) == (1, None, 1)
        assert client.status(job_id).counts.done == 1


def test_a_lock_nobody_holds_is_no_worker(isolated_environment: Path) -> None:
    """The file stays behind when a worker dies; a process id that lives again proves nothing."""
    settings = load_settings()
    settings.home.mkdir()
    assert local_worker(settings) is None
    for content in ("", "kot", "999999999\n", "1\n"):
        settings.lock_path.write_text(content)
        assert local_worker(settings) is None
