"""How much of the right answer's characters an answer has, in runs of up to six: chrF, 0 to 100."""

from __future__ import annotations


def score(text: str, reference: str) -> float:
    """chrF2 of *text*, as sacrebleu computes it for one sentence. Raises ModuleNotFoundError without sacrebleu."""
    from sacrebleu.metrics.chrf import CHRF

    return float(CHRF().sentence_score(text, [reference]).score)
