"""Sampling's law is the target's: outcomes of thousands of seeds against probabilities computed without the engine."""

from __future__ import annotations

import collections
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from tests.engine import toys
from worker.engine import ngram_file
from worker.engine.decode import Decoder
from worker.engine.drafters import intersect
from worker.engine.drafters.base import Drafter
from worker.engine.drafters.cross import CrossDrafter
from worker.engine.drafters.intersect import IntersectDrafter
from worker.engine.drafters.lookup import LookupDrafter
from worker.engine.drafters.neural import NeuralDrafter
from worker.engine.drafters.ngram import NgramDrafter
from worker.engine.drafters.staged import StagedDrafter
from worker.engine.drafters.suffix import SuffixDrafter
from worker.engine.model import Model
from worker.engine.ngram_file import NgramFile
from worker.engine.sampling import Sampler
from worker.engine.values import Request, Sampling

TEXT = "abcfabcfabcf"
SEEDS = 500
CERTAINLY_WRONG = 1e-6
PLAIN = Sampling(temperature=1.3)
FILTERED = Sampling(temperature=1.2, top_k=6, top_p=0.9, min_p=0.05, repetition_penalty=1.5)
CASES = {
    "temperature": Sampling(temperature=0.6),
    "top_k": Sampling(temperature=1.0, top_k=3),
    "top_p": Sampling(temperature=1.0, top_p=0.7),
    "min_p": Sampling(temperature=1.4, min_p=0.2),
    "penalty": Sampling(temperature=1.0, repetition_penalty=1.8),
    "all": FILTERED,
}


def law(logits: np.ndarray, sampling: Sampling, history: Sequence[int]) -> np.ndarray:
    """The probabilities of the next token (V,), by the book: penalty, temperature, top-k, top-p, min-p."""
    scores = logits.astype(np.float64)
    for token in set(history):
        scores[token] *= sampling.repetition_penalty if scores[token] < 0 else 1 / sampling.repetition_penalty
    scores = scores / sampling.temperature
    probability = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    order = list(np.argsort(-probability))
    if sampling.top_k:
        order = order[: sampling.top_k]
    total, kept = sum(probability[token] for token in order), list[int]()
    for token in order:
        if sum(probability[other] for other in kept) / total >= sampling.top_p:
            break
        kept.append(int(token))
    kept = [token for token in kept if probability[token] >= sampling.min_p * probability.max()]
    result = np.zeros_like(probability)
    result[kept] = probability[kept] / probability[kept].sum()
    return result


def chance(counts: Mapping[object, int], expected: Mapping[object, float]) -> float:
    """Pearson's chi-squared test: how likely so large a deviation is. Rare outcomes are taken together."""
    total = sum(counts.values())
    if any(expected.get(outcome, 0.0) <= 0.0 for outcome in counts):
        return 0.0
    cells = [(counts.get(outcome, 0), total * share) for outcome, share in expected.items() if total * share >= 5]
    rest = total - sum(count for count, _ in cells), total - sum(share for _, share in cells)
    cells += [rest] if rest[1] > 1 else []
    freedom = len(cells) - 1
    statistic = sum((count - share) ** 2 / share for count, share in cells)
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))  # Wilson, Hilferty
    return 0.5 * math.erfc(z / math.sqrt(2))


@pytest.mark.parametrize("case", CASES)
def test_each_processor_has_its_law(case: str) -> None:
    """3,000 positions with the same logits are drawn as often as the book says; the law of the next case is not met."""
    logits = np.linspace(-2.0, 2.0, 12)[[3, 7, 0, 11, 5, 8, 1, 10, 4, 9, 2, 6]]
    history, sampling = [11 - 8, 7, 2], CASES[case]
    sampler = Sampler(sampling, "a", 12)
    drawn = sampler.choose(mx.tile(mx.array(logits, dtype=mx.float32)[None], (3000, 1)), 0, sampler.seen(history))
    counts = collections.Counter[object](drawn.tolist())  # type: ignore[arg-type]
    names = list(CASES)
    other = CASES[names[(names.index(case) + 1) % len(names)]]

    assert chance(counts, dict(enumerate(law(logits, sampling, history)))) > 1e-3
    assert chance(counts, dict(enumerate(law(logits, other, history)))) < CERTAINLY_WRONG


@pytest.fixture(scope="module")
def toy() -> Model:
    return toys.toy_llama(toys.toy_tokenizer("abcdef"), seed=5)


def pairs_law(toy: Model, sampling: Sampling) -> dict[object, float]:
    """The probability of every answer of two tokens, or of fewer where the turn ends."""
    prompt, expected = toy.tokenizer.raw(TEXT), dict[object, float]()

    def next_law(tokens: tuple[int, ...]) -> np.ndarray:
        ids = [*prompt, *tokens]
        return law(np.array(toy.network(mx.array([ids]))[0, -1]), sampling, ids)

    def walk(tokens: tuple[int, ...], share: float) -> None:
        if len(tokens) == 2:
            expected[tokens] = share
            return
        for token, probability in enumerate(next_law(tokens)):
            if token in toy.tokenizer.eos_ids:
                expected[tokens] = expected.get(tokens, 0.0) + share * probability
            elif probability > 0:
                walk((*tokens, token), share * probability)

    walk((), 1.0)
    return expected


def pairs_drawn(toy: Model, drafter: Drafter | None, sampling: Sampling) -> tuple[collections.Counter[object], int]:
    """How often each answer came out under *drafter*, and how many proposed tokens stood."""
    decoder, counts, accepted = Decoder(toy, drafter, 2, {}), collections.Counter[object](), 0
    for seed in range(SEEDS):
        request = Request(custom_id=f"case {seed}", text=TEXT, sampling=sampling, max_tokens=2)
        generation = decoder.generate(request)
        counts[generation.tokens] += 1
        accepted += generation.metrics.accepted
    return counts, accepted


DRAFTERS: dict[str, Callable[[Model], Drafter | None]] = {
    "plain": lambda toy: None,
    "neural": lambda toy: NeuralDrafter(toys.toy_llama(toys.toy_tokenizer("abcdef"), seed=6, scale=0.3)),
    "cross": lambda toy: CrossDrafter(toy.tokenizer, paired(), "context"),
    "intersect": lambda toy: IntersectDrafter(toy.tokenizer, paired()),
    "lookup": lambda toy: LookupDrafter(),
    "suffix": lambda toy: SuffixDrafter(),
    "ngram": lambda toy: NgramDrafter(counted(toy)),
    "staged": lambda toy: StagedDrafter([SuffixDrafter()], CrossDrafter(toy.tokenizer, paired(), "direct"), 0.5),
}


def paired() -> Model:
    """A draft that has some pairs of letters as one token."""
    return toys.toy_llama(toys.toy_tokenizer("fedcba", ["ab", "cd"]), seed=7, scale=0.3)


def counted(toy: Model) -> NgramFile:
    """Trigrams of a text like the prompt. The file may go once it is mapped."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "toy.ngram"
        ids = toy.tokenizer.encode("abcfabceabdabcfafcbabc")
        ngram_file.build(path, [np.array(ids, dtype=np.uint64)], toy.tokenizer.table, 3)
        return NgramFile(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAFTERS)
def test_answers_have_the_targets_law(name: str, toy: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever drafts, the answers of two tokens come as often as the target's probabilities say."""
    monkeypatch.setattr(intersect, "MIN_OVERLAP_TOKENS", 4)
    for sampling in (PLAIN, FILTERED):
        counts, accepted = pairs_drawn(toy, DRAFTERS[name](toy), sampling)

        assert chance(counts, pairs_law(toy, sampling)) > 1e-3
        assert (accepted > 0) == (name != "plain")


def test_a_wrong_noise_key_is_seen(toy: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one noise for every position the pairs no longer have the law, and the test says so."""
    keyed = Sampler._noise
    monkeypatch.setattr(Sampler, "_noise", lambda self, position: keyed(self, 0))
    counts, _ = pairs_drawn(toy, None, PLAIN)

    assert chance(counts, pairs_law(toy, PLAIN)) < CERTAINLY_WRONG
