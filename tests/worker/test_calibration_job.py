"""`nocka calibrate` as a job: measured once for each machine, and again when that is asked for or a model changes."""

from __future__ import annotations

import dataclasses

import pytest

from db.specs import CalibrationTask, CellSpec, DrafterKind, ItemSpec, JobKind, JobSpec, Translation
from db.status import ResultState
from db.store import Store
from tests.engine.toys import recurrent
from worker.engine import calibrate
from worker.engine.build import Models
from worker.engine.cost import Costs
from worker.engine.drafters.base import Drafter
from worker.engine.model import Model
from worker.engine.values import ModelRef
from worker.jobs import calibration
from worker.jobs.slice import Shift
from worker.models_path import draft_ref, target_ref
from worker.wakeups import Wakeups, connect

CELL = CellSpec(
    target="mini-draft",
    draft="mini-draft-bytes",
    drafter=DrafterKind.CROSS,
    translation=Translation.CONTEXT,
    k=2,
)


def job(force: bool = False) -> JobSpec:
    return JobSpec(
        kind=JobKind.CALIBRATION,
        name="calibrate",
        cells=(CELL,),
        items=(ItemSpec(custom_id="calibration", text="mini"),),
        task=CalibrationTask(force=force),
    )


@pytest.fixture
def shift(store: Store, monkeypatch: pytest.MonkeyPatch) -> Shift:
    monkeypatch.setattr(calibrate, "ROUNDS", 2)
    monkeypatch.setattr(calibrate, "CONTEXTS", (32, 96))
    return Shift(store, Models(), Wakeups(connect("unix:///nowhere")), "here/1")


def test_a_pair_is_measured_once(store: Store, shift: Shift) -> None:
    """The curve is whole and rises, every drafter has its break-evens, and a second job takes what is known."""
    first = store.submit(job())
    assert shift.advance() == 1
    [result] = store.results(first)
    figures = result.metrics
    costs = Costs.from_json(figures["costs"])

    assert result.state is ResultState.DONE
    assert [tokens for tokens, _ in costs.verify[0][1]] == list(calibrate.FORWARDS)
    assert costs.verify_s(17, 96) > costs.verify_s(1, 96) > 0 < costs.plain_s(32)
    assert set(costs.propose) >= {"cross", "lookup", "suffix"} and not costs.predicted
    assert all(len(evens) == 8 for evens in figures["break_even"].values())
    assert figures["host_s"] == pytest.approx(costs.host_s(calibration.CONTEXT_TOKENS))
    assert all(found["predicted"] is True for found in figures["predictions"])
    assert result.text == figures["advice"] and "cross" in figures["advice"]

    second = store.submit(job())
    shift.advance()
    [again] = store.results(second)
    assert again.metrics == figures

    third = store.submit(job(force=True))
    shift.advance()
    [anew] = store.results(third)
    assert anew.metrics["costs"] != figures["costs"]


def test_the_key_changes_with_what_would_make_it_untrue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine, draft, dtype, BLAS or MLX is another key."""
    target, draft, _ = Models().pair(target_ref(CELL), draft_ref(CELL))
    keys = [
        calibration.key(target, draft, "here"),
        calibration.key(target, draft, "there"),
        calibration.key(target, None, "here"),
        calibration.key(dataclasses.replace(target, dtype="bfloat16"), draft, "here"),
    ]
    monkeypatch.setenv("LD_PRELOAD", "another-blas.so")
    keys.append(calibration.key(target, draft, "here"))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "64")
    keys.append(calibration.key(target, draft, "here"))
    monkeypatch.setattr(calibration, "version", lambda name: "99")
    keys.append(calibration.key(target, draft, "here"))
    monkeypatch.setattr(calibration, "FORMAT", calibration.FORMAT + 1)
    keys.append(calibration.key(target, draft, "here"))

    assert len(set(keys)) == len(keys)


def test_costs_are_measured_when_first_wanted(store: Store, shift: Shift, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever decodes with a pair for the first time measures it; the second one reads, and a job reads the same."""
    models = Models()
    first = calibration.costs_of(store, models, CELL, "here", lambda done: None)
    monkeypatch.setattr(calibration, "measure", None)
    assert first is not None
    assert calibration.costs_of(store, models, CELL, "here", lambda done: None) == first

    asked = store.submit(job())
    shift.advance()
    [result] = store.results(asked)
    assert Costs.from_json(result.metrics["costs"]) == first


class Forgetless(Models):
    """Has a target whose state cannot be taken back."""

    def pair(self, target: ModelRef, draft: ModelRef | None) -> tuple[Model, Model | None, dict[str, Drafter]]:
        return recurrent(), None, {}


def test_a_target_that_cannot_forget_has_no_costs(store: Store) -> None:
    """Decoding goes on plainly; a job says why, and fails alone."""
    assert calibration.costs_of(store, Forgetless(), CELL, "here", lambda done: None) is None

    asked = store.submit(job())
    Shift(store, Forgetless(), Wakeups(connect("unix:///nowhere")), "here/1").advance()
    [result] = store.results(asked)
    assert (result.state, result.error_code) == (ResultState.FAILED, "draft_mismatch")


def test_a_model_that_breaks_while_measured_harms_its_job_only(
    store: Store, shift: Shift, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job fails with a reason, and the worker lives."""

    def breaks(*anything: object) -> None:
        raise RuntimeError("[metal] out of memory")

    monkeypatch.setattr(calibration, "measure", breaks)
    asked = store.submit(job())
    assert shift.advance() == 1
    [result] = store.results(asked)
    assert (result.state, result.error_code) == (ResultState.FAILED, "not_calibrated")


def costs(verify_s: float, cross_s: float) -> Costs:
    """A plain token takes 1 s; a token more in a forward *verify_s*, a drafted one *cross_s*."""
    verify = tuple((m, 1.0 + verify_s * (m - 1)) for m in (1, 2, 17))
    cross = tuple((k, cross_s * k) for k in (1, 8))
    free = ((1, 0.0),)
    return Costs(
        plain=((128, 1.0),),
        verify=((128, verify),),
        propose={"cross": cross, "lookup": free, "ngram": free},
        prefill_token_s=0.0,
    )


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (costs(0.0625, 0.375), "k = 1 pays above 44 % acceptance with cross; n-grams and lookup pay above 6 %."),
        (costs(0.5, 0.6), "cross never pays, whatever is accepted; n-grams and lookup pay above 50 % acceptance."),
        (
            costs(1.0, 0.2),
            "cross never pays, whatever is accepted; n-grams and lookup never pay, whatever is accepted.",
        ),
    ],
)
def test_the_advice_is_one_sentence(machine: Costs, said: str) -> None:
    """Of a machine where a draft pays, of one where only free drafts do, and of one where every token costs a token."""
    assert calibration.advice(machine) == said
