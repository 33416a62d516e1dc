"""A text may end inside a token that a model would have said: which one, and how likely it is.

Encoded as it stands, a cut word comes out in pieces that the model rarely saw, and it goes on from them badly. So the
longer tokens that could stand in the place of the last word's end are weighed against going on behind it.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from worker.engine.tokenizer import Tokenizer

#: How far back a token may begin that the text's end lies in.
MAX_WORD_TOKENS = 6
WORD_STARTS = (b" ", b"\n")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opening:
    """The token behind *kept* tokens of the last word; its first *repeated* bytes are in the text already."""

    kept: int
    token: int
    repeated: int


class Straddle:
    """Finds tokens by how their bytes begin."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        spelled = sorted((piece, token_id) for token_id, piece in enumerate(tokenizer.table) if piece)
        self._tokenizer = tokenizer
        self._pieces = [piece for piece, _ in spelled]
        self._order = np.array([token_id for _, token_id in spelled], dtype=np.int64)

    def last_word(self, ids: Sequence[int], earliest: int) -> list[int]:
        """The last word of *ids*, from *earliest* on, and at most six tokens."""
        start, table = len(ids), self._tokenizer.table
        while start > max(earliest, len(ids) - MAX_WORD_TOKENS):
            start -= 1
            if table[ids[start]].startswith(WORD_STARTS):
                break
        return list(ids[start:])

    def likeliest(self, logits: mx.array, word: Sequence[int], pending: bytes) -> Opening | None:
        """The likeliest way on from a text that ends in *word* and then *pending* bytes; None where there is none.

        Row j of *logits* (len(word) + 1, V) was drawn behind j tokens of the word. Waits for them.
        """
        rows = logits.astype(mx.float32)
        log_sums = mx.logsumexp(rows, axis=-1)
        mx.eval(rows, log_sums)
        # From here on on the host: fifty small operations on the device would cost it more than all else.
        values = np.array(rows, copy=False)
        norms: list[float] = log_sums.tolist()  # type: ignore[assignment]
        begun, best_score, opening = 0.0, -math.inf, None
        for kept, norm in enumerate(norms):
            if begun <= best_score:  # whatever stands behind so much of the word is less likely still
                break
            rest = self._tokenizer.spell(word[kept:]) + pending
            begun -= norm
            row = values[kept]
            # Behind the whole word anything may come, an end of turn too.
            ids = self._beginning(rest, or_equal=kept == len(word)) if rest else None
            if ids is None or ids.size:
                best = int(row.argmax()) if ids is None else int(ids[row[ids].argmax()])
                if row[best] + begun > best_score:
                    best_score = row[best] + begun
                    opening = Opening(kept=kept, token=best, repeated=len(rest))
            if kept < len(word):
                begun += float(row[word[kept]])
        return opening

    def _beginning(self, rest: bytes, or_equal: bool) -> npt.NDArray[np.int64]:
        """The tokens that begin with *rest* and go on, or are it."""
        first = (bisect_left if or_equal else bisect_right)(self._pieces, rest)
        after = rest.rstrip(b"\xff")
        end = bisect_left(self._pieces, after[:-1] + bytes([after[-1] + 1])) if after else len(self._pieces)
        return self._order[first:end]
