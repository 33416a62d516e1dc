"""What is measured of a model here: every point of the curve, in turns, without touching what was loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.engine.toys import recurrent, toy_llama, toy_tokenizer
from worker.engine import calibrate
from worker.engine.calibrate import Forwards, Samples, free, measure
from worker.engine.context import Context
from worker.engine.drafters.neural import NeuralDrafter
from worker.engine.errors import DraftMismatch
from worker.engine.model import Model
from worker.engine.sampling import Sampler
from worker.engine.values import Request, Sampling


@pytest.fixture
def toy() -> Model:
    return toy_llama(toy_tokenizer())


def heard(fractions: list[float]) -> Callable[[float], None]:
    return fractions.append


def test_every_point_is_measured_and_progress_only_grows(toy: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine sizes at two contexts, four lengths of each drafter, a draft's step; each with its spread."""
    monkeypatch.setattr(calibrate, "CONTEXTS", (32, 300))
    fractions: list[float] = []
    draft = toy_llama(toy_tokenizer(), seed=2)
    found = measure(toy, {"neural": NeuralDrafter(draft)}, draft, heard(fractions))
    costs = found.costs

    assert [context for context, _ in costs.verify] == [context for context, _ in costs.plain] == [32, 300]
    assert all([size for size, _ in points] == [1, 2, 3, 4, 5, 7, 9, 13, 17] for _, points in costs.verify)
    assert set(costs.propose) == {"neural", "lookup", "suffix", "ngram"}
    assert all([k for k, _ in points] == [1, 2, 4, 8] for points in costs.propose.values())
    assert min(costs.draft_step_s, costs.draft_prefill_token_s, costs.prefill_token_s) > 0 and not costs.predicted
    assert {"plain 32", "verify 300 17", "suffix 8", "draft plain 32"} <= set(found.spread)
    assert fractions == sorted(fractions) and 0 <= fractions[0] and fractions[-1] < 1
    assert found.rounds == calibrate.ROUNDS


def test_what_is_measured_takes_turns(toy: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """One busy moment falls on one round of everything, not on every round of one thing."""
    added: list[str] = []
    add = Samples.add

    def noting(self: Samples, *what: object, seconds: float) -> None:
        added.append(" ".join(map(str, what)))
        add(self, *what, seconds=seconds)

    monkeypatch.setattr(Samples, "add", noting)
    monkeypatch.setattr(calibrate, "CONTEXTS", (32, 64))
    monkeypatch.setattr(calibrate, "ROUNDS", 3)
    measure(toy, {}, None, lambda done: None)
    first = added[: len(added) // 3]

    assert added == 3 * first
    # Each forward once a round; a proposal of each length too.
    assert len(set(first)) == len(first) > 2 * len(calibrate.FORWARDS)


def test_a_slow_machine_measures_fewer_rounds(toy: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three at least, and no more than fit into the time."""
    monkeypatch.setattr(calibrate, "CONTEXTS", (32, 64))
    monkeypatch.setattr(calibrate, "ENOUGH_S", 0.0)
    assert measure(toy, {}, None, lambda done: None).rounds == calibrate.LEAST_ROUNDS


def test_a_median_ignores_a_busy_moment() -> None:
    """One sample of seven a hundred times as long changes neither the median nor much of the spread."""
    samples = Samples()
    for seconds in (1.0, 1.01, 0.99, 100.0, 1.02, 0.98, 1.0):
        samples.add("verify", 128, 3, seconds=seconds)
    assert samples.median("verify", 128, 3) == 1.0
    assert samples.spreads()["verify 128 3"] < 0.1


def test_measuring_leaves_the_context_as_it_was(toy: Model) -> None:
    """Each forward begins behind the same tokens, so that the last is no longer than the first."""
    forwards = Forwards(toy, 40, Samples())
    for count in calibrate.FORWARDS:
        forwards._forward_s(count)
        assert len(forwards._context) == 40
    forwards.sample_step()
    assert len(forwards._context) == 40
    forwards._context.check()


def test_drafters_without_a_model_are_timed_at_work(target: Model) -> None:
    """On the text that is measured with, each proposes as many tokens as asked."""
    ids = calibrate._ids(target, 400)
    for name, drafter in free(target.tokenizer).items():
        request = Request(custom_id="", text="", max_tokens=64)
        drafter.start(request, ids[:300], Sampler(Sampling(), "", target.vocab_size), lambda: False)
        counts = [len(drafter.propose(ids[:end], 8, 16).tokens) for end in range(302, 400, 2)]
        assert sorted(counts)[len(counts) // 2] == 8, name


def test_a_short_model_is_measured_behind_what_it_can_read(toy: Model) -> None:
    """A context of 100 tokens is too short for any of the usual lengths."""
    found = measure(dataclasses.replace(toy, context_tokens=100), {}, None, lambda done: None)
    assert [context for context, _ in found.costs.plain] == [25]


def test_a_target_that_cannot_forget_is_refused() -> None:
    """A recurrent model decodes plainly; there is nothing to calibrate."""
    model = recurrent()
    assert Context(model).obstacle
    with pytest.raises(DraftMismatch, match="nothing can draft for toy"):
        measure(model, {}, None, lambda done: None)


def test_progress_may_stop_it(toy: Model) -> None:
    """Whoever listens raises, and no further sample is taken."""

    def stop(done: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(toy, {}, None, stop)
