"""Where an answer leaves plain decoding's, and by how little: the scores in which a worker says so. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

#: 1 where an answer's text is that of the plain one beside it, else 0; and the character at which they part, from 0.
SAME_AS_PLAIN, FIRST_DIFFERENCE = "same_as_plain", "first_difference"
FIRST_OTHER_TOKEN, LOGIT_GAP, NEAR_TIE = "first_other_token", "logit_gap", "near_tie"
#: Scores that are no scorer's.
BESIDE_PLAIN = frozenset({SAME_AS_PLAIN, FIRST_DIFFERENCE, FIRST_OTHER_TOKEN, LOGIT_GAP, NEAR_TIE})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parting:
    """Strictly read-only. The first token of an answer that is not plain decoding's."""

    #: From 0.
    token: int
    #: How far apart the target scores the two tokens there, in logits, over the temperature if sampled.
    #: None where it could not have drawn one of them.
    gap: float | None
    #: Whether two kernels that round differently explain it; anything else is a defect.
    near_tie: bool

    def __str__(self) -> str:
        gap = "" if self.gap is None else f", gap {self.gap:.3g}"
        return f"{'near-tie' if self.near_tie else 'DIFFERENT'} at token {self.token}{gap}"

    def as_scores(self) -> dict[str, float]:
        found = {FIRST_OTHER_TOKEN: float(self.token), NEAR_TIE: float(self.near_tie)}
        return found if self.gap is None else {**found, LOGIT_GAP: self.gap}


def parting(scores: Mapping[str, float]) -> Parting | None:
    """What *scores* say of it; None where the answer is plain's own, or nothing was measured."""
    token = scores.get(FIRST_OTHER_TOKEN)
    if token is None:
        return None
    return Parting(token=int(token), gap=scores.get(LOGIT_GAP), near_tie=scores.get(NEAR_TIE) == 1)
