"""Machines that were not measured here: what their bandwidth predicts. Predictions, and marked so wherever they show.

A plain token reads the target's weights once, so it takes size / (bandwidth * efficiency); a draft's reads the draft's.
Efficiency is what the paper's machine reached: Bielik 11B in 8 bit at 14.6-15.1 tokens/s of 200 GB/s. beta is the
paper's too, and whether other chips share it nobody has measured.
"""

from __future__ import annotations

import dataclasses

from worker.engine.cost import Costs, Parametric

GB = 1e9
EFFICIENCY = 0.86
#: Price of verifying k tokens beyond the first, in k^2 plain tokens (arXiv 2604.16368: 0.17-0.21 fits its break-evens).
BETA = 0.18
CONTEXT_TOKENS = 256
LENGTHS = tuple(range(1, 17))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    name: str
    bandwidth_gb_s: float


MACHINES = (
    Machine(name="M2 Pro", bandwidth_gb_s=200),
    Machine(name="M4 Max", bandwidth_gb_s=546),
    Machine(name="M3 Ultra", bandwidth_gb_s=819),
)
#: Sizes of the paper's pair: Bielik 11B in 8 bit, Qwen2.5 1.5B in 4 bit.
PAPER_TARGET_BYTES, PAPER_DRAFT_BYTES = int(11.7 * GB), int(0.87 * GB)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """A speed-up that the paper reports for its M2 Pro."""

    what: str
    k: int
    alpha: float
    speedup: float


#: As summaries of the paper give them: k = 2 by data set and the middle of its best bucket, a point each for 4 and 6.
PUBLISHED = (
    Published(what="Qwen2.5 1.5B, Wikipedia", k=2, alpha=0.446, speedup=1.06),
    Published(what="Llama 3.2 1B, Wikipedia", k=2, alpha=0.420, speedup=1.06),
    Published(what="Bielik 1.5B, Wikipedia", k=2, alpha=0.311, speedup=0.87),
    Published(what="acceptance 60-70 %", k=2, alpha=0.65, speedup=1.51),
    Published(what="Qwen2.5 1.5B, Wikipedia", k=4, alpha=0.538, speedup=0.70),
    Published(what="alpaca", k=6, alpha=0.45, speedup=0.40),
)

#: Acceptance above which the paper's pairs pay, from and to; None where it names no end.
PUBLISHED_BREAK_EVEN: dict[int, tuple[float, float | None]] = {2: (0.38, 0.53), 4: (0.77, 0.92), 6: (1.0, None)}


def relative(target_bytes: int, draft_bytes: int) -> Parametric:
    """The paper's constants for a pair: reading each model's weights is what a token costs."""
    return Parametric(r=draft_bytes / target_bytes, beta=BETA)


def predicted(machine: Machine, target_bytes: int, draft_bytes: int) -> Costs:
    """What a pair of models of these sizes should cost on *machine*."""
    plain_s = target_bytes / (machine.bandwidth_gb_s * GB * EFFICIENCY)
    law = relative(target_bytes, draft_bytes)
    verify = ((1, plain_s), *((k + 1, plain_s * (1 + law.beta * k * k)) for k in LENGTHS))
    return Costs(
        plain=((CONTEXT_TOKENS, plain_s),),
        verify=((CONTEXT_TOKENS, verify),),
        propose={"cross": tuple((k, plain_s * (k + 1) * law.r) for k in LENGTHS)},
        # Prefill is bound by arithmetic, of which bandwidth says nothing.
        prefill_token_s=0.0,
        predicted=True,
    )


def residuals() -> list[tuple[Published, float]]:
    """Each published speed-up with what the prediction for its acceptance is above it."""
    law = relative(PAPER_TARGET_BYTES, PAPER_DRAFT_BYTES)
    return [(point, law.speedup(point.alpha, point.k) - point.speedup) for point in PUBLISHED]
