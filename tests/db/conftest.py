"""The store on real SQLite files, and on Postgres too where NOCKA_TEST_POSTGRES_URL names a database."""

from __future__ import annotations

import datetime as dt
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from db.connect import connect, open_store
from db.records import Finished
from db.schedule import Schedule
from db.settings import load_settings
from db.specs import CellSpec, DrafterKind, ItemSpec, JobKind, JobSpec, RejectedItem
from db.store import Store

# Read before the environment is emptied for the tests.
POSTGRES_URL = os.environ.get("NOCKA_TEST_POSTGRES_URL")

DATABASES = ["sqlite"] if POSTGRES_URL is None else ["sqlite", "postgres"]


class Clock:
    """Every look at it is a second later."""

    def __init__(self) -> None:
        self.now = dt.datetime(2026, 1, 31, 22, 0, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        self.now += dt.timedelta(seconds=1)
        return self.now


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind; on Postgres a schema of its own."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.db'}"
        return
    assert POSTGRES_URL is not None
    schema = f"nocka_test_{secrets.token_hex(4)}"
    owner = connect(POSTGRES_URL)
    with owner.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    url = make_url(POSTGRES_URL).update_query_dict({"options": f"-csearch_path={schema}"})
    yield url.render_as_string(hide_password=False)
    with owner.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    owner.dispose()


@pytest.fixture
def open_here(database_url: str, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Open the database as a process would, any number of times."""
    environ = {"NOCKA_HOME": str(tmp_path / "home"), "NOCKA_DATABASE_URL": database_url}
    opened: list[Store] = []

    def open_once() -> Store:
        opened.append(open_store(load_settings(environ)))
        return opened[-1]

    yield open_once
    for store in opened:
        store.close()


@pytest.fixture
def store(open_here: Callable[[], Store]) -> Store:
    """An empty store whose clock ticks a second a look."""
    return Store(open_here().engine, Clock())


@pytest.fixture
def job() -> Callable[..., JobSpec]:
    """Build a job spec: so many items, so many cells, some rejected, a priority, a schedule."""

    def build(
        item_count: int = 2, *, cell_count: int = 1, rejected: int = 0, priority: int = 0, **schedule: object
    ) -> JobSpec:
        kind = JobKind.GENERATION if cell_count == 1 else JobKind.EVALUATION
        return JobSpec(
            kind=kind,
            name="próba",
            cells=tuple(_cell(number) for number in range(cell_count)),
            items=tuple(ItemSpec(custom_id=f"item-{number}", text=f"Zażółć {number}") for number in range(item_count)),
            rejected=tuple(
                RejectedItem(custom_id=f"line-{number}", code="empty_prompt", message=f"line {number} has no prompt")
                for number in range(rejected)
            ),
            priority=priority,
            schedule=Schedule.model_validate(schedule),
        )

    return build


@pytest.fixture
def finished() -> Finished:
    return Finished(
        text="gęślą jaźń",
        finish_reason="stop",
        metrics={
            "prompt_tokens": 7,
            "reused_tokens": 3,
            "completion_tokens": 5,
            "tokens_per_s": 2.5,
            "rounds": 3,
            "acceptance_rate": 0.25,
            "prefill_s": 0.5,
            "decode_s": 2.0,
            "trace": [[2, 2, 1]],
        },
        config={"target": {"source": "target-0"}},
    )


def _cell(number: int) -> CellSpec:
    """Plain decoding, then drafters of its group."""
    if number == 0:
        return CellSpec(target="target-0")
    return CellSpec(target="target-0", drafter=DrafterKind.LOOKUP, k=number)
