"""Medians with what they are worth. Pure and seeded: the same values give the same figures."""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Sequence

#: Below it no interval is given: a bootstrap of fewer values is narrower than the truth.
MIN_FOR_INTERVAL = 20
RESAMPLES = 2_000
CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Strictly read-only. The median of *n* values, with its 95 % bootstrap interval where there are enough."""

    n: int
    median: float
    low: float | None = None
    high: float | None = None


def estimate(values: Sequence[float], seed: int = 0) -> Estimate | None:
    """The median of *values* with a percentile bootstrap interval; no interval below 20 values, None for none.

    The order of the values does not matter.
    """
    if not values:
        return None
    ordered = sorted(values)
    middle = statistics.median(ordered)
    if len(ordered) < MIN_FOR_INTERVAL:
        return Estimate(n=len(ordered), median=middle)
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(ordered, k=len(ordered))) for _ in range(RESAMPLES))
    cut = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Estimate(n=len(ordered), median=middle, low=medians[cut], high=medians[-1 - cut])


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's, -1 to 1, ties sharing their mean rank; None for fewer than 3 pairs or where one side is constant."""
    if len(pairs) < 3:
        return None
    ones, others = (_ranks([pair[side] for pair in pairs]) for side in (0, 1))
    if len(set(ones)) == 1 or len(set(others)) == 1:
        return None
    return statistics.correlation(ones, others)


def _ranks(values: Sequence[float]) -> list[float]:
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values), start=1):
        places.setdefault(value, []).append(place)
    return [statistics.mean(places[value]) for value in values]
