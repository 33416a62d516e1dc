"""Plain SQL of a person, asked of the database without any way to change it."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, text

from db.errors import InputError, StoreError
from db.transactions import reading

#: Rows read from the database at once.
_ROWS = 500
#: Steps of SQLite's machine between two looks at the clock.
_STEPS = 20_000
_COMMENT = re.compile(r"\s+|--[^\n]*(?:\n|$)|/\*.*?(?:\*/|$)", re.DOTALL)
_READS = ("select", "with", "values", "explain")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """What a query gives. Its rows are read once, while it is open."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


@contextlib.contextmanager
def ask(engine: Engine, sql: str, limit_s: float) -> Iterator[Table]:
    """Run one statement that reads, for *limit_s* seconds at most.

    Raises InputError where it is no such statement or the database does not understand it, StoreError when its time is
    up.
    """
    _refuse_writing(sql)
    opened = _sqlite(engine, limit_s) if engine.dialect.name == "sqlite" else _postgres(engine, limit_s)
    dbapi: Any = engine.dialect.dbapi
    begun = time.monotonic()
    try:
        with opened as execute:
            cursor = execute(sql)
            if cursor.description is None:
                raise InputError("the statement gives no rows")
            yield Table(columns=tuple(column[0] for column in cursor.description), rows=_rows(cursor))
    except (dbapi.Error, dbapi.Warning) as error:
        if time.monotonic() - begun >= limit_s:
            raise StoreError(f"the query was stopped after {limit_s:g} s", "Give it more: --timeout") from error
        raise InputError(f"the database refused: {str(error).strip()}") from error


def _refuse_writing(sql: str) -> None:
    at = 0
    while found := _COMMENT.match(sql, at):
        at = found.end()
    first = re.match(r"\(*\s*(\w*)", sql[at:])
    if first is None or first[1].lower() not in _READS:
        raise InputError("a query reads: it begins with SELECT, WITH, VALUES or EXPLAIN")


def _rows(cursor: Any) -> Iterator[tuple[Any, ...]]:
    while rows := cursor.fetchmany(_ROWS):
        yield from rows


@contextlib.contextmanager
def _sqlite(engine: Engine, limit_s: float) -> Iterator[Any]:
    """A connection of its own: the file is opened to be read, and every act but reading is denied."""
    dbapi: Any = engine.dialect.dbapi
    allowed = {dbapi.SQLITE_SELECT, dbapi.SQLITE_READ, dbapi.SQLITE_FUNCTION, dbapi.SQLITE_RECURSIVE}

    def authorize(action: int, first: str | None, *_: object) -> int:
        # The full-text index asks whether the file has changed.
        fine = action in allowed or (action == dbapi.SQLITE_PRAGMA and first == "data_version")
        return int(dbapi.SQLITE_OK if fine else dbapi.SQLITE_DENY)

    deadline = time.monotonic() + limit_s
    path = Path(str(engine.url.database)).absolute()
    uri = f"file:{quote(str(path))}?mode=ro"
    with contextlib.closing(dbapi.connect(uri, uri=True, timeout=limit_s, isolation_level=None)) as connection:
        connection.set_authorizer(authorize)
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        yield connection.execute


@contextlib.contextmanager
def _postgres(engine: Engine, limit_s: float) -> Iterator[Any]:
    """A read-only transaction. A prepared statement is one statement: none can end the transaction and go on."""
    with reading(engine) as connection:
        connection.execute(text(f"SET LOCAL statement_timeout = {max(1, round(limit_s * 1000))}"))
        driver: Any = connection.connection.driver_connection
        yield lambda sql: driver.execute(sql, prepare=True)
