"""Figures 1 to 3: workers and brokers that are killed, and an item that kills."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import redis

from db.status import ResultState
from tests.chaos.night import HERE, Night, sentences
from tests.worker.helpers import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

KILLS = 20
BROKER_KILLS = 5


def test_kill_9_of_the_worker(tmp_path: Path, undisturbed: dict[str, str | None]) -> None:
    """At 20 moments, while it starts or works: every answer once and as it would have been, nothing finished again."""
    chance = random.Random(4)
    with Night(tmp_path / "home") as night:
        night.broker()
        job_id = night.submit(sentences(len(undisturbed)))
        for kill in range(KILLS):
            worker = night.worker()
            if kill % 5 == 4:
                time.sleep(chance.uniform(0.0, 3.0))  # while it imports, loads and takes back
            else:
                goal = night.counts(job_id).done + chance.randrange(8)
                until(lambda goal=goal: night.counts(job_id).done >= goal and night.counts(job_id).running)
                time.sleep(chance.uniform(0.0, 0.1))
            assert night.counts(job_id).ended < len(undisturbed), "the job ended before the last kill"
            worker.kill()
        night.worker()
        night.await_end(job_id)

        assert night.texts(job_id) == undisturbed
        attempts = night.attempts(job_id)
    assert len(undisturbed) <= attempts <= len(undisturbed) + KILLS
    print(f"\nfigure 1: {KILLS} kills of the worker: {len(undisturbed)} results, each once, {attempts} attempts")


def test_kill_9_of_the_broker(tmp_path: Path, undisturbed: dict[str, str | None]) -> None:
    """Five times, once with its files deleted, once together with the worker: the same."""
    with Night(tmp_path / "home") as night:
        broker, worker = night.broker(), night.worker()
        job_id = night.submit(sentences(len(undisturbed)))
        for kill in range(BROKER_KILLS):
            goal = night.counts(job_id).done + 5
            until(lambda goal=goal: night.counts(job_id).done >= goal)
            with redis.Redis.from_url(night.settings.redis_url) as client:
                os.kill(client.info("server")["process_id"], signal.SIGKILL)
            broker.kill()
            assert night.counts(job_id).ended < len(undisturbed), "the job ended before the last kill"
            if kill == 1:
                shutil.rmtree(night.settings.broker_dir)
            if kill == 3:
                worker.kill()
                worker = night.worker()
            broker = night.broker()
            until(lambda: _answers(night.settings.redis_url))
        night.await_end(job_id)

        assert night.texts(job_id) == undisturbed
        attempts = night.attempts(job_id)
        assert worker.code is None
    assert attempts <= len(undisturbed) + 1
    print(
        f"\nfigure 2: {BROKER_KILLS} kills of the broker, once wiped, once with the worker: "
        f"{len(undisturbed)} results, each once, {attempts} attempts"
    )


def test_an_item_that_aborts_the_process(tmp_path: Path, undisturbed: dict[str, str | None]) -> None:
    """On every attempt: put aside at its third, with the signal; the supervisor brings the worker back each time."""
    texts = sentences(len(undisturbed))
    texts[50] = "PRZERWIJ"
    with Night(tmp_path / "home", CHAOS_ENGINE="abort") as night:
        night.start(str(HERE / "chaos_supervisor.py"))
        job_id = night.submit(texts)
        night.await_end(job_id)

        [aside] = night.store.result(job_id, "item-50")
        done = night.texts(job_id)
    assert (aside.state, aside.error_code, aside.attempts) == (ResultState.FAILED, "worker_crashed", 3)
    assert "SIGABRT" in (aside.error_message or "")
    assert done == {custom_id: text for custom_id, text in undisturbed.items() if custom_id != "item-50"}
    print(f"\nfigure 3: an item that aborts the process: put aside after {aside.attempts} deaths, {len(done)} results")


def _answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False
