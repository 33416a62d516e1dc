"""Whether an answer is JSON."""

from __future__ import annotations

import json
import re
from typing import NoReturn

_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)


def score(text: str) -> float:
    """1 where *text*, or all that stands in its one code fence, is a JSON value, else 0. NaN is none."""
    fenced = _FENCED.match(text)
    try:
        json.loads(fenced.group(1) if fenced else text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return 0.0
    return 1.0


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
