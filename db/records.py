"""Frozen values that the store hands out. Strictly read-only."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

from db.schedule import Schedule
from db.specs import CellSpec, ItemSpec, JobKind, Task
from db.status import JobState, ResultState


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A result that this worker may work on, with all it needs. Only its holder may finish it."""

    result_id: int
    #: What `finish`, `fail` and `give_back` must show; stale once somebody else has claimed the result.
    fence: int
    #: How many times it was tried, this time counted.
    attempt: int
    job_id: str
    job_kind: JobKind
    cell_id: int
    cell: CellSpec
    item: ItemSpec
    #: What the job does that is not an answer.
    task: Task | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished:
    """What a finished generation leaves in the store."""

    text: str
    #: `stop` or `length`.
    finish_reason: str
    #: Every figure of the engine, JSON-ready; the store lifts the common ones into columns.
    metrics: dict[str, Any]
    #: Models with revision, dtype, drafter, versions, machine; JSON-ready.
    config: dict[str, Any]
    #: Name of a scorer -> its score of this text.
    scores: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainAnswer:
    """What another answer to the same item is held against."""

    text: str
    #: Of the target; None where none were kept.
    tokens: tuple[int, ...] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turnover:
    """What came of finishing one result and claiming the next at once."""

    #: False when the claim was stale: nothing was written.
    committed: bool
    following: Claim | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """A job that was submitted unless it was there."""

    job_id: str
    #: Whether it was submitted before, so that nothing was written.
    existed: bool
    #: How many answers of earlier jobs it begins with.
    reused: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts:
    """How many results of a job are in each state."""

    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0

    @property
    def total(self) -> int:
        return self.waiting + self.running + self.done + self.failed + self.cancelled + self.expired

    @property
    def ended(self) -> int:
        return self.done + self.failed + self.cancelled + self.expired


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationTotals:
    """What the finished answers of an evaluation come to, beside their speed."""

    #: Answers that were held against plain decoding's, those that are its text, and those that part at a near tie.
    compared: int
    same: int
    near_ties: int
    #: How often a worker loaded a model for it.
    model_loads: int

    @property
    def different(self) -> int:
        return self.compared - self.same - self.near_ties


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobRecord:
    """One job with its progress and totals."""

    id: str
    kind: JobKind
    name: str
    state: JobState
    priority: int
    created_at: dt.datetime
    started_at: dt.datetime | None
    finished_at: dt.datetime | None
    error_code: str | None
    error_message: str | None
    counts: Counts
    #: Finished results whose answer came from an earlier job; no total counts them.
    reused: int
    #: Totals over every finished result.
    prompt_tokens: int
    #: How many of them had been read for an earlier result and were not read again.
    reused_tokens: int
    completion_tokens: int
    #: Seconds spent in prefill and decoding over every finished result.
    busy_s: float
    #: Seconds of work over every attempt, also those that failed or were given back.
    worked_s: float
    #: None when the job is due at any time.
    schedule: Schedule | None
    #: When a result of it last ended.
    progress_at: dt.datetime | None
    #: Of an evaluation.
    evaluation: EvaluationTotals | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResultRecord:
    """One item under one cell, whole."""

    id: int
    job_id: str
    custom_id: str
    item_position: int
    item: ItemSpec | None
    cell_id: int
    cell_position: int
    cell_label: str
    state: ResultState
    attempts: int
    #: `JOB/ITEM` whose answer this is a copy of.
    reused_from: str | None
    text: str | None
    finish_reason: str | None
    error_code: str | None
    error_message: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    tokens_per_s: float | None
    rounds: int | None
    acceptance_rate: float | None
    metrics: dict[str, Any]
    config: dict[str, Any]
    scores: dict[str, float]
    finished_at: dt.datetime | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerRecord:
    """One start of a worker."""

    #: `<machine>/<pid>-<random>`.
    name: str
    machine: str
    pid: int
    started_at: dt.datetime
    #: Its last beat, and until when that counts.
    seen_at: dt.datetime
    lease_until: dt.datetime
    #: What it runs, and when that last got on: fresh beats under old progress are a stalled worker.
    result_id: int | None
    progress_at: dt.datetime | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Telling:
    """A command to be run, since its job has ended."""

    job_id: str
    command: str
    #: JSON, as `nocka status --json` gives it.
    summary: str
