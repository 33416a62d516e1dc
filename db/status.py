"""The states of a job and of a result, and the one table of allowed transitions."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import TypeVar


class JobState(enum.StrEnum):
    """Where a job stands."""

    #: Submitted; no result of it was claimed yet.
    WAITING = "waiting"
    #: At least one result was claimed.
    RUNNING = "running"
    #: A user holds it: no result of it is claimed, and one that runs is given back.
    PAUSED = "paused"
    #: Every result ended; some of them may have failed or expired.
    DONE = "done"
    #: The job as a whole could not run, for instance because its model could not be loaded. Can be retried.
    FAILED = "failed"
    #: A user ended it; finished results stay.
    CANCELLED = "cancelled"


class ResultState(enum.StrEnum):
    """Where one item under one cell stands."""

    #: Nobody works on it.
    WAITING = "waiting"
    #: Claimed by a worker; the attempt was counted before generation began.
    RUNNING = "running"
    #: Has its text, generated here or reused from an equal result. Never run again.
    DONE = "done"
    #: Has its error. Run again only by `retry`.
    FAILED = "failed"
    #: Its job was cancelled first.
    CANCELLED = "cancelled"
    #: Its job's deadline or hours of work ran out first.
    EXPIRED = "expired"


class AttemptOutcome(enum.StrEnum):
    """How one attempt at a result ended."""

    #: Still going on.
    RUNNING = "running"
    #: The result was committed.
    DONE = "done"
    #: The error was committed.
    FAILED = "failed"
    #: The worker handed it back unfinished (drain, pause, a window that closed); not charged.
    GIVEN_BACK = "given_back"
    #: The worker died under it.
    LOST = "lost"
    #: The job was cancelled under it.
    CANCELLED = "cancelled"


JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.WAITING: frozenset(
        {JobState.RUNNING, JobState.PAUSED, JobState.DONE, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.RUNNING: frozenset({JobState.PAUSED, JobState.DONE, JobState.FAILED, JobState.CANCELLED}),
    JobState.PAUSED: frozenset({JobState.WAITING, JobState.DONE, JobState.FAILED, JobState.CANCELLED}),
    JobState.DONE: frozenset({JobState.WAITING}),
    JobState.FAILED: frozenset({JobState.WAITING}),
    JobState.CANCELLED: frozenset({JobState.WAITING}),
}

RESULT_TRANSITIONS: dict[ResultState, frozenset[ResultState]] = {
    ResultState.WAITING: frozenset(
        {ResultState.RUNNING, ResultState.DONE, ResultState.FAILED, ResultState.CANCELLED, ResultState.EXPIRED}
    ),
    ResultState.RUNNING: frozenset({ResultState.DONE, ResultState.FAILED, ResultState.WAITING, ResultState.CANCELLED}),
    ResultState.DONE: frozenset(),
    ResultState.FAILED: frozenset({ResultState.WAITING}),
    ResultState.CANCELLED: frozenset({ResultState.WAITING}),
    ResultState.EXPIRED: frozenset({ResultState.WAITING}),
}

JOB_ENDED = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})
RESULT_ENDED = frozenset({ResultState.DONE, ResultState.FAILED, ResultState.CANCELLED, ResultState.EXPIRED})
#: What `retry` sets waiting again.
RETRYABLE = RESULT_ENDED - {ResultState.DONE}

State = TypeVar("State", JobState, ResultState)


def may_become(
    transitions: Mapping[State, frozenset[State]], state: State, among: Collection[State] | None = None
) -> list[State]:
    """Every state that *state* may follow; with *among* exactly those, each of which must be allowed (ValueError)."""
    sources = [source for source, targets in transitions.items() if state in targets]
    if among is None:
        return sources
    forbidden = sorted(set(among) - set(sources))
    if forbidden:
        raise ValueError(f"{', '.join(forbidden)} may not become {state}")
    return [source for source in sources if source in among]
