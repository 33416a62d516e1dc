"""A claim as the engine's values, and what the engine made as the store's."""

from __future__ import annotations

from db.queries import MODEL_LOADS
from db.records import Claim, Finished
from db.specs import CellSpec, Decoding
from worker.engine.values import Drafting, Generation, Request, Sampling, Turn
from worker.models_path import draft_ref


def drafting(cell: CellSpec) -> Drafting:
    """Who proposes under *cell*. Raises `ModelUnavailable`."""
    return Drafting(
        drafter=cell.drafter.value,
        draft=draft_ref(cell),
        translation=cell.translation.value if cell.translation is not None else None,
        ngram=cell.ngram,
        k=cell.k,
    )


def decoding(claim: Claim) -> Decoding:
    """How this item's tokens are drawn: the cell's options with the item's own over them."""
    return claim.cell.decoding.overridden(claim.item.overrides)


def request(claim: Claim) -> Request:
    """What the engine is asked for."""
    chosen, item = decoding(claim), claim.item
    turns = None
    if item.messages is not None:
        turns = tuple(Turn(role=message.role, content=message.content) for message in item.messages)
    return Request(
        custom_id=item.custom_id,
        turns=turns,
        text=item.text,
        sampling=Sampling(
            temperature=chosen.temperature,
            top_p=chosen.top_p,
            top_k=chosen.top_k,
            min_p=chosen.min_p,
            repetition_penalty=chosen.repetition_penalty,
            seed=chosen.seed,
        ),
        max_tokens=chosen.max_tokens,
        stop=chosen.stop,
    )


def finished(claim: Claim, generation: Generation, config: dict[str, object], loads: int) -> Finished:
    """What stays in the store; *config* is the decoder's own description of itself, *loads* counts models loaded."""
    return Finished(
        text=generation.text,
        finish_reason=generation.finish_reason,
        metrics={**generation.metrics.as_json(), MODEL_LOADS: loads},
        config={**config, "decoding": decoding(claim).model_dump(mode="json")},
    )
