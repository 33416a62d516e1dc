"""How many rows of a batch pay on this machine, and what speculation would give instead. Pure, but for `measure`."""

from __future__ import annotations

import dataclasses
import statistics
import time

import mlx.core as mx

from worker.engine.cost import Costs, Points
from worker.engine.model import Model

#: More rows must bring this much more than half as many; the last few per cent cost memory and patience.
WORTHWHILE = 1.05
ROWS = (1, 2, 4, 8, 16, 32)
CONTEXT_TOKENS = 128
REPEATS = 5
LENGTHS = (1, 2, 4, 8)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sized:
    """Strictly read-only. How many rows, and why so many."""

    rows: int
    why: str


def from_calibration(costs: Costs, context_tokens: int) -> Sized:
    """As many as pay by *costs*: a forward of m tokens is taken for one of m rows, which reads a little more."""
    measured = [m for m in ROWS if m <= max(m for m, _ in costs.verify[0][1])]
    rest = tuple((m, costs.verify_s(m, context_tokens)) for m in measured if m > 1)
    points = ((1, costs.plain_s(context_tokens)), *rest)
    rows, gain = choose(points)
    source = "predicted" if costs.predicted else "calibrated"
    return Sized(rows=rows, why=f"{source}: {rows} rows give {gain:.2f}x; {speculation(costs, gain, context_tokens)}")


def from_measurement(target: Model) -> Sized:
    """As many as pay by a short measurement here and now."""
    rows, gain = choose(measure(target))
    return Sized(
        rows=rows,
        why=f"measured: {rows} rows give {gain:.2f}x; `nocka calibrate` would tell what speculation gives instead",
    )


def choose(points: Points) -> tuple[int, float]:
    """The rows (of *points*: rows, seconds of a forward) to run, and how many times the tokens of one row they give.

    Going up from one row, it stops before the first step that is not worthwhile.
    """
    (rows, seconds), *more = points
    alone = best = rows / seconds
    for candidate, taken in more:
        if candidate / taken < best * WORTHWHILE:
            break
        rows, best = candidate, candidate / taken
    return rows, best / alone


def speculation(costs: Costs, gain: float, context_tokens: int) -> str:
    """What speculation needs to match *gain*, for the drafter and length that need least."""
    needed = {
        (name, k): (gain * costs.round_s(name, k, context_tokens) / costs.plain_s(context_tokens) - 1) / k
        for name in costs.propose
        for k in LENGTHS
    }
    if not needed:
        return "no drafter was measured"
    (name, k), least = min(needed.items(), key=lambda found: found[1])
    if least <= 1:
        return f"speculation would match it at {max(0.0, least):.0%} acceptance ({name}, k = {k})"
    best = max((k + 1) * costs.plain_s(context_tokens) / costs.round_s(name, k, context_tokens) for name, k in needed)
    return f"speculation would give {best:.2f}x at the very most, every token accepted"


def measure(target: Model) -> Points:
    """Seconds of a forward of one token in each of so many rows, behind a short context; medians."""
    found = []
    for rows in ROWS:
        cache = target.new_cache()
        prompt = mx.zeros((rows, CONTEXT_TOKENS), dtype=mx.int32)
        mx.eval(target.network(prompt, cache=cache)[:, -1])
        samples = [_forward_s(target, rows, cache) for _ in range(REPEATS + 1)][1:]
        found.append((rows, statistics.median(samples)))
        mx.clear_cache()
    return tuple(found)


def _forward_s(target: Model, rows: int, cache: list[object]) -> float:
    started = time.perf_counter()
    mx.argmax(target.network(mx.zeros((rows, 1), dtype=mx.int32), cache=cache)[:, -1], axis=-1).tolist()
    return time.perf_counter() - started
