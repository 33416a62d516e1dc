"""A long prompt is read in chunks between which a cancel is heard, and the chunks change nothing that is read."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import pytest

from worker.engine import context
from worker.engine.context import Context, next_chunk
from worker.engine.model import Model


def chunks(seconds_per_token: float, count: int) -> Iterator[tuple[int, float]]:
    """The sizes and the seconds of the first *count* chunks on a machine that reads at a steady pace."""
    size = context.CHUNK_TOKENS
    for _ in range(count):
        yield size, size * seconds_per_token
        size = next_chunk(size, size * seconds_per_token)


@pytest.mark.parametrize("tokens_per_s", [40, 100, 300, 1_000, 5_000, 100_000])
def test_no_chunk_but_the_first_ones_takes_more_than_a_second(tokens_per_s: float) -> None:
    """At any pace of 40 tokens/s and more, and a machine that is quick reads the most at a time."""
    taken = list(chunks(1 / tokens_per_s, 20))

    assert all(took_s <= 1.0 for _, took_s in taken[3:])
    assert all(context.LEAST_CHUNK_TOKENS <= size <= context.MOST_CHUNK_TOKENS for size, _ in taken)
    if tokens_per_s >= 10_000:
        assert taken[-1][0] == context.MOST_CHUNK_TOKENS


def test_chunks_change_nothing_that_is_read(target: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in 16s or at one time: the same tokens, and the next token's logits to a rounding's width."""
    ids = [5 + number * 7 % 900 for number in range(200)]
    whole, cut = Context(target), Context(target)
    asked: list[int] = []
    assert whole.prefill(ids, lambda: False)
    monkeypatch.setattr(context, "CHUNK_TOKENS", 16)
    monkeypatch.setattr(context, "DOUBLE_BELOW_S", 0.0)
    assert cut.prefill(ids, lambda: asked.append(len(cut)) or False)  # type: ignore[func-returns-value]

    assert asked == [*range(0, 200, 16), 200]
    assert whole.tokens == cut.tokens == ids
    cut.check()
    first, second = whole.append([9])[-1], cut.append([9])[-1]
    assert mx.allclose(first, second, atol=1e-3).item()
