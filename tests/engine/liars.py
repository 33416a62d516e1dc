"""Drafters that lie, each a whole implementation of the interface."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from worker.engine.sampling import Sampler
from worker.engine.values import Draft, Request

Interrupted = Callable[[], bool]


class Liar:
    """Knows the right answer, *truth*, and the target's vocabulary size; what it proposes is up to the child."""

    def __init__(self, truth: Sequence[int], vocab_size: int) -> None:
        self.truth = list(truth)
        self.vocab_size = vocab_size
        self.prompt_tokens = 0

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Interrupted) -> None:
        self.prompt_tokens = len(prompt)
        self.random = random.Random(4)

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        done = len(tokens) - self.prompt_tokens
        proposal = self.lie(self.truth[done : done + min(k, limit)])
        return Draft(tuple(proposal[:limit]), k)

    def finish(self, tokens: Sequence[int]) -> None:
        """Nothing is remembered."""

    def lie(self, right: list[int]) -> list[int]:
        """What to propose where *right* is true."""
        raise AssertionError


class AlwaysRight(Liar):
    def lie(self, right: list[int]) -> list[int]:
        return right


class AlwaysWrong(Liar):
    def lie(self, right: list[int]) -> list[int]:
        return [(token + 1) % self.vocab_size for token in right]


class SometimesWrong(Liar):
    def lie(self, right: list[int]) -> list[int]:
        return [token if self.random.random() < 0.6 else self.random.randrange(self.vocab_size) for token in right]


class Random(Liar):
    def lie(self, right: list[int]) -> list[int]:
        return [self.random.randrange(self.vocab_size) for _ in right]


class Silent(Liar):
    def lie(self, right: list[int]) -> list[int]:
        return []


class OutOfVocabulary(Liar):
    def lie(self, right: list[int]) -> list[int]:
        return [*right[:1], self.vocab_size + 7, -1]


LIARS = [AlwaysRight, AlwaysWrong, SometimesWrong, Random, Silent, OutOfVocabulary]
