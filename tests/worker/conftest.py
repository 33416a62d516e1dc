"""Real processes: a Valkey, a store in a file, and workers that can be killed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from db.connect import open_store
from db.settings import Settings, load_settings
from db.specs import CellSpec, ItemSpec, JobKind, JobSpec
from db.store import Store
from tests.worker.helpers import HERE, Process, Start
from worker.broker import running_broker
from worker.wakeups import Wakeups, connect


@pytest.fixture
def settings(isolated_environment: Path) -> Settings:
    isolated_environment.mkdir()
    return load_settings()


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = open_store(settings)
    yield store
    store.close()


@pytest.fixture
def broker(settings: Settings) -> Iterator[redis.Redis]:
    """A client of a running broker of this test's own."""
    with running_broker(settings), connect(settings.redis_url) as client:
        yield client


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a script of this folder or a module, by name; whatever still lives at the end is ended."""
    started: list[Process] = []

    def start(name: str, *arguments: str) -> Process:
        what = [str(HERE / name)] if name.endswith(".py") else ["-m", name]
        output = tmp_path / f"{len(started)}-{name}.log"
        started.append(Process(name, [sys.executable, "-P", *what, *arguments], output))
        return started[-1]

    yield start
    for process in reversed(started):
        process.end()
        print(f"--- {process.name} {process.pid}: {process.code}\n{process.output.read_text('utf-8')}")


@pytest.fixture
def submit(store: Store, settings: Settings) -> Callable[..., str]:
    """Submit texts as a job, with its wake-up unless `wake=False`; its id."""

    def submit(*texts: str, target: str = "echo", wake: bool = True, priority: int = 0) -> str:
        items = tuple(ItemSpec(custom_id=f"item-{number}", text=text) for number, text in enumerate(texts))
        spec = JobSpec(
            kind=JobKind.GENERATION, name="test", cells=(CellSpec(target=target),), items=items, priority=priority
        )
        job_id = store.submit(spec)
        if wake:
            with connect(settings.redis_url) as client:
                Wakeups(client).ensure(job_id)
        return job_id

    return submit
