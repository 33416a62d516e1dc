"""Looking after the database: copy, check, vacuum. Each is safe beside a running worker."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from db import migrations
from db.errors import NotAllowed, StoreError
from db.transactions import reading, translated_errors

#: Problems `check` lists of each kind: a broken file has thousands.
LISTED = 20


def back_up(engine: Engine, path: Path) -> None:
    """Copy the database to *path*, which must not exist, while others go on writing. Raises NotAllowed, StoreError."""
    if engine.dialect.name != "sqlite":
        raise NotAllowed("nocka copies SQLite files only", "For Postgres use: pg_dump")
    dbapi: Any = engine.dialect.dbapi
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            with _driver(engine) as driver, contextlib.closing(dbapi.connect(str(path))) as copy:
                driver.backup(copy)
        except BaseException:
            path.unlink()
            raise
    except FileExistsError as error:
        raise NotAllowed(f"{path} exists already; it was left alone") from error
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}") from error


def schema(engine: Engine) -> str | None:
    """The revision of the database's schema; None for an empty one."""
    with reading(engine) as connection:
        return migrations.revision(connection)


def check(engine: Engine) -> list[str]:
    """Every problem of the database in words; an empty list for a sound one. Changes nothing."""
    try:
        found = schema(engine)
        problems = [] if engine.dialect.name != "sqlite" else _check_sqlite(engine)
    except StoreError as error:
        return [error.message]
    if found != migrations.HEAD:
        problems.append(f"the schema is {found or 'missing'}; this nocka needs {migrations.HEAD}")
    return problems


def _check_sqlite(engine: Engine) -> list[str]:
    with _driver(engine) as driver:
        broken = [row[0] for row in driver.execute(f"PRAGMA integrity_check({LISTED})") if row[0] != "ok"]
        orphans = driver.execute("PRAGMA foreign_key_check").fetchmany(LISTED)
    return broken + [f"row {row} of {table} has no parent in {parent}" for table, row, parent, _ in orphans]


def vacuum(engine: Engine) -> None:
    """Give back the room that deleted rows left. Waits for writers; raises StoreError when they do not let go."""
    if engine.dialect.name == "sqlite":
        with _driver(engine) as driver:
            driver.execute("VACUUM")
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    with translated_errors(), engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM")


@contextlib.contextmanager
def _driver(engine: Engine) -> Iterator[Any]:
    """The driver's own connection, outside any transaction."""
    dbapi: Any = engine.dialect.dbapi
    with translated_errors(), engine.connect() as connection:
        try:
            yield connection.connection.driver_connection
        except dbapi.Error as error:
            raise StoreError(f"the database refused: {error}") from error
