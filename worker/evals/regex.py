"""Whether an answer matches a pattern."""

from __future__ import annotations

import re


def score(text: str, pattern: str) -> float:
    """1 where *pattern* occurs anywhere in *text*, else 0. Raises re.error for what is no pattern."""
    return float(re.search(pattern, text) is not None)
