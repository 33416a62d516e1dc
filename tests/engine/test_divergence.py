"""What was emitted is replayed through a fresh context; where two answers part, how near they were is known."""

from __future__ import annotations

import dataclasses
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.engine import toys
from tests.engine.liars import AlwaysRight, SometimesWrong
from worker.engine.decode import Decoder
from worker.engine.divergence import TIE_GAP, compare, replay
from worker.engine.model import Model
from worker.engine.sampling import Sampler
from worker.engine.values import Request, Sampling

GREEDY = Sampling()
WARM = Sampling(temperature=0.7, top_p=0.9, repetition_penalty=1.2, seed=3)


@pytest.fixture(scope="module")
def toy() -> Model:
    return toys.toy_llama(toys.toy_tokenizer(), layers=2)


def asked(sampling: Sampling, max_tokens: int = 80) -> Request:
    return Request(custom_id="a", text="abc", sampling=sampling, max_tokens=max_tokens)


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_a_replay_gives_every_token_that_was_emitted(toy: Model, sampling: Sampling) -> None:
    """Read in one go, the text's tokens have the best score at each place; a token put wrong is seen at its place."""
    prompt, sampler = toy.tokenizer.raw("abc"), Sampler(sampling, "a", toy.vocab_size)
    plain = Decoder(toy, None, 0, {}).generate(asked(sampling)).tokens
    drafted = Decoder(toy, SometimesWrong(plain, toy.vocab_size), 4, {}).generate(asked(sampling)).tokens
    gaps = replay(toy, sampler, prompt, drafted)

    assert len(drafted) == len(gaps) and len(set(drafted)) > 2
    assert max(gaps) < 1e-3
    wrong = [*drafted[:5], (drafted[5] + 1) % 10, *drafted[6:]]
    assert replay(toy, sampler, prompt, wrong)[5] > 1e-3


def test_equal_answers_have_no_divergence(toy: Model) -> None:
    """Equal is equal, also when both are empty."""
    sampler = Sampler(GREEDY, "a", toy.vocab_size)

    assert compare(toy, sampler, [0, 1], [2, 3], [2, 3]) is None
    assert compare(toy, sampler, [0, 1], [], []) is None


def test_a_divergence_names_its_place_and_its_gap(toy: Model) -> None:
    """The gap is the difference of the two tokens' logits behind the common text, also where one answer ended there."""
    sampler = Sampler(GREEDY, "a", toy.vocab_size)
    logits = np.array(toy.network(mx.array([[0, 1, 2, 3]]))[0, -1])
    end = next(iter(toy.tokenizer.eos_ids))
    one = compare(toy, sampler, [0, 1], [2, 3, 4, 1], [2, 3, 6, 1])
    two = compare(toy, sampler, [0, 1], [2, 3], [2, 3, 6])

    assert one is not None and (2, 4, 6) == (one.index, one.expected, one.got)
    assert abs(logits[4] - logits[6]) == pytest.approx(one.gap, abs=1e-4)
    assert two is not None and (2, None, 6) == (two.index, two.expected, two.got)
    assert abs(logits[end] - logits[6]) == pytest.approx(two.gap, abs=1e-4)


@dataclasses.dataclass(frozen=True, eq=False)
class Unsteady(Model):
    """Rounds like half precision: a forward of several tokens differs a little from single ones."""

    noise: float = 0.0

    def forward(self, ids: mx.array, cache: list[Any]) -> mx.array:
        logits = super().forward(ids, cache)
        wobble = self.noise * mx.cos(mx.arange(logits.shape[1]) * 2.1 + 1.0)
        return logits + wobble if ids.size > 1 else logits


def test_an_injected_flip_is_a_near_tie(toy: Model) -> None:
    """Where several tokens at once are scored a little differently, the answers part at a near tie and nowhere else."""
    values = {field.name: getattr(toy, field.name) for field in dataclasses.fields(toy)}
    unsteady = Unsteady(**values, noise=0.04)
    prompt, parted = toy.tokenizer.raw("abc"), []
    for seed in range(20):
        request = asked(Sampling(temperature=2.5, seed=seed))
        sampler = Sampler(request.sampling, "a", toy.vocab_size)
        plain = Decoder(toy, None, 0, {}).generate(request).tokens
        drafted = Decoder(unsteady, AlwaysRight(plain, toy.vocab_size), 4, {}).generate(request).tokens
        parted.append(compare(toy, sampler, prompt, plain, drafted))
    found = [divergence for divergence in parted if divergence is not None]

    assert found, "no flip was injected"
    assert all(divergence.is_near_tie and divergence.gap <= 2 * 0.04 for divergence in found)
    assert 2 * 0.04 < TIE_GAP
