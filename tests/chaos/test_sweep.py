"""Figure 9: an evaluation whose worker is killed in the middle, beside one that nobody disturbs."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.specs import DrafterKind
from db.status import AttemptOutcome, ResultState
from tests.chaos.night import Night
from tests.worker.helpers import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

#: A draft model, a drafter that learns from the cell's earlier answers, and plain decoding; greedy and sampled.
SWEEP = (
    *("sweep", "--target", "mini-draft", "--draft", "mini-draft-bytes", "--drafter", "cross", "--drafter", "suffix"),
    *("--k", "4", "--temperature", "0", "--temperature", "0.8", "--seed", "7"),
    *("--data", "questions", "--data", "structured", "--limit", "2", "--max-tokens", "12"),
)
ANSWERS, KILLED_AT = 24, 11
COUNTED = ("completion_tokens", "rounds", "proposed", "accepted", "trace")

Place = tuple[str, int]


def swept(night: Night) -> str:
    done = night.nocka(*SWEEP)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def answers(night: Night, job_id: str) -> tuple[dict[Place, str | None], dict[Place, tuple[object, ...]]]:
    """By item and cell: the texts, and every figure that no clock is in.

    What a drafter proposes that learns from earlier answers depends on their order, in which a killed one comes last.
    """
    cells = night.store.cells(job_id)
    done = {
        (one.custom_id, one.cell_position): one for one in night.store.results(job_id) if one.state is ResultState.DONE
    }
    counted = {place: one for place, one in done.items() if cells[place[1]].drafter is not DrafterKind.SUFFIX}
    return (
        {place: one.text for place, one in done.items()},
        {place: tuple(one.metrics[name] for name in COUNTED) for place, one in counted.items()},
    )


def test_kill_9_in_a_sweep(tmp_path: Path) -> None:
    """The same texts, and the same rounds, proposed and accepted tokens."""
    with Night(tmp_path / "undisturbed") as night:
        night.broker()
        night.worker()
        job_id = swept(night)
        night.await_end(job_id)
        texts, counts = answers(night, job_id)
        totals = night.store.job(job_id).evaluation
    assert (ANSWERS, 16, True) == (len(texts), len(counts), any(one[2] for one in counts.values()))
    assert totals is not None and (16, 16, 2) == (totals.compared, totals.same, totals.model_loads)

    with Night(tmp_path / "killed") as night:
        night.broker()
        worker = night.worker()
        job_id = swept(night)
        until(lambda: night.counts(job_id).done >= KILLED_AT and night.counts(job_id).running)
        worker.kill()
        assert night.counts(job_id).ended < ANSWERS, "the sweep ended before the kill"
        night.worker()
        night.await_end(job_id)

        assert (texts, counts) == answers(night, job_id)
        attempts, outcomes = night.attempts(job_id), night.outcomes(job_id)
    assert outcomes.count(AttemptOutcome.DONE) == ANSWERS
    assert outcomes.count(AttemptOutcome.LOST) == attempts - ANSWERS
    print(f"\nfigure 9: a kill in a sweep: {ANSWERS} answers with the same texts and counts, {attempts} attempts")
