"""The schema's history, and how a database is brought up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, column, inspect, select, table, text

from db.errors import SchemaTooNew, StoreError
from db.transactions import reading, translated_errors

#: The newest revision in `versions/`.
HEAD = "0006"

FOLDER = Path(__file__).parent
#: Any number that nobody else takes on the same Postgres.
ADVISORY_LOCK = 0x6E6F636B61


def upgrade(engine: Engine, folder: Path = FOLDER, head: str = HEAD) -> None:
    """Create or update the schema in one transaction. Raises SchemaTooNew for one that this version does not know."""
    with reading(engine) as connection:
        found = revision(connection)
    if found == head:
        return
    config = _config(folder)
    _refuse_unknown(config, found)
    if found is not None and engine.dialect.name == "sqlite":
        _back_up(engine, found)
    with translated_errors(), engine.connect() as connection:
        _set_foreign_keys(connection, on=False)
        try:
            with connection.begin():
                _migrate(connection, config)
        finally:
            _set_foreign_keys(connection, on=True)


def revision(connection: Connection) -> str | None:
    """The schema's revision; None for an empty database."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.scalar(select(column("version_num")).select_from(table("alembic_version")))


def _config(folder: Path) -> Any:
    from alembic.config import Config  # a third of a command's start-up time, and hardly ever needed

    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config


def _refuse_unknown(config: Any, found: str | None) -> None:
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise SchemaTooNew(
            f"the database has schema {found}; this nocka knows up to {max(known)}",
            "Update nocka, or point NOCKA_DATABASE_URL at another database.",
        )


def _migrate(connection: Connection, config: Any) -> None:
    from alembic import command

    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    if connection.dialect.name == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
        raise StoreError("the migration would leave rows without their parents; nothing was changed")


def _set_foreign_keys(connection: Connection, *, on: bool) -> None:
    # A table is altered on SQLite by dropping and remaking it, which would cascade to its children, and would fail
    # where a view reads it. The pragma means nothing inside a transaction, so it goes to the driver, past the
    # engine's BEGIN.
    driver = connection.connection.driver_connection
    if connection.dialect.name == "sqlite" and driver is not None:
        driver.execute(f"PRAGMA foreign_keys = {'ON' if on else 'OFF'}")
        driver.execute(f"PRAGMA legacy_alter_table = {'OFF' if on else 'ON'}")


def _back_up(engine: Engine, found: str) -> None:
    """Copy an older database beside itself before it is touched; a copy from an earlier try is kept."""
    path = Path(f"{engine.url.database}.before-{found}")
    if path.exists():
        return
    with translated_errors(), engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        try:
            driver.execute("VACUUM INTO ?", (str(path),))
        except driver.Error as error:
            raise StoreError(f"cannot copy the database to {path} before updating it: {error}") from error
    path.chmod(0o600)
