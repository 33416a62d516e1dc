"""Figures 1 and 2: nocka beside mlx_lm's own loops, on the same networks, prompts and tokens out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.generate import stream_generate
from mlx_lm.utils import load_tokenizer

from bench.replay import replayed
from bench.report import Cell, Check, Report
from bench.timing import Comparison, Work, compare
from bench.workloads import GREEDY, REPLAY, Passage, Workload, held_out, repeated_share
from worker.engine.decode import Decoder
from worker.engine.drafters.base import Drafter
from worker.engine.drafters.neural import NeuralDrafter
from worker.engine.model import Model

LENGTHS = (2, 4, 6)
#: "At least as fast": the lower bound of the paired ratio.
AS_FAST = 0.95


class Sides:
    """The two sides over *passages*: each call of a side continues one of them and keeps its text."""

    def __init__(self, target: Model, passages: Sequence[Passage], workload: Workload, max_tokens: int) -> None:
        self._passages = passages
        self._tokenizer = load_tokenizer(Path(target.ref.source))
        self._requests = [passage.request(workload, target.tokenizer, max_tokens) for passage in passages]
        self._prompts = [target.tokenizer.raw(passage.prompt) for passage in passages]
        whole = [passage.ids(target.tokenizer, max_tokens) for passage in passages]
        self._targets = [replayed(target, ids) if workload.replay else target for ids in whole]
        self.texts: dict[tuple[str, int], str] = {}
        self.tokens: dict[int, tuple[int, ...]] = {}

    def nocka(self, drafter: Drafter | None, k: int) -> Work:
        def run(index: int) -> None:
            which = index % len(self._passages)
            parts: list[str] = []
            decoder = Decoder(self._targets[which], drafter, k, {})
            found = decoder.generate(self._requests[which], on_text=parts.append)
            self.texts["nocka", which] = "".join(parts)
            self.tokens[which] = found.tokens

        return run

    def mlx_lm(self, draft: Model | None, k: int) -> Work:
        options: dict[str, Any] = {} if draft is None else {"draft_model": draft.network, "num_draft_tokens": k}

        def run(index: int) -> None:
            which = index % len(self._passages)
            responses = stream_generate(
                self._targets[which].network,
                self._tokenizer,
                self._prompts[which],
                max_tokens=self._requests[which].max_tokens,
                **options,
            )
            self.texts["mlx_lm", which] = "".join(response.text for response in responses)

        return run

    def cells(self, comparison: Comparison) -> dict[str, Cell]:
        """A row of the table."""
        ran = sorted(self.tokens)
        same = sum(self.texts["nocka", which] == self.texts["mlx_lm", which] for which in ran)
        return {
            "nocka s": comparison.ours_s,
            "mlx_lm s": comparison.theirs_s,
            "times as fast": comparison.speed.ratio,
            "lower bound": comparison.speed.lower,
            "A/A": comparison.noise.ratio,
            "A/A lower": comparison.noise.lower,
            "pairs": comparison.speed.pairs,
            "same text": f"{same}/{len(ran)}",
            "repeated": sum(repeated_share(self.tokens[which]) for which in ran) / len(ran),
        }


def plain(targets: dict[str, tuple[Model, int]], pairs: int, count: int) -> Report:
    """Figure 1: the plain path of each of *targets*, given with how many tokens to generate, over *count* passages."""
    rows: dict[str, dict[str, Cell]] = {}
    for name, (target, max_tokens) in targets.items():
        for workload in (REPLAY, GREEDY):
            sides = Sides(target, held_out(target.tokenizer, count), workload, max_tokens)
            rows[f"{name} {workload.name}"] = sides.cells(compare(sides.nocka(None, 0), sides.mlx_lm(None, 0), pairs))
            mx.clear_cache()
    return Report(figure=1, title="Plain decoding beside mlx_lm.stream_generate", rows=rows, checks=_checks(rows))


def same_tokenizer(target: Model, draft: Model, pairs: int, count: int, max_tokens: int) -> Report:
    """Figure 2: a draft of the same tokenizer beside mlx_lm's speculative decoding, over *count* passages."""
    rows: dict[str, dict[str, Cell]] = {}
    for k in LENGTHS:
        for workload in (REPLAY, GREEDY):
            sides = Sides(target, held_out(target.tokenizer, count), workload, max_tokens)
            comparison = compare(sides.nocka(NeuralDrafter(draft), k), sides.mlx_lm(draft, k), pairs)
            rows[f"k={k} {workload.name}"] = sides.cells(comparison)
            mx.clear_cache()
    title = "A draft of the same tokenizer beside mlx_lm's speculative decoding"
    return Report(figure=2, title=title, rows=rows, checks=_checks(rows))


def _checks(rows: dict[str, dict[str, Cell]]) -> tuple[Check, ...]:
    bounds = {label: cells["lower bound"] for label, cells in rows.items()}
    return tuple(
        Check(claim=f"{label}: times as fast, lower bound", value=bound, bound=AS_FAST)
        for label, bound in bounds.items()
        if isinstance(bound, float)
    )
