"""The store: its verbs for clients are here (submit, read, cancel, pause, retry), those for workers in `db/work.py`.

Every verb is one transaction. On Postgres each that changes results locks their job's row first, so that two of them
never wait for each other and the last to end a result is the one that closes the job; SQLite has one writer anyway.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Sequence

from sqlalchemy import Connection, Engine, func, select, update

from db import queries
from db.content import content
from db.errors import NotAllowed, NotFound
from db.records import JobRecord, ResultRecord, Stored
from db.reuse import reuse_answers, same_job
from db.schedule import Schedule
from db.specs import CellSpec, JobKind, JobSpec
from db.status import (
    JOB_ENDED,
    JOB_TRANSITIONS,
    RESULT_TRANSITIONS,
    RETRYABLE,
    AttemptOutcome,
    JobState,
    ResultState,
    may_become,
)
from db.steps import WAITING_AGAIN, close_if_ended, end_unfinished, lock_job, no_such_job, read_job, require_job
from db.submission import write_job, write_more_cells
from db.tables import cells, items, jobs, results
from db.transactions import reading, writing
from db.work import Work

#: Results read in one transaction: a long one would keep the write-ahead log from being emptied.
PAGE = 200
#: Matches an ambiguous prefix lists.
LISTED = 8


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Store(Work):
    """Every job, item and result. Any verb raises StoreError when the database cannot be used."""

    def __init__(self, engine: Engine, now: Callable[[], dt.datetime] = utc_now) -> None:
        super().__init__(engine, now)

    def close(self) -> None:
        """Close every connection; the store can be used again."""
        self.engine.dispose()

    def submit(self, spec: JobSpec) -> str:
        """Write the whole job as a new one; return its id. A job whose items were all rejected is done at once."""
        hashes = content(spec)
        with writing(self.engine) as connection:
            return write_job(connection, spec, self._now(), hashes)

    def submit_once(self, spec: JobSpec) -> Stored:
        """Submit what is not there yet: the same job again is that job, and an answer that is there is copied.

        The same job is one with the same answers to the same ids that did not fail and was not cancelled; its own
        priority and schedule stand. Evaluations are always new: they are there for their figures.
        """
        hashes = content(spec)
        if hashes is None:
            return Stored(job_id=self.submit(spec), existed=False, reused=0)
        with writing(self.engine) as connection:
            same = same_job(connection, hashes.job)
            if same is not None:
                return Stored(job_id=same, existed=True, reused=0)
            now = self._now()
            job_id = write_job(connection, spec, now, hashes)
            reused = reuse_answers(connection, job_id, now)
            close_if_ended(connection, job_id, now)
            return Stored(job_id=job_id, existed=False, reused=reused)

    def jobs(self, limit: int | None = None) -> list[JobRecord]:
        """Read the jobs with their progress, newest first."""
        with reading(self.engine) as connection:
            chosen = jobs.c.id.in_(queries.newest_jobs(limit)) if limit is not None else jobs.c.id.is_not(None)
            return [queries.to_job(row) for row in connection.execute(queries.job_rows(chosen))]

    def find(self, ref: str) -> str:
        """Name a job by id, unique prefix of one, or `last`. Raises NotFound, also for an ambiguous prefix."""
        with reading(self.engine) as connection:
            return _resolve(connection, ref)

    def job(self, ref: str) -> JobRecord:
        """Read a job with its progress, named as in `find`. Raises NotFound."""
        with reading(self.engine) as connection:
            return read_job(connection, _resolve(connection, ref))

    def cells(self, job_id: str) -> list[CellSpec]:
        """Read the job's cells in their order. Raises NotFound."""
        with reading(self.engine) as connection:
            require_job(connection, job_id)
            specs = connection.scalars(select(cells.c.spec).where(cells.c.job_id == job_id).order_by(cells.c.position))
            return [CellSpec.model_validate(spec) for spec in specs]

    def plain_speeds(self, target: str, limit: int = 100) -> list[float]:
        """Tokens per second of the latest *limit* plain answers of *target*, in any job."""
        with reading(self.engine) as connection:
            return list(connection.scalars(queries.plain_speeds(target).limit(limit)))

    def results(self, job_id: str, *, states: Collection[ResultState] | None = None) -> Iterator[ResultRecord]:
        """Read the job's results in turn order, those in *states* or all; no lock is held between two of them."""
        with reading(self.engine) as connection:
            require_job(connection, job_id)
        return self._pages(job_id, states)

    def _pages(self, job_id: str, states: Collection[ResultState] | None) -> Iterator[ResultRecord]:
        query = queries.result_rows(job_id, states).limit(PAGE)
        last_turn = -1
        while True:
            with reading(self.engine) as connection:
                rows = connection.execute(query.where(results.c.turn > last_turn)).all()
            if not rows:
                return
            last_turn = rows[-1].turn
            yield from (queries.to_result(row) for row in rows)

    def result(self, job_id: str, custom_id: str) -> list[ResultRecord]:
        """Read one item's results, one per cell. Raises NotFound."""
        with reading(self.engine) as connection:
            require_job(connection, job_id)
            rows = connection.execute(queries.result_rows(job_id).where(items.c.custom_id == custom_id)).all()
        if not rows:
            raise NotFound(f"job {job_id} has no item {custom_id!r}", f"Type: nocka results {job_id}")
        return [queries.to_result(row) for row in rows]

    def add_cells(self, job_id: str, more: Sequence[CellSpec]) -> int:
        """Run the items of an evaluation under *more* cells too; return how many results that is.

        What it has stays, its deadline and hours are lifted as by `retry`. Raises NotFound, NotAllowed where the job
        is no evaluation, was cancelled or failed.
        """
        with writing(self.engine) as connection:
            state = lock_job(connection, job_id)
            kind = connection.scalar(select(jobs.c.kind).where(jobs.c.id == job_id))
            if kind != JobKind.EVALUATION:
                raise NotAllowed(f"job {job_id} is a {kind}; cells are added to an evaluation")
            if state in {JobState.CANCELLED, JobState.FAILED}:
                raise NotAllowed(f"job {job_id} is {state.value}", f"Type: nocka retry {job_id}, or submit it anew")
            before = connection.scalar(select(func.count()).where(cells.c.job_id == job_id)) or 0
            count = write_more_cells(connection, job_id, before, more)
            if count and state in may_become(JOB_TRANSITIONS, JobState.WAITING, JOB_ENDED):
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(_JOB_WAITING))
                self._renew_schedule(connection, job_id)
            return count

    def cancel(self, job_id: str) -> JobRecord:
        """End the job and every unfinished result of it; again is fine. Raises NotFound, NotAllowed when it ended."""
        with writing(self.engine) as connection:
            state = lock_job(connection, job_id)
            if state in may_become(JOB_TRANSITIONS, JobState.CANCELLED):
                now = self._now()
                end_unfinished(connection, job_id, (ResultState.CANCELLED, AttemptOutcome.CANCELLED), now)
                ended = {"state": JobState.CANCELLED, "finished_at": now}
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(ended))
            elif state is not JobState.CANCELLED:
                raise NotAllowed(f"job {job_id} is {state.value} already; there is nothing to cancel")
            return read_job(connection, job_id)

    def pause(self, job_id: str) -> JobRecord:
        """Hold the job: none of it is claimed, what runs is given back. Raises NotFound, NotAllowed after its end."""
        return self._hold(job_id, JobState.PAUSED, "pause")

    def resume(self, job_id: str) -> JobRecord:
        """Let a paused job go on; one that is not paused stays as it is. Raises NotFound, NotAllowed when it ended."""
        return self._hold(job_id, JobState.WAITING, "resume")

    def _hold(self, job_id: str, target: JobState, verb: str) -> JobRecord:
        with writing(self.engine) as connection:
            state = lock_job(connection, job_id)
            if state in JOB_ENDED:
                raise NotAllowed(f"job {job_id} is {state.value} already; there is nothing to {verb}")
            if state in may_become(JOB_TRANSITIONS, target):
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(state=target))
            return read_job(connection, job_id)

    def retry(self, job_id: str, states: Collection[ResultState] = RETRYABLE) -> int:
        """Set results in *states* waiting again, with their job unless it is paused; return how many. Raises NotFound.

        *states* are of failed, cancelled and expired (ValueError). Their deaths are forgotten, attempts and work stay
        counted, and a deadline that passed or hours that were used up are lifted. Rejected items stay failed: they
        have no input.
        """
        with writing(self.engine) as connection:
            state = lock_job(connection, job_id)
            with_input = select(items.c.id).where(
                items.c.job_id == job_id, items.c.messages.is_not(None) | items.c.text.is_not(None)
            )
            again = may_become(RESULT_TRANSITIONS, ResultState.WAITING, states)
            count = connection.execute(
                update(results)
                .where(results.c.job_id == job_id, results.c.state.in_(again), results.c.item_id.in_(with_input))
                .values(**WAITING_AGAIN, deaths=0, finished_at=None, error_code=None, error_message=None)
            ).rowcount
            if count and state in may_become(JOB_TRANSITIONS, JobState.WAITING, JOB_ENDED):
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(_JOB_WAITING))
            if count:
                self._renew_schedule(connection, job_id)
            return count

    def _renew_schedule(self, connection: Connection, job_id: str) -> None:
        row = connection.execute(select(jobs.c.schedule, jobs.c.worked_s).where(jobs.c.id == job_id)).one()
        if row.schedule is not None:
            schedule = Schedule.model_validate(row.schedule).renewed(self._now(), row.worked_s)
            renewed = schedule.model_dump(mode="json") if schedule.limits else None
            connection.execute(update(jobs).where(jobs.c.id == job_id).values(schedule=renewed))


_JOB_WAITING = {
    "state": JobState.WAITING,
    "told_at": None,
    "finished_at": None,
    "error_code": None,
    "error_message": None,
}


def _resolve(connection: Connection, ref: str) -> str:
    ref = ref.strip().lower()
    if ref == "last":
        newest: str | None = connection.scalar(queries.newest_jobs(1))
        if newest is None:
            raise NotFound("there is no job yet", "Type: nocka submit --help")
        return newest
    # `startswith` is LIKE, so the hyphens and digits of an id are safe and anything else is escaped.
    matches = queries.newest_jobs(LISTED + 1).where(jobs.c.id.startswith(ref, autoescape=True))
    found: list[str] = list(connection.scalars(matches))
    if not found or not ref:
        raise no_such_job(ref)
    if len(found) > 1 and ref not in found:
        listed = ", ".join(found[:LISTED]) + (", ..." if len(found) > LISTED else "")
        raise NotFound(f"{ref!r} begins more than one job: {listed}")
    return ref if ref in found else found[0]
