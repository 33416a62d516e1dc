"""What an evaluation makes of an answer: how good it is, and whether it is plain decoding's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from db.records import Claim
from db.specs import REGEX, EvaluationTask
from worker.evals import bleu, chrf, contains, exact, json_valid, length, polish_share, regex

#: Names of scores that are no scorer's: this answer beside the plain one of its group.
SAME_AS_PLAIN = "same_as_plain"
FIRST_DIFFERENCE = "first_difference"

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
