"""How much of the right answer's words an answer has, in runs of up to four: BLEU, 0 to 100."""

from __future__ import annotations


def score(text: str, reference: str) -> float:
    """BLEU of *text* as one sentence, smoothed, as sacrebleu computes it. Raises ModuleNotFoundError without it."""
    from sacrebleu.metrics.bleu import BLEU

    return float(BLEU(effective_order=True).sentence_score(text, [reference]).score)
