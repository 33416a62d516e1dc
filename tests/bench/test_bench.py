"""The bench measures what it says: replays, forms, counting, comparison."""

from __future__ import annotations

import pytest

from bench import forms, oracle
from bench.ideal import IdealDrafter
from bench.report import Check, Report
from bench.timing import speed
from bench.workloads import REPLAY, answer, held_out, repeated_share
from tests.engine.conftest import mini
from worker.engine.drafters.cross import CrossDrafter
from worker.engine.model import load


def test_no_two_forms_share_more_than_sixty_percent() -> None:
    """All 40 documents are of one form and none is a copy of another."""
    documents = forms.texts()
    assert len(documents) == forms.DOCUMENTS
    assert forms.most_identical(documents) <= forms.MAX_IDENTICAL


def test_a_replay_emits_the_text_whoever_drafts() -> None:
    """Plain, with the real drafter and with the ideal one, the passage itself comes out."""
    target, draft = load(mini("mini-draft")), load(mini("mini-draft-bytes"))
    passage = held_out(target.tokenizer, 1)[0]
    begun = len(target.tokenizer.raw(passage.prompt))
    due = tuple(passage.ids(target.tokenizer, 12)[begun:])
    for drafter in (None, CrossDrafter(target.tokenizer, draft, "context"), IdealDrafter(target.tokenizer, draft)):
        assert answer(target, drafter, 3, passage, REPLAY, 12).tokens == due


def test_repeated_share() -> None:
    """A loop repeats nearly all of its 4-grams, a text without repetition none."""
    assert repeated_share(range(50)) == 0
    assert repeated_share([1, 2] * 50) > 0.9


def test_the_bound_is_below_the_median_and_equal_without_noise() -> None:
    """Twice as fast in every pair is twice as fast for sure."""
    sure = speed([1.0] * 40, [2.0] * 40)
    assert (sure.ratio, sure.lower) == (2.0, 2.0)
    noisy = speed([1.0, 1.2] * 20, [1.0] * 40)
    assert noisy.lower <= noisy.ratio


def test_a_changed_figure_is_named() -> None:
    """Counts that rest on a draft's forwards may be two apart and nothing else; what is missing on a side differs."""
    report = Report(
        figure=3,
        title="t",
        rows={"a": {"forwards": 102, "tokens": 120, "share": 0.33333, "ms": 7.1}},
        fixed=frozenset({"tokens", "share"}),
        near={"forwards": 2},
    )
    as_found = {"forwards": 100, "tokens": 120, "share": 0.3333}
    assert list(report.differences({"a": as_found})) == []
    for changed in ({"forwards": 99}, {"forwards": 105}, {"tokens": 121}, {"share": 0.3334}, {"equal": 1.0}):
        assert len(list(report.differences({"a": as_found | changed}))) == 1
    assert len(list(report.differences({"a": as_found, "b": {"tokens": 120}}))) == 1
    assert len(list(report.differences({}))) == 3


def test_a_promise_that_was_not_measured_is_neither_kept_nor_broken() -> None:
    """None stays None."""
    assert Check(claim="c", value=None, bound=1.0).reached is None
    assert Check(claim="c", value=0.9, bound=1.0).reached is False


@pytest.mark.skipif(not oracle.is_present(), reason="the real tokenizers are not here")
def test_a_perfect_draft_never_stalls() -> None:
    """No proposal of a draft that knows the text is empty, and each forward gives several tokens."""
    target, draft = oracle.real_tokenizer("bielik-v2"), oracle.real_tokenizer("bielik-v3-apt4")
    found = oracle.replay(target, draft, oracle.sentences(5), 2)
    assert found.empty == 0
    assert found.tokens / found.forwards > 3.5
