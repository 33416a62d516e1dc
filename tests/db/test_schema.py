"""The schema makes itself, follows the tables, updates with a copy kept, and refuses what it does not know."""

from __future__ import annotations

import dataclasses
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import insert, inspect, text

from db import migrations
from db.connect import connect, open_store, sqlite_version
from db.errors import SchemaTooNew, StoreError
from db.settings import load_settings
from db.specs import JobSpec
from db.store import Store, utc_now
from db.tables import cells, jobs, metadata
from db.transactions import reading, writing

ROOT = Path(__file__).parents[2]

NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{head}"


def upgrade() -> None:
    remade = "always" if op.get_bind().dialect.name == "sqlite" else "never"
    with op.batch_alter_table("jobs", recreate=remade) as table:
        table.add_column(sa.Column("note", sa.Text()))
    {more}
"""


@pytest.fixture
def newer(tmp_path: Path) -> Callable[[str], Path]:
    """The migrations as a later version would ship them, with one revision more."""

    def build(more: str = "") -> Path:
        folder = tmp_path / "newer"
        shutil.copytree(migrations.FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
        folder.joinpath("versions", "9999_next.py").write_text(
            NEXT.format(head=migrations.HEAD, more=more), encoding="utf-8"
        )
        return folder

    return build


def test_an_empty_database_gets_the_schema_that_the_tables_describe(store: Store) -> None:
    """The first revision and `tables.py` never drift apart."""
    with reading(store.engine) as connection:
        assert migrations.revision(connection) == migrations.HEAD
        # The words of a search are in a table of each database's own kind, and in those that it makes for itself.
        of_its_own = {"include_name": lambda name, *_: name is None or not name.startswith("passage_words")}
        assert compare_metadata(MigrationContext.configure(connection, opts=of_its_own), metadata) == []


def test_the_head_named_in_the_code_is_the_newest_file() -> None:
    """So that a command need not load Alembic to see that nothing is to be done."""
    assert ScriptDirectory(str(migrations.FOLDER)).get_current_head() == migrations.HEAD
    loaded = "import sys, db.connect; sys.exit('alembic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, check=False).returncode == 0


def test_an_older_database_is_updated_with_its_rows_and_a_copy_is_kept(
    store: Store, job: Callable[..., JobSpec], newer: Callable[[str], Path], tmp_path: Path
) -> None:
    """A table is altered on SQLite by remaking it; no child row goes with the old one."""
    job_id = store.submit(job(2))
    migrations.upgrade(store.engine, newer(""), "9999")
    with reading(store.engine) as connection:
        assert migrations.revision(connection) == "9999"
        assert connection.scalar(text("SELECT note FROM jobs")) is None
        assert connection.scalar(text("SELECT count(*) FROM results")) == 2
    if store.engine.dialect.name == "sqlite":
        copy = connect(f"sqlite:///{tmp_path}/store.db.before-{migrations.HEAD}")
        assert Store(copy).job(job_id).counts.waiting == 2
        copy.dispose()
        with pytest.raises(StoreError, match="FOREIGN KEY"), writing(store.engine) as connection:
            connection.execute(insert(cells), {**_CELL, "job_id": "nope"})


@pytest.mark.parametrize(
    "failure", ['raise ValueError("broken")', 'op.execute("INSERT INTO nowhere VALUES (1)")'], ids=["code", "sql"]
)
def test_a_migration_that_fails_changes_nothing(
    store: Store, job: Callable[..., JobSpec], newer: Callable[[str], Path], failure: str
) -> None:
    """Its DDL is rolled back too, and the store works on."""
    job_id = store.submit(job(1))
    with pytest.raises((ValueError, StoreError)):
        migrations.upgrade(store.engine, newer(failure), "9999")
    with reading(store.engine) as connection:
        assert migrations.revision(connection) == migrations.HEAD
        assert "note" not in {column["name"] for column in inspect(connection).get_columns("jobs")}
    assert store.job(job_id).counts.waiting == 1


def test_a_migration_that_orphans_rows_changes_nothing(
    store: Store, job: Callable[..., JobSpec], newer: Callable[[str], Path]
) -> None:
    """Foreign keys are off while it runs on SQLite, so they are checked before it commits."""
    job_id = store.submit(job(1))
    with pytest.raises(StoreError, match=r"parents|foreign key"):
        migrations.upgrade(store.engine, newer("op.execute(\"UPDATE cells SET job_id = 'nope'\")"), "9999")
    assert store.job(job_id).counts.waiting == 1


def test_a_database_of_the_first_version_keeps_its_job(database_url: str, tmp_path: Path) -> None:
    """Its work so far is counted, and what waited can be claimed."""
    folder = tmp_path / "first"
    shutil.copytree(migrations.FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.joinpath("versions").glob("0*.py"):
        if not path.name.startswith("0001"):
            path.unlink()
    engine = connect(database_url)
    migrations.upgrade(engine, folder, "0001")
    with writing(engine) as connection:
        for statement in _FIRST_JOB:
            connection.execute(text(statement))

    migrations.upgrade(engine)
    store = Store(engine)
    record = store.job("j")
    assert (record.worked_s, record.counts.done, record.counts.waiting) == (2.5, 1, 1)
    claim = store.claim("mac/1")
    assert claim is not None and claim.item.text == "dwa"
    with reading(engine) as connection:
        # The words of a search are in a table of each database's own kind, and in those that it makes for itself.
        of_its_own = {"include_name": lambda name, *_: name is None or not name.startswith("passage_words")}
        assert compare_metadata(MigrationContext.configure(connection, opts=of_its_own), metadata) == []
    engine.dispose()


def test_a_newer_schema_is_refused(open_here: Callable[[], Store], newer: Callable[[str], Path]) -> None:
    """And not touched."""
    engine = open_here().engine
    migrations.upgrade(engine, newer(""), "9999")
    with pytest.raises(SchemaTooNew, match="9999"):
        open_here()
    with reading(engine) as connection:
        assert migrations.revision(connection) == "9999"


def test_a_database_of_something_else_is_refused(open_here: Callable[[], Store], database_url: str) -> None:
    """Its tables stay as they are."""
    engine = connect(database_url)
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE jobs (x INTEGER)"))
    with pytest.raises(StoreError, match="jobs"):
        open_here()
    with reading(engine) as connection:
        assert connection.execute(text("SELECT x FROM jobs")).all() == []
    engine.dispose()


def test_home_and_files_are_for_their_owner_only(tmp_path: Path) -> None:
    """The documents are private: also the log beside the database."""
    home = tmp_path / "home"
    store = open_store(load_settings({"NOCKA_HOME": str(home)}))
    with writing(store.engine) as connection:
        connection.execute(insert(jobs), {**_JOB, "created_at": utc_now()})
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
    store.close()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {"nocka.db", "nocka.db-wal", "schema.lock"} <= set(modes)
    assert set(modes.values()) == {0o600}


def test_sqlite_is_set_up_for_two_sides(tmp_path: Path) -> None:
    """Write-ahead log, full sync, foreign keys and ten seconds of patience, on every connection."""
    engine = connect(f"sqlite:///{tmp_path / 'a.db'}")
    with reading(engine) as one, reading(engine) as two:
        for connection in (one, two):
            names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            values = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]
            assert values == ["wal", 2, 1, 10_000]
        assert one.exec_driver_sql("SELECT sqlite_version()").scalar() == sqlite_version(engine)
    engine.dispose()


def test_a_reader_waits_for_no_writer(store: Store, job: Callable[..., JobSpec]) -> None:
    """`status` answers while a job is being written."""
    job_id = store.submit(job(1))
    with writing(store.engine) as connection:
        connection.execute(text("UPDATE jobs SET name = 'later'"))
        assert store.job(job_id).name == "próba"
    assert store.job(job_id).name == "later"


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("sqlite://", "a file"),
        ("sqlite:///:memory:", "a file"),
        ("mysql://me:secret@host/db", "no database nocka can use"),
        ("what", "cannot be read"),
        ("sqlite:////proc/nowhere/x.db", "cannot use"),
    ],
)
def test_a_url_that_is_no_store_is_refused(url: str, complaint: str, tmp_path: Path) -> None:
    """In words, without a password, and never as a driver's own error."""
    environ = {"NOCKA_HOME": str(tmp_path / "home")}
    settings = dataclasses.replace(load_settings(environ), database_url=url)
    with pytest.raises(StoreError, match=complaint) as caught:
        open_store(settings)
    assert "secret" not in str(caught.value)


_JOB = {"id": "j", "kind": "generation", "name": "n", "state": "waiting", "priority": 0, "nocka_version": "0"}
_CELL = {"position": 9, "label": "l", "target": "t", "drafter": "off", "k": 0, "spec": {}}
_FIRST_JOB = [
    "INSERT INTO jobs (id, kind, name, state, priority, created_at, nocka_version)"
    " VALUES ('j', 'generation', 'n', 'running', 0, '2026-11-01 20:00:00.000000', '0.1.0')",
    "INSERT INTO cells (id, job_id, position, label, target, drafter, k, spec)"
    """ VALUES (1, 'j', 0, 'plain', 't', 'off', 0, '{"target": "t"}')""",
    "INSERT INTO items (id, job_id, position, custom_id, text, overrides)"
    " VALUES (1, 'j', 0, 'a', 'raz', '{}'), (2, 'j', 1, 'b', 'dwa', '{}')",
    "INSERT INTO results (id, job_id, item_id, cell_id, turn, state, attempts, fence, prefill_s, decode_s)"
    " VALUES (1, 'j', 1, 1, 0, 'done', 1, 1, 0.5, 2.0), (2, 'j', 2, 1, 1, 'waiting', 0, 0, NULL, NULL)",
]
