"""A text may end inside a token that a model would have said: which tokens agree with what is there.

Encoded as it stands, a cut word comes out in pieces that the model rarely saw, and it goes on from them badly. So the
model says the last word again, held to the bytes that are there, until a token reaches beyond them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import mlx.core as mx

from worker.engine.tokenizer import Tokenizer

#: How far back the word is said again.
MAX_WORD_TOKENS = 6
WORD_STARTS = (b" ", b"\n")


class Straddle:
    """Finds tokens by how their bytes begin."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        spelled = sorted((piece, token_id) for token_id, piece in enumerate(tokenizer.table) if piece)
        self._tokenizer = tokenizer
        self._pieces = [piece for piece, _ in spelled]
        self._order = mx.array([token_id for _, token_id in spelled], dtype=mx.int32)

    def last_word(self, ids: Sequence[int], earliest: int) -> list[int]:
        """The last word of *ids*, from *earliest* on, and at most six tokens."""
        start, table = len(ids), self._tokenizer.table
        while start > max(earliest, len(ids) - MAX_WORD_TOKENS):
            start -= 1
            if table[ids[start]].startswith(WORD_STARTS):
                break
        return list(ids[start:])

    def likeliest(self, logits: mx.array, rests: Sequence[bytes]) -> list[int | None]:
        """For each row of *logits* (n, V) the likeliest token that agrees with its rest of the text; waits for them.

        It begins with the rest or the rest with it. None where no token does; any token agrees with no rest.
        """
        drawn = []
        for row, rest in zip(logits, rests, strict=True):
            agreeing = self._agreeing(rest) if rest else None
            if agreeing is None:
                drawn.append(mx.argmax(row).astype(mx.int32))
            else:
                drawn.append(agreeing[mx.argmax(row[agreeing])] if agreeing.size else mx.array(-1, dtype=mx.int32))
        return [None if token < 0 else token for token in mx.stack(drawn).tolist()]  # type: ignore[union-attr, operator, misc]

    def _agreeing(self, rest: bytes) -> mx.array:
        first = bisect_left(self._pieces, rest)
        after = rest.rstrip(b"\xff")
        end = bisect_left(self._pieces, after[:-1] + bytes([after[-1] + 1])) if after else len(self._pieces)
        exact = self._tokenizer.exact
        shorter = [exact[rest[:size]] for size in range(1, len(rest)) if rest[:size] in exact]
        return mx.concatenate([mx.array(shorter, dtype=mx.int32), self._order[first:end]])
