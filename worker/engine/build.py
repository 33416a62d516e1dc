"""A configuration -> loaded models, drafter, decoder. `Models` owns everything that is loaded."""

from __future__ import annotations

import gc
import platform
from importlib.metadata import version
from typing import Any

import mlx.core as mx

from worker.engine.decode import Decoder
from worker.engine.drafters.base import Drafter
from worker.engine.drafters.cross import CrossDrafter
from worker.engine.drafters.neural import NeuralDrafter
from worker.engine.errors import DraftMismatch
from worker.engine.model import Model, load, on_metal
from worker.engine.values import Drafting, ModelRef


class Models:
    """The loaded models and the decoders made of them. For one thread only, as MLX arrays are."""

    def __init__(self) -> None:
        self._target: ModelRef | None = None
        self._loaded: dict[ModelRef, Model] = {}
        self._decoders: dict[tuple[ModelRef, Drafting], Decoder] = {}

    def decoder(self, target: ModelRef, drafting: Drafting) -> Decoder:
        """A decoder for this configuration. What it needs is loaded; another target's models make room first.

        Raises ModelNotLoadable or DraftMismatch.
        """
        key = (target, drafting)
        if key not in self._decoders:
            if target != self._target:
                self._make_room({target, drafting.draft})
                self._target = target
            model = self._model(target)
            draft = None if drafting.draft is None else self._model(drafting.draft)
            drafter = _drafter(model, draft, drafting)
            self._decoders[key] = Decoder(model, drafter, drafting.k, _config(model, draft, drafting))
        return self._decoders[key]

    def _model(self, ref: ModelRef) -> Model:
        if ref not in self._loaded:
            self._loaded[ref] = load(ref)
        return self._loaded[ref]

    def _make_room(self, needed: set[ModelRef | None]) -> None:
        self._decoders.clear()
        self._loaded = {ref: model for ref, model in self._loaded.items() if ref in needed}
        gc.collect()
        mx.clear_cache()


def _drafter(target: Model, draft: Model | None, drafting: Drafting) -> Drafter | None:
    if draft is None:
        return None
    if drafting.drafter == "cross":
        return CrossDrafter(target.tokenizer, draft, drafting.translation or "context")
    if draft.tokenizer.table != target.tokenizer.table:
        raise DraftMismatch(
            f"{draft.ref.source} cuts text differently from {target.ref.source}; "
            "a draft with another tokenizer needs --drafter cross"
        )
    return NeuralDrafter(draft)


def _config(target: Model, draft: Model | None, drafting: Drafting) -> dict[str, Any]:
    """Everything that a result must say about how it was made, JSON-ready."""
    return {
        "target": target.describe(),
        "draft": None if draft is None else draft.describe(),
        "drafter": drafting.drafter,
        "translation": drafting.translation,
        "k": drafting.k,
        "versions": {name: version(name) for name in ("nocka", "mlx", "mlx-lm", "transformers")}
        | {"python": platform.python_version()},
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "device": "metal" if on_metal() else "cpu",
        },
    }
