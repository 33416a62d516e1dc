"""A job in figures, as programs read it."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

from db.records import JobRecord
from db.status import ResultState


def tokens_per_s(job: JobRecord) -> float | None:
    """Answer tokens for each second of prefill and decoding."""
    return job.completion_tokens / job.busy_s if job.busy_s > 0 else None


def seconds_left(job: JobRecord) -> float | None:
    """From what finished results took; None where none did or none is left. Right for one worker, high for several."""
    left, ran = job.counts.total - job.counts.ended, job.counts.done - job.reused
    return job.busy_s / ran * left if left and ran and job.busy_s > 0 else None


def job_json(job: JobRecord, first_error: str | None = None) -> dict[str, Any]:
    """A job as programs read it. Times are ISO 8601 in UTC, durations seconds."""
    counts = job.counts
    return {
        "id": job.id,
        "kind": job.kind.value,
        "name": job.name,
        "state": job.state.value,
        "priority": job.priority,
        "schedule": job.schedule.model_dump(mode="json") if job.schedule else None,
        "created_at": _iso(job.created_at),
        "started_at": _iso(job.started_at),
        "finished_at": _iso(job.finished_at),
        "progress_at": _iso(job.progress_at),
        "counts": {
            "total": counts.total,
            **{state.value: getattr(counts, state.value) for state in ResultState},
        },
        "reused": job.reused,
        "prompt_tokens": job.prompt_tokens,
        "reused_tokens": job.reused_tokens,
        "completion_tokens": job.completion_tokens,
        "busy_s": job.busy_s,
        "worked_s": job.worked_s,
        "tokens_per_s": tokens_per_s(job),
        "seconds_left": seconds_left(job),
        "evaluation": _evaluation(job),
        "error": {"code": job.error_code, "message": job.error_message} if job.error_code else None,
        "first_error": first_error,
    }


def _evaluation(job: JobRecord) -> dict[str, int] | None:
    found = job.evaluation
    return None if found is None else {**dataclasses.asdict(found), "different": found.different}


def _iso(time: dt.datetime | None) -> str | None:
    return time.isoformat() if time else None
