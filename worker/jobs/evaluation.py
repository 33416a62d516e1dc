"""What an evaluation makes of an answer: how good it is, and whether it is plain decoding's own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import structlog

from db.parting import FIRST_DIFFERENCE, SAME_AS_PLAIN, Parting
from db.records import Claim, Finished, PlainAnswer
from db.specs import REGEX, DrafterKind, EvaluationTask
from db.work import TOKENS
from worker.engine.divergence import Divergence
from worker.engine.values import ModelRef, Request
from worker.evals import bleu, chrf, contains, exact, json_valid, length, polish_share, regex
from worker.jobs.generation import request
from worker.models_path import target_ref

#: Against the item's right answer; 0 to 1, chrF and BLEU to 100.
_AGAINST_REFERENCE: dict[str, Callable[[str, str], float]] = {
    "chrf": chrf.score,
    "bleu": bleu.score,
    "exact": exact.score,
    "contains": contains.score,
}
#: By the answer alone.
_ALONE: dict[str, Callable[[str], float | None]] = {
    "json_valid": json_valid.score,
    "length": length.score,
    "polish_share": polish_share.score,
}

log = structlog.get_logger("worker")


class Compares(Protocol):
    """As `worker.engine.build.Models`."""

    def divergence(
        self, target: ModelRef, request: Request, expected: Sequence[int], got: Sequence[int]
    ) -> Divergence | None: ...


def evaluated(
    claim: Claim, made: Finished, tokens: tuple[int, ...], plain: PlainAnswer | None, models: Compares
) -> Finished:
    """*made* with its scores; its *tokens* stay where it is plain, for others to be held against.

    *plain* is the plain answer beside it, None where there is none (yet).
    """
    own = plain is not None and plain.tokens == tokens
    # By the tokens where they are known: the store spells a NUL in another way.
    found = scores(claim, made.text, None if plain is None else made.text if own else plain.text)
    if plain is not None and plain.tokens is not None and not own:
        parting = _parting(claim, plain.tokens, tokens, models)
        found |= {} if parting is None else parting.as_scores()
    kept = {TOKENS: list(tokens)} if claim.cell.drafter is DrafterKind.OFF else {}
    return dataclasses.replace(made, metrics=made.metrics | kept, scores=found)


def _parting(claim: Claim, plain: Sequence[int], tokens: Sequence[int], models: Compares) -> Parting | None:
    """Where *tokens* leave *plain*, read again by the target, which is still loaded."""
    try:
        found = models.divergence(target_ref(claim.cell), request(claim), plain, tokens)
    except Exception as error:  # an answer is never lost for its score
        log.warning("how near an answer was to plain's is not known", kind=type(error).__name__)
        return None
    if found is None:
        return None
    return Parting(token=found.index, gap=found.gap if math.isfinite(found.gap) else None, near_tie=found.is_near_tie)


def scores(claim: Claim, text: str, plain: str | None) -> dict[str, float]:
    """Every score of *text* that can be had; *plain* is the plain answer beside it, None where there is none (yet).

    A scorer that needs a right answer says nothing about an item without one. One whose package this worker lacks is
    logged and left out: an answer is never lost for its score.
    """
    found = dict(against_plain(text, plain))
    for name in claim.task.scorers if isinstance(claim.task, EvaluationTask) else ():
        try:
            value = _score(name, text, claim.item.reference)
        except ModuleNotFoundError as error:
            log.warning("an answer goes without a score", scorer=name, missing=error.name)
            continue
        if value is not None:
            found[name] = value
    return found


def against_plain(text: str, plain: str | None) -> Iterable[tuple[str, float]]:
    """Whether the two are equal, and where they are not, the character at which they part, from 0."""
    if plain is None:
        return
    yield SAME_AS_PLAIN, float(text == plain)
    if text != plain:
        shorter = min(len(text), len(plain))
        yield FIRST_DIFFERENCE, float(next((at for at in range(shorter) if text[at] != plain[at]), shorter))


def _score(name: str, text: str, reference: str | None) -> float | None:
    if name.startswith(REGEX):
        return regex.score(text, name.removeprefix(REGEX))
    if name in _ALONE:
        return _ALONE[name](text)
    return None if reference is None else _AGAINST_REFERENCE[name](text, reference)
