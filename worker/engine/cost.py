"""What a token, a verification and a draft cost, and what speculation must therefore reach to pay. Pure.

A round drafts k tokens, verifies them in one forward of k + 1, and emits 1 + (accepted) tokens. It pays where that many
plain tokens would have taken longer:

    speed-up = expected tokens * plain_s / (propose_s(k) + verify_s(k + 1))

arXiv 2604.16368 writes the same with two constants, the draft's relative cost r and the price beta of verifying more
than one token on unified memory: speed-up(alpha, k) = (1 + alpha k) / ((k + 1) r + 1 + beta k^2).
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Self

#: (tokens, seconds), by tokens.
Points = tuple[tuple[int, float], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds on one machine for one target and perhaps one draft. Strictly read-only."""

    #: By tokens of context: one plain token, drawn and on the host.
    plain: Points
    #: By tokens of context: the seconds of a forward of so many new tokens, drawn and on the host.
    verify: tuple[tuple[int, Points], ...]
    #: By drafter: the seconds of a proposal of k tokens, the host's part included.
    propose: Mapping[str, Points]
    #: Seconds for each prompt token, of the target and of the draft.
    prefill_token_s: float
    draft_prefill_token_s: float = 0.0
    #: Seconds of one more token of the draft, streamed.
    draft_step_s: float = 0.0
    #: Computed from a machine's bandwidth, not measured.
    predicted: bool = False

    def plain_s(self, context_tokens: int) -> float:
        """Seconds for one plain token behind *context_tokens*."""
        return between(self.plain, context_tokens)

    def verify_s(self, tokens: int, context_tokens: int) -> float:
        """Seconds of one forward of *tokens* new tokens behind *context_tokens*."""
        return between(tuple((context, between(points, tokens)) for context, points in self.verify), context_tokens)

    def propose_s(self, drafter: str, k: int) -> float:
        """Seconds in which *drafter* proposes *k* tokens. Raises KeyError for one that was not measured."""
        return between(self.propose[drafter], k)

    def host_s(self, context_tokens: int) -> float:
        """What waiting for each token costs: a forward of one token beyond a streamed one, which is computed ahead."""
        return self.verify_s(1, context_tokens) - self.plain_s(context_tokens)

    def round_s(self, drafter: str, k: int, context_tokens: int) -> float:
        """Seconds of a whole round of *k* tokens; k = 0 is a plain token."""
        if k == 0:
            return self.plain_s(context_tokens)
        return self.propose_s(drafter, k) + self.verify_s(k + 1, context_tokens)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, figures: Mapping[str, Any]) -> Self:
        """The inverse of `as_json`, also after JSON made tuples lists."""
        return cls(
            plain=_points(figures["plain"]),
            verify=tuple((context, _points(points)) for context, points in figures["verify"]),
            propose={drafter: _points(points) for drafter, points in figures["propose"].items()},
            prefill_token_s=figures["prefill_token_s"],
            draft_prefill_token_s=figures["draft_prefill_token_s"],
            draft_step_s=figures.get("draft_step_s", 0.0),  # younger than the first stored ones
            predicted=figures["predicted"],
        )


def _points(found: Sequence[Sequence[float]]) -> Points:
    return tuple((int(at), float(seconds)) for at, seconds in found)


def between(points: Points, at: float) -> float:
    """Linear between *points*; before the first it holds, beyond the last it goes on rising but never falls."""
    if len(points) == 1:
        return points[0][1]
    right = min(max(1, bisect_left([place for place, _ in points], at)), len(points) - 1)
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    if at < x0 or (at > x1 and y1 < y0):
        return y0 if at < x0 else y1
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)


def expected_tokens(acceptance: Sequence[float]) -> float:
    """Tokens that a round emits, 1 + p1 + p1 p2 + ..., where token i stands with chance p_i once those before it do."""
    total = stands = 1.0
    for chance in acceptance:
        stands *= chance
        total += stands
    return total


def speedup(costs: Costs, drafter: str, k: int, acceptance: Sequence[float], context_tokens: int) -> float:
    """How many times faster than plain a round of *k* tokens is, 1 for none.

    *acceptance* is by position, as of `expected_tokens`; of more than *k* the first count. Raises ValueError for fewer.
    """
    if k == 0:
        return 1.0
    if len(acceptance) < k:
        raise ValueError(f"the acceptance of {len(acceptance)} positions is known, not of {k}")
    return expected_tokens(acceptance[:k]) * costs.plain_s(context_tokens) / costs.round_s(drafter, k, context_tokens)


def break_even(costs: Costs, drafter: str, k: int, context_tokens: int) -> float:
    """The acceptance rate (accepted / proposed) above which rounds of *k* pay; above 1 they never do, at 0 always."""
    ratio = costs.round_s(drafter, k, context_tokens) / costs.plain_s(context_tokens)
    return max(0.0, (ratio - 1) / k)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parametric:
    """The paper's two constants."""

    r: float
    beta: float

    def relative_cost(self, k: int) -> float:
        """A round of *k* in plain tokens' time."""
        return (k + 1) * self.r + 1 + self.beta * k * k

    def speedup(self, alpha: float, k: int) -> float:
        """With a share *alpha* of *k* tokens accepted; without any it is plain decoding."""
        return 1.0 if k == 0 else (1 + alpha * k) / self.relative_cost(k)

    def break_even(self, k: int) -> float:
        """The alpha at which the speed-up is 1; above 1 there is none."""
        return (self.relative_cost(k) - 1) / k


def fit(costs: Costs, drafter: str, lengths: Sequence[int], context_tokens: int) -> tuple[Parametric, list[float]]:
    """The constants that come nearest to the measured rounds (least squares), and what each round is above them.

    Residuals are in plain tokens' time, one for each of *lengths*, of which there are two or more.
    """
    plain_s = costs.plain_s(context_tokens)
    rows = [(k + 1.0, float(k * k)) for k in lengths]
    due = [costs.round_s(drafter, k, context_tokens) / plain_s - 1 for k in lengths]
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    ay, by = (sum(row[i] * y for row, y in zip(rows, due, strict=True)) for i in (0, 1))
    determinant = aa * bb - ab * ab
    found = Parametric(r=(ay * bb - by * ab) / determinant, beta=(by * aa - ay * ab) / determinant)
    return found, [y + 1 - found.relative_cost(k) for k, y in zip(lengths, due, strict=True)]
