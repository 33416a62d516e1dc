"""Figure 8: `--drafter auto` beside plain decoding on every kind of work, and beside each setting held fixed."""

from __future__ import annotations

import dataclasses
import json
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import mlx.core as mx

from bench.forms import PROMPT_CHARS as FORM_PROMPT_CHARS
from bench.forms import texts as form_texts
from bench.replay import replayed
from bench.report import Cell, Check, Report
from bench.timing import speed
from bench.workloads import GREEDY, PROMPT_CHARS, REPLAY, SAMPLED, Passage, Workload, held_out, passage
from worker.engine.calibrate import measure
from worker.engine.cost import Costs
from worker.engine.decode import Decoder
from worker.engine.drafters.auto import AutoDrafter
from worker.engine.drafters.base import Drafter
from worker.engine.drafters.cross import CrossDrafter
from worker.engine.drafters.suffix import SuffixDrafter
from worker.engine.model import Model
from worker.engine.values import Generation, Request, Turn

SHIPPED = Path(__file__).parents[1] / "api_cli" / "data"
#: How long a short prompt is, and a long one.
SHORT_CHARS, LONG_CHARS = 45, 5200
RANDOM_CHARS = 600
#: Never slower: the lower bound of plain seconds / auto's. In sum: of the best fixed setting's. On forms: the median.
NEVER_BELOW, SUM_BELOW, FORMS_ABOVE = 0.95, 0.95, 1.2
FORMS = "forms"


@dataclasses.dataclass(frozen=True)
class Piece:
    """One request, and the ids that a replay says."""

    request: Request
    ids: list[int] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """A way to decode, with whatever it learns over one workload."""

    drafter: Drafter | None
    k: int = 0


def report(target: Model, draft: Model, items: int, max_tokens: int) -> Report:
    """*items* of each workload, each once under every setting, one after the other in changing order."""
    cross: dict[str, Drafter] = {"cross": CrossDrafter(target.tokenizer, draft, "context")}
    costs = measure(target, cross, draft, lambda done: None).costs
    rows: dict[str, dict[str, Cell]] = {}
    sums: dict[str, float] = {}
    for name, pieces in workloads(target, items, max_tokens).items():
        taken, found = timed(target, pieces, settings(target, draft, costs))
        for setting, seconds in taken.items():
            sums[setting] = sums.get(setting, 0.0) + sum(seconds)
        rows[name] = _row(taken, found)
        mx.clear_cache()
    fixed = {name: seconds for name, seconds in sums.items() if name not in ("auto", "again")}
    best = min(fixed, key=fixed.__getitem__)
    rows["in sum"] = {
        "auto": sums["plain"] / sums["auto"],
        **{name: sums["plain"] / seconds for name, seconds in fixed.items()},
        "best fixed": best,
    }
    checks = [
        Check(claim=f"{name}: times plain, lower bound", value=_number(row["lower bound"]), bound=NEVER_BELOW)
        for name, row in rows.items()
        if "lower bound" in row
    ]
    checks.append(Check(claim=f"in sum, beside {best}", value=fixed[best] / sums["auto"], bound=SUM_BELOW))
    checks.append(Check(claim="forms: times plain, median", value=_number(rows[FORMS]["auto"]), bound=FORMS_ABOVE))
    title = f"auto with {Path(draft.ref.source).name} beside plain decoding and fixed settings, times plain"
    return Report(figure=8, title=title, rows=rows, checks=tuple(checks))


def settings(target: Model, draft: Model, costs: Costs) -> dict[str, Setting]:
    """Every way, none of which has learnt anything yet."""
    model = CrossDrafter(target.tokenizer, draft, "context")
    return {
        "plain": Setting(drafter=None),
        "auto": Setting(drafter=AutoDrafter({"suffix": SuffixDrafter()}, ("cross", model), costs)),
        "again": Setting(drafter=None),
        **{f"cross k={k}": Setting(drafter=CrossDrafter(target.tokenizer, draft, "context"), k=k) for k in (2, 4)},
        "suffix": Setting(drafter=SuffixDrafter(), k=16),
    }


def timed(
    target: Model, pieces: Sequence[Piece], ways: Mapping[str, Setting]
) -> tuple[dict[str, list[float]], dict[str, list[Generation]]]:
    """Seconds, and what came out, of each piece under each way."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, list[Generation]] = {name: [] for name in ways}
    for number, piece in enumerate(pieces):
        model = target if piece.ids is None else replayed(target, piece.ids)
        order = list(ways.items())
        for name, way in order if number % 2 else reversed(order):
            started = time.perf_counter()
            generation = Decoder(model, way.drafter, way.k, {}).generate(piece.request)
            taken[name].append(time.perf_counter() - started)
            found[name].append(generation)
    return taken, found


def _row(taken: Mapping[str, list[float]], found: Mapping[str, list[Generation]]) -> dict[str, Cell]:
    auto, noise = speed(taken["auto"], taken["plain"]), speed(taken["again"], taken["plain"])
    others = [name for name in taken if name not in ("plain", "auto", "again")]
    rounds: dict[str, int] = {}
    for generation in found["auto"]:
        for choice, count in (generation.metrics.choices.rounds if generation.metrics.choices else {}).items():
            rounds[choice.split(" ")[0]] = rounds.get(choice.split(" ")[0], 0) + count
    every = max(1, sum(rounds.values()))
    same = sum(one.tokens == other.tokens for one, other in zip(found["auto"], found["plain"], strict=True))
    return {
        "auto": auto.ratio,
        "lower bound": auto.lower,
        "A/A": noise.ratio,
        "A/A lower": noise.lower,
        **{name: speed(taken[name], taken["plain"]).ratio for name in others},
        "rounds of auto": ", ".join(f"{name} {100 * count / every:.0f} %" for name, count in sorted(rounds.items())),
        "same text": f"{same}/{len(found['auto'])}",
        "prompt": round(statistics.median(one.metrics.prompt_tokens for one in found["plain"])),
    }


def workloads(target: Model, items: int, max_tokens: int) -> dict[str, list[Piece]]:
    """By name, *items* requests of each kind of work."""
    tokenizer = target.tokenizer
    prose = held_out(tokenizer, items)
    bodies = [each.text for each in held_out(tokenizer, 24)]
    long = [" ".join([*bodies[at + 1 :], *bodies[:at], bodies[at]]) for at in range(len(bodies))][:items]
    structured = [line["text"] for line in _shipped("structured")][:items]
    draw = random.Random(11)
    alphabet = [chr(code) for code in range(0x21, 0x17F)]
    noise = ["".join(draw.choice(alphabet) for _ in range(RANDOM_CHARS)) for _ in range(items)]

    def as_pieces(passages: Sequence[Passage], workload: Workload) -> list[Piece]:
        return [_piece(target, each, workload, max_tokens) for each in passages]

    def cut(name: str, texts: Sequence[str], chars: int) -> list[Passage]:
        return [passage(tokenizer, f"{name}-{number}", text, chars) for number, text in enumerate(texts)]

    forms = cut("form", form_texts()[:items], FORM_PROMPT_CHARS)
    return {
        "prose, replay": as_pieces(prose, REPLAY),
        "prose, sampled": as_pieces(prose, SAMPLED),
        "prose, greedy": as_pieces(prose, GREEDY),
        "short prompt, replay": as_pieces(cut("short", [each.text for each in prose], SHORT_CHARS), REPLAY),
        "long prompt, replay": as_pieces(cut("long", long, LONG_CHARS), REPLAY),
        "lists, replay": as_pieces(cut("list", structured, PROMPT_CHARS // 2), REPLAY),
        "chat, sampled": [
            _chat(line, number, max_tokens) for number, line in enumerate(_shipped("instructions")[:items])
        ],
        "random bytes, replay": [_random(target, number, text, max_tokens) for number, text in enumerate(noise)],
        FORMS: [_piece(target, each, REPLAY, 3 * max_tokens) for each in forms],
    }


def _piece(target: Model, each: Passage, workload: Workload, max_tokens: int) -> Piece:
    ids = each.ids(target.tokenizer, max_tokens) if workload.replay else None
    return Piece(each.request(workload, target.tokenizer, max_tokens), ids)


def _chat(line: Mapping[str, str], number: int, max_tokens: int) -> Piece:
    turns = (Turn(role="user", content=line["prompt"]),)
    request = Request(custom_id=f"chat-{number}", turns=turns, sampling=SAMPLED.sampling, max_tokens=max_tokens)
    return Piece(request)


def _random(target: Model, number: int, text: str, max_tokens: int) -> Piece:
    """Characters in no order; said on by a replay, since nothing else would go on like that."""
    ids = target.tokenizer.raw(text)
    start = len(target.tokenizer.raw(text[: RANDOM_CHARS // 2]))
    request = Request(custom_id=f"random-{number}", text=text[: RANDOM_CHARS // 2], max_tokens=max_tokens)
    return Piece(request, ids[: start + max_tokens])


def _shipped(name: str) -> list[dict[str, str]]:
    lines = (SHIPPED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _number(cell: Cell) -> float | None:
    return cell if isinstance(cell, float) else None
