"""Rows in, frozen records out: what the store reads. Holds no connection and changes nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, case, func, select

from db.parting import NEAR_TIE, SAME_AS_PLAIN
from db.records import Claim, Counts, EvaluationTotals, JobRecord, ResultRecord
from db.schedule import Schedule, Standing
from db.specs import TASKS, CellSpec, DrafterKind, ItemSpec, JobKind
from db.statements import ITEM, ITEM_COLUMNS
from db.status import JobState, ResultState
from db.tables import cells, items, jobs, results

#: The figure that says how many models were loaded for a result.
MODEL_LOADS = "model_loads"


def standing_of(row: Row[Any], now: dt.datetime, running_s: float = 0.0) -> Standing:
    """What the clock says to the job of *row*, of which an attempt has been running for *running_s*."""
    if row.schedule is None:
        return Standing.DUE
    return Schedule.model_validate(row.schedule).standing(now, row.worked_s + running_s)


def job_cells(job_id: str) -> Select[Any]:
    """The job's cells in order."""
    return select(cells.c.id, cells.c.spec).where(cells.c.job_id == job_id).order_by(cells.c.position)


def answer_beside(result_id: int, cell_id: int) -> Select[Any]:
    """The finished answer of the same item under another cell."""
    item_id = select(results.c.item_id).where(results.c.id == result_id).scalar_subquery()
    return select(results.c.text, results.c.metrics).where(
        results.c.item_id == item_id, results.c.cell_id == cell_id, results.c.state == ResultState.DONE
    )


def plain_speeds(target: str) -> Select[Any]:
    """Tokens per second of the plain answers that *target* gave here, the latest first."""
    return (
        select(results.c.tokens_per_s)
        .join(cells, cells.c.id == results.c.cell_id)
        .where(cells.c.target == target, cells.c.drafter == DrafterKind.OFF, results.c.tokens_per_s.is_not(None))
        .order_by(results.c.id.desc())
    )


def to_claim(row: Row[Any]) -> Claim:
    item = _to_item(row)
    assert item is not None, "an item without input is never waiting"
    return Claim(
        result_id=row.id,
        fence=row.fence,
        attempt=row.attempts,
        job_id=row.job_id,
        job_kind=JobKind(row.kind),
        cell_id=row.cell_id,
        cell=CellSpec.model_validate(row.spec),
        item=item,
        task=None if row.task is None else TASKS[JobKind(row.kind)].model_validate(row.task),
    )


def job_rows(chosen: ColumnElement[bool]) -> Select[Any]:
    """The chosen jobs with counts and totals, newest first, in one query."""
    counts = [
        func.count(case((results.c.state == state, results.c.id))).label(f"count_{state.value}")
        for state in ResultState
    ]

    def own(figure: ColumnElement[Any]) -> ColumnElement[Any]:
        """Of what was generated here, not copied."""
        return case((results.c.reused_from.is_(None), figure))

    def evaluated(figure: ColumnElement[Any]) -> ColumnElement[Any]:
        """Of evaluations alone: no other job's wide columns are read."""
        return case((jobs.c.kind == JobKind.EVALUATION, figure))

    same = evaluated(results.c.scores[SAME_AS_PLAIN].as_float())
    # An equal text may be of other tokens, which is no difference.
    near_tie = case((same == 0.0, results.c.scores[NEAR_TIE].as_float()))
    return (
        select(
            jobs,
            *counts,
            func.count(same).label("compared"),
            func.coalesce(func.sum(same), 0).label("same"),
            func.coalesce(func.sum(near_tie), 0).label("near_ties"),
            func.coalesce(func.sum(evaluated(results.c.metrics[MODEL_LOADS].as_integer())), 0).label("model_loads"),
            func.count(results.c.reused_from).label("reused"),
            func.coalesce(func.sum(own(results.c.prompt_tokens)), 0).label("prompt_tokens"),
            func.coalesce(func.sum(own(results.c.completion_tokens)), 0).label("completion_tokens"),
            func.coalesce(func.sum(own(results.c.prefill_s + results.c.decode_s)), 0.0).label("busy_s"),
            func.max(results.c.finished_at).label("progress_at"),
        )
        .outerjoin(results, results.c.job_id == jobs.c.id)
        .where(chosen)
        .group_by(jobs.c.id)
        .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
    )


def newest_jobs(limit: int | None) -> Select[Any]:
    return select(jobs.c.id).order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(limit)


def to_job(row: Row[Any]) -> JobRecord:
    return JobRecord(
        id=row.id,
        kind=JobKind(row.kind),
        name=row.name,
        state=JobState(row.state),
        priority=row.priority,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        error_code=row.error_code,
        error_message=row.error_message,
        counts=Counts(**{state.value: getattr(row, f"count_{state.value}") for state in ResultState}),
        reused=row.reused,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        busy_s=row.busy_s,
        worked_s=row.worked_s,
        reused_tokens=row.reused_tokens,
        schedule=None if row.schedule is None else Schedule.model_validate(row.schedule),
        progress_at=row.progress_at,
        evaluation=_to_totals(row) if row.kind == JobKind.EVALUATION else None,
    )


def _to_totals(row: Row[Any]) -> EvaluationTotals:
    return EvaluationTotals(
        compared=row.compared, same=int(row.same), near_ties=int(row.near_ties), model_loads=row.model_loads
    )


def result_rows(job_id: str, states: Collection[ResultState] | None = None) -> Select[Any]:
    """The job's results with their items and cells, in turn order."""
    chosen = results.c.job_id == job_id
    if states is not None:
        chosen = and_(chosen, results.c.state.in_(states))
    return (
        select(
            results,
            *ITEM,
            items.c.position.label("item_position"),
            cells.c.position.label("cell_position"),
            cells.c.label.label("cell_label"),
        )
        .join(items, items.c.id == results.c.item_id)
        .join(cells, cells.c.id == results.c.cell_id)
        .where(chosen)
        .order_by(results.c.turn)
    )


def to_result(row: Row[Any]) -> ResultRecord:
    return ResultRecord(
        id=row.id,
        job_id=row.job_id,
        custom_id=row.item_custom_id,
        item_position=row.item_position,
        item=_to_item(row),
        cell_id=row.cell_id,
        cell_position=row.cell_position,
        cell_label=row.cell_label,
        state=ResultState(row.state),
        attempts=row.attempts,
        reused_from=row.reused_from,
        text=row.text,
        finish_reason=row.finish_reason,
        error_code=row.error_code,
        error_message=row.error_message,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        tokens_per_s=row.tokens_per_s,
        rounds=row.rounds,
        acceptance_rate=row.acceptance_rate,
        metrics=row.metrics or {},
        scores=row.scores or {},
        config=row.config or {},
        finished_at=row.finished_at,
    )


def _to_item(row: Row[Any]) -> ItemSpec | None:
    """The item as it was submitted; None for a rejected one, which has no input."""
    if row.item_messages is None and row.item_text is None:
        return None
    return ItemSpec.model_validate({name: getattr(row, f"item_{name}") for name in ITEM_COLUMNS})
