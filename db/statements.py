"""What every claim and every end of a result say to the database, built once: building is dearer than running.

Parameters have names of their own, since those of columns would be taken for values to set.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Select, bindparam, exists, func, insert, or_, select, update

from db.specs import MAX_BATCH
from db.status import JOB_TRANSITIONS, RESULT_ENDED, RESULT_TRANSITIONS, JobState, ResultState, may_become
from db.tables import UtcDateTime, attempts, cells, items, jobs, results

#: A job in one of these may have a result claimed.
ACTIVE = [*may_become(JOB_TRANSITIONS, JobState.RUNNING), JobState.RUNNING]
#: A job in which a result is in one of these has not ended.
UNFINISHED = [state for state in ResultState if state not in RESULT_ENDED]
#: An item's columns under names that no other table's share.
ITEM_COLUMNS = ("custom_id", "messages", "text", "reference", "overrides", "dataset", "content_kind")
ITEM = [items.c[name].label(f"item_{name}") for name in ITEM_COLUMNS]

_JOB: BindParameter[str] = bindparam("of_job")
_RESULT: BindParameter[int] = bindparam("of_result")
_FENCE: BindParameter[int] = bindparam("under_fence")
_NOW = bindparam("at", type_=UtcDateTime())


def _among(column: ColumnElement[Any], states: list[Any]) -> ColumnElement[bool]:
    """As `in_`, without the list being written out anew at each execution; an index is used all the same."""
    return or_(*(column == state for state in states))


#: Ids, schedules and work so far of the jobs with waiting results, the most urgent first.
URGENT_JOBS: Select[Any] = (
    select(jobs.c.id, jobs.c.schedule, jobs.c.worked_s)
    .where(_among(jobs.c.state, ACTIVE))
    .where(exists().where(results.c.job_id == jobs.c.id, results.c.state == ResultState.WAITING))
    .order_by(jobs.c.priority.desc(), jobs.c.created_at, jobs.c.id)
)

#: The state of job *of_job*, whose row is held until the transaction ends.
LOCK_JOB = select(jobs.c.state).where(jobs.c.id == _JOB).with_for_update()


def _claim(*which: ColumnElement[bool]) -> Any:
    """Claims the job's first waiting result, those that killed a worker last.

    What another worker locked is passed over.
    """
    waiting = _among(results.c.state, may_become(RESULT_TRANSITIONS, ResultState.RUNNING))
    first: Select[Any] = (
        select(results.c.id)
        .where(results.c.job_id == _JOB, waiting, *which)
        .order_by(results.c.deaths, results.c.turn)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    counted = {"attempts": results.c.attempts + 1, "fence": results.c.fence + 1}
    return (
        update(results)
        .where(results.c.id == first.scalar_subquery())
        .values(state=ResultState.RUNNING, worker=bindparam("by"), claimed_at=_NOW, **counted)
        .returning(results.c.id, results.c.fence)
    )


#: For worker *by*, *at*; of any cell, or of cell *of_cell* alone.
CLAIM, CLAIM_OF_CELL = _claim(), _claim(results.c.cell_id == bindparam("of_cell"))

BEGIN_ATTEMPT = insert(attempts)

#: Job *of_job* runs from its first claim on.
START_JOB = (
    update(jobs)
    .where(jobs.c.id == _JOB, _among(jobs.c.state, may_become(JOB_TRANSITIONS, JobState.RUNNING)))
    .values(state=JobState.RUNNING, started_at=func.coalesce(jobs.c.started_at, _NOW))
)

#: All that a claim of *of_result* holds.
CLAIMED = (
    select(results.c.id, results.c.fence, results.c.attempts, results.c.job_id, results.c.cell_id)
    .add_columns(jobs.c.kind, jobs.c.task, cells.c.spec, *ITEM)
    .join(jobs, jobs.c.id == results.c.job_id)
    .join(cells, cells.c.id == results.c.cell_id)
    .join(items, items.c.id == results.c.item_id)
    .where(results.c.id == _RESULT)
)

_HELD = (results.c.id == _RESULT) & (results.c.fence == _FENCE) & (results.c.state == ResultState.RUNNING)

#: The job under a claim, and since when it stands; no row when it does not.
HELD_JOB: Select[Any] = (
    select(jobs.c.state.label("job_state"), jobs.c.schedule, jobs.c.worked_s, results.c.claimed_at)
    .join(results, results.c.job_id == jobs.c.id)
    .where(_HELD)
)

#: Changes a result that is held; no row when the claim is stale. The values come as parameters.
CHANGE_HELD = update(results).where(_HELD)

#: Ends the attempt that the claim was and says when it began. The values come as parameters.
END_ATTEMPT = (
    update(attempts).where(attempts.c.result_id == _RESULT, attempts.c.fence == _FENCE).returning(attempts.c.started_at)
)

_WORK = {
    "worked_s": jobs.c.worked_s + bindparam("seconds"),
    "reused_tokens": jobs.c.reused_tokens + bindparam("tokens"),
}
ADD_WORK = update(jobs).where(jobs.c.id == _JOB).values(_WORK)

#: Sets job *of_job* done when its last result has ended.
CLOSE_IF_ENDED = (
    update(jobs)
    .where(jobs.c.id == _JOB, _among(jobs.c.state, may_become(JOB_TRANSITIONS, JobState.DONE)))
    # Of states that are named an index finds the first; "none of those" reads all that have ended.
    .where(~exists().where(results.c.job_id == _JOB, _among(results.c.state, UNFINISHED)))
    .values(state=JobState.DONE, finished_at=_NOW)
)

# Through the primary key: a long job has many attempts, and this is asked every second.
_LATEST = select(attempts).order_by(attempts.c.id.desc()).limit(4 * MAX_BATCH).subquery()
_HOLDER = select(results.c.worker).where(results.c.id == _RESULT).scalar_subquery()

#: When the worker that holds *of_result* last ended a result, as far as its latest attempts tell.
ACCOUNTED_UNTIL = select(func.max(_LATEST.c.ended_at)).where(_LATEST.c.worker == _HOLDER)
