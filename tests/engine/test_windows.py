"""Caches of sliding windows are rewound exactly; those that cannot be rewound turn speculation off and say so."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import ArraysCache, RotatingKVCache

from tests.engine import toys
from tests.engine.liars import AlwaysRight, SometimesWrong
from worker.engine import context as context_module
from worker.engine.context import Context, Window
from worker.engine.decode import Decoder
from worker.engine.model import Model
from worker.engine.values import Request, Sampling

FAMILIES: dict[str, Callable[[int], Model]] = {"llama": toys.sliding_llama, "gemma3": toys.sliding_gemma}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Callable[[int], Model]:
    return FAMILIES[request.param]


def at_once(model: Model, ids: list[int]) -> np.ndarray:
    """What the network gives for *ids* with no cache at all, its windows made by masks: logits (n, V)."""
    return np.array(model.network(mx.array([ids]))[0])


@pytest.mark.parametrize("window", [1, 3, 8])
def test_any_way_back_and_forth_gives_the_same_logits(
    family: Callable[[int], Model], window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a text was read and rewound, the next logits are those of reading it at once."""
    monkeypatch.setattr(context_module, "REWIND_TOKENS", 6)
    monkeypatch.setattr(Window, "step", 4)
    model = family(window)
    rng = random.Random(window)
    context, ids, longest = Context(model), list[int](), 0
    for _ in range(40):
        fresh = [rng.randrange(model.vocab_size) for _ in range(rng.choice([1, 1, 1, 2, 3, 5, 17]))]
        rows = np.array(context.append(fresh))
        ids += fresh
        context.check()
        np.testing.assert_allclose(rows, at_once(model, ids)[-len(fresh) :], rtol=2e-3, atol=2e-3)
        longest = max(longest, len(ids))
        back = rng.randrange(max(0, longest - 6), len(ids) + 1)
        context.rewind(back)
        del ids[back:]


def test_a_rewind_beyond_what_is_held_is_refused_and_followed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind what is held, `rewind` raises before it changes anything and `follow` reads again."""
    monkeypatch.setattr(context_module, "REWIND_TOKENS", 6)
    monkeypatch.setattr(Window, "step", 4)
    model = toys.sliding_llama(4)
    ids = [index % model.vocab_size for index in range(60)]
    context = Context(model)
    for start in range(0, 60, 5):
        context.append(ids[start : start + 5])

    with pytest.raises(RuntimeError, match="cannot rewind to 2 tokens"):
        context.rewind(2)
    context.check()
    other = [*ids[:2], 7, 1, 2]
    rows = np.array(context.append(context.follow(other)))

    assert other == context.tokens
    np.testing.assert_allclose(rows[-1], at_once(model, other)[-1], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("context_tokens", [20, 4096])
def test_going_on_is_following_the_whole(family: Callable[[int], Model], context_tokens: int) -> None:
    """Behind what was read `go_on` reads what `follow` reads of all of it, also where that no longer fits."""
    model = dataclasses.replace(family(6), context_tokens=context_tokens)
    rng = random.Random(context_tokens)
    for _ in range(30):
        whole = [rng.randrange(model.vocab_size) for _ in range(rng.choice([4, 9, 16]))]
        length, room, again = rng.randrange(1, len(whole)), rng.randrange(6), rng.randrange(1, 4)
        # Now and then what stands behind is what was read there.
        fresh = [*whole[length : rng.randrange(length, len(whole))], 1, 2]
        one, other = Context(model), Context(model)
        for context in (one, other):
            context.prefill(whole, lambda: False)

        unread = one.go_on(length, fresh, room, again)

        assert unread == other.follow([*whole[:length], *fresh], 0, room, again)
        assert one.tokens == other.tokens
        assert len(unread) >= again and [*one.tokens, *unread] == [*whole[:length], *fresh]
        one.check()


def test_plain_decoding_over_windows_is_mlx_lm_s(family: Callable[[int], Model]) -> None:
    """Greedy decoding past the window gives what mlx_lm's own loop gives."""
    model = family(6)
    prompt = model.tokenizer.raw("abcdefghijab")
    request = Request(custom_id="a", text="abcdefghijab", max_tokens=24)
    expected = []
    for token, _ in generate_step(mx.array(prompt), model.network, max_tokens=24):
        if token in model.tokenizer.eos_ids:
            break
        expected.append(int(token))

    assert expected == list(Decoder(model, None, 0, {}).generate(request).tokens)


@pytest.mark.parametrize("liar", [AlwaysRight, SometimesWrong])
def test_speculation_over_windows_changes_no_token(family: Callable[[int], Model], liar: type[AlwaysRight]) -> None:
    """A window smaller than the text, rounds that are rewound: the tokens are those of plain decoding."""
    model = family(5)
    for seed in range(3):
        sampling = Sampling(temperature=0.9, seed=seed)
        request = Request(custom_id="a", text="abcdefghijab", max_tokens=40, sampling=sampling)
        plain = Decoder(model, None, 0, {}).generate(request)
        drafted = Decoder(model, liar(plain.tokens, model.vocab_size), 4, {}).generate(request)

        assert plain.tokens == drafted.tokens
        assert drafted.metrics.off_reason is None and drafted.metrics.rounds


def test_a_cache_that_cannot_be_rewound_turns_speculation_off_and_says_why() -> None:
    """A state-space target answers plainly, and the result names the cache that is in the way."""
    model = toys.recurrent()
    assert isinstance(model.new_cache()[0], ArraysCache)
    request = Request(custom_id="a", text="abcd", max_tokens=12, sampling=Sampling(temperature=1.0))
    plain = Decoder(model, None, 0, {}).generate(request)
    drafted = Decoder(model, AlwaysRight(plain.tokens, model.vocab_size), 3, {}).generate(request)

    assert plain.tokens == drafted.tokens
    assert plain.metrics.off_reason is None and not drafted.metrics.rounds
    assert "the target: the ArraysCache of a layer cannot be rewound" == drafted.metrics.off_reason


def test_a_window_that_keeps_its_first_tokens_is_not_rewound() -> None:
    """mlx_lm's `keep` shows early tokens to single reads and not to longer ones, so nothing exact can be promised."""
    model = toys.toy_llama(toys.toy_tokenizer())
    model.network.make_cache = lambda: [RotatingKVCache(max_size=8, keep=4)]

    assert "the RotatingKVCache of a layer cannot be rewound" == Context(model).obstacle
