"""`--drafter auto` through the worker, with the real engine on the smallest models."""

from __future__ import annotations

import pytest

from db.records import ResultRecord
from db.specs import CellSpec, ItemSpec, JobKind, JobSpec
from db.status import ResultState
from db.store import Store
from tests.engine.toys import recurrent
from worker.engine import build, calibrate
from worker.engine.build import Models
from worker.engine.cost import Costs
from worker.engine.model import Model
from worker.engine.values import ModelRef
from worker.jobs import calibration
from worker.jobs.slice import Shift, Unwanted
from worker.wakeups import Wakeups, connect

#: A form that is filled in again and again: what the memory of earlier answers is for.
FORM = "Protokół nr 1. Data: 3 maja. Stan: dobry. Uwagi: brak. Protokół nr 2. Data: 4 maja. Stan: dobry. Uwagi: brak. "
#: As if verifying cost next to nothing, so that whatever is offered pays.
CHEAP = Costs(
    plain=((128, 0.02),),
    verify=((128, ((1, 0.02), (17, 0.021))),),
    propose=dict.fromkeys(("cross", "suffix"), ((1, 1e-4), (8, 1e-3))),
    prefill_token_s=1e-5,
    draft_prefill_token_s=1e-6,
)


@pytest.fixture
def shift(store: Store, monkeypatch: pytest.MonkeyPatch) -> Shift:
    monkeypatch.setattr(calibrate, "ROUNDS", 2)
    monkeypatch.setattr(calibrate, "CONTEXTS", (32, 96))
    return Shift(store, Models(), Wakeups(connect("unix:///nowhere")), "here/1")


def submit(store: Store, *kinds: str, draft: str | None = "mini-draft-bytes") -> str:
    decoding = {"max_tokens": 24}
    cells = tuple(
        CellSpec.model_validate(
            {"target": "mini-draft", "drafter": kind, "draft": draft if kind == "auto" else None, "decoding": decoding}
        )
        for kind in kinds
    )
    items = tuple(ItemSpec(custom_id=f"i{number}", text=FORM * 2) for number in range(3))
    return store.submit(JobSpec(kind=JobKind.EVALUATION, name="formularze", cells=cells, items=items))


def run(store: Store, shift: Shift, job_id: str) -> dict[str, list[ResultRecord]]:
    """Results by cell, once all have ended."""
    while shift.advance():
        pass
    found: dict[str, list[ResultRecord]] = {}
    for result in store.results(job_id):
        found.setdefault(result.cell_label, []).append(result)
    return found


def test_both_choices_are_seen_in_one_job(store: Store, shift: Shift, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain decoding and the memory each take rounds; texts are plain's own, and the result says what was chosen."""
    monkeypatch.setattr(calibration, "costs_of", lambda *anything: CHEAP)
    found = run(store, shift, submit(store, "off", "auto"))
    auto = found["auto mini-draft-bytes"]
    rounds = [result.metrics["choices"]["rounds"] for result in auto]

    assert [one.text for one in found["plain"]] == [one.text for one in auto]
    assert sum(each.get("suffix", 0) for each in rounds) > 0
    assert sum(each.get("plain", 0) for each in rounds) > 0
    assert all(pytest.approx(1.0, abs=1e-3) == sum(one.metrics["choices"]["shares"].values()) for one in auto)
    assert all(
        "acceptance" in one.metrics["choices"]["reason"] or "tried" in one.metrics["choices"]["reason"] for one in auto
    )
    assert all(one.metrics["choices"] is None for one in found["plain"])


def test_a_pair_is_measured_when_first_used(store: Store, shift: Shift) -> None:
    """Nobody calibrated: the first result does, the store knows the pair then, and a second job measures nothing."""
    first = run(store, shift, submit(store, "auto"))
    known = store.calibrations_of("mini-draft")

    assert all(result.state is ResultState.DONE for results in first.values() for result in results)
    assert ["mini-draft-bytes"] == [draft for draft, _, _ in known]
    run(store, shift, submit(store, "auto"))
    assert known == store.calibrations_of("mini-draft")


def test_one_who_is_cancelled_while_measuring_is_given_back(
    store: Store, shift: Shift, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurement stops, the result waits, and nothing has failed."""

    def drained(*anything: object) -> Costs:
        shift.drain()
        raise Unwanted

    monkeypatch.setattr(calibration, "costs_of", drained)
    job_id = submit(store, "auto")
    shift.advance()

    assert {ResultState.WAITING} == {result.state for result in store.results(job_id)}
    assert 0 == sum(result.attempts for result in store.results(job_id))


def test_a_target_that_cannot_forget_is_decoded_plainly(
    store: Store, shift: Shift, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error: the results are there, and each says why nothing was drafted."""

    def forgetless(ref: ModelRef) -> Model:
        return recurrent()

    monkeypatch.setattr(build, "load", forgetless)
    found = run(store, shift, submit(store, "auto", draft=None))

    assert all(result.state is ResultState.DONE for result in found["auto"])
    assert all("cannot be rewound" in result.metrics["off_reason"] for result in found["auto"])
