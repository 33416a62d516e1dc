"""A draft that needs no network: it knows the text and says it in its own tokens, at times wrongly if asked to.

It stands where a loaded model stands, so that the real `cross` drafter runs over it as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx_lm.models.cache import KVCache

from worker.engine.model import Model
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import ModelRef

CONTEXT_TOKENS = 1 << 20
SURE = 30.0


def never(position: int) -> bool:
    """The default for *errs*."""
    return False


class Memory(KVCache):  # type: ignore[misc]
    """How many bytes the ids read so far spell, one entry an id, in the place of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[int] = []

    @property
    def state(self) -> list[mx.array]:
        return []

    def read(self, sizes: list[int]) -> list[int]:
        """Where the text stands after each id of *sizes* bytes."""
        for size in sizes:
            self.ends.append((self.ends[-1] if self.ends else 0) + size)
        self.offset += len(sizes)
        return self.ends[len(self.ends) - len(sizes) :]

    def trim(self, n: int) -> int:
        self.offset -= n
        del self.ends[self.offset :]
        return n


class Reciter(Module):
    """Says a text in the tokens of *tokenizer*, from whichever byte it has read to. *errs* tells where it is wrong."""

    def __init__(self, tokenizer: Tokenizer, errs: Callable[[int], bool] = never) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tokenizer = tokenizer
        self._errs = errs
        self._text = b""
        self._due: dict[int, int] = {}

    def learn(self, text: bytes) -> bool:
        """Say *text* from now on; whether the tokenizer gives it back, which one that normalises may not."""
        self._text, self._due = text, {}
        position = 0
        for token in self._tokenizer.encode_middle(text.decode()):
            self._due[position] = token
            position += len(self._tokenizer.spell([token]))
        return position == len(text)

    def make_cache(self) -> list[Memory]:
        return [Memory()]

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        """Logits (1, n, V) of *inputs* (1, n): sure of the token that comes next."""
        memory: Memory = cache[0]
        table = self._tokenizer.table
        ends = memory.read([len(table[token]) for token in inputs[0].tolist()])  # type: ignore[union-attr, index]
        due = mx.array([self._next(end) for end in ends])
        return mx.where(mx.arange(len(table)) == due[:, None], SURE, 0.0)[None]

    def _next(self, position: int) -> int:
        if position >= len(self._text):
            return self._tokenizer.end_of_turn
        if self._errs(position):
            return self._due[0]
        if position not in self._due:
            self._due[position] = self._tokenizer.encode_bytes(self._text[position : position + 64])[0]
        return self._due[position]


def reciting(tokenizer: Tokenizer, reciter: Reciter) -> Model:
    """*reciter* as a loaded model."""
    return Model(
        ref=ModelRef(source="reciter"),
        revision=None,
        network=reciter,
        tokenizer=tokenizer,
        dtype="float32",
        quantized=False,
        context_tokens=CONTEXT_TOKENS,
        vocab_size=len(tokenizer.table),
        size_bytes=0,
    )
