"""Drafters without a model, on numbers small enough to follow by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.engine.drafters.base import Drafter
from worker.engine.drafters.lookup import LookupDrafter
from worker.engine.drafters.staged import StagedDrafter
from worker.engine.drafters.suffix import SuffixDrafter, commonest_way
from worker.engine.sampling import Sampler
from worker.engine.values import Draft, Request, Sampling

REQUEST = Request(custom_id="a", text="a", max_tokens=64)
SAMPLER = Sampler(Sampling(), "a", 100)


def begun(drafter: Drafter, prompt: Sequence[int]) -> Drafter:
    drafter.start(REQUEST, prompt, SAMPLER, lambda: False)
    return drafter


def answered(drafter: SuffixDrafter, *answers: Sequence[int]) -> SuffixDrafter:
    """*drafter* after requests with these answers to the prompt 9 9."""
    for answer in answers:
        begun(drafter, [9, 9]).finish([9, 9, *answer])
    return drafter


def test_lookup_takes_the_latest_of_the_longest() -> None:
    """1 2 3 stood before twice, last before 6; 3 alone was followed by 7 even later."""
    prompt = [1, 2, 3, 5, 1, 2, 3, 6, 8, 0, 3, 7, 1, 2, 3]
    drafter = begun(LookupDrafter(), prompt)

    assert (6, 8, 0) == drafter.propose(prompt, 3, 16).tokens
    assert (6, 8) == drafter.propose(prompt, 3, 2).tokens


def test_lookup_learns_from_the_answer() -> None:
    """What the target has emitted is looked up too; the next request begins with nothing of it."""
    drafter = begun(LookupDrafter(), [1, 2])

    assert () == drafter.propose([1, 2], 4, 4).tokens
    assert (3, 1, 2) == drafter.propose([1, 2, 3, 1, 2], 4, 4).tokens
    begun(drafter, [5, 1, 2])
    assert () == drafter.propose([5, 1, 2], 4, 4).tokens


def test_suffix_score_by_hand() -> None:
    """Of four places behind 1 2 three went to 3 and two of these on to 4: 3/4 + 3/4 * 2/3 = 1.25."""
    drafter = answered(SuffixDrafter(256), [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6])
    draft = begun(drafter, [7, 1, 2]).propose([7, 1, 2], 16, 16)

    assert (3, 4) == draft.tokens
    assert pytest.approx(1.25) == draft.expected


def test_suffix_trusts_a_match_for_its_own_length() -> None:
    """Behind two known tokens two are proposed; behind six, six."""
    drafter = answered(SuffixDrafter(256), list(range(10, 40)))

    assert (12, 13) == begun(drafter, [5, 10, 11]).propose([5, 10, 11], 16, 16).tokens
    prompt = [5, *range(10, 16)]
    draft = begun(drafter, prompt).propose(prompt, 16, 16)
    assert tuple(range(16, 22)) == draft.tokens
    assert 6.0 == draft.expected


def test_suffix_learns_what_its_shares_are_worth() -> None:
    """Of two sure tokens the first came and the second did not: the next second one is as good as (0 + 1) / (1 + 1)."""
    drafter = answered(SuffixDrafter(256), list(range(10, 40)))
    prompt = [12, 60, 61, 62, 5, 10, 11]
    begun(drafter, prompt)
    first, second = drafter.propose(prompt, 16, 16), drafter.propose([*prompt, 12, 60], 16, 16)

    assert ((12, 13), 2.0) == (first.tokens, first.expected)
    assert (61, 62) == second.tokens
    assert pytest.approx((1.0, 0.5)) == second.chances


def test_suffix_learns_nothing_behind_the_first_wrong_token() -> None:
    """Both of two tokens differ from what came: only the first was wrong, the second was never reached."""
    drafter = answered(SuffixDrafter(256), list(range(10, 40)))
    prompt = [12, 60, 61, 62, 5, 10, 11]
    begun(drafter, prompt).propose(prompt, 16, 16)

    assert pytest.approx((0.5, 0.5)) == drafter.propose([*prompt, 99, 98, 12, 60], 16, 16).chances


def test_suffix_learns_the_same_whoever_goes_on() -> None:
    """Whether its proposal was read as a whole or the target went on token by token without it: as much was right."""
    drafter = answered(SuffixDrafter(256), [1, 2, 3, 4, 5, 6], [1, 2, 3, 9])
    prompt, came = [7, 1, 2, 3], [4, 8, 1, 2, 3]
    begun(drafter, prompt).propose(prompt, 16, 16)
    for end in (1, 3, 5):  # at the first one its proposal is followed, then not: that is enough to know
        draft = drafter.propose(prompt + came[:end], 16, 16)
    read = begun(answered(SuffixDrafter(256), [1, 2, 3, 4, 5, 6], [1, 2, 3, 9]), prompt)
    read.propose(prompt, 16, 16)
    as_read = read.propose(prompt + came, 16, 16)

    assert as_read.tokens == draft.tokens
    assert as_read.chances[0] == draft.chances[0]


def test_suffix_prefers_the_longer_match_wherever_it_stood() -> None:
    """This request's own 2 3 -> 4 gives way to an earlier answer's 1 2 3 -> 5, and the other way round."""
    drafter = answered(SuffixDrafter(256), [1, 2, 3, 5, 0, 0])
    prompt = [2, 3, 4, 1, 2, 3]
    assert 5 == begun(drafter, prompt).propose(prompt, 4, 4).tokens[0]

    prompt = [7, 2, 3, 4, 7, 2, 3]
    assert 4 == begun(drafter, prompt).propose(prompt, 4, 4).tokens[0]


def test_suffix_remembers_no_prompts_and_nothing_across_answers() -> None:
    """An earlier prompt's 9 9 leads nowhere, and the end of one answer does not lead into the next."""
    drafter = answered(SuffixDrafter(256), [1, 2], [3, 4])

    assert () == begun(drafter, [8, 9, 9]).propose([8, 9, 9], 4, 4).tokens
    assert () == begun(drafter, [8, 1, 2]).propose([8, 1, 2], 4, 4).tokens


def test_suffix_forgets_the_oldest_answers() -> None:
    """Its memory is bounded: what was said 64 tokens ago is gone, what was said last is not."""
    drafter = answered(SuffixDrafter(64), [1, 2, 3], list(range(10, 70)), [4, 5, 6])

    assert () == begun(drafter, [1, 2]).propose([1, 2], 4, 4).tokens
    assert (6,) == begun(drafter, [4, 5]).propose([4, 5], 4, 4).tokens


def test_suffix_recalls_what_it_would_have_learnt() -> None:
    """After a restart the answers of the store stand for those that were given."""
    learnt = answered(SuffixDrafter(256), [1, 2, 3, 4], [1, 2, 5])
    recalled = SuffixDrafter(256)
    recalled.recall([[1, 2, 3, 4], [1, 2, 5]])

    assert begun(learnt, [1, 2]).propose([1, 2], 4, 4) == begun(recalled, [1, 2]).propose([1, 2], 4, 4)


def slowly(places: list[list[int]], length: int) -> tuple[list[int], list[float]]:
    """Token by token: the commonest among those that agree so far."""
    way: list[int] = []
    shares: list[float] = []
    share = 1.0
    while len(way) < length:
        agreeing = [place[len(way)] for place in places if place[: len(way)] == way and len(place) > len(way)]
        if not agreeing:
            break
        best = max(agreeing.count(token) for token in agreeing)
        token = next(token for token in agreeing if agreeing.count(token) == best)
        share *= best / len(agreeing)
        if share < 0.1:
            break
        way.append(token)
        shares.append(best / len(agreeing))
    return way, shares


@given(st.lists(st.lists(st.integers(0, 2), max_size=8), max_size=9), st.integers(0, 8))
@settings(max_examples=200, deadline=None)
def test_the_commonest_way_is_that_of_counting(places: list[list[int]], length: int) -> None:
    """The quick count over shared beginnings and the slow one token by token agree."""
    assert slowly(places, length) == commonest_way(places, length)


class Scripted:
    """Proposes what it is told, with how much of it should stand; counts how often it was asked."""

    def __init__(self, tokens: Sequence[int], expected: float = 0.0) -> None:
        self.draft = Draft(tuple(tokens), len(tokens), chances=(expected / max(1, len(tokens)),) * len(tokens))
        self.asked = self.started = 0

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        self.started += 1
        self.prompt = list(prompt)

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        self.asked += 1
        return self.draft

    def finish(self, tokens: Sequence[int]) -> None:
        """Nothing is remembered."""


def test_staged_takes_the_best_promise() -> None:
    """Of two without a model the one that expects more; none of them asks for a draft model."""
    low, high = Scripted([1], 0.4), Scripted([2], 0.6)
    drafter = begun(StagedDrafter([low, high]), [9])

    assert (2,) == drafter.propose([9], 2, 16).tokens


def test_staged_uses_the_draft_only_where_it_is_worth_its_time() -> None:
    """Half of k = 2 stands at first, for 2 * 0.1 forwards: 2 / 1.2 = 1.67 tokens a forward. 0.5 is less, 0.8 is more.

    The draft reads the prompt when it is first needed, as it was then.
    """
    free, draft = Scripted([1], 0.8), Scripted([2, 3])
    drafter = StagedDrafter([free], draft, 0.1)
    prompt = [9]
    begun(drafter, prompt)
    assert ((1,), 0) == (drafter.propose(prompt, 2, 16).tokens, draft.started)

    prompt += [1, 5]
    free.draft = Draft((1,), 1, chances=(0.5,))
    assert ((2, 3), 1) == (drafter.propose(prompt, 2, 16).tokens, draft.started)
    assert [9] == draft.prompt


def test_staged_stops_believing_what_does_not_stand() -> None:
    """One that expects 3 and never gets any loses its turn to the draft, and is tried again some day."""
    boastful, draft = Scripted([1, 1, 1], 3.0), Scripted([2, 2])
    drafter = begun(StagedDrafter([boastful], draft, 0.1), [9])
    tokens, chosen = [9], []
    for _ in range(400):
        proposal = drafter.propose(tokens, 2, 16).tokens
        chosen.append(proposal[0])
        # One of the draft's two stands, and none of the other's.
        tokens += [2, 7] if proposal[0] == 2 else [7]

    assert 1 == chosen[0] and chosen.count(1) < 20
    assert 1 in chosen[100:]


def test_staged_gives_up_a_draft_that_is_never_right_and_comes_back() -> None:
    """Where nothing of the draft stands a plain step is better; the memory of that fades."""
    draft = Scripted([2, 2])
    drafter = begun(StagedDrafter([Scripted([])], draft, 0.1), [9])
    tokens = [9]
    drafted = []
    for _ in range(300):
        drafted.append(drafter.propose(tokens, 2, 16).tokens != ())
        tokens.append(7)

    assert False in drafted
    assert 0 < sum(drafted[50:]) < 25


def test_staged_recalls_for_those_that_remember() -> None:
    """Whoever has a memory learns, and an answer given here teaches it too."""
    drafter = StagedDrafter([SuffixDrafter(256), LookupDrafter()])
    drafter.recall(iter([[1, 2, 3, 4]]))
    assert (3, 4) == begun(drafter, [7, 1, 2]).propose([7, 1, 2], 2, 16).tokens

    drafter.finish([7, 1, 2, 5, 6, 8])
    assert (8,) == begun(drafter, [5, 6]).propose([5, 6], 2, 16).tokens[:1]
