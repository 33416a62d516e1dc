"""A growing text in another tokenizer's tokens, kept as that tokenizer would cut the whole text.

Only the changed tail is encoded again: everything before the last word is final, since no token spans the boundary
between a word and the space before the next. Pure: no model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from worker.engine.token_bytes import complete_utf8
from worker.engine.tokenizer import Tokenizer

WORD_BOUNDARY = re.compile(r"(?<=\w)(?= \w)")
MAX_TAIL_CHARS = 256
KEPT_TAIL_TOKENS = 32


class Retokenized:
    """*prefix* (ids of a prompt) and behind it a text that grows, as ids."""

    def __init__(self, tokenizer: Tokenizer, prefix: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        #: All ids: prefix, then the text's. Not to be changed from outside.
        self.ids = list(prefix)
        #: Bytes at the text's end that do not make a whole character yet; `ids` do not cover them.
        self.pending = b""
        self._tail = ""
        self._final = len(self.ids)

    def extend(self, data: bytes) -> int:
        """Let the text grow by *data*; returns how many ids at the front are as they were."""
        data = self.pending + data
        whole = complete_utf8(data)
        self.pending = data[whole:]
        unchanged = self._final
        if whole:
            self._encode(self._tail + data[:whole].decode(errors="replace"))
        return unchanged

    def _encode(self, tail: str) -> None:
        """Put the ids of *tail* behind the final ones, and move what is final up to its last word."""
        del self.ids[self._final :]
        ids = self._tokenizer.encode_middle(tail)
        boundaries = [match.start() for match in WORD_BOUNDARY.finditer(tail)]
        if boundaries:
            words, tail = tail[: boundaries[-1]], tail[boundaries[-1] :]
            count = self._count_of(ids, words.encode())
            if count is None:
                done, ids = self._tokenizer.encode_middle(words), self._tokenizer.encode_middle(tail)
            else:
                done, ids = ids[:count], ids[count:]
            self.ids.extend(done)
            self._final = len(self.ids)
        self.ids.extend(ids)
        if len(tail) > MAX_TAIL_CHARS and len(ids) > KEPT_TAIL_TOKENS:
            tail = self._settle(tail, ids[:-KEPT_TAIL_TOKENS])
        self._tail = tail

    def _count_of(self, ids: Sequence[int], data: bytes) -> int | None:
        """How many of *ids* spell *data*; None where a token lies across its end, or the tokenizer normalised it."""
        covered = count = 0
        while covered < len(data) and count < len(ids):
            covered += len(self._tokenizer.table[ids[count]])
            count += 1
        return count if self._tokenizer.spell(ids[:count]) == data else None

    def _settle(self, tail: str, settled: Sequence[int]) -> str:
        """Call *settled* final in a text without word boundaries, so that the work of a round stays bounded.

        A character that it ends inside of, where characters are spelled byte by byte, is left open.
        """
        settled = list(settled)
        spelled = self._tokenizer.spell(settled)
        while complete_utf8(spelled) != len(spelled):
            settled.pop()
            spelled = self._tokenizer.spell(settled)
        encoded = tail.encode()
        if not encoded.startswith(spelled):
            return tail
        self._final += len(settled)
        return encoded[len(spelled) :].decode()
