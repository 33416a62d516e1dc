"""An evaluation through a real worker: its order, its scores, cells added later."""

from __future__ import annotations

import dataclasses

import pytest

from db.errors import NotAllowed
from db.groups import groups, plain_positions
from db.records import Claim
from db.settings import Settings
from db.specs import CellSpec, Decoding, DrafterKind, EvaluationTask, ItemSpec, JobKind, JobSpec, Translation
from db.status import JobState
from db.store import Store
from tests.worker.echo import EchoModels, Journal
from worker.jobs.evaluation import scores
from worker.jobs.slice import Shift

PLAIN = CellSpec(target="echo")
LOOKUP = CellSpec(target="echo", drafter=DrafterKind.LOOKUP, k=4)


class NoWakeups:
    """The test itself is the wake-up."""

    def ensure(self, job_id: str) -> None: ...


def cross(draft: str, k: int = 2) -> CellSpec:
    return CellSpec(target="echo", draft=draft, drafter=DrafterKind.CROSS, translation=Translation.CONTEXT, k=k)


def job(
    *cells: CellSpec, texts: tuple[str, ...] = ("ala ma kota", "bo lubi"), scorers: tuple[str, ...] = ()
) -> JobSpec:
    items = tuple(
        ItemSpec(custom_id=f"item-{at}", text=text, reference=text, dataset="d", content_kind="structured")
        for at, text in enumerate(texts)
    )
    task = EvaluationTask(scorers=scorers)
    return JobSpec(kind=JobKind.EVALUATION, name="sweep", cells=cells, items=items, task=task)


@pytest.fixture
def shift(store: Store, settings: Settings) -> Shift:
    return Shift(store, EchoModels(settings.home), NoWakeups(), "here/1-a")  # type: ignore[arg-type]


def test_a_group_is_a_run_of_one_target_that_begins_with_plain_cells() -> None:
    """Two plain cells of two temperatures lead one group."""
    warm = PLAIN.model_copy(update={"decoding": Decoding(temperature=0.7)})
    cells = [PLAIN, warm, cross("a"), PLAIN, cross("b"), CellSpec(target="other"), LOOKUP]

    assert [range(3), range(3, 5), range(5, 6), range(6, 7)] == groups(cells)
    assert {2: 0, 4: 3, 6: 0} == plain_positions(cells)


def test_items_are_outermost_within_a_group_and_groups_follow_each_other(store: Store, shift: Shift) -> None:
    """Each group's cells meet an item one after the other; no group begins before the one before it has ended."""
    job_id = store.submit(job(PLAIN, cross("a"), PLAIN, cross("b")))
    assert shift.advance() == 8

    order = [(one.cell_position, one.item_position) for one in store.results(job_id)]
    finished = sorted(store.results(job_id), key=lambda one: (one.finished_at, one.id))

    assert [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0), (2, 1), (3, 1)] == order
    assert order == [(one.cell_position, one.item_position) for one in finished]


def test_answers_are_scored_and_held_against_their_groups_plain_one(
    store: Store, shift: Shift, settings: Settings
) -> None:
    """A plain result has no baseline; every other says whether it is the same text."""
    job_id = store.submit(job(PLAIN, LOOKUP, scorers=("exact", "contains", "length", "regex:k.ta")))
    shift.advance()

    first, second = list(store.results(job_id))[:2]
    common = {"exact": 1.0, "contains": 1.0, "length": 11.0, "regex:k.ta": 1.0}
    assert common == first.scores
    assert {**common, "same_as_plain": 1.0} == second.scores
    assert Journal(settings.home).count("end") == 4


def test_a_text_that_is_not_plains_own_says_where_it_parts(store: Store) -> None:
    """By characters; a text that only ends earlier parts at its end."""
    store.submit(job(PLAIN, LOOKUP))
    claim = store.claim("here/1-a")
    assert claim is not None

    assert {"same_as_plain": 0.0, "first_difference": 4.0} == scores(claim, "ala nie", "ala ma")
    assert {"same_as_plain": 0.0, "first_difference": 3.0} == scores(claim, "ala", "ala ma")
    assert {} == scores(claim, "ala", None)


def test_a_missing_package_costs_a_score_and_no_answer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other scorers go on."""
    store.submit(job(PLAIN, scorers=("chrf", "length")))
    claim = store.claim("here/1-a")
    assert claim is not None
    assert {"chrf", "length"} == scores(claim, "ala", None).keys()

    def missing(text: str, reference: str) -> float:
        raise ModuleNotFoundError("No module named 'sacrebleu'", name="sacrebleu")

    monkeypatch.setitem(_against_reference(), "chrf", missing)

    assert {"length": 3.0} == scores(claim, "ala", None)


def _against_reference() -> dict[str, object]:
    from worker.jobs import evaluation

    return evaluation._AGAINST_REFERENCE  # type: ignore[return-value]


def test_an_item_without_a_reference_gets_no_score_against_one(store: Store) -> None:
    """None is left out rather than called 0."""
    store.submit(job(PLAIN, scorers=("exact", "json_valid")))
    claim = store.claim("here/1-a")
    assert claim is not None
    bare: Claim = dataclasses.replace(claim, item=claim.item.model_copy(update={"reference": None}))

    assert {"json_valid": 0.0} == scores(bare, "ala", None)


def test_cells_added_to_a_finished_sweep_run_alone(store: Store, shift: Shift, settings: Settings) -> None:
    """Nothing that is there runs again, and the new group brings its own baseline."""
    job_id = store.submit(job(PLAIN, cross("a")))
    shift.advance()
    before = [(one.id, one.text, one.finished_at) for one in store.results(job_id)]
    assert store.job(job_id).state is JobState.DONE

    assert store.add_cells(job_id, [PLAIN, cross("b")]) == 4
    assert store.job(job_id).state is JobState.WAITING
    assert shift.advance() == 4

    after = list(store.results(job_id))
    assert store.job(job_id).state is JobState.DONE
    assert before == [(one.id, one.text, one.finished_at) for one in after[:4]]
    assert [(2, 0), (3, 0), (2, 1), (3, 1)] == [(one.cell_position, one.item_position) for one in after[4:]]
    assert [None, 1.0, None, 1.0] == [one.scores.get("same_as_plain") for one in after[4:]]
    assert Journal(settings.home).count("end") == 8


def test_cells_are_added_to_evaluations_that_can_go_on_only(store: Store) -> None:
    """Not to a generation, nor to what was cancelled."""
    alone = JobSpec(kind=JobKind.GENERATION, name="g", cells=(PLAIN,), items=(ItemSpec(custom_id="a", text="b"),))
    generation, cancelled = store.submit(alone), store.submit(job(PLAIN))
    store.cancel(cancelled)

    for job_id in (generation, cancelled):
        with pytest.raises(NotAllowed):
            store.add_cells(job_id, [LOOKUP])


def test_an_unknown_scorer_is_refused_by_name() -> None:
    """Before anything is stored."""
    with pytest.raises(ValueError, match="no scorer 'chfr'; there are chrf"):
        EvaluationTask(scorers=("chfr",))
    with pytest.raises(ValueError, match="not a pattern"):
        EvaluationTask(scorers=("regex:(",))
