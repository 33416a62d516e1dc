"""The prompt's own and the answer's earlier tokens: what followed when the last ones stood there before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from worker.engine.drafters.base import MAX_PROPOSED
from worker.engine.history import REACH, History, last_tokens
from worker.engine.sampling import Sampler
from worker.engine.values import Draft, Request


class LookupDrafter:
    """Proposes what followed the longest earlier match of the last tokens, the latest one where several are as long."""

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        self._history = History(len(prompt) + request.max_tokens + 2 * REACH)
        self._history.extend(prompt)
        self._read = len(prompt)

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        self._history.extend(tokens[self._read :])
        self._read = len(tokens)
        places = self._history.find(last_tokens(tokens)).places
        proposal = self._history.ahead(places[0], max(0, min(k, limit, MAX_PROPOSED))) if places else []
        return Draft(tuple(proposal), len(proposal))

    def finish(self, tokens: Sequence[int]) -> None:
        """Nothing is remembered."""
