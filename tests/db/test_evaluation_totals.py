"""What a job's record says of an evaluation's answers beside plain decoding's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from db.parting import Parting, parting
from db.records import EvaluationTotals, Finished, PlainAnswer
from db.specs import JobSpec
from db.store import Store

NEAR = Parting(token=2, gap=0.03, near_tie=True)
FAR = Parting(token=0, gap=4.0, near_tie=False)


def test_answers_and_loads_are_counted_for_evaluations_alone(
    store: Store, job: Callable[..., JobSpec], finished: Finished
) -> None:
    """Four drafted answers: plain's text, its text by other tokens, a near-tie, another one; three models loaded."""
    ends = [
        {"same_as_plain": 1.0},
        {"same_as_plain": 1.0, **NEAR.as_scores()},
        {"same_as_plain": 0.0, **NEAR.as_scores()},
        {"same_as_plain": 0.0, **FAR.as_scores()},
    ]
    job_id = store.submit(job(4, cell_count=2))
    loads = iter([2, 0, 1, 0, 0, 0, 0, 0])
    while (claim := store.claim("here/1")) is not None:
        scores = {} if claim.cell.k == 0 else ends.pop(0)
        metrics = finished.metrics | {"model_loads": next(loads), "tokens": [1, 2]}
        assert store.finish(claim, dataclasses.replace(finished, scores=scores, metrics=metrics))

    totals = store.job(job_id).evaluation
    assert EvaluationTotals(compared=4, same=2, near_ties=1, model_loads=3) == totals
    assert 1 == totals.different
    assert store.job(store.submit(job(1))).evaluation is None


def test_a_plain_answer_is_handed_out_with_its_tokens(
    store: Store, job: Callable[..., JobSpec], finished: Finished
) -> None:
    """None for the plain cell itself and before the plain answer is there; no tokens where none were kept."""
    store.submit(job(2, cell_count=2))
    first, second = store.claim("here/1"), store.claim("here/1")
    assert first is not None and second is not None
    assert store.plain_answer(first) is None and store.plain_answer(second) is None

    store.finish(first, dataclasses.replace(finished, metrics=finished.metrics | {"tokens": [3, 4]}))
    assert PlainAnswer(text=finished.text, tokens=(3, 4)) == store.plain_answer(second)
    third, fourth = store.claim("here/1"), store.claim("here/1")
    assert third is not None and fourth is not None
    store.finish(third, finished)
    assert PlainAnswer(text=finished.text, tokens=None) == store.plain_answer(fourth)


def test_a_parting_is_what_its_scores_say() -> None:
    """There and back; a gap that is not known is left out and not called 0."""
    unknown = Parting(token=5, gap=None, near_tie=False)

    assert [NEAR, FAR, unknown, None] == [
        parting({"chrf": 1.0, **one.as_scores()} if one else {"chrf": 1.0}) for one in (NEAR, FAR, unknown, None)
    ]
    assert ["near-tie at token 2, gap 0.03", "DIFFERENT at token 0, gap 4", "DIFFERENT at token 5"] == [
        str(one) for one in (NEAR, FAR, unknown)
    ]
