"""Answers that are there already, copied into a new job. Runs inside its caller's transaction."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Connection, func, select, update

from db.status import RESULT_TRANSITIONS, JobState, ResultState, may_become
from db.tables import items, jobs, results

#: What an answer consists of.
_COPIED = (
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "tokens_per_s",
    "rounds",
    "acceptance_rate",
    "prefill_s",
    "decode_s",
    "text",
    "metrics",
    "config",
    "scores",
)
#: A job in one of these stands for the same one submitted again; one that failed or was cancelled does not.
_STANDING = [JobState.WAITING, JobState.RUNNING, JobState.PAUSED, JobState.DONE]


def same_job(connection: Connection, content_hash: str) -> str | None:
    """The newest job that was submitted with the same content."""
    chosen = select(jobs.c.id).where(jobs.c.content_hash == content_hash, jobs.c.state.in_(_STANDING))
    found: str | None = connection.scalar(chosen.order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(1))
    return found


def reuse_answers(connection: Connection, job_id: str, now: dt.datetime) -> int:
    """End each waiting result of the job that has an equal finished one with that one's answer; return how many."""
    source, source_items = results.alias("source"), items.alias("source_items")
    [waiting] = may_become(RESULT_TRANSITIONS, ResultState.DONE, {ResultState.WAITING})
    pairs = (
        select(results.c.id.label("id"), func.max(source.c.id).label("source_id"))
        .join(items, items.c.id == results.c.item_id)
        .join(source_items, source_items.c.content_hash == items.c.content_hash)
        .join(source, source.c.item_id == source_items.c.id)
        .where(results.c.job_id == job_id, results.c.state == waiting)
        # Of a copy the original is taken, which is as old or older.
        .where(source.c.state == ResultState.DONE, source.c.reused_from.is_(None))
        .group_by(results.c.id)
        .subquery("pairs")
    )
    copied = {name: source.c[name] for name in _COPIED}
    origin = source.c.job_id + "/" + source_items.c.custom_id
    return connection.execute(
        update(results)
        .where(results.c.id == pairs.c.id, source.c.id == pairs.c.source_id, source_items.c.id == source.c.item_id)
        .values(state=ResultState.DONE, finished_at=now, reused_from=origin, **copied)
    ).rowcount
