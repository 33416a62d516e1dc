"""A configuration -> loaded models, drafter, decoder. `Models` owns everything that is loaded."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from worker.engine.batch import Batch
from worker.engine.context import Context
from worker.engine.cost import Costs
from worker.engine.decode import Decoder, prompt_ids
from worker.engine.divergence import Divergence, compare
from worker.engine.drafters.auto import AutoDrafter
from worker.engine.drafters.base import Drafter, Remembers
from worker.engine.drafters.cross import CrossDrafter
from worker.engine.drafters.intersect import IntersectDrafter
from worker.engine.drafters.lookup import LookupDrafter
from worker.engine.drafters.neural import NeuralDrafter
from worker.engine.drafters.ngram import NgramDrafter
from worker.engine.drafters.staged import StagedDrafter
from worker.engine.drafters.suffix import SuffixDrafter
from worker.engine.errors import DraftMismatch, ModelTooLarge
from worker.engine.memory import Fit, allowed_bytes
from worker.engine.model import Model, load, load_tokenizer_of, on_metal
from worker.engine.ngram_file import NgramFile, table_hash
from worker.engine.prefix import CellPrefixes, Prefixes, forgetful
from worker.engine.room import Room
from worker.engine.rows import Sized, from_measurement
from worker.engine.sampling import Sampler
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import Drafting, ModelRef, Request

#: Drafters with a memory that are kept at once, each of up to 40 MiB.
REMEMBERING = 16
#: Prompts that were read may take one part in so many of the memory that the weights leave.
PREFIXES_PART = 8


def unmeasured(draft: ModelRef | None) -> Costs | None:
    """The default for *costs*: nothing was measured."""
    return None


class Models:
    """The loaded models and the decoders made of them. For one thread only, as MLX arrays are."""

    def __init__(self, allowed_bytes: Callable[[], int] = allowed_bytes) -> None:
        """*allowed_bytes* is what models and caches may take."""
        self._allowed_bytes = allowed_bytes
        self._target: ModelRef | None = None
        self._loaded: dict[ModelRef, Model] = {}
        self._decoders: dict[tuple[ModelRef, Drafting, str], Decoder] = {}
        self._sized: dict[ModelRef, Sized] = {}
        self._prefixes: Prefixes | None = None
        self._room = Room(allowed_bytes)
        #: What the last request's cache may take.
        self._cache_bytes = 0
        #: How many models were loaded so far.
        self.loads = 0

    def decoder(
        self,
        target: ModelRef,
        drafting: Drafting,
        memory: str = "",
        costs: Callable[[ModelRef | None], Costs | None] = unmeasured,
        asked: Request | None = None,
    ) -> Decoder:
        """A decoder for this configuration. What it needs is loaded; another target's models make room first.

        What its drafter remembers belongs to *memory*, and so do the beginnings of prompts that were read: equal
        configurations under different names share nothing, and without a name no prompt is kept. *costs* of the target
        with its draft are asked for where a drafter goes by them. Where memory does not suffice for the draft beside
        *asked*, it goes without, and says so. Raises ModelNotLoadable, DraftMismatch, ModelTooLarge or TextTooLarge.
        """
        made = self._fit(target, drafting.draft, asked)
        if made is not None and drafting.draft is not None and made.asked.draft is None:
            drafting = _without_draft(drafting)
        off_reason = None if made is None else made.why
        shared, own = (target, drafting, ""), (target, drafting, memory)
        found = self._decoders.get(shared) or self._decoders.get(own)
        if found is not None:
            found.prefixes, found.off_reason = self._prefixes_of(self._model(target), memory), off_reason
            return found
        if target != self._target:
            self._make_room({target, drafting.draft})
            self._target = target
        model = self._model(target)
        draft = None if drafting.draft is None else self._model(drafting.draft)
        drafter = (
            _auto(model, draft, drafting, costs(drafting.draft))
            if drafting.drafter == "auto"
            else _drafter(model, draft, drafting)
        )
        decoder = Decoder(model, drafter, drafting.k, _config(model, draft, drafting, drafter))
        decoder.prefixes, decoder.off_reason = self._prefixes_of(model, memory), off_reason
        if isinstance(drafter, Remembers):
            self._forget_oldest()
            self._decoders[own] = decoder
        else:
            self._decoders[shared] = decoder
        return decoder

    def batch(self, target: ModelRef, sized: Sized | None, memory: str = "", asked: Request | None = None) -> Batch:
        """A batch of so many rows; None: as many as a short measurement says, once a target.

        Beginnings of prompts are kept under *memory*, as for `decoder`. There are fewer rows where as many as *asked*
        do not fit. Raises ModelNotLoadable, NotTogether, ModelTooLarge or TextTooLarge.
        """
        self._fit(target, None, asked)
        if target != self._target:
            self._make_room({target})
            self._target = target
        model = self._model(target)
        if sized is None:
            sized = self._sized.get(target) or from_measurement(model)
            self._sized[target] = sized
        made = self._fit(target, None, asked, sized.rows)
        if made is not None and made.why is not None:
            sized = Sized(rows=made.asked.rows, why=f"{sized.why}; {made.why}")
        config = _config(model, None, Drafting()) | {"batch": dataclasses.asdict(sized)}
        batch = Batch(model, sized.rows, self._room_bytes() - self._prefixes_bytes(), config)
        batch.prefixes = self._prefixes_of(model, memory)
        return batch

    def pair(self, target: ModelRef, draft: ModelRef | None) -> tuple[Model, Model | None, dict[str, Drafter]]:
        """The two models, loaded, and a drafter of each kind that can be made of them, to be measured.

        Raises ModelNotLoadable, ModelTooLarge or TextTooLarge.
        """
        # Short, so that whatever can be decoded with the draft can be measured too.
        made = self._fit(target, draft, Request(custom_id="", text="a", max_tokens=1))
        if made is not None and draft is not None and made.asked.draft is None:
            raise ModelTooLarge(f"{target.source} and {draft.source}: {made.why}")
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

    def _room_bytes(self) -> int:
        """What the weights that are loaded leave."""
        return self._allowed_bytes() - sum(model.size_bytes for model in self._loaded.values())

    def _prefixes_of(self, target: Model, memory: str) -> CellPrefixes:
        if not memory:
            return forgetful(target)
        if self._prefixes is None:
            self._prefixes = Prefixes(target, self._prefixes_bytes)
        return self._prefixes.of(memory)

    def _prefixes_bytes(self) -> int:
        return max(0, self._room_bytes() - self._cache_bytes) // PREFIXES_PART

    def _fit(self, target: ModelRef, draft: ModelRef | None, asked: Request | None, rows: int = 1) -> Fit | None:
        """What of these fits beside *asked*; None without one. Of what is loaded only what it leaves room for stays."""
        if asked is None:
            return None
        made = self._room.fit(target, draft, asked, rows)
        wanted = {target, None if made.asked.draft is None else draft}
        others_bytes = sum(model.size_bytes for ref, model in self._loaded.items() if ref not in wanted)
        if others_bytes and made.asked.needed_bytes() + others_bytes > self._allowed_bytes():
            self._make_room(wanted)
        self._cache_bytes = made.asked.target.cache_bytes(made.asked.tokens)
        return made

    def _make_room(self, needed: set[ModelRef | None]) -> None:
        self._decoders.clear()
        self._prefixes = None
        self._loaded = {ref: model for ref, model in self._loaded.items() if ref in needed}
        gc.collect()
        mx.clear_cache()


def _without_draft(drafting: Drafting) -> Drafting:
    """What is left of *drafting* without its model."""
    return dataclasses.replace(drafting, draft=None) if drafting.drafter in ("auto", "staged") else Drafting()


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
            _, drafter = _best_of(target, draft)
            return StagedDrafter(free, drafter, draft.size_bytes / target.size_bytes)
        case "neural" | "cross" | "intersect" if draft is not None:
            return _model_drafter(target, draft, drafting.drafter, drafting.translation)
    raise DraftMismatch(f"this worker cannot build the drafter {drafting}; is it older than the client?")


def _auto(target: Model, draft: Model | None, drafting: Drafting, costs: Costs | None) -> Drafter:
    if costs is None:  # nothing can draft for this target, which the decoder says: any drafter will do
        return LookupDrafter()
    free: dict[str, Drafter] = {"suffix": SuffixDrafter()}
    if drafting.ngram is not None:
        free["ngram"] = NgramDrafter(_ngram(target, Path(drafting.ngram)))
    return AutoDrafter(free, None if draft is None else _best_of(target, draft), costs)


def _best_of(target: Model, draft: Model) -> tuple[str, Drafter]:
    """The kind of drafter that *draft* is best as, and one."""
    kind = "neural" if draft.tokenizer.table == target.tokenizer.table else "cross"
    return kind, _model_drafter(target, draft, kind)


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


def _config(target: Model, draft: Model | None, drafting: Drafting, drafter: Drafter | None = None) -> dict[str, Any]:
    """Everything that a result must say about how it was made, JSON-ready."""
    return {
        "target": target.describe(),
        "draft": None if draft is None else draft.describe(),
        "drafter": drafting.drafter,
        "translation": drafting.translation,
        "ngram": drafting.ngram,
        # Of what the draft could say, the share that it may say here.
        "overlap": drafter.overlap if isinstance(drafter, IntersectDrafter) else None,
        "k": drafting.k,
        "versions": {name: version(name) for name in ("nocka", "mlx", "mlx-lm", "transformers")}
        | {"python": platform.python_version()},
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "device": "metal" if on_metal() else "cpu",
        },
    }
