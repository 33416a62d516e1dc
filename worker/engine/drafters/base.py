"""What every drafter is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

from worker.engine.sampling import Sampler
from worker.engine.values import Choices, Draft, Request

#: At most this many target tokens are proposed in a round, whatever the drafter.
MAX_PROPOSED = 16


class Drafter(Protocol):
    """Proposes target tokens for one request at a time. Right or wrong, it never changes what the target emits."""

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        """Begin a request whose target prompt is *prompt*. May return early once *interrupted* says so."""

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        """Draft *k* tokens behind *tokens*, the prompt and all that is committed; at most *limit* target tokens.

        *tokens* grows between calls and is never changed before its old end. An empty proposal makes a plain step.
        """

    def finish(self, tokens: Sequence[int]) -> None:
        """End the request with all its *tokens*, prompt and answer. A drafter with a memory learns from them here."""


@runtime_checkable
class Chooses(Drafter, Protocol):
    """A drafter that plans each round by itself. Where it proposes nothing, plain decoding goes on for a while."""

    def stays(self, tokens: Sequence[int]) -> bool:
        """Whether plain decoding should go on behind *tokens*. One more token is being computed then."""

    def choices(self) -> Choices:
        """What it chose in the last request, once that has finished."""


@runtime_checkable
class Remembers(Drafter, Protocol):
    """A drafter that goes on learning from one request to the next."""

    def recall(self, answers: Iterable[Sequence[int]]) -> None:
        """Learn from *answers* given before this process began, the oldest first, in target tokens."""
