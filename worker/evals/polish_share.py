"""How Polish an answer's letters are."""

from __future__ import annotations

import unicodedata

_POLISH = frozenset("ąćęłńóśźż")


def score(text: str) -> float | None:
    """The share of ą, ć, ę, ł, ń, ó, ś, ź and ż among the letters, about 0.07 in Polish prose; None without letters."""
    letters = [letter for letter in unicodedata.normalize("NFC", text).lower() if letter.isalpha()]
    return sum(letter in _POLISH for letter in letters) / len(letters) if letters else None
