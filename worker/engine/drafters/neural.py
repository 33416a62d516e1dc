"""A smaller model with the target's tokenizer. It draws with the target's own noise, which wins back acceptance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from worker.engine.context import Context
from worker.engine.model import Model
from worker.engine.sampling import Sampler
from worker.engine.values import Draft, Request


class NeuralDrafter:
    """Proposes what *draft* would say. Its tokens stay on the device until the verification needs them."""

    def __init__(self, draft: Model) -> None:
        self._draft = draft

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        self._context = Context(self._draft)
        self._sampler = sampler
        self._agreed = 0
        self._context.prefill(prompt[:-1], interrupted)

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        count = min(k, limit, self._draft.context_tokens // 2)
        if count < 1:
            return Draft()
        unread = self._context.follow(tokens, min(self._agreed, len(self._context)), count)
        self._agreed = len(tokens)
        return Draft(self._context.roll(unread, count, self._sampler.choose), count)

    def finish(self, tokens: Sequence[int]) -> None:
        """Nothing is remembered."""
