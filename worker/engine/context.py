"""A model and the tokens it has read, moved together. The only owner of a KV cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache

from worker.engine.model import Model

#: Draws a token from the last row of logits (1, V), given its position in the sequence: ids (1,), lazy.
Choose = Callable[[mx.array, int], mx.array]

#: A prompt is read in chunks of the first size, doubled while they take less than 0.4 s each, halved above one:
#: between them a cancel is heard. A machine that is quick reads in the same chunks every time.
CHUNK_TOKENS, LEAST_CHUNK_TOKENS, MOST_CHUNK_TOKENS = 128, 32, 2048
DOUBLE_BELOW_S, HALVE_ABOVE_S = 0.4, 1.0
CLEAR_EVERY_TOKENS = 256
#: A sliding window can be rewound this many tokens behind the longest it has been.
REWIND_TOKENS = 256


def always() -> bool:
    """The default for *stays*."""
    return True


class Context:
    """What one model has read. `tokens` and the cache always have the same length, skipped tokens aside."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._cache = _new_cache(model)
        self._tokens: list[int] = []
        #: How many of the first tokens were left out, since all of them do not fit into what the model can read.
        self.skipped = 0
        # Tokens read but not yet known on the host; each is (n,).
        self._lazy: list[mx.array] = []
        self._lazy_count = 0

    @property
    def tokens(self) -> list[int]:
        """The tokens read so far; not to be changed. Waits for those that are still being computed."""
        if self._lazy:
            for ids in self._lazy:
                self._tokens.extend(ids.tolist())  # type: ignore[arg-type]
            self._forget_lazy()
        return self._tokens

    def __len__(self) -> int:
        return len(self._tokens) + self._lazy_count

    @property
    def obstacle(self) -> str | None:
        """Why this context cannot be rewound exactly; None where it can."""
        exact = (KVCache, QuantizedKVCache, Window)
        kinds = [type(layer).__name__ for layer in self._cache if not isinstance(layer, exact)]
        return f"the {kinds[0]} of a layer cannot be rewound" if kinds else None

    def fits(self, length: int) -> bool:
        """Whether the tokens may become *length* without leaving more of them out."""
        return length - self.skipped <= self.model.context_tokens

    def append(self, ids: mx.array | Sequence[int]) -> mx.array:
        """Read *ids* (n,): the logits rows (n, V) that they give; lazy."""
        if isinstance(ids, mx.array):
            self._lazy.append(ids)
            self._lazy_count += ids.size
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
            if length < self.earliest:
                raise RuntimeError(f"cannot rewind to {length} tokens: only from {self.earliest} on all is held")
            for layer in self._cache:
                if layer.trim(surplus) != surplus:
                    raise RuntimeError(f"a {type(layer).__name__} could not be rewound by {surplus} tokens")
            del self._tokens[length:]

    def follow(self, ids: Sequence[int], start: int = 0, room: int = 0, again: int = 1) -> list[int]:
        """Rewind to what is common with *ids*, known up to *start*; returns what is left to read, *again* ids or more.

        Where *ids* and *room* more do not fit, or a layer cannot go back so far, the last part of *ids* is read anew.
        """
        start = min(start, len(self))
        return self.go_on(start, ids[start:], room, again)

    def go_on(self, length: int, ids: Sequence[int], room: int = 0, again: int = 1) -> list[int]:
        """`follow` the first *length* tokens read, which nobody looks through, and *ids* behind them."""
        read = self.tokens
        whole = length + len(ids)
        end = min(len(read), whole - again)
        common = min(length, end)
        while common < end and read[common] == ids[common - length]:
            common += 1
        if common >= self.earliest and self.fits(whole + room):
            unread = [*read[common:length], *ids[max(0, common - length) :]]
            self.rewind(common)
            return unread
        unread = self._begin([*read[:length], *ids], room, again)
        self._read(unread[:-again], lambda: False)
        return unread[-again:]

    def prefill(self, ids: Sequence[int], interrupted: Callable[[], bool]) -> bool:
        """Begin with *ids*, read in chunks, asking *interrupted* between them; whether all were read.

        Of more ids than the model can read, only the last are read.
        """
        return self._read(self._begin(ids, 1), interrupted)

    def read_on(self, ids: Sequence[int], interrupted: Callable[[], bool]) -> bool:
        """Read *ids* behind what was read, in chunks, asking *interrupted* between them; whether all were read."""
        return self._read(ids, interrupted)

    @property
    def copyable(self) -> bool:
        """Whether `copy` is exact here."""
        return all(type(layer) in (KVCache, Window) for layer in self._cache)

    def copy(self) -> Context:
        """Another context that has read the same. Costs no memory until one of the two reads on."""
        other = Context(self.model)
        other._tokens, other.skipped = list(self.tokens), self.skipped
        other._cache = [_copied(layer) for layer in self._cache]
        return other

    def compact(self) -> None:
        """Hold what was read in memory of its own: without spare room, and sharing nothing with a copy."""
        for layer in self._cache:
            if layer.keys is not None:
                layer.keys, layer.values = mx.contiguous(layer.keys), mx.contiguous(layer.values)
        mx.eval([(layer.keys, layer.values) for layer in self._cache if layer.keys is not None])

    @property
    def earliest(self) -> int:
        """The shortest length that every layer can be rewound to."""
        return self.skipped + max((layer.earliest for layer in self._cache if isinstance(layer, Window)), default=0)

    @property
    def token_bytes(self) -> int:
        """What one more token costs: bytes, once something was read."""
        held = [layer.keys for layer in self._cache if getattr(layer, "keys", None) is not None]
        return sum(2 * keys.nbytes // keys.shape[2] for keys in held)

    @property
    def held_bytes(self) -> int:
        """Bytes of the cache, spare room counted."""
        return sum(layer.nbytes for layer in self._cache)

    def give_away(self) -> list[Any]:
        """The cache, in mlx_lm's own classes, one a layer. This context is of no use afterwards."""
        return [layer.as_rotating() if isinstance(layer, Window) else layer for layer in self._cache]

    def roll(self, ids: Sequence[int], count: int, choose: Choose) -> mx.array:
        """Read *ids*, then draw *count* tokens, all but the last of which are read too: (count,), lazy."""
        logits = self.append(ids)
        drawn = [choose(logits[-1:], len(self))]
        for _ in range(count - 1):
            drawn.append(choose(self.append(drawn[-1]), len(self)))
        return mx.concatenate(drawn)

    def stream(self, token: int, count: int, choose: Choose, stays: Callable[[], bool] = always) -> Iterator[int]:
        """Read *token* and yield up to *count* tokens drawn one after the other, one step computed ahead.

        This is plain decoding, double-buffered. *stays* is asked between tokens, while the next one is computed: that
        one is the last where it says no. At the end all but the last yielded token are read.
        """
        drawn = choose(self.append([token])[-1:], len(self))
        mx.async_eval(drawn)  # type: ignore[no-untyped-call]
        for index in range(count):
            ahead = None
            if index + 1 < count and (index == 0 or stays()):
                ahead = choose(self.append(drawn), len(self))
                mx.async_eval(ahead)  # type: ignore[no-untyped-call]
            yield int(drawn.item())  # type: ignore[arg-type]
            if index % CLEAR_EVERY_TOKENS == CLEAR_EVERY_TOKENS - 1:
                mx.clear_cache()
            if ahead is None:
                return
            drawn = ahead

    def check(self) -> None:
        """Assert that cache and tokens agree in every layer."""
        read = len(self) - self.skipped
        for layer in self._cache:
            assert layer.offset == read, f"{type(layer).__name__}: offset {layer.offset}, {read} tokens"

    def _forget_lazy(self) -> None:
        self._lazy.clear()
        self._lazy_count = 0

    def _begin(self, ids: Sequence[int], room: int, least: int = 1) -> list[int]:
        """Forget everything; returns what of *ids* to read: all if *room* more fit behind it, else *least* or more."""
        self._cache = _new_cache(self.model)
        self._forget_lazy()
        capacity = self.model.context_tokens
        self.skipped = 0 if len(ids) + room <= capacity else max(0, len(ids) - max(capacity // 2, least))
        self._tokens = list(ids[: self.skipped])
        return list(ids[self.skipped :])

    def _read(self, ids: Sequence[int], interrupted: Callable[[], bool]) -> bool:
        start, size = 0, CHUNK_TOKENS
        while start < len(ids):
            if interrupted():
                return False
            began_at = time.monotonic()
            self.append(ids[start : start + size])
            mx.eval([layer.state for layer in self._cache])
            mx.clear_cache()
            start, size = start + size, next_chunk(size, time.monotonic() - began_at)
        return not interrupted()


class Window(RotatingKVCache):  # type: ignore[misc]
    """The cache of a layer that sees the last `max_size` tokens. Unlike its parent it can be rewound exactly.

    It holds them in the order of the text, and for a while those before them, so that a rewound window is full again.
    """

    keys: mx.array | None
    values: mx.array | None

    def __init__(self, max_size: int) -> None:
        super().__init__(max_size)
        self._dropped = 0  # tokens at the front of the text that are no longer held
        self._last_read = 0

    @property
    def earliest(self) -> int:
        """The shortest length at which the window before the next token is whole."""
        return self._dropped + self.max_size - 1 if self._dropped else 0

    @property
    def state(self) -> tuple[mx.array | None, mx.array | None]:
        return self.keys, self.values

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Add *keys* and *values* (B, H, n, D); returns all that the n tokens may see."""
        count = keys.shape[2]
        held = self.offset - self._dropped
        if self.keys is None or held + count > self.keys.shape[2]:
            kept = min(held, self.max_size - 1 + REWIND_TOKENS)
            self.keys = _with_room(self.keys, held - kept, held, keys)
            self.values = _with_room(self.values, held - kept, held, values)
            self._dropped, held = self.offset - kept, kept
        assert self.keys is not None
        assert self.values is not None
        self.keys[..., held : held + count, :] = keys
        self.values[..., held : held + count, :] = values
        self.offset += count
        self._last_read = count
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """What the last tokens read may see."""
        end = self.offset - self._dropped
        start = end - self._last_read - min(self.offset - self._last_read, self.max_size - 1)
        assert self.keys is not None
        assert self.values is not None
        return self.keys[..., start:end, :], self.values[..., start:end, :]

    def as_rotating(self) -> RotatingKVCache:
        """What its parent would hold after the same tokens."""
        rotating = RotatingKVCache(self.max_size)
        if self.keys is not None and self.values is not None:
            end = self.offset - self._dropped
            start = max(0, end - self.max_size)
            rotating.keys, rotating.values = self.keys[..., start:end, :], self.values[..., start:end, :]
            rotating.offset, rotating._idx = self.offset, end - start
        return rotating

    def copy(self) -> Window:
        """Another window over the same tokens."""
        other = Window(self.max_size)
        if self.keys is not None and self.values is not None:
            held = self.offset - self._dropped
            other.keys, other.values = self.keys[..., :held, :], self.values[..., :held, :]
        other.offset, other._dropped, other._last_read = self.offset, self._dropped, self._last_read
        return other

    def is_trimmable(self) -> bool:
        return True

    def trim(self, n: int) -> int:
        """Forget the last *n* tokens; returns *n*, or 0 where what came before them is no longer held."""
        if self.offset - n < self.earliest:
            return 0
        self.offset -= n
        return n

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> Any:  # noqa: N803
        """The mask of the next *N* tokens over what `update_and_fetch` will return for them."""
        if N > 1:
            return super().make_mask(N, window_size=window_size, return_array=return_array)
        seen = min(self.offset + 1, self.max_size)
        return None if window_size is None or seen <= window_size else mx.arange(seen) >= seen - window_size


def next_chunk(tokens: int, took_s: float) -> int:
    """How many tokens to read after a chunk of *tokens* that took *took_s*, so that none takes more than a second."""
    if took_s > HALVE_ABOVE_S:
        return max(tokens // 2, LEAST_CHUNK_TOKENS)
    return min(tokens * 2, MOST_CHUNK_TOKENS) if took_s < DOUBLE_BELOW_S else tokens


def _new_cache(model: Model) -> list[Any]:
    return [
        Window(layer.max_size) if type(layer) is RotatingKVCache and layer.keep == 0 else layer
        for layer in model.new_cache()
    ]


def _copied(layer: Any) -> Any:
    """Another cache with the same contents. It has no room of its own, so that it never writes into shared arrays."""
    if isinstance(layer, Window):
        return layer.copy()
    other = KVCache()
    if layer.keys is not None:
        other.keys, other.values = layer.keys[..., : layer.offset, :], layer.values[..., : layer.offset, :]
    other.offset = layer.offset
    return other


def _with_room(buffer: mx.array | None, start: int, end: int, fresh: mx.array) -> mx.array:
    """*buffer*[start:end] (along the tokens) with room behind it for *fresh* and for the next reads."""
    heads, step = fresh.shape[:2], Window.step
    rounded = (fresh.shape[2] + step - 1) // step * step
    room = mx.zeros((*heads, rounded, fresh.shape[3]), fresh.dtype)
    return room if buffer is None else mx.concatenate([buffer[..., start:end, :], room], axis=2)
