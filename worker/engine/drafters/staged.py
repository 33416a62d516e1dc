"""Drafters without a model first; the draft model only where they have nothing that is worth as much."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from worker.engine.drafters.base import Drafter, Remembers
from worker.engine.sampling import Sampler
from worker.engine.values import Draft, Request

#: What is left of older rounds after each in which a stage proposed, and in which it did not.
KEPT, KEPT_UNUSED = 0.95, 0.99


@dataclasses.dataclass
class _Stage:
    """A drafter and how its last rounds went, fading."""

    drafter: Drafter
    expected: float = 0.0
    stood: float = 0.0
    rounds: float = 0.0

    def learn(self, expected: float, stood: int) -> None:
        self.expected = KEPT * self.expected + expected
        self.stood = KEPT * self.stood + stood
        self.rounds = KEPT * self.rounds + 1

    def forget(self) -> None:
        """So that it is tried again some day."""
        self.expected, self.stood, self.rounds = (
            KEPT_UNUSED * past for past in (self.expected, self.stood, self.rounds)
        )

    def promise(self, draft: Draft) -> float:
        """How many tokens of *draft* will stand, going by how many did of what it expected."""
        return draft.expected * (self.stood + 1) / (self.expected + 1)

    def usual(self, k: int) -> float:
        """How many tokens of a draft of *k* stand, half of them before anything is known."""
        return (self.stood + k / 2) / (self.rounds + 1)


class StagedDrafter:
    """Proposes what promises the most tokens for the time: (1 + tokens that will stand) / (1 + cost in forwards).

    The *free* ones cost nothing, and what they expect is held against what stood of it. The *draft* costs
    *draft_cost* target forwards a token and is worth what stood of its last rounds; it reads the prompt when it is
    first needed.
    """

    def __init__(self, free: Sequence[Drafter], draft: Drafter | None = None, draft_cost: float = 0.1) -> None:
        self._free = [_Stage(drafter) for drafter in free]
        self._draft = None if draft is None else _Stage(draft)
        self._draft_cost = draft_cost

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        for stage in self._free:
            stage.drafter.start(request, prompt, sampler, interrupted)
        self._draft_started = False
        # The prompt is the caller's list, which grows.
        self._begin = request, list(prompt), sampler, interrupted
        self._last: tuple[_Stage, Draft] | None = None
        self._read = len(prompt)

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        if self._last is not None:
            self._learn(*self._last, len(tokens) - self._read - 1)
        self._read = len(tokens)
        offers = [(stage, stage.drafter.propose(tokens, limit, limit)) for stage in self._free]
        self._last = max(offers, key=lambda offer: offer[0].promise(offer[1]), default=None)
        worth = 1.0 if self._last is None else 1.0 + self._last[0].promise(self._last[1])
        if self._draft is not None and (1.0 + self._draft.usual(k)) / (1.0 + k * self._draft_cost) > worth:
            self._last = self._draft, self._propose_draft(self._draft.drafter, tokens, k, limit)
        return Draft() if self._last is None else self._last[1]

    def _propose_draft(self, draft: Drafter, tokens: Sequence[int], k: int, limit: int) -> Draft:
        if not self._draft_started:
            draft.start(*self._begin)
            self._draft_started = True
        return draft.propose(tokens, k, limit)

    def _learn(self, chosen: _Stage, draft: Draft, stood: int) -> None:
        """Hold the last proposal against the *stood* tokens of it that were committed."""
        for stage in [*self._free, *([] if self._draft is None else [self._draft])]:
            if stage is not chosen:
                stage.forget()
        if draft.draft_tokens:
            chosen.learn(draft.expected, stood)

    def finish(self, tokens: Sequence[int]) -> None:
        for stage in self._free:
            stage.drafter.finish(tokens)
        if self._draft is not None and self._draft_started:
            self._draft.drafter.finish(tokens)

    def recall(self, answers: Iterable[Sequence[int]]) -> None:
        """Let every stage with a memory learn from *answers*."""
        kept = list(answers)
        for stage in self._free:
            if isinstance(stage.drafter, Remembers):
                stage.drafter.recall(kept)
