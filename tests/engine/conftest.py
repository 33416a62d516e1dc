"""The mini family, loaded once, and the reference every drafter is held to: mlx_lm's own loop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step

from worker.engine.build import Models
from worker.engine.model import Model, load
from worker.engine.sampling import Sampler
from worker.engine.values import ModelRef, Request, Sampling, Turn

MINI = Path(__file__).parents[2] / "worker" / "mini"

TEXTS = [
    "Kontynuuj tekst: Niedaleko miasta znajdowała się wielka",
    "Wymień trzy rzeki:\n1. Wisła\n2. Odra\n",
    "Zażółć gęślą jaźń — „źdźbło”, 👩‍👩‍👧‍👦 i ďábelské ódy",
    "Jak otworzyć arkusz?",
]
GREEDY = Sampling()
WARM = Sampling(temperature=0.8, seed=11)
FILTERED = Sampling(temperature=1.1, top_p=0.95, top_k=200, min_p=0.01, repetition_penalty=1.3, seed=5)


def mini(name: str) -> ModelRef:
    """One of the mini family, in float32."""
    return ModelRef(source=str(MINI / name), dtype="float32")


@pytest.fixture(scope="session")
def models() -> Models:
    return Models()


@pytest.fixture(scope="session")
def target() -> Model:
    return load(mini("mini-target"))


def ask(text: str, sampling: Sampling = GREEDY, max_tokens: int = 32) -> Request:
    """One user turn."""
    return Request(
        custom_id="sprawa-1", turns=(Turn(role="user", content=text),), sampling=sampling, max_tokens=max_tokens
    )


@pytest.fixture(scope="session")
def reference(target: Model) -> Callable[[Request], list[int]]:
    """What mlx_lm's own loop emits for a request, with our noise where it samples: the tokens up to the end of turn."""

    @functools.cache
    def emitted(request: Request) -> list[int]:
        prompt = target.tokenizer.conversation(request.turns or ())
        sampler = Sampler(request.sampling, request.custom_id, target.vocab_size)
        history = list(prompt)

        def draw(logprobs: mx.array) -> mx.array:
            position, history_now = len(history), list(history)
            history.append(0)
            return sampler.choose(logprobs, position, sampler.seen(history_now))

        tokens: list[int] = []
        if sampler.remembers:
            return _one_by_one(target, prompt, sampler, request.max_tokens)
        for token, _ in generate_step(mx.array(prompt), target.network, max_tokens=request.max_tokens, sampler=draw):
            if token in target.tokenizer.eos_ids:
                break
            tokens.append(int(token))
        return tokens

    return emitted


def _one_by_one(target: Model, prompt: list[int], sampler: Sampler, count: int) -> list[int]:
    """The slow obvious loop: read one token, draw one token, rebuild the history each time."""
    cache, tokens, logits = target.new_cache(), [], None
    for token in prompt:
        logits = target.forward(mx.array([token]), cache)
    while len(tokens) < count:
        assert logits is not None
        history = [*prompt, *tokens]
        token = int(sampler.choose(logits, len(history), sampler.seen(history)).item())
        if token in target.tokenizer.eos_ids:
            break
        tokens.append(token)
        logits = target.forward(mx.array([token]), cache)
    return tokens
