"""Figure 9: documents an hour, one at a time and together, beside `mlx_lm.batch_generate`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
from mlx_lm.generate import batch_generate
from mlx_lm.utils import load_tokenizer

from bench.report import Cell, Check, Report
from bench.timing import speed
from bench.workloads import GREEDY, Passage, held_out
from worker.engine.batch import Batch
from worker.engine.calibrate import measure
from worker.engine.decode import Decoder
from worker.engine.drafters.auto import AutoDrafter
from worker.engine.drafters.base import Drafter
from worker.engine.drafters.cross import CrossDrafter
from worker.engine.drafters.suffix import SuffixDrafter
from worker.engine.model import Model
from worker.engine.rows import from_calibration

AS_FAST = 0.95
ROOM_BYTES = 2**31
Texts = dict[str, str]


class Sides:
    """Every way to answer *documents*, each returning their texts."""

    def __init__(self, target: Model, draft: Model, max_tokens: int) -> None:
        self._target, self._max_tokens = target, max_tokens
        cross: dict[str, Drafter] = {"cross": CrossDrafter(target.tokenizer, draft, "context")}
        self._costs = measure(target, cross, draft, lambda done: None).costs
        self.sized = from_calibration(self._costs, 128)
        self._fixed = CrossDrafter(target.tokenizer, draft, "context")
        self._foreign = draft
        self._tokenizer = load_tokenizer(Path(target.ref.source))

    def plain(self, documents: Sequence[Passage]) -> Texts:
        return self._alone(documents, None, 0)

    def speculative(self, documents: Sequence[Passage]) -> Texts:
        return self._alone(documents, self._fixed, 2)

    def auto(self, documents: Sequence[Passage]) -> Texts:
        # A memory of its own for each call: there are fewer passages than documents, and none may be recalled.
        model = "cross", CrossDrafter(self._target.tokenizer, self._foreign, "context")
        return self._alone(documents, AutoDrafter({"suffix": SuffixDrafter()}, model, self._costs), 0)

    def batched(self, documents: Sequence[Passage]) -> Texts:
        batch = Batch(self._target, max(self.sized.rows, len(documents)), ROOM_BYTES, {})
        names: dict[int, str] = {}
        texts: Texts = {}
        for each in documents:
            ticket = batch.add(each.request(GREEDY, self._target.tokenizer, self._max_tokens))
            assert ticket is not None
            names[ticket] = each.name
        while len(batch):
            for ended in batch.step():
                assert not isinstance(ended.outcome, Exception), ended.outcome
                texts[names[ended.ticket]] = ended.outcome.text
        batch.close()
        return texts

    def mlx_lm(self, documents: Sequence[Passage]) -> Texts:
        prompts = [self._target.tokenizer.raw(each.prompt) for each in documents]
        made = batch_generate(self._target.network, self._tokenizer, prompts, max_tokens=self._max_tokens)
        return {each.name: text for each, text in zip(documents, made.texts, strict=True)}

    def _alone(self, documents: Sequence[Passage], drafter: Drafter | None, k: int) -> Texts:
        decoder = Decoder(self._target, drafter, k, {})
        requests = [each.request(GREEDY, self._target.tokenizer, self._max_tokens) for each in documents]
        return {each.name: decoder.generate(asked).text for each, asked in zip(documents, requests, strict=True)}


def report(target: Model, draft: Model, pairs: int, together: int, max_tokens: int) -> Report:
    """*pairs* of times *together* documents under every side, one after the other in changing order."""
    sides = Sides(target, draft, max_tokens)
    ways = {
        "plain": sides.plain,
        "speculative": sides.speculative,
        "auto": sides.auto,
        "batched": sides.batched,
        "mlx_lm.batch_generate": sides.mlx_lm,
    }
    passages = held_out(target.tokenizer, 24)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    same = dict.fromkeys(ways, 0)
    sides.batched(passages[:2])
    sides.mlx_lm(passages[:2])
    for pair in range(pairs):
        documents = [passages[(pair * together + at) % len(passages)] for at in range(together)]
        texts: dict[str, Texts] = {}
        for name in list(ways) if pair % 2 else reversed(ways):
            started = time.perf_counter()
            texts[name] = ways[name](documents)
            taken[name].append(time.perf_counter() - started)
            mx.clear_cache()
        for name, found in texts.items():
            same[name] += sum(text == texts["plain"][document] for document, text in found.items())
    every = pairs * together
    rows: dict[str, dict[str, Cell]] = {}
    for name, seconds in taken.items():
        beside = speed(seconds, taken["plain"])
        rows[name] = {
            "documents an hour": round(3600 * every / sum(seconds)),
            "times plain": beside.ratio,
            "lower bound": beside.lower,
            "same text": f"{same[name]}/{every}",
        }
    batched = speed(taken["batched"], taken["mlx_lm.batch_generate"])
    rows["batched beside mlx_lm"] = {"times plain": batched.ratio, "lower bound": batched.lower}
    checks = (Check(claim="batched beside batch_generate, lower bound", value=batched.lower, bound=AS_FAST),)
    title = f"Documents an hour, {together} at once where together, {max_tokens} tokens each, greedy"
    notes = (f"--batch auto would say: {sides.sized.why}",)
    return Report(figure=9, title=title, rows=rows, checks=checks, notes=notes)
