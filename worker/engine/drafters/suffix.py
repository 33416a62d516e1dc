"""This request's tokens and the earlier answers of its cell, weighed by how often each way on was taken."""

from __future__ import annotations

import itertools
import operator
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

    A match of m tokens is trusted for m tokens. The chance of each is the share of places that went its way, times what
    came of such shares before, after matches of that length: of a proposal's first token, and of the later ones.
    """

    def __init__(self, remembered_tokens: int = REMEMBERED_TOKENS) -> None:
        self._answers = History(remembered_tokens)
        # By length of match and whether it is a proposal's first token: the shares, and how often it came so.
        self._shares: dict[tuple[int, bool], float] = {}
        self._came: dict[tuple[int, bool], float] = {}

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        self._own = History(len(prompt) + request.max_tokens + 2 * REACH)
        self._own.extend(prompt)
        self._prompt_tokens = self._read = len(prompt)
        # The last proposal: its length of match, its tokens and their shares.
        self._last: tuple[int, list[int], list[float]] = 0, [], []

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        self._learn(tokens[self._read :])
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
        proposal, shares = commonest_way(ways, length)
        self._last = matched, proposal, shares
        trusts = (self._trust(matched, index == 0) for index in range(len(shares)))
        likely = (min(1.0, share * trust) for share, trust in zip(shares, trusts, strict=True))
        return Draft(tuple(proposal), len(proposal), chances=tuple(itertools.accumulate(likely, operator.mul)))

    def _trust(self, matched: int, first: bool) -> float:
        """What came of a share, where its match was so long."""
        return (self._came.get((matched, first), 0.0) + 1) / (self._shares.get((matched, first), 0.0) + 1)

    def _learn(self, came: Sequence[int]) -> None:
        """Hold the last proposal against the tokens that *came*, up to the first that differs, whoever proposed them.

        So it makes no difference to what is learnt whether the proposal was read at all, or how much of it.
        """
        matched, proposal, shares = self._last
        for index, (token, share, due) in enumerate(zip(proposal, shares, came, strict=False)):
            key = matched, index == 0
            self._shares[key] = KEPT * self._shares.get(key, 0.0) + share
            self._came[key] = KEPT * self._came.get(key, 0.0) + (token == due)
            if token != due:
                break

    def finish(self, tokens: Sequence[int]) -> None:
        self.recall([tokens[self._prompt_tokens :]])

    def recall(self, answers: Iterable[Sequence[int]]) -> None:
        """Remember *answers*, the oldest first, as if they had been given here."""
        for answer in answers:
            self._answers.extend(answer)
            self._answers.extend([GAP])


def commonest_way(places: Sequence[list[int]], length: int) -> tuple[list[int], list[float]]:
    """The way on that most of *places* take at each step, and of those that went so far the share that takes it.

    A place that ends early no longer counts.
    """
    way: list[int] = []
    shares: list[float] = []
    share = 1.0
    while len(way) < length:
        places = [place for place in places if len(place) > len(way)]
        if not places:
            break
        agreed = _shared(min(places), max(places), len(way), length)
        if agreed:
            way += agreed
            shares += [1.0] * len(agreed)
            continue
        votes = [place[len(way)] for place in places]
        token = max(dict.fromkeys(votes), key=votes.count)  # the latest place's, where votes are equal
        taken = votes.count(token) / len(votes)
        share *= taken
        if share < MIN_SHARE:
            break
        places = [place for place in places if place[len(way)] == token]
        way.append(token)
        shares.append(taken)
    return way, shares


def _shared(least: list[int], greatest: list[int], start: int, end: int) -> list[int]:
    """What two places, and so all that are sorted between them, share from *start* on, up to *end*."""
    at = start
    end = min(end, len(least), len(greatest))
    while at < end and least[at] == greatest[at]:
        at += 1
    return least[start:at]
