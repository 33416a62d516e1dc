"""Tokens of one vocabulary as tokens of another, by bytes. Pure: no model, no state.

Committed target tokens are never cut anew: whatever a translation returns goes behind them. Three ways (Universal
Assisted Generation; arXiv 2604.16368 compares them): `direct`, `naive` and `context`.
"""

from __future__ import annotations

from collections.abc import Sequence

from worker.engine.token_bytes import complete_utf8
from worker.engine.tokenizer import Tokenizer

CONTEXT_TOKENS = 5
WORD_START_TOKENS = 12


def direct(target: Tokenizer, pieces: Sequence[bytes]) -> list[int]:
    """Each of *pieces* whose bytes are exactly one target token, up to the first that is not."""
    ids: list[int] = []
    for piece in pieces:
        if piece not in target.exact:
            break
        ids.append(target.exact[piece])
    return ids


def naive(target: Tokenizer, text: str) -> list[int]:
    """*text*, decoded by the draft, encoded by the target on its own."""
    return target.encode(text)


def in_context(target: Tokenizer, committed: Sequence[int], data: bytes) -> list[int]:
    """*data* encoded behind the text of the last *committed* target tokens and cut off at their end by byte offset.

    Where the encoding merges across that end, or does not give the bytes back (a normalising tokenizer), *data* is
    encoded alone, so the committed tokens stay as they are. A last, incomplete character is guessed.
    """
    window = context_window(target, committed)
    whole = complete_utf8(window + data) - len(window)
    if whole < 0:
        return target.encode_bytes(data)
    return _behind(target, window, data[:whole]) + target.guess_character(data[whole:])


def _behind(target: Tokenizer, window: bytes, data: bytes) -> list[int]:
    text = window + data
    ids = target.encode_middle(text.decode(errors="replace"))
    covered = first = 0
    while first < len(ids) and covered < len(window):
        covered += len(target.table[ids[first]])
        first += 1
    if covered == len(window) and target.spell(ids) == text:
        return ids[first:]
    return target.encode_bytes(data)


def context_window(target: Tokenizer, committed: Sequence[int]) -> bytes:
    """The text of the last five committed tokens, and of up to seven more until it starts a word or a line."""
    start = max(0, len(committed) - CONTEXT_TOKENS)
    earliest = max(0, len(committed) - WORD_START_TOKENS)
    while start > earliest and not target.table[committed[start]].startswith((b" ", b"\n")):
        start -= 1
    window = target.spell(committed[start:])
    return window.lstrip(CONTINUATION_BYTES) if window[:1] in CONTINUATION else window


CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
CONTINUATION = {bytes([value]) for value in CONTINUATION_BYTES}
