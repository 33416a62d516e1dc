"""A pair of models measured as a job: what they cost here, what pays, and what other machines are predicted to do."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx

from db.specs import CellSpec
from db.store import Store
from worker.engine import profiles
from worker.engine.calibrate import Measured, measure
from worker.engine.context import Context
from worker.engine.cost import Costs, break_even, fit
from worker.engine.drafters.base import Drafter
from worker.engine.model import Model, on_metal
from worker.engine.values import ModelRef
from worker.models_path import draft_ref, target_ref

#: Grows whenever what is measured or stored changes, so that older figures are measured anew.
FORMAT = 3
LENGTHS = range(1, 9)
#: Context at which break-evens are told.
CONTEXT_TOKENS = 512
#: Where half of what was measured is spread wider than this, something else was running.
BUSY = 0.3
#: Drafters without a model: each costs next to nothing, so they pay alike.
FREE = {"ngram": "n-grams", "lookup": "lookup", "suffix": "suffix"}


class LoadsPairs(Protocol):
    """As `worker.engine.build.Models`."""

    def pair(self, target: ModelRef, draft: ModelRef | None) -> tuple[Model, Model | None, dict[str, Drafter]]: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What is known of a pair on this machine, and whether it had to be measured just now."""

    key: str
    figures: dict[str, Any]
    measured: bool


def costs_of(
    store: Store, models: LoadsPairs, cell: CellSpec, machine: str, progress: Callable[[float], None]
) -> Costs | None:
    """What *cell*'s pair costs here: from the store, or measured now and stored; None where nothing can draft for it.

    *progress* (0..1) may raise to stop. Raises EngineError, ModelUnavailable, as loading the models does.
    """
    target, _, _ = models.pair(target_ref(cell), draft_ref(cell))
    if Context(target).obstacle:
        return None
    return Costs.from_json(calibrated(store, models, cell, machine, progress).figures["costs"])


def calibrated(
    store: Store,
    models: LoadsPairs,
    cell: CellSpec,
    machine: str,
    progress: Callable[[float], None],
    *,
    force: bool = False,
) -> Calibrated:
    """The figures of *cell*'s pair on *machine*, this one: those in the store unless *force*, else measured and stored.

    *progress* (0..1) may raise to stop. Raises EngineError, ModelUnavailable.
    """
    target, draft, drafters = models.pair(target_ref(cell), draft_ref(cell))
    name = key(target, draft, machine)
    known = None if force else store.calibration(name)
    if known is not None:
        return Calibrated(key=name, figures=known, measured=False)
    measured = measure(target, drafters, draft, progress)
    figures = as_figures(measured, target.size_bytes, None if draft is None else draft.size_bytes)
    figures["where"] = {"machine": machine, **_computing(), "dtype": target.dtype, "quantized": target.quantized}
    store.record_calibration(name, (cell.target, cell.draft, machine), figures)
    return Calibrated(key=name, figures=figures, measured=True)


def key(target: Model, draft: Model | None, machine: str) -> str:
    """Equal as long as a measurement stays true: models, dtype, machine, BLAS or Metal, and MLX's version."""
    parts = [
        FORMAT,
        target.describe(),
        None if draft is None else draft.describe(),
        [machine, platform.machine(), os.cpu_count()],
        _computing(),
        # Which BLAS is told by its whole path, how many threads it may use by what OpenBLAS reads.
        ["" if on_metal() else os.environ.get(name, "") for name in ("LD_PRELOAD", "OPENBLAS_NUM_THREADS")],
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _computing() -> dict[str, str]:
    """With what is computed here."""
    preloaded = Path(os.environ.get("LD_PRELOAD", "")).parent.name
    device = "metal" if on_metal() else f"cpu with {preloaded or 'no BLAS of its own'}"
    return {"device": device, "mlx": version("mlx"), "mlx-lm": version("mlx-lm"), "default": str(mx.default_device())}


def as_figures(measured: Measured, target_bytes: int, draft_bytes: int | None) -> dict[str, Any]:
    """Everything that is stored and shown, JSON-ready: curve, break-evens, the paper's constants, predictions."""
    costs = measured.costs
    fitted = {}
    for name in costs.propose:
        law, residuals = fit(costs, name, LENGTHS, CONTEXT_TOKENS)
        fitted[name] = {"r": law.r, "beta": law.beta, "residuals": residuals}
    return {
        "progress": 1.0,
        "costs": costs.as_json(),
        "host_s": costs.host_s(CONTEXT_TOKENS),
        "spread": measured.spread,
        "busy": statistics.median(measured.spread.values()) > BUSY,
        "rounds": measured.rounds,
        "seconds": measured.seconds,
        "context_tokens": CONTEXT_TOKENS,
        "break_even": break_evens(costs, CONTEXT_TOKENS),
        "parametric": fitted,
        "predictions": _predictions(target_bytes, draft_bytes),
        "published": [
            {**dataclasses.asdict(point), "predicted": point.speedup + residual, "residual": residual}
            for point, residual in profiles.residuals()
        ],
        "published_break_even": {str(k): list(ends) for k, ends in profiles.PUBLISHED_BREAK_EVEN.items()},
        "advice": advice(costs),
    }


def break_evens(costs: Costs, context_tokens: int) -> dict[str, list[float]]:
    """By drafter, the acceptance above which k = 1..8 pays."""
    return {name: [break_even(costs, name, k, context_tokens) for k in LENGTHS] for name in costs.propose}


def _predictions(target_bytes: int, draft_bytes: int | None) -> list[dict[str, Any]]:
    """The paper's pair, and this one where there is a draft, on machines that nobody measured."""
    pairs = {"Bielik 11B 8 bit, 1.5B 4 bit": (profiles.PAPER_TARGET_BYTES, profiles.PAPER_DRAFT_BYTES)}
    if draft_bytes is not None:
        pairs["this pair"] = (target_bytes, draft_bytes)
    found = []
    for pair, sizes in pairs.items():
        for machine in profiles.MACHINES:
            costs = profiles.predicted(machine, *sizes)
            evens = {str(k): break_even(costs, "cross", k, 0) for k in profiles.PUBLISHED_BREAK_EVEN}
            shown = {"machine": machine.name, "bandwidth_gb_s": machine.bandwidth_gb_s, "pair": pair}
            found.append({**shown, "predicted": True, "tokens_per_s": 1 / costs.plain_s(0), "break_even": evens})
    return found


def advice(costs: Costs) -> str:
    """One plain sentence: `k = 2 pays above 41 % acceptance with cross; n-grams and lookup pay above 6 %.`"""
    evens = break_evens(costs, CONTEXT_TOKENS)
    parts = []
    for name, by_k in evens.items():
        if name not in FREE:
            k, least = min(enumerate(by_k, start=1), key=lambda found: found[1])
            pays = f"k = {k} pays above {_percent(least)} acceptance with {name}"
            parts.append(pays if least < 1 else f"{name} never pays, whatever is accepted")
    free = [FREE[name] for name in FREE if name in evens]
    if free:
        least = max(min(evens[name]) for name in FREE if name in evens)
        pays = f"pay above {_percent(least)}" + ("" if any("acceptance" in part for part in parts) else " acceptance")
        parts.append(f"{_and(free)} {pays if least < 1 else 'never pay, whatever is accepted'}")
    return "; ".join(parts) + "."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _and(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
