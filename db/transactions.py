"""Reading and writing transactions on any engine that `connect` made; the database's own errors become StoreError."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from db.errors import StoreError

#: Execution option under which a transaction begins as a snapshot that waits for no writer.
READING = "nocka_reading"


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Hold the right to write from the start; commit at the end, or roll back on any error."""
    with translated_errors(), engine.begin() as connection:
        yield connection


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """See one consistent state of the store, without waiting for a writer."""
    with translated_errors(), engine.connect() as connection:
        connection.execution_options(**{READING: True})
        with connection.begin():
            yield connection


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Turn errors of the database and its driver into StoreError, without the statement and its documents."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise StoreError(f"the database refused: {str(cause).strip()}") from error
