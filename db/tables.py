"""The tables. Jobs have cells and items; a result is one item under one cell and the unit of claim."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.types import TypeEngine


class UtcDateTime(TypeDecorator[dt.datetime]):
    """An aware datetime in UTC; a naive one is refused."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: Dialect) -> dt.datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without its zone")
        value = value.astimezone(dt.UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: dt.datetime | None, dialect: Dialect) -> dt.datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)


class Json(TypeDecorator[Any]):
    """JSON; None is no value. On Postgres JSONB, whose dialect is slow to load and loaded nowhere else."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name != "postgresql":
            return dialect.type_descriptor(JSON(none_as_null=True))
        from sqlalchemy.dialects.postgresql import JSONB

        return dialect.type_descriptor(JSONB(none_as_null=True))


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    Column("error_code", Text),
    Column("error_message", Text),
    Column("nocka_version", Text, nullable=False),
    # Seconds of work over every attempt that ended by itself or was given back; a dead worker's time is unknown.
    Column("worked_s", Float, nullable=False, server_default="0"),
    # Prompt tokens of its results that had been read for an earlier one.
    Column("reused_tokens", Integer, nullable=False, server_default="0"),
    # A `Schedule`; null for a job that is due at any time.
    Column("schedule", Json),
    # What a job makes that is not an answer; null for all others.
    Column("task", Json),
    # Equal for two submits of the same items under the same options; null where that means nothing.
    Column("content_hash", Text),
    # A shell command that gets the ended job's summary as JSON, and when it was run.
    Column("on_done", Text),
    Column("told_at", UtcDateTime),
    Index(None, "state", "priority", "created_at"),
    Index(None, "content_hash"),
)

cells = Table(
    "cells",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("label", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("draft", Text),
    Column("drafter", Text, nullable=False),
    Column("translation", Text),
    Column("k", Integer, nullable=False),
    Column("spec", Json, nullable=False),
    UniqueConstraint("job_id", "position"),
)

items = Table(
    "items",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("custom_id", Text, nullable=False),
    Column("messages", Json),
    Column("text", Text),
    Column("reference", Text),
    Column("overrides", Json, nullable=False),
    # Of all that the answer's text depends on, under the job's one cell; null where an answer is never reused.
    Column("content_hash", Text),
    # Of an evaluation: the data set it comes from and its kind of text (`structured`, `instruction`, `question`, ...).
    Column("dataset", Text),
    Column("content_kind", Text),
    UniqueConstraint("job_id", "custom_id"),
    Index(None, "content_hash"),
)

results = Table(
    "results",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("item_id", ForeignKey("items.id", ondelete="CASCADE"), nullable=False),
    Column("cell_id", ForeignKey("cells.id", ondelete="CASCADE"), nullable=False),
    # Order within the job: items outermost, so that every cell meets the same item minutes apart.
    Column("turn", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    # Attempts under which the worker died since the last `retry`; each sends the result to the end of its job.
    Column("deaths", Integer, nullable=False, server_default="0"),
    # Grows with each claim and never falls, so that a late worker cannot overwrite (attempts may be given back).
    Column("fence", Integer, nullable=False),
    Column("worker", Text),
    Column("claimed_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    Column("finish_reason", Text),
    Column("error_code", Text),
    # `JOB/ITEM` whose answer this is a copy of; its figures count there.
    Column("reused_from", Text),
    Column("prompt_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("tokens_per_s", Float),
    Column("rounds", Integer),
    Column("acceptance_rate", Float),
    Column("prefill_s", Float),
    Column("decode_s", Float),
    # Wide columns last: SQLite reads a row from its start, and totals need only what stands before.
    Column("error_message", Text),
    Column("text", Text),
    Column("metrics", Json),
    Column("config", Json),
    # Name of a scorer -> its score of this answer.
    Column("scores", Json),
    UniqueConstraint("item_id", "cell_id"),
    UniqueConstraint("job_id", "turn"),
    Index(None, "job_id", "state", "deaths", "turn"),
    Index(None, "state", "worker"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("result_id", ForeignKey("results.id", ondelete="CASCADE"), nullable=False),
    # The fence of the claim it was made under: unique, also where an attempt was given back.
    Column("fence", Integer, nullable=False),
    Column("worker", Text, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("outcome", Text, nullable=False),
    Column("error_code", Text),
    UniqueConstraint("result_id", "fence"),
)

# One row for each start of a worker. Past its lease it counts as vanished, and what it held is given back.
workers = Table(
    "workers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("machine", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
    Column("lease_until", UtcDateTime, nullable=False),
    # What it runs, and when that last got on: fresh beats under old progress are a stalled worker.
    Column("result_id", Integer),
    Column("progress_at", UtcDateTime),
)

# What one machine measured of one pair of models.
calibrations = Table(
    "calibrations",
    metadata,
    Column("id", Integer, primary_key=True),
    # A hash of target, draft, machine, dtype, BLAS or Metal, and versions: one of them changed means measured anew.
    Column("key", Text, nullable=False, unique=True),
    Column("target", Text, nullable=False),
    Column("draft", Text),
    Column("machine", Text, nullable=False),
    Column("measured_at", UtcDateTime, nullable=False),
    Column("figures", Json, nullable=False),
)

# Pieces of prompts and answers that a search can find; their words are in `passage_words`, made by the migration, for
# each database has its own kind of index.
passages = Table(
    "passages",
    metadata,
    # Never given twice: SQLite's index keeps the words of what was deleted.
    Column("id", Integer, primary_key=True),
    Column("item_id", ForeignKey("items.id", ondelete="CASCADE"), nullable=False),
    # Null where the passage is of the prompt.
    Column("result_id", ForeignKey("results.id", ondelete="CASCADE")),
    # Where it starts in its text, in characters.
    Column("start", Integer, nullable=False),
    Index(None, "item_id", "result_id"),
    Index(None, "result_id"),
    sqlite_autoincrement=True,
)
