"""Measures `cost.py`'s numbers on this machine: medians of interleaved rounds, so that no busy moment decides."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx

from worker.engine.context import Context
from worker.engine.cost import Costs, Points
from worker.engine.drafters.base import Drafter
from worker.engine.drafters.lookup import LookupDrafter
from worker.engine.drafters.suffix import SuffixDrafter
from worker.engine.model import Model
from worker.engine.sampling import Sampler
from worker.engine.values import Request, Sampling

#: New tokens of a forward, tokens of context, and tokens of a proposal that are measured.
FORWARDS = (1, 2, 3, 4, 5, 7, 9, 13, 17)
CONTEXTS = (128, 1024)
LENGTHS = (1, 2, 4, 8)
ROUNDS = 7
STREAMED = 8
TEXT = (
    "Wieczorem biuro pustoszeje, a komputery zostają same z pracą, na którą w dzień nie starcza czasu. Dokument po "
    "dokumencie czytają umowy, protokoły i listy, piszą streszczenia i odkładają je na półkę. Rano ktoś przychodzi, "
    "robi kawę i pyta, ile udało się zrobić, co się nie udało i dlaczego. "
)
FREE: dict[str, Callable[[], Drafter]] = {"lookup": LookupDrafter, "suffix": SuffixDrafter}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """Strictly read-only. The medians, and how far the middle half of each one's samples lies apart, relatively."""

    costs: Costs
    spread: dict[str, float]
    seconds: float


def measure(
    target: Model, drafters: dict[str, Drafter], draft: Model | None, progress: Callable[[float], None]
) -> Measured:
    """Measure *target* with *drafters* that need a model (by kind; *draft* is theirs), and those that need none.

    *progress* hears how far it is (0..1) between two samples, and may raise to stop.
    """
    started = time.perf_counter()
    samples = Samples(progress, steps=len(CONTEXTS) * ROUNDS * (len(FORWARDS) + 1) + ROUNDS * len(drafters | FREE))
    contexts = [each for each in CONTEXTS if each + max(FORWARDS) + STREAMED < target.context_tokens] or [64]
    prefill_token_s = 0.0
    for context in contexts:
        prefill_token_s = _forwards(target, context, samples)
    every = {**drafters, **{name: make() for name, make in FREE.items()}}
    _proposals(target, every, samples)
    costs = Costs(
        plain=tuple((context, samples.median("plain", context)) for context in contexts),
        verify=tuple(
            (context, tuple((m, samples.median("verify", context, m)) for m in FORWARDS)) for context in contexts
        ),
        propose={name: _rising(tuple((k, samples.median(name, k)) for k in LENGTHS)) for name in every},
        prefill_token_s=prefill_token_s,
        draft_prefill_token_s=0.0 if draft is None else _prefill_token_s(Context(draft), _ids(draft, min(contexts))),
    )
    return Measured(costs=costs, spread=samples.spreads(), seconds=time.perf_counter() - started)


class Samples:
    """Seconds by what was measured."""

    def __init__(self, progress: Callable[[float], None], steps: int) -> None:
        self._progress, self._steps, self._done = progress, steps, 0
        self._found: dict[tuple[Any, ...], list[float]] = {}

    def add(self, *what: Any, seconds: float) -> None:
        self._found.setdefault(what, []).append(seconds)

    def step(self) -> None:
        self._done += 1
        self._progress(min(1.0, self._done / self._steps))

    def median(self, *what: Any) -> float:
        return statistics.median(self._found[what])

    def spreads(self) -> dict[str, float]:
        """The interquartile range over the median, for each thing measured."""
        found = {}
        for what, seconds in self._found.items():
            low, _, high = statistics.quantiles(seconds, n=4)
            found[" ".join(map(str, what))] = round((high - low) / statistics.median(seconds), 4)
        return found


def _forwards(target: Model, context_tokens: int, samples: Samples) -> float:
    """Forwards of each size and the streamed step behind *context_tokens*; returns prefill seconds a token."""
    ids = _ids(target, context_tokens + max(FORWARDS))
    context = Context(target)
    prefill_token_s = _prefill_token_s(context, ids[:context_tokens])
    for count in (*FORWARDS, 1):  # each shape once, unmeasured
        _forward_s(context, ids, context_tokens, count)
    for _ in range(ROUNDS):
        for count in FORWARDS:
            samples.add("verify", context_tokens, count, seconds=_forward_s(context, ids, context_tokens, count))
            samples.step()
        samples.add("plain", context_tokens, seconds=_streamed_s(context, ids, context_tokens))
        samples.step()
    return prefill_token_s


def _prefill_token_s(context: Context, ids: Sequence[int]) -> float:
    started = time.perf_counter()
    context.prefill(ids, lambda: False)
    return (time.perf_counter() - started) / len(ids)


def _forward_s(context: Context, ids: Sequence[int], start: int, count: int) -> float:
    started = time.perf_counter()
    mx.argmax(context.append(ids[start : start + count]), axis=-1).tolist()
    seconds = time.perf_counter() - started
    context.rewind(start)
    return seconds


def _streamed_s(context: Context, ids: Sequence[int], start: int) -> float:
    """Seconds for a token of the plain path, over eight of them behind a first one."""

    def choose(logits: mx.array, position: int) -> mx.array:
        return mx.argmax(logits, axis=-1)

    tokens: Iterator[int] = context.stream(ids[start], STREAMED + 1, choose)
    next(tokens)
    started = time.perf_counter()
    for _ in itertools.islice(tokens, STREAMED):
        pass
    seconds = (time.perf_counter() - started) / STREAMED
    context.rewind(start)
    return seconds


def _proposals(target: Model, drafters: dict[str, Drafter], samples: Samples) -> None:
    """Proposals of each drafter at each length, while the text goes on by two tokens a round."""
    ids = _ids(target, min(CONTEXTS) + 2 * ROUNDS * len(LENGTHS) + 8)
    request = Request(custom_id="calibration", text=TEXT, max_tokens=len(ids))
    sampler = Sampler(Sampling(), "", target.vocab_size)
    for name, drafter in drafters.items():
        length = min(CONTEXTS)
        drafter.start(request, ids[:length], sampler, lambda: False)
        _proposal_s(drafter, ids[:length], max(LENGTHS))
        for _ in range(ROUNDS):
            for k in LENGTHS:
                length += 2
                samples.add(name, k, seconds=_proposal_s(drafter, ids[:length], k))
            samples.step()


def _proposal_s(drafter: Drafter, tokens: list[int], k: int) -> float:
    started = time.perf_counter()
    proposed = drafter.propose(tokens, k, max(LENGTHS)).tokens
    if isinstance(proposed, mx.array):
        mx.eval(proposed)
    return time.perf_counter() - started


def _rising(points: Points) -> Points:
    """*points* made never to fall: a longer proposal that seems cheaper is noise."""
    best = 0.0
    return tuple((k, best := max(best, seconds)) for k, seconds in points)


def _ids(model: Model, count: int) -> list[int]:
    """At least *count* ids of the text, as often as it takes; then exactly so many."""
    ids = model.tokenizer.encode(TEXT)
    return (ids * (count // len(ids) + 1))[:count]
