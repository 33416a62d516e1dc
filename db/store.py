"""The store's verbs: submit, read, cancel and retry for clients; claim, finish and give back for workers.

Every verb is one transaction. On Postgres each that changes results locks their job's row first, so that two of them
never wait for each other and the last to end a result is the one that closes the job; SQLite has one writer anyway.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator
from typing import Any

from sqlalchemy import Connection, Engine, exists, func, insert, select, update

from db import queries
from db.errors import NotAllowed, NotFound
from db.records import Claim, Finished, JobRecord, ResultRecord
from db.specs import CellSpec, JobSpec
from db.status import (
    JOB_ENDED,
    JOB_TRANSITIONS,
    RESULT_ENDED,
    RESULT_TRANSITIONS,
    AttemptOutcome,
    JobState,
    ResultState,
    may_become,
)
from db.submission import write_job
from db.tables import attempts, cells, items, jobs, results
from db.transactions import reading, writing

#: Results read in one transaction: a long one would keep the write-ahead log from being emptied.
PAGE = 200
#: Matches an ambiguous prefix lists.
LISTED = 8
#: Figures that have a column of their own.
LIFTED = (
    "prompt_tokens",
    "completion_tokens",
    "tokens_per_s",
    "rounds",
    "acceptance_rate",
    "prefill_s",
    "decode_s",
)


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Store:
    """Every job, item and result. Any verb raises StoreError when the database cannot be used."""

    def __init__(self, engine: Engine, now: Callable[[], dt.datetime] = utc_now) -> None:
        self.engine = engine
        self._now = now

    def close(self) -> None:
        """Close every connection; the store can be used again."""
        self.engine.dispose()

    # What a client does.

    def submit(self, spec: JobSpec) -> str:
        """Write the whole job; return its id. A job whose items were all rejected is done at once."""
        with writing(self.engine) as connection:
            return write_job(connection, spec, self._now())

    def jobs(self, limit: int | None = None) -> list[JobRecord]:
        """Read the jobs with their progress, newest first."""
        with reading(self.engine) as connection:
            chosen = jobs.c.id.in_(queries.newest_jobs(limit)) if limit is not None else jobs.c.id.is_not(None)
            return [queries.to_job(row) for row in connection.execute(queries.job_rows(chosen))]

    def job(self, ref: str) -> JobRecord:
        """Find a job by id, unique prefix of one, or `last`. Raises NotFound, also for an ambiguous prefix."""
        with reading(self.engine) as connection:
            return _job(connection, _resolve(connection, ref))

    def cells(self, job_id: str) -> list[CellSpec]:
        """Read the job's cells in their order. Raises NotFound."""
        with reading(self.engine) as connection:
            _require(connection, job_id)
            specs = connection.scalars(select(cells.c.spec).where(cells.c.job_id == job_id).order_by(cells.c.position))
            return [CellSpec.model_validate(spec) for spec in specs]

    def results(self, job_id: str, *, states: Collection[ResultState] | None = None) -> Iterator[ResultRecord]:
        """Read the job's results in turn order, those in *states* or all; no lock is held between two of them."""
        with reading(self.engine) as connection:
            _require(connection, job_id)
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
            _require(connection, job_id)
            rows = connection.execute(queries.result_rows(job_id).where(items.c.custom_id == custom_id)).all()
        if not rows:
            raise NotFound(f"job {job_id} has no item {custom_id!r}", f"Type: nocka results {job_id}")
        return [queries.to_result(row) for row in rows]

    def cancel(self, job_id: str) -> JobRecord:
        """End the job and every unfinished result of it; again is fine. Raises NotFound, NotAllowed when it ended."""
        with writing(self.engine) as connection:
            state = _lock(connection, job_id)
            if state in may_become(JOB_TRANSITIONS, JobState.CANCELLED):
                self._end_unfinished(connection, job_id, ResultState.CANCELLED, AttemptOutcome.CANCELLED)
                ended = {"state": JobState.CANCELLED, "finished_at": self._now()}
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(ended))
            elif state is not JobState.CANCELLED:
                raise NotAllowed(f"job {job_id} is {state.value} already; there is nothing to cancel")
            return _job(connection, job_id)

    def retry(self, job_id: str) -> int:
        """Set failed and cancelled results waiting again, with their job; return how many. Raises NotFound.

        Rejected items stay failed: they have no input.
        """
        with writing(self.engine) as connection:
            state = _lock(connection, job_id)
            with_input = select(items.c.id).where(
                items.c.job_id == job_id, items.c.messages.is_not(None) | items.c.text.is_not(None)
            )
            again = may_become(RESULT_TRANSITIONS, ResultState.WAITING, {ResultState.FAILED, ResultState.CANCELLED})
            count = connection.execute(
                update(results)
                .where(results.c.job_id == job_id, results.c.state.in_(again), results.c.item_id.in_(with_input))
                .values(**_WAITING, finished_at=None, error_code=None, error_message=None)
            ).rowcount
            if count and state in may_become(JOB_TRANSITIONS, JobState.WAITING, JOB_ENDED):
                connection.execute(update(jobs).where(jobs.c.id == job_id).values(_JOB_WAITING))
            return count

    # What a worker does.

    def claim(self, worker: str) -> Claim | None:
        """Take the most urgent waiting result and count the attempt; None when there is none.

        *worker* is `<machine>/...`, unique for each start.
        """
        with writing(self.engine) as connection:
            for job_id in connection.scalars(queries.urgent_jobs()).all():
                claim = self._claim_from(connection, job_id, worker)
                if claim is not None:
                    return claim
        return None

    def _claim_from(self, connection: Connection, job_id: str, worker: str) -> Claim | None:
        if _lock(connection, job_id) not in queries.ACTIVE:
            return None
        row = connection.execute(queries.next_result(job_id)).first()
        if row is None:
            return None
        now = self._now()
        fence = row.fence + 1
        connection.execute(
            update(results)
            .where(results.c.id == row.id, results.c.state.in_(may_become(RESULT_TRANSITIONS, ResultState.RUNNING)))
            .values(state=ResultState.RUNNING, attempts=row.attempts + 1, fence=fence, worker=worker, claimed_at=now)
        )
        attempt = {"result_id": row.id, "fence": fence, "worker": worker, "started_at": now}
        connection.execute(insert(attempts), {**attempt, "outcome": AttemptOutcome.RUNNING})
        connection.execute(
            update(jobs)
            .where(jobs.c.id == job_id, jobs.c.state.in_(may_become(JOB_TRANSITIONS, JobState.RUNNING)))
            .values(state=JobState.RUNNING, started_at=now)
        )
        return queries.to_claim(connection.execute(queries.claimed_result(row.id)).one())

    def finish(self, claim: Claim, finished: Finished) -> bool:
        """Commit the text, closing the job with its last result. False when the claim is stale: nothing is written."""
        values = {
            **{name: finished.metrics.get(name) for name in LIFTED},
            # Byte fallback can spell a NUL, which Postgres cannot hold.
            "text": finished.text.replace("\x00", "\N{REPLACEMENT CHARACTER}"),
            "finish_reason": finished.finish_reason,
            "metrics": finished.metrics,
            "config": finished.config,
            "finished_at": self._now(),
        }
        return self._settle(claim, ResultState.DONE, AttemptOutcome.DONE, values)

    def fail(self, claim: Claim, code: str, message: str) -> bool:
        """Commit the error, closing the job with its last result. False when the claim is stale: nothing is written."""
        values = {"error_code": code, "error_message": message.replace("\x00", ""), "finished_at": self._now()}
        return self._settle(claim, ResultState.FAILED, AttemptOutcome.FAILED, values)

    def give_back(self, claim: Claim) -> bool:
        """Set the result waiting again, the attempt not charged. False when the claim is stale: nothing is written."""
        values = {**_WAITING, "attempts": results.c.attempts - 1}
        return self._settle(claim, ResultState.WAITING, AttemptOutcome.GIVEN_BACK, values)

    def _settle(self, claim: Claim, state: ResultState, outcome: AttemptOutcome, values: dict[str, Any]) -> bool:
        running = may_become(RESULT_TRANSITIONS, state, {ResultState.RUNNING})
        with writing(self.engine) as connection:
            _lock(connection, claim.job_id)
            settled = connection.execute(
                update(results)
                .where(results.c.id == claim.result_id, results.c.fence == claim.fence, results.c.state.in_(running))
                .values({**values, "state": state})
            ).rowcount
            if not settled:
                return False
            now = self._now()
            connection.execute(
                update(attempts)
                .where(attempts.c.result_id == claim.result_id, attempts.c.fence == claim.fence)
                .values(outcome=outcome, ended_at=now, error_code=values.get("error_code"))
            )
            unfinished = exists().where(results.c.job_id == claim.job_id, results.c.state.not_in(RESULT_ENDED))
            connection.execute(
                update(jobs)
                .where(jobs.c.id == claim.job_id, jobs.c.state.in_(may_become(JOB_TRANSITIONS, JobState.DONE)))
                .where(~unfinished)
                .values(state=JobState.DONE, finished_at=now)
            )
            return True

    def reclaim(self, machine: str) -> int:
        """Set waiting what workers of *machine* held; return how many. Call only when none of them can be alive."""
        prefix = f"{machine}/"
        held = (results.c.state == ResultState.RUNNING) & (func.substr(results.c.worker, 1, len(prefix)) == prefix)
        with writing(self.engine) as connection:
            held_jobs = select(results.c.job_id).where(held)
            connection.execute(
                select(jobs.c.id).where(jobs.c.id.in_(held_jobs)).order_by(jobs.c.id).with_for_update()
            ).all()
            self._end_attempts(connection, select(results.c.id).where(held), AttemptOutcome.LOST)
            return connection.execute(update(results).where(held).values(_WAITING)).rowcount

    def holds(self, claim: Claim) -> bool:
        """Tell whether the claim still stands."""
        with reading(self.engine) as connection:
            state = connection.scalar(
                select(results.c.state).where(results.c.id == claim.result_id, results.c.fence == claim.fence)
            )
        return state == ResultState.RUNNING

    def fail_job(self, job_id: str, code: str, message: str) -> None:
        """End the job and every unfinished result of it with this error, all to be retried. Nothing once it ended."""
        with writing(self.engine) as connection:
            if _lock(connection, job_id) not in may_become(JOB_TRANSITIONS, JobState.FAILED):
                return
            error = {"error_code": code, "error_message": message}
            self._end_unfinished(connection, job_id, ResultState.FAILED, AttemptOutcome.FAILED, error)
            ended = {"state": JobState.FAILED, "finished_at": self._now(), **error}
            connection.execute(update(jobs).where(jobs.c.id == job_id).values(ended))

    def next_job(self) -> str | None:
        """Name the most urgent job with waiting results; None when there is none."""
        with reading(self.engine) as connection:
            job_id: str | None = connection.scalar(queries.urgent_jobs().limit(1))
        return job_id

    def _end_unfinished(
        self,
        connection: Connection,
        job_id: str,
        state: ResultState,
        outcome: AttemptOutcome,
        error: dict[str, str] | None = None,
    ) -> None:
        """End what waits and what runs; the raised fence keeps a running worker from committing."""
        error = error or {}
        open_states = may_become(RESULT_TRANSITIONS, state, {ResultState.WAITING, ResultState.RUNNING})
        chosen = (results.c.job_id == job_id) & results.c.state.in_(open_states)
        self._end_attempts(connection, select(results.c.id).where(chosen), outcome, error.get("error_code"))
        values = {"state": state, "fence": results.c.fence + 1, "finished_at": self._now(), **error}
        connection.execute(update(results).where(chosen).values(values))

    def _end_attempts(
        self, connection: Connection, result_ids: Any, outcome: AttemptOutcome, error_code: str | None = None
    ) -> None:
        connection.execute(
            update(attempts)
            .where(attempts.c.result_id.in_(result_ids), attempts.c.outcome == AttemptOutcome.RUNNING)
            .values(outcome=outcome, ended_at=self._now(), error_code=error_code)
        )


_WAITING = {"state": ResultState.WAITING, "worker": None, "claimed_at": None}
_JOB_WAITING = {
    "state": JobState.WAITING,
    "started_at": None,
    "finished_at": None,
    "error_code": None,
    "error_message": None,
}


def _job(connection: Connection, job_id: str) -> JobRecord:
    return queries.to_job(connection.execute(queries.job_rows(jobs.c.id == job_id)).one())


def _lock(connection: Connection, job_id: str) -> JobState:
    state = connection.scalar(select(jobs.c.state).where(jobs.c.id == job_id).with_for_update())
    if state is None:
        raise _no_such_job(job_id)
    return JobState(state)


def _require(connection: Connection, job_id: str) -> None:
    if connection.scalar(select(jobs.c.id).where(jobs.c.id == job_id)) is None:
        raise _no_such_job(job_id)


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
        raise _no_such_job(ref)
    if len(found) > 1 and ref not in found:
        listed = ", ".join(found[:LISTED]) + (", ..." if len(found) > LISTED else "")
        raise NotFound(f"{ref!r} begins more than one job: {listed}")
    return ref if ref in found else found[0]


def _no_such_job(ref: str) -> NotFound:
    return NotFound(f"there is no job {ref!r}", "Type: nocka jobs")
