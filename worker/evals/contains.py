"""Whether an answer holds the right one."""

from __future__ import annotations

import re
import unicodedata


def score(text: str, reference: str) -> float:
    """1 where the words of *reference* stand in *text* as whole words, in their order and in any case, else 0."""
    words = _words(reference)
    said = _words(text)
    return float(any(said[at : at + len(words)] == words for at in range(len(said) - len(words) + 1)))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", unicodedata.normalize("NFC", text).casefold())
