"""A pair of models measured as a job: what they cost here, what pays, and what other machines are predicted to do."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import mlx.core as mx

from db.records import Claim, Finished
from worker.engine import profiles
from worker.engine.calibrate import Measured, measure
from worker.engine.cost import Costs, break_even, fit
from worker.engine.drafters.base import Drafter
from worker.engine.model import Model, on_metal

LENGTHS = range(1, 9)
#: Context at which break-evens are told.
CONTEXT_TOKENS = 512


def key(target: Model, draft: Model | None, machine: str) -> str:
    """Equal as long as a measurement stays true: models, dtype, machine, BLAS or Metal, and MLX's version."""
    parts = [
        target.describe(),
        None if draft is None else draft.describe(),
        [machine, platform.machine(), os.cpu_count(), "metal" if on_metal() else os.environ.get("LD_PRELOAD", "")],
        [version("mlx"), version("mlx-lm"), str(mx.default_device())],
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def run(
    claim: Claim, target: Model, draft: Model | None, drafters: dict[str, Drafter], progress: Callable[[float], None]
) -> Finished:
    """Measure the pair; *progress* (0..1) may raise to stop."""
    measured = measure(target, drafters, draft, progress)
    figures = as_figures(measured, target, draft)
    return Finished(
        text=advice(measured.costs),
        finish_reason="stop",
        metrics={"progress": 1.0, **figures},
        config={"target": target.describe(), "draft": None if draft is None else draft.describe()},
    )


def as_figures(measured: Measured, target: Model, draft: Model | None) -> dict[str, Any]:
    """Everything that is stored and shown, JSON-ready: curve, break-evens, the paper's constants, predictions."""
    costs = measured.costs
    fitted = {}
    for name in costs.propose:
        law, residuals = fit(costs, name, LENGTHS, CONTEXT_TOKENS)
        fitted[name] = {"r": law.r, "beta": law.beta, "residuals": residuals}
    return {
        "costs": costs.as_json(),
        "spread": measured.spread,
        "seconds": measured.seconds,
        "context_tokens": CONTEXT_TOKENS,
        "break_even": break_evens(costs, CONTEXT_TOKENS),
        "parametric": fitted,
        "predictions": _predictions(target.size_bytes, draft.size_bytes) if draft is not None else [],
        "published": [
            {"what": point.what, "k": point.k, "alpha": point.alpha, "speedup": point.speedup, "residual": residual}
            for point, residual in profiles.residuals()
        ],
        "advice": advice(costs),
    }


def break_evens(costs: Costs, context_tokens: int) -> dict[str, list[float]]:
    """By drafter, the acceptance above which k = 1..8 pays."""
    return {name: [break_even(costs, name, k, context_tokens) for k in LENGTHS] for name in costs.propose}


def _predictions(target_bytes: int, draft_bytes: int) -> list[dict[str, Any]]:
    """The same pair on machines that nobody measured, and the paper's pair on them."""
    found = []
    pairs = {
        "this pair": (target_bytes, draft_bytes),
        "Bielik 11B 8 bit, 1.5B 4 bit": (profiles.PAPER_TARGET_BYTES, profiles.PAPER_DRAFT_BYTES),
    }
    for pair, sizes in pairs.items():
        for machine in profiles.MACHINES:
            costs = profiles.predicted(machine, *sizes)
            plain_s = costs.plain_s(profiles.CONTEXT_TOKENS)
            evens = [break_even(costs, "cross", k, profiles.CONTEXT_TOKENS) for k in (2, 4, 6)]
            found.append({"machine": machine.name, "pair": pair, "tokens_per_s": 1 / plain_s, "break_even": evens})
    return found


def advice(costs: Costs) -> str:
    """One plain sentence: `k = 2 pays above 41 % acceptance (cross); lookup pays above 6 %`."""
    parts = []
    for name, evens in break_evens(costs, CONTEXT_TOKENS).items():
        k, least = min(enumerate(evens, start=1), key=lambda found: found[1])
        if name not in ("lookup", "suffix", "ngram"):
            k, least = 2, evens[1]
        pays = f"k = {k} pays above {least:.0%} acceptance" if least <= 1 else f"k = {k} never pays"
        parts.append(f"{name}: {pays}")
    return "; ".join(parts)
