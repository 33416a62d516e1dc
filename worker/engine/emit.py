"""Tokens -> text, one token at a time, with the ends of a generation: end of turn, stop strings, length."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from worker.engine.tokenizer import Tokenizer


class Emitter:
    """Collects the tokens of one answer. Text is released when it is certain: whole characters, no half stop string."""

    def __init__(self, tokenizer: Tokenizer, max_tokens: int, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strip = tokenizer.strips_first_space
        self._released = 0
        self.tokens: list[int] = []
        self.text = ""
        #: `stop` or `length` once it has ended.
        self.finish_reason: str | None = None

    @property
    def left(self) -> int:
        """How many more tokens may come."""
        return self._max_tokens - len(self.tokens)

    def push(self, token: int) -> bool:
        """Take one token; whether the answer goes on. An end-of-turn token ends it and is not kept."""
        if token in self._tokenizer.eos_ids:
            self.finish_reason = "stop"
            return False
        self.tokens.append(token)
        self._extend(self._decoder.decode(self._tokenizer.spell([token])))
        if self.finish_reason is None and self.left == 0:
            self.finish_reason = "length"
        return self.finish_reason is None

    def release(self) -> str:
        """The text that became certain since the last call. Call it at the end too."""
        end = len(self.text) if self.finish_reason else len(self.text) - self._half_stop()
        fresh = self.text[self._released : end]
        self._released = max(end, self._released)
        return fresh

    def _extend(self, fresh: str) -> None:
        if self._strip and fresh:
            self._strip = False
            fresh = fresh.removeprefix(" ")
        before = len(self.text)
        self.text += fresh
        for stop in self._stop:
            found = self.text.find(stop, max(0, before - len(stop) + 1))
            if found >= 0:
                self.text = self.text[:found]
                self.finish_reason = "stop"

    def _half_stop(self) -> int:
        """Length of the longest end of the text that may still grow into a stop string."""
        lengths = (
            size for stop in self._stop for size in range(len(stop) - 1, 0, -1) if self.text.endswith(stop[:size])
        )
        return max(lengths, default=0)
