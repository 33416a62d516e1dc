"""What a worker does with the store: claim, finish, fail, give back, reclaim."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, select, update

from db import queries, statements
from db.calibrations import Calibrations
from db.groups import plain_positions
from db.leases import Leases
from db.records import Claim, Finished, PlainAnswer, Telling, Turnover
from db.schedule import OVER, Standing
from db.specs import CellSpec
from db.status import (
    JOB_ENDED,
    JOB_TRANSITIONS,
    RESULT_TRANSITIONS,
    AttemptOutcome,
    JobState,
    ResultState,
    may_become,
)
from db.steps import WAITING_AGAIN, close_if_ended, end_attempts, end_unfinished, lock_job, read_job
from db.summary import job_json
from db.tables import jobs, results, workers
from db.transactions import reading, writing

#: Workers that may die under one result before it is put aside.
DEATHS_ALLOWED = 3
WORKER_CRASHED = "worker_crashed"
#: Answers of a cell that a drafter may want to know again.
ANSWERS = 4_096
#: The figure in which an evaluation's plain answer keeps its tokens, for others to be held against.
TOKENS = "tokens"
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


class Work(Leases, Calibrations):
    """The worker's half of `db.store.Store`."""

    def claim(self, worker: str, like: Claim | None = None) -> Claim | None:
        """Take the most urgent due result and count the attempt; None when there is none.

        With *like*, only another result of its cell, and none while something of another job is more urgent.

        What a deadline or the hours of work cut off expires on the way. *worker* is `<machine>/...`, unique for each
        start.
        """
        with writing(self.engine) as connection:
            for row in connection.execute(statements.URGENT_JOBS).all():
                standing = queries.standing_of(row, self._now())
                if standing in OVER:
                    self._expire(connection, row.id, standing)
                elif standing is Standing.DUE:
                    if like is not None and row.id != like.job_id:
                        return None
                    claim = self._claim_from(connection, row.id, worker, None if like is None else like.cell_id)
                    if claim is not None or like is not None:
                        return claim
        return None

    def _expire(self, connection: Connection, job_id: str, standing: Standing) -> None:
        if lock_job(connection, job_id) not in statements.ACTIVE:
            return
        now = self._now()
        open_states = may_become(RESULT_TRANSITIONS, ResultState.EXPIRED)
        cut_off = {"error_code": standing.value, "error_message": OVER[standing], "finished_at": now}
        connection.execute(
            update(results)
            .where(results.c.job_id == job_id, results.c.state.in_(open_states))
            .values(state=ResultState.EXPIRED, **cut_off)
        )
        close_if_ended(connection, job_id, now)

    def _claim_from(self, connection: Connection, job_id: str, worker: str, cell_id: int | None) -> Claim | None:
        state = lock_job(connection, job_id)
        if state not in statements.ACTIVE:
            return None
        now = self._now()
        claim, chosen = statements.CLAIM, {"of_job": job_id, "by": worker, "at": now}
        if cell_id is not None:
            claim, chosen = statements.CLAIM_OF_CELL, {**chosen, "of_cell": cell_id}
        row = connection.execute(claim, chosen).first()
        if row is None:
            return None
        attempt = {"result_id": row.id, "fence": row.fence, "worker": worker, "started_at": now}
        connection.execute(statements.BEGIN_ATTEMPT, {**attempt, "outcome": AttemptOutcome.RUNNING})
        if state is not JobState.RUNNING:
            connection.execute(statements.START_JOB, {"of_job": job_id, "at": now})
        return queries.to_claim(connection.execute(statements.CLAIMED, {"of_result": row.id}).one())

    def finish(self, claim: Claim, finished: Finished) -> bool:
        """Commit the text, closing the job with its last result. False when the claim is stale: nothing is written."""
        with writing(self.engine) as connection:
            return self._finish(connection, claim, finished)

    def finish_and_claim(self, claim: Claim, finished: Finished, worker: str) -> Turnover:
        """`finish`, and `claim` from the same job in one transaction: what is synced once counts for both.

        Nothing follows a stale claim, nor where another job is the more urgent: no other job's row is locked here.
        """
        with writing(self.engine) as connection:
            if not self._finish(connection, claim, finished):
                return Turnover(committed=False, following=None)
            return Turnover(committed=True, following=self._following(connection, claim, worker))

    def _following(self, connection: Connection, claim: Claim, worker: str) -> Claim | None:
        for row in connection.execute(statements.URGENT_JOBS).all():
            standing = queries.standing_of(row, self._now())
            if standing is not Standing.LATER:
                follows = standing is Standing.DUE and row.id == claim.job_id
                return self._claim_from(connection, row.id, worker, None) if follows else None
        return None

    def _finish(self, connection: Connection, claim: Claim, finished: Finished) -> bool:
        values = {
            **{name: finished.metrics.get(name) for name in LIFTED},
            # Byte fallback can spell a NUL, which Postgres cannot hold.
            "text": finished.text.replace("\x00", "\N{REPLACEMENT CHARACTER}"),
            "finish_reason": finished.finish_reason,
            "metrics": finished.metrics,
            "config": finished.config,
            "scores": finished.scores or None,
            "finished_at": self._now(),
        }
        return self._settle(connection, claim, (ResultState.DONE, AttemptOutcome.DONE), values)

    def note(self, claim: Claim, metrics: dict[str, Any]) -> None:
        """Keep interim figures with a running result; nothing once the claim is stale."""
        with writing(self.engine) as connection:
            connection.execute(statements.CHANGE_HELD, {**_held(claim), "metrics": metrics})

    def answers(self, cell_id: int, limit: int = ANSWERS) -> list[str]:
        """Read the latest *limit* answers of a cell, the oldest of them first."""
        latest = (
            select(results.c.text)
            .where(results.c.cell_id == cell_id, results.c.state == ResultState.DONE)
            .order_by(results.c.finished_at.desc(), results.c.id.desc())
            .limit(limit)
        )
        with reading(self.engine) as connection:
            return [text for text in connection.scalars(latest) if text][::-1]

    def plain_answer(self, claim: Claim) -> PlainAnswer | None:
        """The finished plain answer that *claim*'s is to be held against; None where there is none or it is plain."""
        with reading(self.engine) as connection:
            rows = connection.execute(queries.job_cells(claim.job_id)).all()
            at = next(at for at, row in enumerate(rows) if row.id == claim.cell_id)
            plain = plain_positions([CellSpec.model_validate(row.spec) for row in rows]).get(at)
            if plain is None:
                return None
            row = connection.execute(queries.answer_beside(claim.result_id, rows[plain].id)).first()
        if row is None:
            return None
        tokens = (row.metrics or {}).get(TOKENS)
        return PlainAnswer(text=row.text, tokens=None if tokens is None else tuple(tokens))

    def fail(self, claim: Claim, code: str, message: str) -> bool:
        """Commit the error, closing the job with its last result. False when the claim is stale: nothing is written."""
        values = {"error_code": code, "error_message": message.replace("\x00", ""), "finished_at": self._now()}
        with writing(self.engine) as connection:
            return self._settle(connection, claim, (ResultState.FAILED, AttemptOutcome.FAILED), values)

    def give_back(self, claim: Claim) -> bool:
        """Set the result waiting again, the attempt not charged. False when the claim is stale: nothing is written."""
        values = {**WAITING_AGAIN, "attempts": claim.attempt - 1}
        with writing(self.engine) as connection:
            return self._settle(connection, claim, (ResultState.WAITING, AttemptOutcome.GIVEN_BACK), values)

    def _settle(
        self,
        connection: Connection,
        claim: Claim,
        ending: tuple[ResultState, AttemptOutcome],
        values: dict[str, Any],
    ) -> bool:
        state, outcome = ending
        may_become(RESULT_TRANSITIONS, state, {ResultState.RUNNING})  # or it raises
        lock_job(connection, claim.job_id)
        accounted_until = _accounted_until(connection, claim)
        if not connection.execute(statements.CHANGE_HELD, {**_held(claim), **values, "state": state}).rowcount:
            return False
        now = self._now()
        ended = {"outcome": outcome, "ended_at": now, "error_code": values.get("error_code")}
        began_at = connection.execute(statements.END_ATTEMPT, {**_held(claim), **ended}).scalar_one()
        reused_tokens = (values.get("metrics") or {}).get("reused_tokens", 0)
        worked = {"seconds": _worked_s(began_at, accounted_until, now), "tokens": reused_tokens}
        connection.execute(statements.ADD_WORK, {"of_job": claim.job_id, **worked})
        close_if_ended(connection, claim.job_id, now)
        return True

    def reclaim(self, machine: str, crash: str | None = None) -> int:
        """Take back what workers of *machine* held; return how many. Call only when none of them can be alive.

        Each goes to the end of its job, and at its third death ends as `worker_crashed` with *crash*, which says how
        the worker died.
        """
        prefix = f"{machine}/"
        with writing(self.engine) as connection:
            connection.execute(delete(workers).where(workers.c.machine == machine))
            return _take_back(connection, func.substr(results.c.worker, 1, len(prefix)) == prefix, self._now(), crash)

    def reclaim_from(self, worker: str) -> int:
        """Take back what *worker* held, which has been silent for a lease; return how many.

        It counts as a death: an item that takes its machine down with it must not do so for ever. Should the worker
        live after all, it can commit none of them.
        """
        with writing(self.engine) as connection:
            connection.execute(delete(workers).where(workers.c.name == worker))
            return _take_back(connection, results.c.worker == worker, self._now(), "its machine fell silent")

    def holds(self, claim: Claim) -> bool:
        """Tell whether to go on: the claim stands, its job is not paused, and the clock says nothing against it."""
        with reading(self.engine) as connection:
            row = connection.execute(statements.HELD_JOB, _held(claim)).first()
            if row is None or row.job_state not in statements.ACTIVE:
                return False
            now = self._now()
            worked_s = _worked_s(row.claimed_at, _accounted_until(connection, claim), now)
        return queries.standing_of(row, now, worked_s) is Standing.DUE

    def fail_job(self, job_id: str, code: str, message: str) -> None:
        """End the job and every unfinished result of it with this error, all to be retried. Nothing once it ended."""
        with writing(self.engine) as connection:
            if lock_job(connection, job_id) not in may_become(JOB_TRANSITIONS, JobState.FAILED):
                return
            error = {"error_code": code, "error_message": message}
            now = self._now()
            end_unfinished(connection, job_id, (ResultState.FAILED, AttemptOutcome.FAILED), now, error)
            ended = {"state": JobState.FAILED, "finished_at": now, **error}
            connection.execute(update(jobs).where(jobs.c.id == job_id).values(ended))

    def take_tellings(self) -> list[Telling]:
        """The commands of jobs that have ended, each job marked as told; nobody gets one of them again."""
        ended = jobs.c.state.in_(JOB_ENDED) & jobs.c.on_done.is_not(None) & jobs.c.told_at.is_(None)
        with reading(self.engine) as connection:
            found = connection.scalars(select(jobs.c.id).where(ended)).all()
        tellings = []
        for job_id in found:
            with writing(self.engine) as connection:
                told = update(jobs).where(jobs.c.id == job_id, ended).values(told_at=self._now())
                command = connection.scalar(told.returning(jobs.c.on_done))
                if command is not None:
                    summary = json.dumps(job_json(read_job(connection, job_id)), ensure_ascii=False)
                    tellings.append(Telling(job_id=job_id, command=command, summary=summary))
        return tellings

    def next_job(self) -> str | None:
        """Name the most urgent job of which `claim` would take or expire something; None when there is none."""
        with reading(self.engine) as connection:
            for row in connection.execute(statements.URGENT_JOBS):
                if queries.standing_of(row, self._now()) is not Standing.LATER:
                    return str(row.id)
        return None


def _held(claim: Claim) -> dict[str, int]:
    """*claim* as parameters of the statements that hold it to its fence."""
    return {"of_result": claim.result_id, "under_fence": claim.fence}


def _accounted_until(connection: Connection, claim: Claim) -> dt.datetime | None:
    """Until when other results account for the worker's seconds: those of a batch overlap. None for one alone."""
    if claim.cell.batch == 1:
        return None
    found: dt.datetime | None = connection.scalar(statements.ACCOUNTED_UNTIL, {"of_result": claim.result_id})
    return found


def _worked_s(claimed_at: dt.datetime, accounted_until: dt.datetime | None, now: dt.datetime) -> float:
    """Seconds of work since *claimed_at* that no other result has accounted for."""
    return max(0.0, (now - max(claimed_at, accounted_until or claimed_at)).total_seconds())


def _take_back(connection: Connection, whose: ColumnElement[bool], now: dt.datetime, crash: str | None) -> int:
    """End the running attempts at *whose* results and set these waiting again, or aside; return how many."""
    held = (results.c.state == ResultState.RUNNING) & whose
    held_jobs = select(results.c.job_id).where(held)
    job_ids = connection.scalars(
        select(jobs.c.id).where(jobs.c.id.in_(held_jobs)).order_by(jobs.c.id).with_for_update()
    ).all()
    end_attempts(connection, select(results.c.id).where(held), AttemptOutcome.LOST, now, WORKER_CRASHED)
    count = _put_aside(connection, held, now, crash)
    again = {**WAITING_AGAIN, "deaths": results.c.deaths + 1}
    count += connection.execute(update(results).where(held).values(again)).rowcount
    for job_id in job_ids:
        close_if_ended(connection, job_id, now)
    return count


def _put_aside(connection: Connection, held: ColumnElement[bool], now: dt.datetime, crash: str | None) -> int:
    """Fail the *held* results whose worker has now died too often; return how many."""
    message = f"the worker died {DEATHS_ALLOWED} times under this item"
    message += f", the last time so: {crash}" if crash is not None else ""
    aside = {
        "state": ResultState.FAILED,
        "deaths": results.c.deaths + 1,
        "finished_at": now,
        "error_code": WORKER_CRASHED,
        "error_message": message.replace("\x00", ""),
    }
    last = held & (results.c.deaths + 1 >= DEATHS_ALLOWED)
    return connection.execute(update(results).where(last).values(aside)).rowcount
