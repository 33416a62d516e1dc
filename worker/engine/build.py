"""A configuration -> loaded models, drafter, decoder. `Models` owns everything that is loaded."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from worker.engine.batch import Batch
from worker.engine.context import Context
from worker.engine.decode import Decoder, prompt_ids
from worker.engine.divergence import Divergence, compare
from worker.engine.drafters.base import Drafter, Remembers
from worker.engine.drafters.cross import CrossDrafter
from worker.engine.drafters.intersect import IntersectDrafter
from worker.engine.drafters.lookup import LookupDrafter
from worker.engine.drafters.neural import NeuralDrafter
from worker.engine.drafters.ngram import NgramDrafter
from worker.engine.drafters.staged import StagedDrafter
from worker.engine.drafters.suffix import SuffixDrafter
from worker.engine.errors import DraftMismatch
from worker.engine.memory import allowed_bytes
from worker.engine.model import Model, load, load_tokenizer_of, on_metal
from worker.engine.ngram_file import NgramFile, table_hash
from worker.engine.rows import Sized, from_measurement
from worker.engine.sampling import Sampler
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import Drafting, ModelRef, Request

#: Drafters with a memory that are kept at once, each of up to 40 MiB.
REMEMBERING = 16


class Models:
    """The loaded models and the decoders made of them. For one thread only, as MLX arrays are."""

    def __init__(self) -> None:
        self._target: ModelRef | None = None
        self._loaded: dict[ModelRef, Model] = {}
        self._decoders: dict[tuple[ModelRef, Drafting, str], Decoder] = {}
        self._sized: dict[ModelRef, Sized] = {}
        #: How many models were loaded so far.
        self.loads = 0

    def decoder(self, target: ModelRef, drafting: Drafting, memory: str = "") -> Decoder:
        """A decoder for this configuration. What it needs is loaded; another target's models make room first.

        What its drafter remembers belongs to *memory*: equal configurations under different names share nothing.
        Raises ModelNotLoadable or DraftMismatch.
        """
        shared, own = (target, drafting, ""), (target, drafting, memory)
        found = self._decoders.get(shared) or self._decoders.get(own)
        if found is not None:
            return found
        if target != self._target:
            self._make_room({target, drafting.draft})
            self._target = target
        model = self._model(target)
        draft = None if drafting.draft is None else self._model(drafting.draft)
        drafter = _drafter(model, draft, drafting)
        decoder = Decoder(model, drafter, drafting.k, _config(model, draft, drafting))
        if isinstance(drafter, Remembers):
            self._forget_oldest()
            self._decoders[own] = decoder
        else:
            self._decoders[shared] = decoder
        return decoder

    def batch(self, target: ModelRef, sized: Sized | None) -> Batch:
        """A batch of so many rows; None: as many as a short measurement says, once a target.

        Raises ModelNotLoadable or NotTogether.
        """
        if target != self._target:
            self._make_room({target})
            self._target = target
        model = self._model(target)
        if sized is None:
            sized = self._sized.get(target) or from_measurement(model)
            self._sized[target] = sized
        config = _config(model, None, Drafting()) | {"batch": dataclasses.asdict(sized)}
        return Batch(model, sized.rows, allowed_bytes() - self._weights_bytes(), config)

    def pair(self, target: ModelRef, draft: ModelRef | None) -> tuple[Model, Model | None, dict[str, Drafter]]:
        """The two models, loaded, and a drafter of each kind that can be made of them."""
        if target != self._target:
            self._make_room({target, draft})
            self._target = target
        model, other = self._model(target), None if draft is None else self._model(draft)
        drafters: dict[str, Drafter] = {}
        if other is not None:
            for kind in ("neural", "cross", "intersect"):
                with contextlib.suppress(DraftMismatch):
                    drafters[kind] = _model_drafter(model, other, kind)
        return model, other, drafters

    def divergence(
        self, target: ModelRef, request: Request, expected: Sequence[int], got: Sequence[int]
    ) -> Divergence | None:
        """Where two answers of *target* to *request* part, by a reading of its own. Raises ModelNotLoadable."""
        model = self._model(target)
        sampler = Sampler(request.sampling, request.custom_id, model.vocab_size)
        return compare(model, sampler, prompt_ids(model, request), expected, got)

    def tokenizer(self, target: ModelRef) -> Tokenizer:
        """The tokenizer of *target*, whose weights are not loaded for it. Raises ModelNotLoadable."""
        loaded = self._loaded.get(target)
        return load_tokenizer_of(target) if loaded is None else loaded.tokenizer

    def _forget_oldest(self) -> None:
        """Make room for one more drafter with a memory."""
        remembering = [key for key in self._decoders if key[2]]
        for key in remembering[: len(remembering) - REMEMBERING + 1]:
            del self._decoders[key]

    def _model(self, ref: ModelRef) -> Model:
        if ref not in self._loaded:
            self._loaded[ref] = load(ref)
            self.loads += 1
        return self._loaded[ref]

    def _weights_bytes(self) -> int:
        return sum(model.size_bytes for model in self._loaded.values())

    def _make_room(self, needed: set[ModelRef | None]) -> None:
        self._decoders.clear()
        self._loaded = {ref: model for ref, model in self._loaded.items() if ref in needed}
        gc.collect()
        mx.clear_cache()


def _drafter(target: Model, draft: Model | None, drafting: Drafting) -> Drafter | None:
    ngram = None if drafting.ngram is None else NgramDrafter(_ngram(target, Path(drafting.ngram)))
    match drafting.drafter:
        case "off":
            return None
        case "lookup":
            return LookupDrafter()
        case "suffix":
            return SuffixDrafter()
        case "ngram" if ngram is not None:
            return ngram
        case "staged":
            free: list[Drafter] = [SuffixDrafter(), *([] if ngram is None else [ngram])]
            if draft is None:
                return StagedDrafter(free)
            kind = "neural" if draft.tokenizer.table == target.tokenizer.table else "cross"
            return StagedDrafter(free, _model_drafter(target, draft, kind), draft.size_bytes / target.size_bytes)
        case "neural" | "cross" | "intersect" if draft is not None:
            return _model_drafter(target, draft, drafting.drafter, drafting.translation)
    raise DraftMismatch(f"this worker cannot build the drafter {drafting}; is it older than the client?")


def _model_drafter(target: Model, draft: Model, kind: str, translation: str | None = None) -> Drafter:
    if obstacle := Context(draft).obstacle:
        raise DraftMismatch(f"{draft.ref.source} cannot draft: {obstacle}; choose another draft, or --drafter off")
    if kind == "cross":
        return CrossDrafter(target.tokenizer, draft, translation or "context")
    if kind == "intersect":
        return IntersectDrafter(target.tokenizer, draft)
    if draft.tokenizer.table != target.tokenizer.table:
        raise DraftMismatch(
            f"{draft.ref.source} cuts text differently from {target.ref.source}; "
            "a draft with another tokenizer needs --drafter cross"
        )
    return NeuralDrafter(draft)


def _ngram(target: Model, path: Path) -> NgramFile:
    model = NgramFile(path)
    if model.tokenizer_hash != table_hash(target.tokenizer.table):
        raise DraftMismatch(
            f"{path} was built over the tokens of another tokenizer than that of {target.ref.source}; "
            "build one for it: nocka ngram build CORPUS... -o FILE --target NAME"
        )
    return model


def _config(target: Model, draft: Model | None, drafting: Drafting) -> dict[str, Any]:
    """Everything that a result must say about how it was made, JSON-ready."""
    return {
        "target": target.describe(),
        "draft": None if draft is None else draft.describe(),
        "drafter": drafting.drafter,
        "translation": drafting.translation,
        "ngram": drafting.ngram,
        "k": drafting.k,
        "versions": {name: version(name) for name in ("nocka", "mlx", "mlx-lm", "transformers")}
        | {"python": platform.python_version()},
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "device": "metal" if on_metal() else "cpu",
        },
    }
