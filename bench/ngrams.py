"""Figure 7: the n-gram drafter: what a step of it costs, and what it gives on held-out prose against what would pay."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx

from bench.report import Cell, Check, Report
from bench.workloads import REPLAY, answer, held_out
from worker.engine.context import Context
from worker.engine.drafters.ngram import NgramDrafter
from worker.engine.model import Model
from worker.engine.ngram_file import NgramFile, build

LENGTHS = (1, 2, 4)
MAX_SHARE_OF_A_FORWARD = 0.02
REPEATS = 40


def report(target: Model, count: int, max_tokens: int, timed: bool = True) -> Report:
    """Replay the first *count* passages with a model built from the rest of them, at order 3."""
    passages = held_out(target.tokenizer, 24)
    rest = passages[count:] or passages[:1]
    rows: dict[str, dict[str, Cell]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rest.ngram"
        build(path, [target.tokenizer.raw(passage.text) for passage in rest], target.tokenizer.table)
        drafter = NgramDrafter(NgramFile(path))
        ids = target.tokenizer.raw(passages[0].text)
        step_s = _median_s(lambda index: drafter.propose(ids[: 20 + index], 1, 1))
        forward_s = {size: _forward_s(target, ids, size) for size in (1, *[k + 1 for k in LENGTHS])} if timed else {}
        for k in LENGTHS:
            found = [answer(target, drafter, k, passage, REPLAY, max_tokens) for passage in passages[:count]]
            tokens = sum(len(generation.tokens) for generation in found)
            rounds = sum(len(generation.metrics.rounds) for generation in found)
            proposed = sum(generation.metrics.proposed for generation in found)
            accepted = sum(generation.metrics.accepted for generation in found)
            rows[f"k={k}"] = {
                "tokens per forward": tokens / rounds,
                "acceptance": accepted / proposed if proposed else None,
                "break-even": (forward_s[k + 1] + k * step_s) / forward_s[1] if timed else None,
                "step us": step_s * 1e6,
                "forward ms": forward_s[1] * 1e3 if timed else None,
            }
    share = step_s / forward_s[1] if timed else None
    check = Check(
        claim="a step as a share of a target forward", value=share, bound=MAX_SHARE_OF_A_FORWARD, at_least=False
    )
    return Report(
        figure=7,
        title=f"N-grams on {count} held-out passages",
        rows=rows,
        checks=(check,),
        notes=(
            "break-even: tokens per forward from which a full proposal pays on this machine",
            f"the model was built from the other {len(rest)} passages only; one of a real corpus gives more",
        ),
        fixed=frozenset({"tokens per forward", "acceptance"}),
    )


def _median_s(work: Callable[[int], object]) -> float:
    found = []
    for index in range(REPEATS):
        started = time.perf_counter()
        work(index)
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def _forward_s(target: Model, ids: list[int], count: int) -> float:
    """Median seconds of a forward over *count* tokens behind 100."""
    context = Context(target)
    context.prefill(ids[:100], bool)

    def forward(index: int) -> None:
        mx.eval(context.append(ids[100 : 100 + count]))
        context.rewind(100)

    forward(0)
    return _median_s(forward)
