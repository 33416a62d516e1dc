"""A model and the tokens it has read, moved together. The only owner of a KV cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx
from mlx_lm.models.cache import KVCache, QuantizedKVCache

from worker.engine.model import Model

#: Draws a token from the last row of logits (1, V), given its position in the sequence: ids (1,), lazy.
Choose = Callable[[mx.array, int], mx.array]

PREFILL_CHUNK_TOKENS = 512
CLEAR_EVERY_TOKENS = 256


class Context:
    """What one model has read. `tokens` and the cache always have the same length."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._cache = model.new_cache()
        self._tokens: list[int] = []
        # Tokens read but not yet known on the host; each is (n,).
        self._lazy: list[mx.array] = []

    @property
    def tokens(self) -> list[int]:
        """The tokens read so far; not to be changed. Waits for those that are still being computed."""
        if self._lazy:
            for ids in self._lazy:
                self._tokens.extend(ids.tolist())  # type: ignore[arg-type]
            self._lazy.clear()
        return self._tokens

    def __len__(self) -> int:
        return len(self._tokens) + sum(ids.size for ids in self._lazy)

    @property
    def can_rewind(self) -> bool:
        """Whether every layer's cache can go back exactly."""
        return all(isinstance(layer, KVCache | QuantizedKVCache) for layer in self._cache)

    def append(self, ids: mx.array | Sequence[int]) -> mx.array:
        """Read *ids* (n,): the logits rows (n, V) that they give; lazy."""
        if isinstance(ids, mx.array):
            self._lazy.append(ids)
        else:
            self._tokens = self.tokens
            self._tokens.extend(ids)
            ids = mx.array(list(ids), dtype=mx.int32)
        return self.model.forward(ids, self._cache)

    def rewind(self, length: int) -> None:
        """Forget all but the first *length* tokens. Raises RuntimeError where a layer cannot go back."""
        surplus = len(self.tokens) - length
        if surplus < 0:
            raise ValueError(f"cannot rewind {len(self.tokens)} tokens to {length}")
        if surplus:
            for layer in self._cache:
                if layer.trim(surplus) != surplus:
                    raise RuntimeError(f"a {type(layer).__name__} could not be rewound by {surplus} tokens")
            del self._tokens[length:]

    def keep_common(self, ids: Sequence[int], start: int = 0) -> int:
        """Rewind to the longest common prefix with *ids*, known to reach *start*; returns its length."""
        read = self.tokens
        common, end = start, min(len(read), len(ids))
        while common < end and read[common] == ids[common]:
            common += 1
        self.rewind(common)
        return common

    def prefill(self, ids: Sequence[int], interrupted: Callable[[], bool]) -> bool:
        """Read *ids* in chunks, asking *interrupted* between them; whether all were read."""
        for start in range(0, len(ids), PREFILL_CHUNK_TOKENS):
            if interrupted():
                return False
            self.append(ids[start : start + PREFILL_CHUNK_TOKENS])
            mx.eval([layer.state for layer in self._cache])
            mx.clear_cache()
        return not interrupted()

    def roll(self, ids: Sequence[int], count: int, choose: Choose) -> mx.array:
        """Read *ids*, then draw *count* tokens, all but the last of which are read too: (count,), lazy."""
        logits = self.append(ids)
        drawn = [choose(logits[-1:], len(self))]
        for _ in range(count - 1):
            drawn.append(choose(self.append(drawn[-1]), len(self)))
        return mx.concatenate(drawn)

    def stream(self, token: int, count: int, choose: Choose) -> Iterator[int]:
        """Read *token* and yield up to *count* tokens drawn one after the other, one step computed ahead.

        This is plain decoding, double-buffered. At the end all but the last yielded token are read.
        """
        drawn = choose(self.append([token])[-1:], len(self))
        mx.async_eval(drawn)  # type: ignore[no-untyped-call]
        for index in range(count):
            ahead = None
            if index + 1 < count:
                ahead = choose(self.append(drawn), len(self))
                mx.async_eval(ahead)  # type: ignore[no-untyped-call]
            yield int(drawn.item())  # type: ignore[arg-type]
            if index % CLEAR_EVERY_TOKENS == CLEAR_EVERY_TOKENS - 1:
                mx.clear_cache()
            if ahead is not None:
                drawn = ahead

    def check(self) -> None:
        """Assert that cache and tokens agree in every layer."""
        for layer in self._cache:
            assert layer.offset == len(self), f"{type(layer).__name__}: offset {layer.offset}, {len(self)} tokens"
