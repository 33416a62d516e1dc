"""More claims that kill mutants, on models so small that they take a moment."""

from __future__ import annotations

import random
from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import pytest

from tests.engine import toys
from tests.engine.liars import AlwaysRight, SometimesWrong
from worker.engine import context as context_module
from worker.engine.context import Context, Window
from worker.engine.decode import Decoder
from worker.engine.drafters.cross import CrossDrafter
from worker.engine.drafters.neural import NeuralDrafter
from worker.engine.emit import Emitter
from worker.engine.model import Model
from worker.engine.sampling import Sampler
from worker.engine.values import Draft, Request, Sampling

WARM = Sampling(temperature=0.9, seed=2)
HARSH = Sampling(temperature=0.7, repetition_penalty=3.0, top_k=5, seed=3)


@pytest.fixture(scope="module")
def toy() -> Model:
    return toys.toy_llama(toys.toy_tokenizer(), seed=1)


def slowly(model: Model, request: Request) -> list[int]:
    """The slow obvious loop, with no cache at all."""
    prompt, tokens = model.tokenizer.raw(request.text or ""), list[int]()
    sampler = Sampler(request.sampling, request.custom_id, model.vocab_size)
    while len(tokens) < request.max_tokens:
        history = [*prompt, *tokens]
        row = model.network(mx.array([history]))[0, -1:]
        token = int(sampler.choose(row, len(history), sampler.seen(history)).item())  # type: ignore[arg-type]
        if token in model.tokenizer.eos_ids:
            break
        tokens.append(token)
    return tokens


@pytest.mark.parametrize("sampling", [Sampling(), WARM, HARSH], ids=["greedy", "warm", "harsh"])
@pytest.mark.parametrize("window", [None, 5])
def test_equals_the_slow_loop(toy: Model, sampling: Sampling, window: int | None) -> None:
    """Plain, always right and sometimes wrong emit what reading everything anew gives, with windows as without."""
    model = toy if window is None else toys.sliding_llama(window)
    request = Request(custom_id="a", text="abc", max_tokens=24, sampling=sampling)
    truth = slowly(model, request)

    assert truth == list(Decoder(model, None, 0, {}).generate(request).tokens)
    for liar in (AlwaysRight, SometimesWrong):
        assert truth == list(Decoder(model, liar(truth, model.vocab_size), 4, {}).generate(request).tokens), liar


@pytest.mark.parametrize("size", [1, 4])
def test_a_rewound_window_is_whole_again(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of any length, with rewinds between them, give what a reading at once gives."""
    monkeypatch.setattr(context_module, "REWIND_TOKENS", 6)
    monkeypatch.setattr(Window, "step", 4)
    model, rng = toys.sliding_llama(size), random.Random(size)
    context, ids, longest = Context(model), list[int](), 0
    for count in [3, 1, 1, 17, 2, 1, 5, 1, 1, 6, 1]:
        fresh = [rng.randrange(model.vocab_size) for _ in range(count)]
        rows = np.array(context.append(fresh))
        ids += fresh
        context.check()
        np.testing.assert_allclose(rows, np.array(model.network(mx.array([ids]))[0])[-count:], rtol=2e-3, atol=2e-3)
        longest = max(longest, len(ids))
        back = rng.randrange(max(0, longest - 6), len(ids) + 1)
        context.rewind(back)
        del ids[back:]


def test_what_cannot_be_rewound_is_never_speculated_on() -> None:
    """A recurrent target answers plainly, and says why."""
    model = toys.recurrent()
    request = Request(custom_id="a", text="abcd", max_tokens=6, sampling=WARM)
    generation = Decoder(model, AlwaysRight([1, 2, 3, 4], model.vocab_size), 3, {}).generate(request)

    assert "the target: the ArraysCache of a layer cannot be rewound" == generation.metrics.off_reason
    assert slowly(model, request) == list(generation.tokens)


def test_a_stop_string_never_shows() -> None:
    """Of a stop string not even its beginning is released, and what only looked like one is."""
    tokenizer = toys.toy_tokenizer()
    emitter, seen = Emitter(tokenizer, 20, ["def"]), list[str]()
    for token in tokenizer.encode("abdeabcdefg"):
        going = emitter.push(token)
        seen.append(emitter.release())
        if not going:
            break

    assert ["a", "b", "", "", "dea", "b", "c", "", "", ""] == seen
    assert "abdeabc" == emitter.text and "stop" == emitter.finish_reason


def test_half_a_character_never_shows() -> None:
    """A character of several tokens is released with its last one."""
    tokenizer = toys.toy_tokenizer(["a", *(f"<0x{value:02X}>" for value in "ć👩".encode())])
    emitter, seen = Emitter(tokenizer, 20), list[str]()
    for token in range(7):
        emitter.push(token)
        seen.append(emitter.release())

    assert ["a", "", "ć", "", "", "", "👩"] == seen


class Watched(CrossDrafter):
    """Says after each proposal what it has read behind the prompt."""

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        draft = super().propose(tokens, k, limit)
        read = self._draft.tokenizer.spell(self._context.tokens[self.prompt_tokens :])
        committed = self._target.spell(tokens[self.prompt_tokens :])
        if draft.draft_tokens:
            self.misread = self.misread or not read.startswith(committed)
        return draft

    misread = False
    prompt_tokens = 6


@pytest.mark.parametrize("translation", ["direct", "context"])
def test_a_cross_draft_reads_what_is_committed(toy: Model, translation: str) -> None:
    """Its tokens change where pairs form and break, and it reads the committed text all the same."""
    draft = toys.toy_llama(toys.toy_tokenizer("jihgfedcba", [*toys.PAIRS, "bc", "de", "ja"]), seed=3)
    prompt = "cgigih"  # no pairs
    assert 6 == len(draft.tokenizer.encode(prompt))
    for seed in range(4):
        watched = Watched(toy.tokenizer, draft, translation)
        request = Request(custom_id="a", text=prompt, max_tokens=40, sampling=Sampling(temperature=1.5, seed=seed))
        generation = Decoder(toy, watched, 3, {}).generate(request)

        assert slowly(toy, request) == list(generation.tokens)
        assert not watched.misread
        assert len(generation.metrics.rounds) > 2


def test_a_draft_of_the_same_weights_is_always_right(toy: Model) -> None:
    """In step, at the right position and with the right noise, the target's own copy is never rejected."""
    draft = toys.toy_llama(toys.toy_tokenizer(), seed=1)
    for sampling in (Sampling(temperature=2.0, seed=1), Sampling(temperature=1.2, top_p=0.9, seed=2)):
        request = Request(custom_id="a", text="abcdef", max_tokens=40, sampling=sampling)
        metrics = Decoder(toy, NeuralDrafter(draft), 3, {}).generate(request).metrics

        assert len(metrics.rounds) > 4 and 1.0 == metrics.acceptance_rate


def test_noise_is_keyed_by_seed_item_and_position() -> None:
    """Flat logits show the noise: it differs between positions, items and seeds, and with nothing else."""
    flat = mx.zeros((32, 500))

    def drawn(seed: int, custom_id: str, position: int) -> list[int]:
        ids = Sampler(Sampling(temperature=1.0, seed=seed), custom_id, 500).choose(flat, position)
        return [int(token) for token in ids.tolist()]  # type: ignore[union-attr, arg-type]

    first = drawn(1, "a", 10)
    assert len(set(first)) > 25
    assert first == drawn(1, "a", 10) and first[5:] == drawn(1, "a", 15)[:-5]
    for other in (drawn(1, "b", 10), drawn(2, "a", 10), drawn(1, "a", 50)):
        assert sum(one == two for one, two in zip(first, other, strict=True)) < 5
