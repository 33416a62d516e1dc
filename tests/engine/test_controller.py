"""The controller in a simulated world: a clock that costs drive, and acceptance that changes."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Mapping, Sequence

import pytest

from worker.engine import controller
from worker.engine.controller import Came, Learnt, Plan, Prices, Seen, Situation
from worker.engine.cost import Costs, Points, speedup

PLAIN_S = 0.025
#: A forward of m tokens, in plain tokens' time: one that amortises, and one that does not.
AMORTISES: Points = ((1, 1.02), (2, 1.3), (3, 1.4), (5, 1.6), (9, 1.9), (17, 2.5))
LINEAR: Points = ((1, 1.0), (17, 17.0))

Planner = Callable[[Learnt, Prices, Situation, str | None], Plan]
#: Something that depends on how many tokens were decoded.
Over = Callable[[int], float]


def costs(forwards: Points = AMORTISES, draft: float = 0.15, read: float = 0.01) -> Costs:
    """A draft token takes *draft* plain tokens' time, one of its prompt's *read*."""
    return Costs(
        plain=((128, PLAIN_S),),
        verify=((128, tuple((tokens, PLAIN_S * share) for tokens, share in forwards)),),
        propose={"cross": ((1, PLAIN_S * draft), (8, PLAIN_S * draft * 8)), "suffix": ((1, 5e-5),)},
        prefill_token_s=PLAIN_S / 20,
        draft_prefill_token_s=PLAIN_S * read,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """What is true, whatever was measured."""

    costs: Costs = dataclasses.field(default_factory=costs)
    #: The chance that a drafted token stands once those before it do.
    chance: Over = lambda tokens: 0.5
    #: How much slower than measured everything is, and the draft's own part beside it.
    slowness: Over = lambda tokens: 1.0
    draft_slowness: Over = lambda tokens: 1.0
    prompt_tokens: int = 100
    answer_tokens: int = 200
    #: How far apart the times of equal rounds lie, relatively.
    noise: float = 0.1


@dataclasses.dataclass
class Ran:
    """What a simulation did: seconds, those of plain decoding, and after each step the tokens so far and its plan."""

    seconds: float = 0.0
    plain_s: float = 0.0
    steps: list[tuple[int, Plan]] = dataclasses.field(default_factory=list)
    learnt: Learnt = dataclasses.field(default_factory=Learnt)

    @property
    def speedup(self) -> float:
        return self.plain_s / self.seconds

    def drafted(self, start: int, end: int) -> float:
        """The share of steps between two numbers of tokens that drafted, probes left out."""
        among = [plan for tokens, plan in self.steps if start <= tokens < end]
        return sum(plan.drafter is not None and not plan.probe for plan in among) / len(among)


def simulated(world: World, tokens: int, planner: Planner = controller.plan, seed: int = 7) -> Ran:
    """Decode *tokens* in answers of equal length, each behind a prompt of its own."""
    ran, draw = Ran(), random.Random(seed)
    prices = Prices(world.costs, 128)
    done = 0
    while done < tokens:
        answered, read = 0, 0
        while answered < world.answer_tokens:
            slowness = world.slowness(done) * draw.uniform(1 - world.noise, 1 + world.noise)
            at = Situation(
                context_tokens=world.prompt_tokens + answered,
                left=world.answer_tokens - answered,
                offers={},
                unread=world.prompt_tokens + answered - read,
            )
            plan = planner(ran.learnt, prices, at, "cross")
            emitted, plain_s = 1, PLAIN_S * world.slowness(done)
            if plan.drafter is None:
                seconds = PLAIN_S * slowness
                ran.learnt = controller.streamed(ran.learnt, prices, 1, seconds)
            else:
                while emitted <= plan.k and draw.random() < world.chance(done):
                    emitted += 1
                catch_up_s = max(0, at.unread - controller.READ_TOKENS) * world.costs.draft_prefill_token_s
                draft_s = (world.costs.propose_s("cross", plan.k) + catch_up_s) * world.draft_slowness(done)
                seconds = (draft_s + prices.verify_s(plan.k)) * slowness
                came = Came(proposed=plan.k, accepted=emitted - 1, seconds=seconds)
                ran.learnt = controller.observed(ran.learnt, prices, at, plan, came)
                read = world.prompt_tokens + answered + emitted
            answered, done = answered + emitted, done + emitted
            ran.seconds, ran.plain_s = ran.seconds + seconds, ran.plain_s + emitted * plain_s
            ran.steps.append((done, plan))
    return ran


def always_off(learnt: Learnt, prices: Prices, at: Situation, model: str | None) -> Plan:
    return Plan()


def always_on(learnt: Learnt, prices: Prices, at: Situation, model: str | None) -> Plan:
    return Plan(drafter=model, k=min(4, at.left)) if model and at.left > 1 else Plan()


def best_fixed(chance: float) -> float:
    return max(speedup(costs(), "cross", k, [chance] * k, 128) for k in range(1, 9))


def gains_where_much_is_accepted(planner: Planner) -> None:
    """Within 5 % of the best fixed length, over a range of chances that pay."""
    for chance in (0.7, 0.8, 0.9):
        ran = simulated(World(chance=lambda tokens, chance=chance: chance), 4000, planner)
        assert ran.speedup >= 0.95 * best_fixed(chance), chance


def loses_nothing_where_nothing_is_accepted(planner: Planner) -> None:
    """At most 2 % over 2,000 tokens, what finding out costs included."""
    ran = simulated(World(chance=lambda tokens: 0.05), 2000, planner)

    assert ran.speedup >= 0.98


def turns_on_when_it_begins_to_pay(planner: Planner) -> None:
    """2,000 tokens of nothing, then 85 %: before 3,500 it drafts nearly always."""
    ran = simulated(World(chance=lambda tokens: 0.05 if tokens < 2000 else 0.85), 5000, planner)

    assert ran.drafted(1000, 2000) <= 0.05
    assert ran.drafted(3500, 5000) >= 0.9


def turns_off_when_it_ceases_to_pay(planner: Planner) -> None:
    """2,000 tokens of 85 %, then nothing: within 100 tokens it has stopped."""
    ran = simulated(World(chance=lambda tokens: 0.85 if tokens < 2000 else 0.05), 4000, planner)

    assert ran.drafted(500, 2000) >= 0.9
    assert ran.drafted(2100, 4000) <= 0.05


def notices_a_draft_that_became_slow(planner: Planner) -> None:
    """Acceptance stays, the draft takes six times as long as was measured."""
    ran = simulated(World(chance=lambda tokens: 0.75, draft_slowness=lambda t: 1.0 if t < 2000 else 6.0), 5000, planner)

    assert ran.drafted(500, 2000) >= 0.9
    assert ran.drafted(2200, 5000) <= 0.1


def is_not_misled_by_a_slow_machine(planner: Planner) -> None:
    """Everything takes three times as long from the start: that says nothing against drafting."""
    ran = simulated(World(chance=lambda tokens: 0.85, slowness=lambda tokens: 3.0), 3000, planner)

    assert ran.drafted(500, 3000) >= 0.9


def stays_off_where_verification_does_not_amortise(planner: Planner) -> None:
    """A forward of m tokens costs m plain ones: whatever is accepted, not one round is drafted."""
    ran = simulated(World(costs=costs(LINEAR), chance=lambda tokens: 0.95), 1000, planner)

    assert all(plan.drafter is None for _, plan in ran.steps)


CLAIMS: Sequence[Callable[[Planner], None]] = (
    gains_where_much_is_accepted,
    loses_nothing_where_nothing_is_accepted,
    turns_on_when_it_begins_to_pay,
    turns_off_when_it_ceases_to_pay,
    notices_a_draft_that_became_slow,
    is_not_misled_by_a_slow_machine,
    stays_off_where_verification_does_not_amortise,
)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_the_controller(claim: Callable[[Planner], None]) -> None:
    """Each claim above holds for it."""
    claim(controller.plan)


@pytest.mark.parametrize("planner", [always_off, always_on])
def test_a_controller_that_does_not_choose_is_found_out(planner: Planner) -> None:
    """The claims are strong enough: one that never drafts and one that always does both break some."""
    broken = 0
    for claim in CLAIMS:
        try:
            claim(planner)
        except AssertionError:
            broken += 1
    assert broken >= 3


def test_probing_costs_at_most_a_hundredth() -> None:
    """Over 20,000 tokens of nothing, probes lose 1 % of the time and what they may lose to begin with."""
    ran = simulated(World(chance=lambda tokens: 0.0, noise=0.0), 20_000)
    lost_s = ran.seconds - ran.plain_s

    assert 0 < lost_s <= 0.01 * ran.seconds + 3 * PLAIN_S


def test_probes_become_rarer_the_longer_they_lose() -> None:
    """Of a long loss the second half is probed less than a third as often as the first thousand tokens."""
    ran = simulated(World(chance=lambda tokens: 0.0), 20_000)
    probes = [tokens for tokens, plan in ran.steps if plan.probe]

    assert sum(tokens > 10_000 for tokens in probes) / 10 < sum(tokens <= 1000 for tokens in probes) / 3


def test_a_long_prompt_is_not_read_for_a_short_answer() -> None:
    """A draft that pays, but whose reading of 4,000 tokens takes longer than the whole answer, is left alone."""
    world = World(costs=costs(read=0.02), chance=lambda tokens: 0.8, prompt_tokens=4000, answer_tokens=20)
    ran = simulated(world, 400)

    assert all(plan.drafter is None for _, plan in ran.steps)
    assert ran.speedup >= 0.99


def test_near_the_break_even_it_does_not_flutter() -> None:
    """Where drafting neither gains nor loses it changes its mind less than once in 50 tokens, and loses nothing."""
    chance = next(at / 100 for at in range(100) if best_fixed(at / 100) >= 1.0)
    ran = simulated(World(chance=lambda tokens: chance), 10_000)
    modes = [plan.drafter for _, plan in ran.steps if not plan.probe]
    changes = sum(one != other for one, other in itertools.pairwise(modes))

    assert changes < 10_000 / 50
    assert ran.speedup >= 0.98


def situation(offers: Mapping[str, Sequence[float]], left: int = 100) -> Situation:
    return Situation(context_tokens=128, left=left, offers=offers, unread=0)


def test_an_offer_is_taken_where_it_pays_and_cut_where_it_does_not() -> None:
    """By hand: two sure tokens give 3 / 1.42 forwards, the doubtful third would make that 3.05 / 1.52."""
    prices = Prices(costs(), 128)
    plan = controller.plan(Learnt(), prices, situation({"suffix": (1.0, 1.0, 0.05)}), None)

    assert Plan(drafter="suffix", k=2) == plan
    assert Plan() == controller.plan(Learnt(), prices, situation({"suffix": (0.2, 0.1)}), None)
    assert Plan(drafter="suffix", k=1) == controller.plan(Learnt(), prices, situation({"suffix": (1.0, 1.0)}, 2), None)


def test_of_two_offers_and_a_draft_the_best_is_taken() -> None:
    """The one with more tokens a second, whoever makes it."""
    prices = Prices(costs(), 128)
    known = Learnt(seen={"cross": Seen(rounds=20, read=(20, 20), stood=(16, 13), proposed=40, asked=40)})

    sure = controller.plan(known, prices, situation({"suffix": (1.0,) * 8, "ngram": (0.9,)}), "cross")
    unsure = controller.plan(known, prices, situation({"suffix": (0.3,), "ngram": (0.4,)}), "cross")
    assert ("suffix", 8) == (sure.drafter, sure.k)
    assert "cross" == unsure.drafter and not unsure.probe


def test_a_boaster_is_believed_less_each_time() -> None:
    """Offers that promise two tokens and never keep one are turned down in the end."""
    prices, learnt = Prices(costs(), 128), Learnt()
    at = situation({"suffix": (1.0, 1.0)})
    taken = 0
    while taken < 20 and (plan := controller.plan(learnt, prices, at, None)).drafter:
        learnt = controller.observed(learnt, prices, at, plan, Came(proposed=plan.k, accepted=0, seconds=0.035))
        taken += 1

    assert 1 <= taken <= 5


def test_chances_are_of_those_that_got_so_far() -> None:
    """Of 10 rounds 5 first tokens stood and 4 second ones: 5/10 and 4/5, each with one guess of what is before it."""
    seen = Seen(rounds=10, read=(10, 10), stood=(5, 4), proposed=20, asked=20)
    first = (5 + controller.GUESS) / 11

    assert pytest.approx([first, (4 + first) / 6, (4 + first) / 6]) == seen.chances(3)
    assert 9 / 20 == seen.acceptance


def test_the_reason_says_what_is_and_what_was_needed() -> None:
    """On, off, untried and hopeless, with figures."""
    prices = Prices(costs(), 128)
    poor = Seen(rounds=20, read=(20,), stood=(2,), proposed=20, asked=20)
    good = Seen(rounds=20, read=(20, 20), stood=(18, 16), proposed=40, asked=40)

    assert "cross off: 10 % acceptance, needs 45 % at k = 1" == controller.reason(
        Learnt(seen={"cross": poor}), prices, 128, "cross"
    )
    on = Learnt(seen={"cross": good}, current=Plan(drafter="cross", k=4))
    assert controller.reason(on, prices, 128, "cross").startswith("cross on: 85 % acceptance, needs ")
    assert "not tried" in controller.reason(Learnt(), prices, 128, "cross")
    assert "would not pay" in controller.reason(Learnt(), Prices(costs(LINEAR), 128), 128, "cross")
    assert "no draft model" == controller.reason(Learnt(), prices, 128, None)


#: Of 20 rounds of two tokens nearly all stood.
GOOD = Seen(rounds=20, read=(20, 20), stood=(18, 17), proposed=40, asked=40)


def test_what_was_lost_to_probes_forbids_more() -> None:
    """By hand: in 10 s of decoding 0.1 s may be lost, and one and a half plain tokens to begin with."""
    prices, allowed_s = Prices(costs(), 128), 0.1 + 1.5 * PLAIN_S
    spent = Learnt(decode_s=10.0, probing_s=allowed_s - 0.001)

    assert controller.plan(dataclasses.replace(spent, probing_s=0.0), prices, situation({}), "cross").probe
    assert Plan() == controller.plan(spent, prices, situation({}), "cross")


def test_a_draft_that_pays_needs_no_probe_to_go_on() -> None:
    """With nothing left to lose to probes, the one whose last round paid drafts again, and the other one does not."""
    prices, at = Prices(costs(), 128), situation({})
    spent = Learnt(seen={"cross": GOOD}, decode_s=1.0, probing_s=1.0)
    plan = Plan(drafter="cross", k=2)
    good = controller.observed(spent, prices, at, plan, Came(proposed=2, accepted=2, seconds=0.04))
    poor = controller.observed(
        Learnt(decode_s=1.0, probing_s=1.0), prices, at, plan, Came(proposed=2, accepted=0, seconds=0.04)
    )

    assert good.pays and not poor.pays
    assert "cross" == controller.plan(controller.streamed(good, prices, 1, PLAIN_S), prices, at, "cross").drafter
    assert Plan() == controller.plan(controller.streamed(poor, prices, 1, PLAIN_S), prices, at, "cross")


def test_a_known_draft_reads_a_prompt_only_where_the_rest_repays_it() -> None:
    """4,000 tokens to read take 40 plain ones: too many before the last five tokens, not before a thousand."""
    prices, known = Prices(costs(), 128), Learnt(seen={"cross": GOOD}, pays=True, decode_s=1.0, probing_s=1.0)
    long = dataclasses.replace(situation({}, left=1000), unread=4000)

    assert "cross" == controller.plan(known, prices, long, "cross").drafter
    assert Plan() == controller.plan(known, prices, dataclasses.replace(long, left=5), "cross")
