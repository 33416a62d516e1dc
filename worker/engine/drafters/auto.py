"""Whoever pays at the moment: drafters without a model, a draft model, or nobody. `controller.py` plans each round."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import mlx.core as mx

from worker.engine import controller
from worker.engine.controller import Came, Learnt, Plan, Prices, Situation
from worker.engine.cost import Costs
from worker.engine.drafters.base import Drafter, Remembers
from worker.engine.sampling import Sampler
from worker.engine.values import Choices, Draft, Request

#: Prices hold for contexts of about this length.
PRICED_TOKENS = 128
#: So many plain tokens are learnt from at once.
LEARN_TOKENS = 8


class AutoDrafter:
    """Runs the controller: makes its offers, tells it what came of its plans, and keeps what it has learnt.

    The *free* drafters, by name, offer in every round. The *model*, a name and a drafter, reads a request when it is
    first wanted. *clock* tells seconds: a round lasts from one question to the next.
    """

    def __init__(
        self,
        free: Mapping[str, Drafter],
        model: tuple[str, Drafter] | None,
        costs: Costs,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._free = free
        self._model_name = None if model is None else model[0]
        self._model = None if model is None else model[1]
        self._costs = costs
        self._clock = clock
        self._prices: dict[int, Prices] = {}
        #: What was learnt from all requests so far.
        self.learnt = Learnt()

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        for drafter in self._free.values():
            drafter.start(request, prompt, sampler, interrupted)
        # The prompt is the caller's list, which grows.
        self._begin = request, list(prompt), sampler, interrupted
        self._end = len(prompt) + request.max_tokens
        self._read = len(prompt)
        #: How many tokens the draft model has read.
        self._model_read = 0
        self._counts: Counter[str] = Counter()
        self._situation = Situation(context_tokens=len(prompt), left=0, offers={}, unread=0)
        # The last round: its plan, and how much was proposed under it; None where plain decoding goes on.
        self._plan = Plan()
        self._proposed: int | None = None
        self._since: float | None = None

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        self._learn(tokens)
        drafts = self._look(tokens, limit)
        self._proposed = None
        if self._plan.drafter is None:
            return Draft()
        if self._plan.drafter == self._model_name:
            draft = self._propose_model(tokens, self._plan.k, limit)
        else:
            draft = Draft(drafts[self._plan.drafter].tokens[: self._plan.k], self._plan.k)
        if draft.draft_tokens:
            self._proposed = draft.tokens.size if isinstance(draft.tokens, mx.array) else len(draft.tokens)
        return draft

    def stays(self, tokens: Sequence[int]) -> bool:
        if len(tokens) - self._read >= LEARN_TOKENS:
            self._learn(tokens)
        self._look(tokens, self._end - len(tokens) - 1)
        return self._plan.drafter is None

    def _look(self, tokens: Sequence[int], limit: int) -> dict[str, Draft]:
        """Hear the offers, and plan; the offers."""
        drafts = {name: drafter.propose(tokens, limit, limit) for name, drafter in self._free.items()}
        self._situation = Situation(
            context_tokens=len(tokens),
            left=self._end - len(tokens),
            offers={name: draft.chances for name, draft in drafts.items()},
            unread=len(tokens) - self._model_read,
        )
        self._plan = controller.plan(self.learnt, self._priced(), self._situation, self._model_name)
        return drafts

    def _learn(self, tokens: Sequence[int]) -> None:
        now, came = self._clock(), len(tokens) - self._read
        if self._since is not None and came:
            seconds = now - self._since
            if self._proposed is None:
                self.learnt = controller.streamed(self.learnt, self._priced(), came, seconds)
            else:
                done = Came(proposed=self._proposed, accepted=came - 1, seconds=seconds)
                self.learnt = controller.observed(self.learnt, self._priced(), self._situation, self._plan, done)
            self._count(came)
        self._since, self._read = now, len(tokens)

    def _count(self, came: int) -> None:
        if self._proposed is None:
            self._counts["plain"] += came
        elif self._plan.drafter == self._model_name:
            self._counts[f"{self._model_name} k={self._plan.k}"] += 1
        else:
            self._counts[str(self._plan.drafter)] += 1

    def _priced(self) -> Prices:
        place = self._situation.context_tokens // PRICED_TOKENS
        if place not in self._prices:
            self._prices[place] = Prices(self._costs, place * PRICED_TOKENS + PRICED_TOKENS // 2)
        return self._prices[place]

    def _propose_model(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        assert self._model is not None
        _, _, _, interrupted = self._begin
        if not self._model_read:
            self._model.start(*self._begin)
            if interrupted():
                return Draft()
        self._model_read = len(tokens)
        return self._model.propose(tokens, k, limit)

    def finish(self, tokens: Sequence[int]) -> None:
        # The last round was cut off by the answer's end: it counts, but says nothing of the drafter.
        self._count(max(1, len(tokens) - self._read))
        for drafter in self._free.values():
            drafter.finish(tokens)
        if self._model is not None and self._model_read:
            self._model.finish(tokens)

    def choices(self) -> Choices:
        why = controller.reason(self.learnt, self._priced(), self._situation.context_tokens, self._model_name)
        return Choices(rounds=dict(self._counts), reason=why)

    def recall(self, answers: Iterable[Sequence[int]]) -> None:
        """Let every drafter with a memory learn from *answers*."""
        kept = list(answers)
        for drafter in self._free.values():
            if isinstance(drafter, Remembers):
                drafter.recall(kept)
