"""Which of two ways is faster, measured so that a busy machine does not decide it.

Both run in turn within each pair, so that whatever slows the machine slows both; an A/A line (the first way against
itself) shows how much of a difference is noise. Nothing here fails a test.
"""

from __future__ import annotations

import dataclasses
import random
import statistics
import time
from collections.abc import Callable, Sequence

#: Does one piece of work; the number of the pair picks the prompt.
Work = Callable[[int], object]

PAIRS = 40
RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speed:
    """How many times faster one way is than another: the median of the pairs, and the bound it surely reaches."""

    ratio: float
    #: One-sided, 95 %.
    lower: float
    pairs: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """*speed* of ours against theirs, and *noise*, ours against ours."""

    speed: Speed
    noise: Speed
    ours_s: float
    theirs_s: float


def compare(ours: Work, theirs: Work, pairs: int = PAIRS) -> Comparison:
    """Run *ours*, *theirs*, *ours* for each pair, and compare. Both are run once before, unmeasured."""
    ours(0)
    theirs(0)
    first, other, again = [], [], []
    for index in range(pairs):
        before, between, after = seconds(ours, index), seconds(theirs, index), seconds(ours, index)
        # Ours is compared as the first in one pair and the last in the next, so that neither drift nor heat favours it.
        first.append(after if index % 2 else before)
        again.append(before if index % 2 else after)
        other.append(between)
    return Comparison(
        speed=speed(first, other),
        noise=speed(first, again),
        ours_s=statistics.median(first),
        theirs_s=statistics.median(other),
    )


def seconds(work: Work, index: int) -> float:
    """Wall seconds of one piece of *work*."""
    started = time.perf_counter()
    work(index)
    return time.perf_counter() - started


def speed(ours_s: Sequence[float], theirs_s: Sequence[float]) -> Speed:
    """How many times faster *ours_s* is than *theirs_s*, pair by pair; the bound by bootstrap over the pairs."""
    ratios = [theirs / ours for ours, theirs in zip(ours_s, theirs_s, strict=True)]
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    lower = medians[int(RESAMPLES * (1 - CONFIDENCE))]
    return Speed(ratio=statistics.median(ratios), lower=lower, pairs=len(ratios))
