"""Figure 5: what a round across tokenizers costs the host outside the forwards.

Thread CPU time of `propose` without that of the network, which a reciting one stands in for. The draft is wrong at a
third of its positions, so that rounds end everywhere.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from bench.oracle import proposed
from bench.perfect_draft import Reciter, reciting
from bench.report import Cell, Check, Report
from bench.workloads import held_out
from worker.engine.drafters.base import MAX_PROPOSED
from worker.engine.drafters.cross import CrossDrafter
from worker.engine.sampling import Sampler
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import Request, Sampling
from worker.engine.verify import verify

CONTEXTS = (500, 2000, 8000)
ROUNDS = 200
K = 4
MAX_MEDIAN_MS = 0.3
MAX_GROWTH = 1.3


class Timed(Reciter):
    """A reciter that knows how long its own calls took, in seconds of thread CPU time."""

    def __init__(self, tokenizer: Tokenizer, errs: Callable[[int], bool]) -> None:
        super().__init__(tokenizer, errs)
        self.spent_s = 0.0

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        started = time.thread_time()
        logits = super().__call__(inputs, cache)
        mx.eval(logits)  # what a forward computes is no work of the round
        self.spent_s += time.thread_time() - started
        return logits


def report(target: Tokenizer, drafts: dict[str, Tokenizer]) -> Report:
    """Measure rounds at 500, 2,000 and 8,000 tokens of context with each of *drafts*."""
    rows: dict[str, dict[str, Cell]] = {}
    checks = []
    for name, draft in drafts.items():
        median_s = {context: statistics.median(rounds_s(target, draft, context)) for context in CONTEXTS}
        growth = median_s[8000] / median_s[500]
        cells: dict[str, Cell] = {f"{context} tokens, ms": median * 1e3 for context, median in median_s.items()}
        rows[name] = cells | {"8,000 / 500": growth}
        at_2000_ms = median_s[2000] * 1e3
        checks.append(Check(claim=f"{name}: ms at 2,000 tokens", value=at_2000_ms, bound=MAX_MEDIAN_MS, at_least=False))
        checks.append(Check(claim=f"{name}: 8,000 against 500", value=growth, bound=MAX_GROWTH, at_least=False))
    title = f"Host time of a round across tokenizers, k = {K}, median of {ROUNDS} rounds"
    return Report(figure=5, title=title, rows=rows, checks=tuple(checks))


def rounds_s(target: Tokenizer, draft: Tokenizer, context: int) -> list[float]:
    """Seconds of thread CPU time of each of 200 rounds behind *context* target tokens."""
    text = " ".join(passage.text for passage in held_out(target, 24))
    truth = target.raw(text)
    reciter = Timed(draft, lambda position: position % 3 == 1)
    drafter = CrossDrafter(target, reciting(draft, reciter), "context")
    reciter.learn(target.spell(truth))
    sampler = Sampler(Sampling(), "", len(target.table))
    drafter.start(Request(custom_id="host", text=""), [], sampler, bool)
    found: list[float] = []
    done = context
    drafter.propose(truth[:done], 1, MAX_PROPOSED)
    while len(found) < ROUNDS and done < len(truth) - MAX_PROPOSED:
        tokens, spent_s = truth[:done], reciter.spent_s
        started = time.thread_time()
        proposal = proposed(drafter, tokens, K)
        found.append(time.thread_time() - started - (reciter.spent_s - spent_s))
        done += len(verify(proposal, truth[done : done + len(proposal) + 1]))
    return found
