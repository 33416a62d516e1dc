"""Measures `cost.py`'s numbers on this machine: medians of interleaved rounds, so that no busy moment decides."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from worker.engine import ngram_file
from worker.engine.context import Context
from worker.engine.cost import Costs, Points
from worker.engine.drafters.base import MAX_PROPOSED, Drafter
from worker.engine.drafters.lookup import LookupDrafter
from worker.engine.drafters.ngram import NgramDrafter
from worker.engine.drafters.suffix import SuffixDrafter
from worker.engine.errors import DraftMismatch
from worker.engine.model import Model
from worker.engine.sampling import Sampler
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import Request, Sampling

#: New tokens of a forward, tokens of context, and tokens of a proposal that are measured.
FORWARDS = (1, 2, 3, 4, 5, 7, 9, 13, 17)
CONTEXTS = (128, 1024)
LENGTHS = (1, 2, 4, 8)
STREAMED = 8
#: So many rounds, but after the first three none is begun that would end later than this.
ROUNDS, LEAST_ROUNDS, ENOUGH_S = 7, 3, 40.0
TEXT = (
    "Wieczorem biuro pustoszeje, a komputery zostają same z pracą, na którą w dzień nie starcza czasu. Dokument po "
    "dokumencie czytają umowy, protokoły i listy, piszą streszczenia i odkładają je na półkę. Rano ktoś przychodzi, "
    "robi kawę i pyta, ile udało się zrobić, co się nie udało i dlaczego. "
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """Strictly read-only. The medians, and how far the middle half of each one's samples lies apart, relatively."""

    costs: Costs
    spread: dict[str, float]
    rounds: int
    seconds: float


def measure(
    target: Model, drafters: dict[str, Drafter], draft: Model | None, progress: Callable[[float], None]
) -> Measured:
    """Measure *target* with *drafters* that need a model (by kind; *draft* is theirs), and those that need none.

    *progress* hears how far it is (0..1) between two samples, and may raise to stop. Raises DraftMismatch for a target
    that nothing can draft for.
    """
    if obstacle := Context(target).obstacle:
        raise DraftMismatch(f"nothing can draft for {target.ref.source}: {obstacle}; it decodes plainly")
    started = time.perf_counter()
    samples = Samples()
    forwards = [Forwards(target, context, samples) for context in _contexts(target)]
    every = {**drafters, **free(target.tokenizer)}
    proposals = [Proposals(target, name, drafter, samples) for name, drafter in every.items()]
    step = None if draft is None else Forwards(draft, min(_contexts(draft)), samples, "draft ")
    # A draft and its verification take turns in decoding too: each finds the processor's caches full of the other.
    parts = [*(each.sample for each in forwards), *(each.sample for each in proposals)]
    parts += [] if step is None else [step.sample_step]
    rounds, round_s = 0, 0.0
    while rounds < ROUNDS and (rounds < LEAST_ROUNDS or time.perf_counter() - started + round_s < ENOUGH_S):
        round_began = time.perf_counter()
        for index, part in enumerate(parts):
            progress((rounds + index / len(parts)) / ROUNDS)
            part()
        rounds, round_s = rounds + 1, time.perf_counter() - round_began
    costs = Costs(
        plain=tuple((each.context_tokens, samples.median("plain", each.context_tokens)) for each in forwards),
        verify=tuple((each.context_tokens, each.curve()) for each in forwards),
        propose={each.name: each.curve() for each in proposals},
        prefill_token_s=forwards[-1].prefill_token_s,
        draft_prefill_token_s=0.0 if step is None else step.prefill_token_s,
        draft_step_s=0.0 if step is None else samples.median("draft plain", step.context_tokens),
    )
    return Measured(costs=costs, spread=samples.spreads(), rounds=rounds, seconds=time.perf_counter() - started)


def free(tokenizer: Tokenizer) -> dict[str, Drafter]:
    """A drafter of each kind that needs no model. The n-gram one knows the text that is measured with."""
    ids = tokenizer.encode(TEXT)
    with tempfile.TemporaryDirectory(prefix="nocka-") as folder:
        path = Path(folder, "calibration.ngram")
        order = min(3, 64 // ngram_file.token_bits(len(tokenizer.table)))
        # As often as makes it sure: what was seen once is not trusted for eight tokens.
        ngram_file.build(path, [ids] * 64, tokenizer.table, order)
        ngram = NgramDrafter(ngram_file.NgramFile(path))
    return {"lookup": LookupDrafter(), "suffix": SuffixDrafter(), "ngram": ngram}


class Samples:
    """Seconds by what was measured."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], list[float]] = {}

    def add(self, *what: Any, seconds: float) -> None:
        self._found.setdefault(what, []).append(seconds)

    def median(self, *what: Any) -> float:
        return statistics.median(self._found[what])

    def spreads(self) -> dict[str, float]:
        """The interquartile range over the median, for each thing measured."""
        found = {}
        for what, seconds in self._found.items():
            low, _, high = statistics.quantiles(seconds, n=4)
            found[" ".join(map(str, what))] = round((high - low) / statistics.median(seconds), 4)
        return found


class Forwards:
    """Forwards of each size, and the streamed step, of one model behind one context."""

    def __init__(self, model: Model, context_tokens: int, samples: Samples, whose: str = "") -> None:
        self.context_tokens = context_tokens
        self._ids = _ids(model, context_tokens + max(FORWARDS))
        self._context = Context(model)
        self._sampler = Sampler(Sampling(), "", model.vocab_size)
        self._samples, self._whose = samples, whose
        self.prefill_token_s = self._prefill_token_s()
        for count in FORWARDS:  # each shape once, unmeasured
            self._forward_s(count)
        self._streamed_s(1)

    def sample(self) -> None:
        for count in FORWARDS:
            self._samples.add("verify", self.context_tokens, count, seconds=self._forward_s(count))
        self.sample_step()

    def sample_step(self) -> None:
        self._samples.add(f"{self._whose}plain", self.context_tokens, seconds=self._streamed_s(STREAMED))

    def curve(self) -> Points:
        return tuple((count, self._samples.median("verify", self.context_tokens, count)) for count in FORWARDS)

    def _prefill_token_s(self) -> float:
        """Seconds a token, the best of two: the first may compile kernels."""
        found = []
        for _ in range(2):
            started = time.perf_counter()
            self._context.prefill(self._ids[: self.context_tokens], lambda: False)
            found.append((time.perf_counter() - started) / self.context_tokens)
        return min(found)

    def _forward_s(self, count: int) -> float:
        """Seconds to read so many tokens, draw one behind each, know them on the host, and forget them."""
        start = self.context_tokens
        started = time.perf_counter()
        logits = self._context.append(self._ids[start : start + count])
        self._sampler.choose(logits, start).tolist()
        self._context.rewind(start)
        return time.perf_counter() - started

    def _streamed_s(self, count: int) -> float:
        """Seconds for a token of the plain path, over *count* of them behind a first one."""
        tokens = self._context.stream(self._ids[self.context_tokens], count + 1, self._sampler.choose)
        next(tokens)
        started = time.perf_counter()
        for _ in itertools.islice(tokens, count):
            pass
        seconds = (time.perf_counter() - started) / count
        self._context.rewind(self.context_tokens)
        return seconds


class Proposals:
    """Proposals of one drafter at each length, while the text goes on by two tokens a round."""

    def __init__(self, target: Model, name: str, drafter: Drafter, samples: Samples) -> None:
        self.name = name
        self._drafter, self._samples = drafter, samples
        self._read = min(_contexts(target))
        self._ids = _ids(target, self._read + 2 * (ROUNDS + 1) * len(LENGTHS))
        request = Request(custom_id="calibration", text=TEXT, max_tokens=len(self._ids))
        drafter.start(request, self._ids[: self._read], Sampler(Sampling(), "", target.vocab_size), lambda: False)
        for k in LENGTHS:  # each length once, unmeasured
            self._proposal_s(k)

    def sample(self) -> None:
        for k in LENGTHS:
            self._samples.add(self.name, k, seconds=self._proposal_s(k))

    def curve(self) -> Points:
        """Made never to fall: a longer proposal that seems cheaper is noise."""
        medians = (self._samples.median(self.name, k) for k in LENGTHS)
        return tuple(zip(LENGTHS, itertools.accumulate(medians, max), strict=True))

    def _proposal_s(self, k: int) -> float:
        self._read += 2
        started = time.perf_counter()
        proposed = self._drafter.propose(self._ids[: self._read], k, MAX_PROPOSED).tokens
        if isinstance(proposed, mx.array):
            mx.eval(proposed)
        return time.perf_counter() - started


def _contexts(model: Model) -> list[int]:
    """Those of `CONTEXTS` that *model* can read with all that is read behind them."""
    room = max(*FORWARDS, STREAMED + 1, 2 * (ROUNDS + 2) * len(LENGTHS))
    return [each for each in CONTEXTS if each + room < model.context_tokens] or [max(1, model.context_tokens // 4)]


def _ids(model: Model, count: int) -> list[int]:
    """The first *count* ids of the text, repeated as often as it takes."""
    ids = model.tokenizer.encode(TEXT)
    return (ids * (count // len(ids) + 1))[:count]
