"""Several processes on one database: none sees another's half-done work, and one that is killed leaves none behind."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from db.records import Finished
from db.specs import JobSpec
from db.status import JobState
from db.store import Store
from db.tables import attempts, items, jobs
from db.transactions import reading

ROOT = Path(__file__).parents[2]

#: Opens the store, says so, and waits for the word to start, so that all of them start together.
PREPARE = """
import sys
from db.connect import open_store
from db.records import Finished
from db.settings import load_settings
from db.specs import CellSpec, ItemSpec, JobSpec

def ready():
    print("ready", flush=True)
    sys.stdin.readline()
"""

OPENER = PREPARE + "ready(); open_store(load_settings()); print('opened')"

CLAIMER = (
    PREPARE
    + """
store = open_store(load_settings())
claim = store.claim(f"mac/{sys.argv[1]}")  # its share, whoever is the faster in the race for the others
ready()
while claim is not None:
    assert store.finish(claim, Finished(text=sys.argv[1], finish_reason="stop", metrics={}, config={}))
    print(claim.result_id)
    claim = store.claim(f"mac/{sys.argv[1]}")
"""
)

WRITER = (
    PREPARE
    + """
store = open_store(load_settings())
ready()
items = tuple(ItemSpec(custom_id=str(number), text="x") for number in range(5))
for _ in range(8):
    job_id = store.submit(JobSpec(kind="generation", name="n", cells=(CellSpec(target="t"),), items=items))
    claim = store.claim(f"mac/{sys.argv[1]}")
    store.give_back(claim)
    store.cancel(job_id)
    assert store.job(job_id).counts.cancelled == 5
print("wrote")
"""
)

HALF_WRITER = (
    PREPARE
    + """
from db import submission
from db.store import utc_now
from db.transactions import writing
store = open_store(load_settings())
items = tuple(ItemSpec(custom_id=str(number), text="x" * 1000) for number in range(5000))
with writing(store.engine) as connection:
    spec = JobSpec(kind="generation", name="half", cells=(CellSpec(target="t"),), items=items)
    submission.write_job(connection, spec, utc_now(), None)
    ready()
"""
)

HOLDER = PREPARE + "claim = open_store(load_settings()).claim('mac/1'); ready()"

Start = Callable[[str, str], subprocess.Popen[str]]


@pytest.fixture
def start(database_url: str, tmp_path: Path) -> Iterator[Start]:
    """Start a script on the database, ready to go; whatever is left at the end is killed."""
    environment = {**os.environ, "NOCKA_HOME": str(tmp_path / "home"), "NOCKA_DATABASE_URL": database_url}
    started: list[subprocess.Popen[str]] = []

    def run(script: str, argument: str = "") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, argument],
            cwd=ROOT,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def race(processes: list[subprocess.Popen[str]]) -> list[list[str]]:
    """Let them go together; what each printed, all having ended well."""
    for process in processes:
        await_ready(process)
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [(process.returncode, errors) for process, (_, errors) in zip(processes, outputs, strict=True)] == [
        (0, "") for _ in processes
    ]
    return [printed.split() for printed, _ in outputs]


def await_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line == "ready\n", process.stderr.read()


def test_processes_that_meet_an_empty_database_make_it_once(start: Start, open_here: Callable[[], Store]) -> None:
    """None fails, and the schema is whole."""
    assert race([start(OPENER, "") for _ in range(3)]) == [["opened"]] * 3
    assert open_here().jobs() == []


def test_a_process_waits_while_another_makes_the_schema(
    start: Start, open_here: Callable[[], Store], tmp_path: Path
) -> None:
    """Turning the write-ahead log on is a step that SQLite lets nobody wait for."""
    open_here()
    with tmp_path.joinpath("home", "schema.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        opener = start(OPENER, "")
        await_ready(opener)
        assert opener.stdin is not None
        opener.stdin.write("go\n")
        opener.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            opener.wait(timeout=1.5)
    assert opener.communicate(timeout=60) == ("opened\n", "")


def test_two_workers_share_a_job_and_run_each_result_once(
    start: Start, store: Store, job: Callable[..., JobSpec]
) -> None:
    """One claim each, one attempt each, and the job is closed by whoever is last."""
    job_id = store.submit(job(40, cell_count=2))
    done = race([start(CLAIMER, name) for name in ("a", "b")])
    assert Counter(int(result_id) for printed in done for result_id in printed) == Counter(
        result.id for result in store.results(job_id)
    )
    assert all(done), "both had a share"
    with reading(store.engine) as connection:
        assert connection.scalar(select(func.count()).select_from(attempts)) == 80
    assert {result.attempts for result in store.results(job_id)} == {1}
    assert store.job(job_id).state is JobState.DONE


def test_four_writers_never_find_the_database_locked(start: Start, store: Store) -> None:
    """Each waits its turn instead, for reading and writing in one transaction too."""
    assert race([start(WRITER, str(number)) for number in range(4)]) == [["wrote"]] * 4
    assert Counter(record.state for record in store.jobs()) == {JobState.CANCELLED: 32}


def test_a_process_killed_in_a_transaction_leaves_nothing_of_it(
    start: Start, store: Store, job: Callable[..., JobSpec]
) -> None:
    """The others go on at once, and the file is sound."""
    before = store.submit(job(2))
    half = start(HALF_WRITER, "")
    await_ready(half)
    half.kill()
    half.wait()
    after = store.submit(job(2))
    assert [record.id for record in store.jobs()] == [after, before]
    with reading(store.engine) as connection:
        assert connection.scalar(select(func.count()).select_from(items)) == 4
        assert list(connection.scalars(select(jobs.c.name).distinct())) == ["próba"]
        if store.engine.dialect.name == "sqlite":
            assert connection.scalar(text("PRAGMA integrity_check")) == "ok"
            assert connection.execute(text("PRAGMA foreign_key_check")).all() == []


def test_what_a_killed_worker_held_is_run_again_and_nothing_else(
    start: Start, store: Store, job: Callable[..., JobSpec], finished: Finished
) -> None:
    """The lost attempt counts; a finished result stays as it is."""
    job_id = store.submit(job(2))
    first = store.claim("mac/0")
    assert first is not None
    assert store.finish(first, finished)
    holder = start(HOLDER, "")
    await_ready(holder)
    assert store.claim("mac/2") is None
    holder.kill()
    holder.wait()
    assert store.reclaim("mac") == 1
    again = store.claim("mac/2")
    assert again is not None
    assert (again.item.custom_id, again.attempt) == ("item-1", 2)
    assert store.finish(again, finished)
    assert [result.attempts for result in store.results(job_id)] == [1, 2]
    assert store.job(job_id).state is JobState.DONE
