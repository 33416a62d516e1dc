"""Which drafter proposes next, and how much: a frozen plan for each round, from what was measured and what was seen.

Pure: holds no drafter, no model and no clock. `plan` chooses what should emit the most tokens a second, plain decoding
always among the choices; `streamed` and `observed` learn from what came of it. docs/design/controller.md says why.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from worker.engine.cost import Costs

#: Most tokens that a draft model is asked for.
MAX_K = 8
#: What is left of older rounds when one more is learnt from, and of all of them when so many tokens came without one.
KEPT, HALF_LIFE_TOKENS = 0.97, 400
#: Until a draft model has been seen in so many rounds its acceptance is not known.
KNOWN_ROUNDS = 4.0
#: A first guess of a token's chance to stand, and how many rounds it weighs.
GUESS, GUESS_WEIGHT = 0.4, 1.0
#: Drafting begins where it should be this much faster than plain decoding, and ends where it is no faster.
MARGIN = 1.03
#: Another length must be this much better than the one in use.
LENGTH_MARGIN = 1.02
#: How much time rounds that only find out may cost: a share of all decoding, and to begin with so many plain tokens.
PROBE_SHARE, PROBE_TOKENS = 0.01, 1.5
#: Tokens between two probes; each that loses doubles them.
PAUSE_TOKENS, LONGEST_PAUSE_TOKENS = 16, 2048
#: How fast the pace of what runs is followed, for each token or round, and how far one of them may lie from it.
PACE_KEPT, PACE_JUMP = 0.95, 2.0
#: Tokens that the measured proposals had to read first; a draft that fell back further reads the rest as a prompt.
READ_TOKENS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Strictly read-only. Who proposes (None: nobody, plain decoding), how much, and whether only to find out."""

    drafter: str | None = None
    k: int = 0
    probe: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Situation:
    """Strictly read-only. Where a generation stands."""

    context_tokens: int
    #: At most so many tokens follow.
    left: int
    #: By drafter without a model, for each token it offers now the chance that it and those before it stand.
    offers: Mapping[str, Sequence[float]]
    #: Tokens that the draft model has to read before it can propose.
    unread: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Came:
    """Strictly read-only. What came of a round: target tokens *proposed* and *accepted*, and what it took."""

    proposed: int
    accepted: int
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """Strictly read-only. What came of one drafter's rounds, fading."""

    rounds: float = 0.0
    #: By position, how many proposals were so long, and how many stood up to there.
    read: tuple[float, ...] = ()
    stood: tuple[float, ...] = ()
    #: Target tokens proposed, and the draft tokens asked for.
    proposed: float = 0.0
    asked: float = 0.0
    #: How many tokens were promised to stand, and how many did.
    promised: float = 0.0
    kept: float = 0.0
    #: Seconds that its rounds took / seconds that they should have; None: as plain tokens do.
    pace: float | None = None

    @property
    def acceptance(self) -> float | None:
        """Accepted / proposed; None before anything is known."""
        return sum(self.stood) / self.proposed if self.proposed > 0 else None

    def chances(self, length: int) -> list[float]:
        """For each of *length* positions the chance that a token stands there once those before it do."""
        chance, found = GUESS, []
        for at in range(length):
            if at < len(self.read):
                # Only what stood so far can stand on.
                reached = self.read[at] if at == 0 else min(self.read[at], self.stood[at - 1])
                chance = (self.stood[at] + GUESS_WEIGHT * chance) / (reached + GUESS_WEIGHT)
            found.append(chance)
        return found

    def faded(self, share: float, plain_pace: float) -> Seen:
        """With only *share* of it left; what slows it is taken more and more for what slows plain tokens too."""
        return dataclasses.replace(
            self,
            rounds=share * self.rounds,
            read=tuple(share * value for value in self.read),
            stood=tuple(share * value for value in self.stood),
            proposed=share * self.proposed,
            asked=share * self.asked,
            promised=share * self.promised,
            kept=share * self.kept,
            pace=None if self.pace is None else plain_pace + share * (self.pace - plain_pace),
        )

    def with_round(self, k: int, proposed: int, accepted: int, promised: float) -> Seen:
        """With one more round of *k* draft tokens, *proposed* target tokens and *accepted* ones."""
        old = self.faded(KEPT, 0.0)
        length = max(len(old.read), proposed)
        read = tuple(_at(old.read, at) + (at < proposed) for at in range(length))
        stood = tuple(_at(old.stood, at) + (at < accepted) for at in range(length))
        return Seen(
            rounds=old.rounds + 1,
            read=read,
            stood=stood,
            proposed=old.proposed + proposed,
            asked=old.asked + k,
            promised=old.promised + promised,
            kept=old.kept + accepted,
            pace=self.pace,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learnt:
    """Strictly read-only. Everything that is carried from round to round and from item to item."""

    seen: Mapping[str, Seen] = dataclasses.field(default_factory=dict)
    #: Seconds that plain tokens took / seconds that they should have.
    plain_pace: float = 1.0
    tokens: int = 0
    decode_s: float = 0.0
    #: What probes cost beyond the plain tokens they replaced.
    probing_s: float = 0.0
    #: The plan in use.
    current: Plan = Plan()
    #: Whether the draft model's last round left it faster than plain decoding.
    pays: bool = False
    pause_tokens: int = PAUSE_TOKENS
    #: Probes wait until so many tokens were decoded.
    probe_at: int = 0

    def of(self, drafter: str) -> Seen:
        return self.seen.get(drafter, Seen())

    def pace_of(self, drafter: str) -> float:
        pace = self.of(drafter).pace
        return self.plain_pace if pace is None else pace


class Prices:
    """Strictly read-only. What plain tokens and rounds cost behind one length of context."""

    def __init__(self, costs: Costs, context_tokens: int) -> None:
        self.plain_s = costs.plain_s(context_tokens)
        #: Plain decoding computes one step ahead; the first token after a round must be waited for.
        self.wait_s = max(0.0, costs.host_s(context_tokens))
        self.read_token_s = costs.draft_prefill_token_s
        lengths = range(1, 18)
        self._verify_s = [0.0, *(costs.verify_s(tokens, context_tokens) for tokens in lengths)]
        self._propose_s = {name: [costs.propose_s(name, max(1, k)) for k in (0, *lengths)] for name in costs.propose}

    def verify_s(self, proposed: float) -> float:
        """Seconds to read *proposed* tokens and the one before them."""
        at = min(proposed + 1, 17.0)
        whole = int(at)
        if whole == at:
            return self._verify_s[whole]
        return self._verify_s[whole] + (at - whole) * (self._verify_s[whole + 1] - self._verify_s[whole])

    def propose_s(self, drafter: str, k: int) -> float:
        return self._propose_s[drafter][min(k, 17)]

    def knows(self, drafter: str) -> bool:
        return drafter in self._propose_s


def plan(learnt: Learnt, prices: Prices, at: Situation, model: str | None) -> Plan:
    """What to do next. *model* is the drafter with a model, where there is one."""
    offer, offer_rate = _best_offer(learnt, prices, at)
    if model is None or at.left < 2 or not prices.knows(model):
        return offer
    running = learnt.current.drafter == model and not learnt.current.probe
    if not learnt.pays and (learnt.tokens < learnt.probe_at or _left_to_probe_s(learnt, prices) <= 0):
        return offer  # it did not pay, and nothing more may be found out now
    seen, plain_rate = learnt.of(model), 1.0 / (learnt.plain_pace * prices.plain_s)
    k, rate = _best_length(learnt, prices, at, model)
    needed = plain_rate * (1.0 if running else MARGIN)
    if seen.rounds >= KNOWN_ROUNDS and rate > needed and _repays(prices, at, rate / plain_rate):
        return Plan(drafter=model, k=k) if rate > offer_rate else offer
    if offer.drafter is None and _may_probe(learnt, prices, at, model, k):
        return Plan(drafter=model, k=k, probe=True)
    return offer


def streamed(learnt: Learnt, prices: Prices, tokens: int, seconds: float) -> Learnt:
    """What is known after *tokens* plain ones in *seconds*."""
    if tokens < 1:
        return learnt
    waited = 0.0 if learnt.current.drafter is None else prices.wait_s
    pace = seconds / (tokens * prices.plain_s + waited)
    share = 0.5 ** (tokens / HALF_LIFE_TOKENS)
    return dataclasses.replace(
        learnt,
        seen={name: seen.faded(share, learnt.plain_pace) for name, seen in learnt.seen.items()},
        plain_pace=_followed(learnt.plain_pace, pace, tokens),
        tokens=learnt.tokens + tokens,
        decode_s=learnt.decode_s + seconds,
        current=Plan(),
    )


def observed(learnt: Learnt, prices: Prices, at: Situation, done: Plan, came: Came) -> Learnt:
    """What is known after the round *done*, planned in *at*."""
    drafter, offered = str(done.drafter), at.offers.get(str(done.drafter))
    due_s = prices.verify_s(came.proposed)
    if offered is None:
        due_s += prices.propose_s(drafter, done.k) + _catch_up_s(prices, at)
    pace = _followed(learnt.pace_of(drafter), came.seconds / due_s, 1)
    seen = learnt.of(drafter).with_round(done.k, came.proposed, came.accepted, sum((offered or ())[: came.proposed]))
    share = 0.5 ** ((came.accepted + 1) / HALF_LIFE_TOKENS)
    others = {name: known.faded(share, learnt.plain_pace) for name, known in learnt.seen.items()}
    found = dataclasses.replace(
        learnt if offered is not None else _probed(learnt, prices, at, done, came, seen.rounds >= KNOWN_ROUNDS),
        seen={**others, drafter: dataclasses.replace(seen, pace=pace)},
        tokens=learnt.tokens + came.accepted + 1,
        decode_s=learnt.decode_s + came.seconds,
        current=done,
    )
    if offered is not None:
        return found
    _, rate = _best_length(found, prices, at, drafter)
    return dataclasses.replace(found, pays=rate * learnt.plain_pace * prices.plain_s > 1.0)


def _probed(learnt: Learnt, prices: Prices, at: Situation, done: Plan, came: Came, known: bool) -> Learnt:
    """What a round of the draft model cost beyond plain tokens, and when the next may only find out."""
    if not done.probe:
        return dataclasses.replace(learnt, pause_tokens=PAUSE_TOKENS)
    lost_s = came.seconds - (came.accepted + 1) * learnt.plain_pace * prices.plain_s
    probing_s = max(0.0, learnt.probing_s + lost_s)
    if lost_s <= _catch_up_s(prices, at):
        return dataclasses.replace(learnt, probing_s=probing_s, pause_tokens=PAUSE_TOKENS)
    if not known:  # one round says little: the next follows at once
        return dataclasses.replace(learnt, probing_s=probing_s)
    return dataclasses.replace(
        learnt,
        probing_s=probing_s,
        pause_tokens=min(2 * learnt.pause_tokens, LONGEST_PAUSE_TOKENS),
        probe_at=learnt.tokens + learnt.pause_tokens,
    )


def reason(learnt: Learnt, prices: Prices, context_tokens: int, model: str | None) -> str:
    """Why the draft model drafts or does not, in words: `off: 31 % acceptance, needs 41 %`."""
    at = Situation(context_tokens=context_tokens, left=MAX_K + 1, offers={}, unread=0)
    if model is None or not prices.knows(model):
        return "no draft model"
    seen = learnt.of(model)
    k, _ = _best_length(learnt, prices, at, model)
    needed = _needed(learnt, prices, model, k)
    needs = f"needs {100 * needed:.0f} % at k = {k}" if needed <= 1 else f"would not pay at k = {k} if all stood"
    if seen.acceptance is None:
        return f"{model} off: not tried, {needs}"
    on = learnt.current.drafter == model and not learnt.current.probe
    return f"{model} {'on' if on else 'off'}: {100 * seen.acceptance:.0f} % acceptance, {needs}"


def _best_offer(learnt: Learnt, prices: Prices, at: Situation) -> tuple[Plan, float]:
    """The offer that should emit the most tokens a second, cut where more of it does not pay; else plain decoding."""
    plain_s = learnt.plain_pace * prices.plain_s
    best, best_rate = Plan(), 1.0 / plain_s
    # One that leaves plain decoding loses the step that was computed ahead.
    leaving_s = prices.wait_s if learnt.current.drafter is None else 0.0
    for name, chances in at.offers.items():
        seen = learnt.of(name)
        trust = min(1.0, (seen.kept + 1.0) / (seen.promised + 1.0))
        expected = 1.0
        for k, chance in enumerate(chances[: at.left - 1], start=1):
            expected += trust * chance
            rate = expected / (learnt.pace_of(name) * (prices.verify_s(k) + leaving_s))
            if rate > best_rate * (MARGIN if best.drafter is None else 1.0):
                best, best_rate = Plan(drafter=name, k=k), rate
    return best, best_rate


def _best_length(learnt: Learnt, prices: Prices, at: Situation, model: str) -> tuple[int, float]:
    """The k at which *model* should emit the most tokens a second, and how many."""
    rates = [_rate(learnt, prices, model, k) for k in range(1, max(2, min(MAX_K, at.left - 1) + 1))]
    best = max(range(len(rates)), key=rates.__getitem__)
    used = learnt.current.k - 1
    if learnt.current.drafter == model and used < len(rates) and rates[best] < LENGTH_MARGIN * rates[used]:
        best = used
    return best + 1, rates[best]


def _rate(learnt: Learnt, prices: Prices, model: str, k: int) -> float:
    """Tokens a second of rounds of *k* draft tokens."""
    return _expected(learnt.of(model), k) / _round_s(learnt, prices, model, k)


def _round_s(learnt: Learnt, prices: Prices, model: str, k: int) -> float:
    length = _target_tokens(learnt.of(model), k)
    return learnt.pace_of(model) * (prices.propose_s(model, k) + prices.verify_s(length))


def _expected(seen: Seen, k: int) -> float:
    """How many tokens a round of *k* draft tokens emits."""
    length = _target_tokens(seen, k)
    total = stands = 1.0
    for at, chance in enumerate(seen.chances(math.ceil(length))):
        stands *= chance
        total += stands * min(1.0, length - at)
    return total


def _target_tokens(seen: Seen, k: int) -> float:
    """How many target tokens *k* draft tokens become."""
    return min(16.0, k * (seen.proposed + 2.0) / (seen.asked + 2.0))


def _needed(learnt: Learnt, prices: Prices, model: str, k: int) -> float:
    """The acceptance (accepted / proposed) above which rounds of *k* draft tokens pay; above 1 they never do."""
    ratio = _round_s(learnt, prices, model, k) / (learnt.plain_pace * prices.plain_s)
    return max(0.0, (ratio - 1.0) / _target_tokens(learnt.of(model), k))


def _catch_up_s(prices: Prices, at: Situation) -> float:
    """Seconds in which the draft model reads what it has not read, beyond what every round reads."""
    return max(0, at.unread - READ_TOKENS) * prices.read_token_s


def _repays(prices: Prices, at: Situation, speedup: float) -> bool:
    """Whether what is left is long enough for *speedup* to repay what the draft model must read first."""
    return (1.0 - 1.0 / speedup) * at.left * prices.plain_s > _catch_up_s(prices, at)


def _may_probe(learnt: Learnt, prices: Prices, at: Situation, model: str, k: int) -> bool:
    """Whether a round that may lose fits into what probing may cost."""
    if _needed(learnt, prices, model, k) > 1.0:
        return False
    plain_s = learnt.plain_pace * prices.plain_s
    loss_s = max(0.0, _round_s(learnt, prices, model, k) - _expected(learnt.of(model), k) * plain_s)
    loss_s += learnt.plain_pace * _catch_up_s(prices, at)
    return loss_s <= _left_to_probe_s(learnt, prices)


def _left_to_probe_s(learnt: Learnt, prices: Prices) -> float:
    """What may still be lost to probes."""
    allowed_s = PROBE_TOKENS * learnt.plain_pace * prices.plain_s + PROBE_SHARE * learnt.decode_s
    return allowed_s - learnt.probing_s


def _followed(old: float, new: float, times: int) -> float:
    """*old*, gone some way to *new*, seen so many *times*."""
    kept = PACE_KEPT**times
    return kept * old + (1.0 - kept) * min(max(new, old / PACE_JUMP), old * PACE_JUMP)


def _at(values: Sequence[float], index: int) -> float:
    return values[index] if index < len(values) else 0.0
