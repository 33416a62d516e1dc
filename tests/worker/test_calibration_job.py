"""`nocka calibrate` as a job: measured once for each machine, and again when that is asked for or a model changes."""

from __future__ import annotations

import dataclasses

import pytest

from db.specs import CalibrationTask, CellSpec, DrafterKind, ItemSpec, JobKind, JobSpec, Translation
from db.status import ResultState
from db.store import Store
from worker.engine import calibrate
from worker.engine.build import Models
from worker.engine.cost import Costs
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
    assert result.text == figures["advice"] and "cross: k = 2" in figures["advice"]

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
    monkeypatch.setattr(calibration, "version", lambda name: "99")
    keys.append(calibration.key(target, draft, "here"))

    assert len(set(keys)) == len(keys)
