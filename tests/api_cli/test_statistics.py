"""Medians, intervals and correlations against cases worked out by hand."""

from __future__ import annotations

import random

import pytest

from api_cli.statistics import Estimate, estimate, rank_correlation


def test_a_median_of_few_has_no_interval() -> None:
    """Nothing gives nothing, one value is itself, an even number of them the mean of the middle two."""
    assert estimate([]) is None
    assert estimate([1.5]) == Estimate(n=1, median=1.5)
    assert estimate([4.0, 1.0, 2.0, 3.0]) == Estimate(n=4, median=2.5)
    nineteen = estimate([1.0] * 19)
    assert nineteen is not None and nineteen.low is None and nineteen.high is None


def test_twenty_equal_values_are_sure() -> None:
    assert estimate([0.9] * 20) == Estimate(n=20, median=0.9, low=0.9, high=0.9)


def test_an_interval_is_the_order_statistics_that_theory_names() -> None:
    """Of 1..101 the median is 51. It is resampled below the 41st value, or above the 61st, in 2.3 % of draws
    (binomial, by hand), so the 95 % interval ends at 41 and 61, give or take one for 2 000 resamples.
    """
    found = estimate([float(value) for value in range(1, 102)])

    assert found is not None and found.low is not None and found.high is not None
    assert found.median == 51.0
    assert found.low == pytest.approx(41.0, abs=1.0)
    assert found.high == pytest.approx(61.0, abs=1.0)


def test_figures_depend_on_the_values_alone() -> None:
    """Neither on their order nor on the call."""
    values = [random.Random(1).gauss(1.0, 0.1) for _ in range(40)] + [random.Random(2).random() for _ in range(9)]
    assert estimate(values) == estimate(list(reversed(values))) == estimate(values)


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Of 100 samples of 25 from a normal law, 95 intervals hold its median; 88 or fewer would be worth a look."""
    draw = random.Random(3)
    held = 0
    for _ in range(100):
        found = estimate([draw.gauss(1.0, 0.2) for _ in range(25)])
        assert found is not None and found.low is not None and found.high is not None
        held += found.low <= 1.0 <= found.high
    assert held > 88


def test_rank_correlation_by_hand() -> None:
    """1 and -1 for what only rises or falls, however bent; with ranks 1, 2.5, 2.5, 4 against 1, 3, 2, 4: sqrt(0.9)."""
    assert rank_correlation([(1, 1), (2, 10), (3, 100)]) == pytest.approx(1.0)
    assert rank_correlation([(1, 9), (2, 4), (3, 1)]) == pytest.approx(-1.0)
    assert rank_correlation([(1, 1), (2, 3), (2, 2), (3, 4)]) == pytest.approx(0.9**0.5)
    assert rank_correlation([(1, 1), (2, 1), (3, 1)]) is None
    assert rank_correlation([(1, 1), (2, 2)]) is None
