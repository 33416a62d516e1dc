"""Whether an answer is the right one."""

from __future__ import annotations

import unicodedata

_AT_THE_ENDS = " \t\r\n.!?\"'„”»«"


def plainly(text: str) -> str:
    """*text* without what no reader counts: case, composed letters or not, white space, marks at its ends."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split()).strip(_AT_THE_ENDS)


def score(text: str, reference: str) -> float:
    """1 where *text* is *reference* but for case, white space and the marks at its ends, else 0."""
    return float(plainly(text) == plainly(reference))
