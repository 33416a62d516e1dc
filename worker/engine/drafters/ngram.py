"""An n-gram model over the target's own tokens: no translation, and next to no time (arXiv 2605.30580)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from worker.engine.drafters.base import MAX_PROPOSED
from worker.engine.ngram_file import NgramFile
from worker.engine.sampling import Sampler
from worker.engine.values import Draft, Request

#: Tokens that stand less often than this are not proposed.
MIN_CHANCE = 0.1


class NgramDrafter:
    """Proposes the likeliest next token up to k times over, backing off to shorter contexts while one was seen."""

    def __init__(self, model: NgramFile) -> None:
        self._model = model

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        """Nothing to prepare."""

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        context = list(tokens[1 - self._model.order :])
        read = len(context)
        chance, chances = 1.0, []
        while len(context) - read < min(k, limit, MAX_PROPOSED):
            guess = self._model.guess(context)
            if guess is None or chance * guess.share < MIN_CHANCE:
                break
            chance *= guess.share
            chances.append(chance)
            context.append(guess.token)
        proposal = context[read:]
        return Draft(tuple(proposal), len(proposal), chances=tuple(chances))

    def finish(self, tokens: Sequence[int]) -> None:
        """Nothing is remembered."""
