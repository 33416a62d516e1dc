"""A URL becomes an engine, and an engine a store. Every difference between SQLite and Postgres lives here."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from db import migrations
from db.errors import NotFound, StoreError
from db.settings import Settings
from db.store import Store
from db.transactions import READING

#: How long a writer waits for another one.
BUSY_TIMEOUT_MS = 10_000
#: What a checkpoint leaves of the write-ahead log.
JOURNAL_SIZE_LIMIT_BYTES = 64 * 1024 * 1024


def open_store(settings: Settings) -> Store:
    """Make the home, connect, and bring the schema up to date. Raises StoreError, SchemaTooNew."""
    try:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(settings.home / "schema.lock"):
            engine = connect(settings.database_url)
            try:
                migrations.upgrade(engine)
            except BaseException:
                engine.dispose()
                raise
    except OSError as error:
        raise StoreError(f"cannot use {settings.home}: {error}") from error
    return Store(engine)


@contextlib.contextmanager
def as_it_is(settings: Settings) -> Iterator[Engine]:
    """The database as it stands, whatever its schema. Raises StoreError, and NotFound where there is no file."""
    path = settings.database_url.removeprefix("sqlite:///")
    if path != settings.database_url and not Path(path).exists():
        raise NotFound(f"there is no database at {path} yet", "Type: nocka submit --help")
    engine = connect(settings.database_url)
    try:
        yield engine
    finally:
        engine.dispose()


def connect(url: str) -> Engine:
    """Make an engine for a `sqlite:///` or `postgresql://` URL. Raises StoreError for any other."""
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed)
        if parsed.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
            return _postgres(parsed.set(drivername="postgresql+psycopg"))
    except (ArgumentError, NoSuchModuleError) as error:
        raise StoreError("the database URL cannot be read") from error
    except ImportError as error:
        raise StoreError(f"no driver for this database: {error}", "Type: pip install 'psycopg[binary]'") from error
    raise StoreError(f"{parsed.drivername} is no database nocka can use", "Use sqlite:/// or postgresql://.")


def sqlite_version(engine: Engine) -> str | None:
    """The SQLite that reads and writes the file; None on Postgres."""
    return engine.dialect.dbapi.sqlite_version if engine.dialect.name == "sqlite" else None  # type: ignore[union-attr]


def _sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise StoreError("the store must be a file, not a database in memory")
    path = Path(url.database)
    # SQLite gives the log and the shared memory beside the file the file's own mode.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    engine = create_engine(url, module=_sqlite_module(), json_serializer=_dump)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _sqlite_module() -> Any:
    """pysqlite3 where it is installed: SQLite before 3.51.3 may lose commits when two connections share a log.

    Every process of one install takes the same one, for two builds must never share a log either.
    """
    name = "pysqlite3.dbapi2" if importlib.util.find_spec("pysqlite3") else "sqlite3.dbapi2"
    return importlib.import_module(name)


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself: `_begin_sqlite` does
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    mode = cursor.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(f"SQLite keeps its journal in mode {mode} here", "Put the database on a local disk.")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA fullfsync = ON")  # macOS: without it a power cut may still take what was synced
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute(f"PRAGMA journal_size_limit = {JOURNAL_SIZE_LIMIT_BYTES}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A deferred transaction that turns into a writer fails at once when another wrote meanwhile, whatever the timeout.
    read_only = connection.get_execution_options().get(READING, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


def _postgres(url: URL) -> Engine:
    engine = create_engine(url, json_serializer=_dump, pool_pre_ping=True)
    event.listen(engine, "begin", _begin_postgres)
    return engine


def _begin_postgres(connection: Connection) -> None:
    if connection.get_execution_options().get(READING, False):
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


#: Letters stay letters, for whoever reads the file with plain SQL; NaN, which JSON has not, is refused.
_dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process of this home at a time looks at the schema; the lock goes with the process."""
    with open(path, "a", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
