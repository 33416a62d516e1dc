"""A job's rows, written in a handful of statements however many items it has."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, literal, select, true, update

from db.content import Content
from db.groups import groups
from db.specs import CellSpec, ItemSpec, JobSpec
from db.status import RESULT_TRANSITIONS, JobState, ResultState, may_become
from db.tables import cells, items, jobs, results

#: Digits and letters that are not mistaken for one another.
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"


def write_job(connection: Connection, spec: JobSpec, now: dt.datetime, content: Content | None) -> str:
    """Write job, cells, items and one waiting result per item and cell; rejected items end failed. Return the id.

    *content* are its hashes, None where answers are not reused.
    """
    job_id = _free_id(connection, now)
    ended = not spec.items
    connection.execute(
        insert(jobs),
        {
            "id": job_id,
            "kind": spec.kind,
            "name": spec.name,
            "state": JobState.DONE if ended else JobState.WAITING,
            "priority": spec.priority,
            "task": None if spec.task is None else spec.task.model_dump(mode="json"),
            "on_done": spec.on_done,
            "created_at": now,
            "finished_at": now if ended else None,
            "nocka_version": _version(),
            "content_hash": None if content is None else content.job,
            "schedule": spec.schedule.model_dump(mode="json") if spec.schedule.limits else None,
        },
    )
    connection.execute(insert(cells), [_cell_row(job_id, position, cell) for position, cell in enumerate(spec.cells)])
    rows = [_item_row(job_id, position, item) for position, item in enumerate(spec.items)]
    for row, content_hash in zip(rows, content.answers if content else (), strict=False):
        row["content_hash"] = content_hash
    rows += [
        {**_NO_INPUT, "job_id": job_id, "position": position, "custom_id": item.custom_id}
        for position, item in enumerate(spec.rejected, start=len(spec.items))
    ]
    connection.execute(insert(items), rows)
    _write_results(connection, job_id, spec.cells, len(rows))
    if spec.rejected:
        _fail_rejected(connection, job_id, spec, now)
    return job_id


def _free_id(connection: Connection, now: dt.datetime) -> str:
    """An id that sorts by time, to the second, and is short enough to type."""
    while True:
        tail = "".join(secrets.choice(_ALPHABET) for _ in range(4))
        job_id = f"{now.astimezone(dt.UTC):%Y%m%d-%H%M%S}-{tail}"
        if connection.scalar(select(jobs.c.id).where(jobs.c.id == job_id)) is None:
            return job_id


def _cell_row(job_id: str, position: int, cell: CellSpec) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "position": position,
        "label": cell.label,
        "target": cell.target,
        "draft": cell.draft,
        "drafter": cell.drafter,
        "translation": cell.translation,
        "k": cell.k,
        "spec": cell.model_dump(mode="json"),
    }


_NO_INPUT: dict[str, Any] = {"messages": None, "text": None, "reference": None, "overrides": {}}
_NO_INPUT |= {"content_hash": None, "dataset": None, "content_kind": None}


def _item_row(job_id: str, position: int, item: ItemSpec) -> dict[str, Any]:
    turns = item.messages
    return {
        "job_id": job_id,
        "position": position,
        "custom_id": item.custom_id,
        "messages": None if turns is None else [{"role": turn.role, "content": turn.content} for turn in turns],
        "text": item.text,
        "reference": item.reference,
        "overrides": item.overrides.model_dump(mode="json", exclude_none=True),
        "content_hash": None,
        "dataset": item.dataset,
        "content_kind": item.content_kind,
    }


def write_more_cells(connection: Connection, job_id: str, before: int, more: Sequence[CellSpec]) -> int:
    """Write cells behind the *before* that the job has, and a waiting result for each with each usable item of it.

    Return how many results.
    """
    rows = [_cell_row(job_id, before + at, cell) for at, cell in enumerate(more)]
    connection.execute(insert(cells), rows)
    item_count = connection.scalar(select(func.count()).where(items.c.job_id == job_id)) or 0
    return _write_results(connection, job_id, more, item_count, before)


def _write_results(
    connection: Connection, job_id: str, specs: Sequence[CellSpec], item_count: int, before: int = 0
) -> int:
    """Cross items with cells inside the database: group by group, items outermost in each. Return how many.

    *specs* follow the job's first *before* cells. What is added to a job leaves out items without an input.
    """
    written = 0
    columns = ["job_id", "item_id", "cell_id", "turn", "state", "attempts", "fence"]
    usable = items.c.messages.is_not(None) | items.c.text.is_not(None) if before else true()
    for group in groups(specs):
        first = before + group.start
        crossed = select(
            items.c.job_id,
            items.c.id,
            cells.c.id,
            first * item_count + items.c.position * len(group) + cells.c.position - first,
            literal(ResultState.WAITING.value),
            literal(0),
            literal(0),
        ).where(
            items.c.job_id == job_id,
            usable,
            cells.c.job_id == items.c.job_id,
            cells.c.position >= first,
            cells.c.position < first + len(group),
        )
        written += connection.execute(insert(results).from_select(columns, crossed)).rowcount
    return written


def _fail_rejected(connection: Connection, job_id: str, spec: JobSpec, now: dt.datetime) -> None:
    [waiting] = may_become(RESULT_TRANSITIONS, ResultState.FAILED, {ResultState.WAITING})
    item_id = select(items.c.id).where(items.c.job_id == job_id, items.c.custom_id == bindparam("rejected_id"))
    connection.execute(
        update(results)
        .where(
            results.c.item_id == item_id.scalar_subquery(),
            results.c.state == waiting,
        )
        .values(
            state=ResultState.FAILED,
            finished_at=now,
            error_code=bindparam("code"),
            error_message=bindparam("message"),
        ),
        [{"rejected_id": item.custom_id, "code": item.code, "message": item.message} for item in spec.rejected],
    )


def _version() -> str:
    try:
        return importlib.metadata.version("nocka")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
