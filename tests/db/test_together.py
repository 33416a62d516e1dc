"""Several results of one cell claimed at once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from db.records import Claim, Finished
from db.specs import CellSpec, DrafterKind, ItemSpec, JobKind, JobSpec
from db.store import Store

START = dt.datetime(2026, 2, 1, 22, 0, tzinfo=dt.UTC)


class SetClock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> dt.datetime:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += dt.timedelta(seconds=seconds)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store(open_here: Callable[[], Store], clock: SetClock) -> Store:
    return Store(open_here().engine, clock)


def job(count: int, batch: int = 4, cells: int = 1, **options: object) -> JobSpec:
    """A job whose cells run *batch* results at once; they differ in their seed."""
    return JobSpec.model_validate(
        {
            "kind": JobKind.GENERATION if cells == 1 else JobKind.EVALUATION,
            "name": "razem",
            "cells": [{"target": "t", "batch": batch, "decoding": {"seed": seed}} for seed in range(cells)],
            "items": [ItemSpec(custom_id=f"i{number}", text="tekst") for number in range(count)],
            **options,
        }
    )


def claimed(store: Store, like: Claim | None = None) -> Claim:
    claim = store.claim("mac/1", like)
    assert claim is not None
    return claim


def test_more_of_the_same_cell_and_nothing_else(store: Store) -> None:
    """Under *like* only results of its cell are taken; without, the next one of any."""
    store.submit(job(3, cells=2))
    first = claimed(store)
    others = [claimed(store, first), claimed(store, first)]
    assert store.claim("mac/1", first) is None
    assert {claim.cell_id for claim in others} == {first.cell_id}
    assert len({claim.result_id for claim in [first, *others]}) == 3
    assert claimed(store).cell_id != first.cell_id


def test_what_is_more_urgent_ends_the_joining(store: Store) -> None:
    """As soon as another job goes first, no result joins; once that one is taken, they do again."""
    store.submit(job(4))
    first = claimed(store)
    urgent = store.submit(job(1, priority=5))
    assert store.claim("mac/1", first) is None
    assert claimed(store).job_id == urgent
    assert claimed(store, first).job_id == first.job_id


def test_overlapping_seconds_count_once(store: Store, clock: SetClock, finished: Finished) -> None:
    """Four results of a batch that took a minute together used a minute of the job's hours."""
    job_id = store.submit(job(4))
    first = claimed(store)
    claims = [first, *(claimed(store, first) for _ in range(3))]
    for claim in claims:
        clock.pass_s(15)
        assert store.finish(claim, finished)
    assert store.job(job_id).worked_s == 60.0


def test_seconds_before_joining_are_not_its_own(store: Store, clock: SetClock, finished: Finished) -> None:
    """One that joins late and outlasts the others adds only what no other counted."""
    job_id = store.submit(job(3))
    first = claimed(store)
    clock.pass_s(10)
    second = claimed(store, first)
    clock.pass_s(10)
    assert store.finish(first, finished)
    clock.pass_s(5)
    assert store.give_back(second)
    assert store.job(job_id).worked_s == 25.0


def test_hours_of_work_end_a_batch_when_they_are_used_and_not_before(
    store: Store, clock: SetClock, finished: Finished
) -> None:
    """What a neighbour has accounted for is not held against those that still run."""
    store.submit(job(2, schedule={"max_hours": 1.0}))
    first = claimed(store)
    second = claimed(store, first)
    clock.pass_s(2400)
    assert store.finish(first, finished)
    clock.pass_s(1100)
    assert store.holds(second)
    clock.pass_s(100)
    assert not store.holds(second)


def test_without_a_batch_seconds_add_up_as_before(store: Store, clock: SetClock, finished: Finished) -> None:
    """One after the other."""
    job_id = store.submit(job(2, batch=1))
    for _ in range(2):
        claim = claimed(store)
        clock.pass_s(7)
        assert store.finish(claim, finished)
    assert store.job(job_id).worked_s == 14.0


def test_a_batch_takes_no_drafter() -> None:
    """The refusal says so; without a drafter every size is a spec, and the label shows it."""
    with pytest.raises(ValidationError, match=r"\(--batch\) are decoded without a drafter, not under"):
        CellSpec(target="t", drafter=DrafterKind.LOOKUP, k=2, batch=4)
    assert CellSpec(target="t", batch=4).label == "plain batch=4"
    assert CellSpec(target="t", batch=0).label == "plain batch=auto"
    assert CellSpec(target="t").label == "plain"
