"""Alembic runs this file for each command; the connection comes from `db.migrations.upgrade`."""

from __future__ import annotations

from alembic import context

from db.tables import metadata

# `transactional_ddl`: the engine begins its transactions itself, so that SQLite's DDL is rolled back too.
context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
