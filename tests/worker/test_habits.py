"""What a worker does beside its items: tells that a job ended, starts anew when worn out, keeps a Mac awake."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from db.settings import Settings, load_settings
from db.specs import CellSpec, ItemSpec, JobKind, JobSpec
from db.store import Store
from tests.worker.helpers import Start, alive, until
from worker.caffeine import Caffeine


def job(*texts: str, on_done: str | None = None) -> JobSpec:
    items = tuple(ItemSpec(custom_id=f"item-{number}", text=text) for number, text in enumerate(texts))
    return JobSpec(kind=JobKind.GENERATION, name="test", cells=(CellSpec(target="echo"),), items=items, on_done=on_done)


def test_a_job_that_ended_is_told_once(store: Store, broker: redis.Redis, start: Start, tmp_path: Path) -> None:
    """The command gets the summary on stdin, also that of a cancelled job; a second worker does not run it again."""
    told = tmp_path / "told.jsonl"
    command = f"cat >> '{told}'; echo >> '{told}'"
    done, cancelled = store.submit(job("Litwo", on_done=command)), store.submit(job("Ojczyzno", on_done=command))
    store.cancel(cancelled)
    start("echo_worker.py")
    until(lambda: told.exists() and told.read_text().count("\n") == 2)
    start("echo_worker.py")
    time.sleep(1.0)

    found = {summary["id"]: summary for summary in map(json.loads, told.read_text().splitlines())}
    assert len(told.read_text().splitlines()) == 2
    assert (found[done]["state"], found[done]["counts"]["done"]) == ("done", 1)
    assert found[cancelled]["state"] == "cancelled"


def test_a_failing_command_harms_nothing(store: Store, broker: redis.Redis, start: Start) -> None:
    """Its exit code is logged, and the next job runs."""
    store.submit(job("Litwo", on_done="exit 7"))
    worker = start("echo_worker.py")
    until(lambda: worker.said("code=7"))
    second = store.submit(job("Ojczyzno"))

    until(lambda: store.job(second).counts.done == 1)


def test_a_retried_job_is_told_of_again(store: Store) -> None:
    """What ended twice is told twice."""
    job_id = store.submit(job("Litwo", on_done="true"))
    store.cancel(job_id)
    assert [telling.job_id for telling in store.take_tellings()] == [job_id]
    assert store.take_tellings() == []
    store.retry(job_id)
    assert store.take_tellings() == []
    store.cancel(job_id)

    assert [telling.job_id for telling in store.take_tellings()] == [job_id]


def test_commands_run_where_the_store_is_ones_own(isolated_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared database may be written by others, whose commands are run only where that is asked for."""
    assert load_settings().runs_on_done
    monkeypatch.setenv("NOCKA_DATABASE_URL", "postgresql://server/nocka")
    assert not load_settings().runs_on_done
    monkeypatch.setenv("NOCKA_ON_DONE", "run")
    assert load_settings().runs_on_done


def test_a_worn_out_worker_starts_anew(
    store: Store, settings: Settings, submit: Callable[..., str], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each two items the process ends by itself and the next one follows at once; no attempt is lost."""
    monkeypatch.setenv("NOCKA_RESTART_AFTER_ITEMS", "2")
    job_id = submit("a", "b", "c", "d", "e", wake=False)
    supervisor = start("echo_supervisor.py")
    until(lambda: store.job(job_id).counts.done == 5)

    assert [result.attempts for result in store.results(job_id)] == [1] * 5
    assert supervisor.output.read_text("utf-8").count("starts itself anew") == 2
    assert not supervisor.said("ended and is started again")


def test_a_worker_too_large_starts_anew(
    store: Store, submit: Callable[..., str], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is looked at after each item; the shipped limits decide."""
    from worker.__main__ import Limits

    monkeypatch.setenv("NOCKA_RESTART_ABOVE_GB", "1")
    limits = Limits(load_settings())
    assert not limits(1000)
    ballast = bytearray(1200 * 1024**2)
    ballast[::4096] = b"x" * len(ballast[::4096])
    assert limits(1)


def test_a_mac_is_kept_awake_while_an_item_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`caffeinate` lives from entry to exit and was told to end with this process; elsewhere nothing is started."""
    started = tmp_path / "started"
    fake = tmp_path / "caffeinate"
    fake.write_text(f'#!/bin/sh\necho "$$ $*" > {started}\nexec sleep 60\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "platform", "linux")
    with Caffeine():
        time.sleep(0.3)
    assert not started.exists()

    monkeypatch.setattr(sys, "platform", "darwin")
    with Caffeine():
        until(lambda: started.exists() and started.read_text().strip() != "")
        pid, *arguments = started.read_text().split()
        assert arguments == ["-i", "-w", str(os.getpid())]
        assert alive(int(pid))
    assert not alive(int(pid))
