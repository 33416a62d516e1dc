"""The database is copied under a writer, its damage is found, and its unused room is given back."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from db import care, migrations
from db.connect import connect, open_store
from db.errors import NotAllowed, StoreError
from db.settings import load_settings
from db.specs import JobSpec
from db.store import Store
from db.transactions import writing


def on_sqlite(store: Store) -> bool:
    return store.engine.dialect.name == "sqlite"


def test_a_copy_made_under_a_writer_is_whole(
    store: Store, job: Callable[..., JobSpec], tmp_path: Path, open_here: Callable[[], Store]
) -> None:
    """It opens as a store, is sound, holds a consistent state, and is for its owner only."""
    if not on_sqlite(store):
        with pytest.raises(NotAllowed, match="pg_dump"):
            care.back_up(store.engine, tmp_path / "copy.db")
        return
    store.submit(job(3))
    copied = threading.Event()
    other = open_here()

    def write() -> None:
        while not copied.is_set():
            other.submit(job(3))

    writer = threading.Thread(target=write)
    writer.start()
    path = tmp_path / "copies" / "copy.db"
    try:
        care.back_up(store.engine, path)
    finally:
        copied.set()
        writer.join()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    copy = connect(f"sqlite:///{path}")
    assert care.check(copy) == []
    records = Store(copy).jobs()
    assert records and all(record.counts.waiting == 3 for record in records)
    copy.dispose()
    with pytest.raises(NotAllowed, match="left alone"):
        care.back_up(store.engine, path)


def test_a_sound_database_has_no_problems(store: Store, job: Callable[..., JobSpec]) -> None:
    """Also not after a vacuum, which keeps every row."""
    job_id = store.submit(job(3))
    care.vacuum(store.engine)
    assert care.check(store.engine) == []
    assert store.job(job_id).counts.waiting == 3


def test_rows_without_parents_and_another_schema_are_found(store: Store, job: Callable[..., JobSpec]) -> None:
    """In words."""
    if not on_sqlite(store):
        return
    store.submit(job(1))
    with store.engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.execute("PRAGMA foreign_keys = OFF")
        driver.execute("DELETE FROM items")
        driver.execute("PRAGMA foreign_keys = ON")
    with writing(store.engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    problems = care.check(store.engine)
    assert any("results has no parent in items" in problem for problem in problems)
    assert f"the schema is 0001; this nocka needs {migrations.HEAD}" in problems


def test_a_damaged_file_is_found(tmp_path: Path, job: Callable[..., JobSpec]) -> None:
    """Overwritten pages in the middle, and a file that is no database at all."""
    store = open_store(load_settings({"NOCKA_HOME": str(tmp_path / "home")}))
    store.submit(job(400))
    care.vacuum(store.engine)
    store.close()
    path = tmp_path / "home" / "nocka.db"
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * 8192)
    engine = connect(f"sqlite:///{path}")
    assert care.check(engine)
    engine.dispose()

    path.write_bytes(b"nothing of the kind" * 1000)
    assert "not a database" in " ".join(care.check(connect(f"sqlite:///{path}")))


def test_a_folder_that_cannot_be_written_is_said(store: Store) -> None:
    """And nothing is left behind."""
    if on_sqlite(store):
        with pytest.raises(StoreError, match="cannot write"):
            care.back_up(store.engine, Path("/proc/nowhere/copy.db"))
