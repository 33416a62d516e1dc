"""A job that builds something, its progress, and the answers that a drafter asks for again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from db.records import Finished
from db.specs import CellSpec, DrafterKind, ItemSpec, JobKind, JobSpec, NgramTask, Translation
from db.store import Store

TASK = NgramTask(corpora=("/a.txt",), output="/o.ngram", order=2)
SPEC = JobSpec(
    kind=JobKind.NGRAM,
    name="o.ngram",
    cells=(CellSpec(target="t"),),
    items=(ItemSpec(custom_id="o.ngram", text="/o.ngram"),),
    task=TASK,
)


def test_a_task_comes_with_its_claim(store: Store, job: Callable[..., JobSpec]) -> None:
    """Whole, and no other job has one."""
    store.submit(SPEC)
    claim = store.claim("here/1")
    assert claim is not None and claim.task == TASK and claim.job_kind is JobKind.NGRAM

    store.submit(job(1))
    other = store.claim("here/1")
    assert other is not None and other.task is None


def test_progress_is_noted_by_the_holder_only(store: Store) -> None:
    """It can be read while the job runs; a stale claim leaves no trace."""
    job_id = store.submit(SPEC)
    claim = store.claim("here/1")
    assert claim is not None
    store.note(claim, {"progress": 0.5})
    store.note(dataclasses.replace(claim, fence=claim.fence - 1), {"progress": 0.1})
    assert [{"progress": 0.5}] == [result.metrics for result in store.results(job_id)]

    store.cancel(job_id)
    store.note(claim, {"progress": 0.9})
    assert [{"progress": 0.5}] == [result.metrics for result in store.results(job_id)]


def test_answers_are_those_of_the_cell_the_latest_last(
    store: Store, job: Callable[..., JobSpec], finished: Finished
) -> None:
    """Another cell's answers are never among them, nor what is not finished."""
    store.submit(job(4, cell_count=2))
    for number in range(6):
        claim = store.claim("here/1")
        assert claim is not None
        store.finish(claim, dataclasses.replace(finished, text=f"{claim.cell.target} {number}"))
    running = store.claim("here/1")
    assert running is not None and running.cell.target == "target-0"

    assert ["target-0 0", "target-0 2", "target-0 4"] == store.answers(running.cell_id)
    assert ["target-0 4"] == store.answers(running.cell_id, limit=1)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"drafter": "cross", "draft": "d", "translation": "naive", "k": -1}, "k is 1 to 16 .* not -1 under cross"),
        ({"drafter": "suffix", "k": 100}, "k is 1 to 16 .* not 100 under suffix"),
        ({"drafter": "neural", "draft": "d", "k": 2, "translation": "naive"}, "nothing under neural"),
        ({"drafter": "staged", "draft": "d", "k": 2, "translation": "naive"}, "nothing under staged"),
        ({"drafter": "intersect", "k": 2}, "intersect needs a draft model"),
        ({"drafter": "lookup", "k": 2, "draft": "d"}, "lookup takes no draft model"),
        ({"drafter": "ngram", "k": 2}, "needs an n-gram file"),
        ({"drafter": "suffix", "k": 2, "ngram": "/f"}, "suffix takes no n-gram file"),
        ({"ngram": "/f"}, "off takes no n-gram file"),
    ],
)
def test_bad_combinations_are_one_sentence(fields: dict[str, object], said: str) -> None:
    """Each says what is wrong and what would be right."""
    with pytest.raises(ValidationError, match=said):
        CellSpec.model_validate({"target": "t", **fields})


def test_labels_name_what_was_used() -> None:
    """Draft and file by their last part."""
    staged = CellSpec(target="t", drafter=DrafterKind.STAGED, draft="/m/mini-draft", ngram="/f/pl.ngram", k=2)
    assert "staged k=2 mini-draft pl.ngram" == staged.label
    cross = CellSpec(target="t", drafter=DrafterKind.CROSS, draft="x/y", translation=Translation.NAIVE, k=4)
    assert "cross naive k=4 y" == cross.label
    assert "lookup k=16" == CellSpec(target="t", drafter=DrafterKind.LOOKUP, k=16).label


def test_a_task_belongs_to_an_ngram_job() -> None:
    """Neither without the other."""
    fields = SPEC.model_dump()
    for broken in ({"task": None}, {"kind": "generation"}, {"items": ()}):
        with pytest.raises(ValidationError):
            JobSpec.model_validate({**fields, **broken})
