"""The drafter never shows in the output, whoever drafts, at any k, length and temperature."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.conftest import FILTERED, GREEDY, TEXTS, WARM, ask, mini
from tests.engine.liars import LIARS, AlwaysRight, AlwaysWrong, Liar
from worker.engine.build import Models
from worker.engine.decode import Decoder
from worker.engine.model import Model
from worker.engine.values import Drafting, Generation, Request

Reference = Callable[[Request], list[int]]

REAL = {
    "neural": Drafting(drafter="neural", draft=mini("mini-draft"), k=3),
    "cross-direct": Drafting(drafter="cross", draft=mini("mini-draft-bytes"), translation="direct", k=3),
    "cross-naive": Drafting(drafter="cross", draft=mini("mini-draft-polish"), translation="naive", k=2),
    "cross-context": Drafting(drafter="cross", draft=mini("mini-draft-bytes"), translation="context", k=2),
    "cross-polish": Drafting(drafter="cross", draft=mini("mini-draft-polish"), translation="context", k=4),
}


@pytest.mark.parametrize("sampling", [GREEDY, WARM, FILTERED], ids=["greedy", "warm", "filtered"])
@pytest.mark.parametrize("text", TEXTS)
def test_plain_equals_reference(models: Models, reference: Reference, text: str, sampling: object) -> None:
    """The plain path emits what mlx_lm's loop emits."""
    request = ask(text, sampling)  # type: ignore[arg-type]

    assert reference(request) == list(models.decoder(mini("mini-target"), Drafting()).generate(request).tokens)


@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("liar", LIARS)
def test_lying_drafters(target: Model, reference: Reference, liar: type[Liar], k: int) -> None:
    """A drafter that lies changes no token, greedy or sampled."""
    for text, sampling in zip(TEXTS, [GREEDY, WARM, WARM, FILTERED], strict=True):
        request = ask(text, sampling, max_tokens=21)
        truth = reference(request)
        drafter = liar(truth, target.vocab_size)

        assert truth == list(Decoder(target, drafter, k, {}).generate(request).tokens)


def test_always_right_accepts_all_and_always_wrong_nothing(target: Model, reference: Reference) -> None:
    """Forced acceptance of 100 % and 0 % is seen as such in the metrics."""
    request = ask(TEXTS[0], WARM, max_tokens=25)
    truth = reference(request)
    right = Decoder(target, AlwaysRight(truth, target.vocab_size), 4, {}).generate(request).metrics
    wrong = Decoder(target, AlwaysWrong(truth, target.vocab_size), 4, {}).generate(request).metrics

    assert 1.0 == right.acceptance_rate and len(truth) == right.accepted + len(right.rounds)
    assert 0 == wrong.accepted < wrong.proposed and len(truth) == len(wrong.rounds)


@pytest.mark.parametrize("name", REAL)
def test_real_drafters(models: Models, reference: Reference, name: str) -> None:
    """Each real drafter changes no token, and over the cases it proposes, is accepted and is rejected."""
    decoder = models.decoder(mini("mini-target"), REAL[name])
    outcomes: list[Generation] = []
    for text in TEXTS:
        for sampling, max_tokens in [(GREEDY, 17), (WARM, 40), (FILTERED, 24)]:
            request = ask(text, sampling, max_tokens)
            outcomes.append(decoder.generate(request))

            assert reference(request) == list(outcomes[-1].tokens), (text, sampling)

    proposed = sum(outcome.metrics.proposed for outcome in outcomes)
    accepted = sum(outcome.metrics.accepted for outcome in outcomes)

    assert 0 < accepted < proposed
    assert max(len(set(outcome.tokens)) for outcome in outcomes) >= 20


def test_order_does_not_matter(models: Models) -> None:
    """A request gives the same text whatever was generated before it."""
    decoder = models.decoder(mini("mini-target"), REAL["cross-context"])
    first = [decoder.generate(ask(text, WARM, 16)).text for text in TEXTS]
    second = [decoder.generate(ask(text, WARM, 16)).text for text in reversed(TEXTS)]

    assert first == second[::-1]
