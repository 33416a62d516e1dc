"""This request's tokens and the earlier answers of its cell, weighed by how often each way on was taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from worker.engine.drafters.base import MAX_PROPOSED
from worker.engine.history import GAP, REACH, History, last_tokens
from worker.engine.sampling import Sampler
from worker.engine.values import Draft, Request

#: Tokens of earlier answers that are kept; at 40 bytes each, 40 MiB.
REMEMBERED_TOKENS = 1 << 20
#: A token whose way was taken by fewer than this share of the places is not proposed.
MIN_SHARE = 0.1
#: What is left of older rounds when a new one is learnt from.
KEPT = 0.98


class SuffixDrafter:
    """Proposes the commonest way on from where the last tokens stood before, in this request or an earlier answer.

    A match of m tokens is trusted for m tokens. `expected` is the sum of the shares that went the whole way so far,
    times what stood of such sums before, after matches of that length.
    """

    def __init__(self, remembered_tokens: int = REMEMBERED_TOKENS) -> None:
        self._answers = History(remembered_tokens)
        # By length of match: the sums, and what stood of them.
        self._summed: dict[int, float] = {}
        self._stood: dict[int, float] = {}

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        self._own = History(len(prompt) + request.max_tokens + 2 * REACH)
        self._own.extend(prompt)
        self._prompt_tokens = self._read = len(prompt)
        # The last proposal's length of match and its sum.
        self._last = 0, 0.0

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        self._learn(len(tokens) - self._read - 1)
        self._own.extend(tokens[self._read :])
        self._read = len(tokens)
        last = last_tokens(tokens)
        own = self._own.find(last)
        past = self._answers.find(last, own.matched)
        matched = max(own.matched, past.matched)
        length = max(0, min(k, limit, matched, MAX_PROPOSED))
        ways = []
        for history, found in ((self._own, own), (self._answers, past)):
            if found.matched == matched:
                ways += [way for place in found.places if (way := history.ahead(place, length))]
        proposal, summed = commonest_way(ways, length)
        self._last = matched, summed
        trust = (self._stood.get(matched, 0.0) + 1) / (self._summed.get(matched, 0.0) + 1)
        return Draft(tuple(proposal), len(proposal), expected=summed * trust)

    def _learn(self, stood: int) -> None:
        """Hold the last proposal against the *stood* tokens of it that were committed."""
        matched, summed = self._last
        if summed:
            self._summed[matched] = KEPT * self._summed.get(matched, 0.0) + summed
            self._stood[matched] = KEPT * self._stood.get(matched, 0.0) + stood

    def finish(self, tokens: Sequence[int]) -> None:
        self.recall([tokens[self._prompt_tokens :]])

    def recall(self, answers: Iterable[Sequence[int]]) -> None:
        """Remember *answers*, the oldest first, as if they had been given here."""
        for answer in answers:
            self._answers.extend(answer)
            self._answers.extend([GAP])


def commonest_way(places: Sequence[list[int]], length: int) -> tuple[list[int], float]:
    """The way on that most of *places* take at each step, and how many of its tokens are expected to stand.

    That is the sum over its tokens of the share of places that agree so far; one that ends early no longer counts.
    """
    way: list[int] = []
    share, expected = 1.0, 0.0
    while len(way) < length:
        places = [place for place in places if len(place) > len(way)]
        if not places:
            break
        agreed = _shared(min(places), max(places), len(way), length)
        if agreed:
            way += agreed
            expected += share * len(agreed)
            continue
        votes = [place[len(way)] for place in places]
        token = max(dict.fromkeys(votes), key=votes.count)  # the latest place's, where votes are equal
        share *= votes.count(token) / len(votes)
        if share < MIN_SHARE:
            break
        places = [place for place in places if place[len(way)] == token]
        way.append(token)
        expected += share
    return way, expected


def _shared(least: list[int], greatest: list[int], start: int, end: int) -> list[int]:
    """What two places, and so all that are sorted between them, share from *start* on, up to *end*."""
    at = start
    end = min(end, len(least), len(greatest))
    while at < end and least[at] == greatest[at]:
        at += 1
    return least[start:at]
