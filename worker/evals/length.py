"""How long an answer is."""

from __future__ import annotations


def score(text: str) -> float:
    """Characters of *text*, white space at its ends not counted."""
    return float(len(text.strip()))
