"""What several verbs of the store have in common. Each step runs inside its caller's transaction."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import Connection, select, update

from db import queries, statements
from db.errors import NotFound
from db.records import JobRecord
from db.status import (
    RESULT_TRANSITIONS,
    AttemptOutcome,
    JobState,
    ResultState,
    may_become,
)
from db.tables import attempts, jobs, results

#: What a result that nobody works on any more goes back to.
WAITING_AGAIN = {"state": ResultState.WAITING, "worker": None, "claimed_at": None}


def lock_job(connection: Connection, job_id: str) -> JobState:
    """Hold the job's row until the transaction ends and return its state. Raises NotFound."""
    state = connection.scalar(statements.LOCK_JOB, {"of_job": job_id})
    if state is None:
        raise no_such_job(job_id)
    return JobState(state)


def require_job(connection: Connection, job_id: str) -> None:
    """Raise NotFound unless there is such a job."""
    if connection.scalar(select(jobs.c.id).where(jobs.c.id == job_id)) is None:
        raise no_such_job(job_id)


def read_job(connection: Connection, job_id: str) -> JobRecord:
    return queries.to_job(connection.execute(queries.job_rows(jobs.c.id == job_id)).one())


def end_attempts(
    connection: Connection,
    result_ids: Any,
    outcome: AttemptOutcome,
    now: dt.datetime,
    error_code: str | None = None,
) -> None:
    """End the running attempts at *result_ids*, a query."""
    connection.execute(
        update(attempts)
        .where(attempts.c.result_id.in_(result_ids), attempts.c.outcome == AttemptOutcome.RUNNING)
        .values(outcome=outcome, ended_at=now, error_code=error_code)
    )


def end_unfinished(
    connection: Connection,
    job_id: str,
    ending: tuple[ResultState, AttemptOutcome],
    now: dt.datetime,
    error: dict[str, str] | None = None,
) -> None:
    """End what waits and what runs; the raised fence keeps a running worker from committing."""
    (state, outcome), error = ending, error or {}
    open_states = may_become(RESULT_TRANSITIONS, state, {ResultState.WAITING, ResultState.RUNNING})
    chosen = (results.c.job_id == job_id) & results.c.state.in_(open_states)
    end_attempts(connection, select(results.c.id).where(chosen), outcome, now, error.get("error_code"))
    values = {"state": state, "fence": results.c.fence + 1, "finished_at": now, **error}
    connection.execute(update(results).where(chosen).values(values))


def close_if_ended(connection: Connection, job_id: str, now: dt.datetime) -> None:
    """Set the job done when its last result has ended."""
    connection.execute(statements.CLOSE_IF_ENDED, {"of_job": job_id, "at": now})


def no_such_job(ref: str) -> NotFound:
    return NotFound(f"there is no job {ref!r}", "Type: nocka jobs")
