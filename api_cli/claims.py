"""The paper's claims held against a job's own figures: each holds, or does not hold here. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from api_cli.evaluation import Evaluation, Summary
from db.specs import CellSpec, DrafterKind, Translation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """Strictly read-only. One claim, whether it holds in this job, and by which figures."""

    statement: str
    holds: bool
    evidence: str

    @property
    def verdict(self) -> str:
        return "holds" if self.holds else "does not hold here"


def claims(found: Evaluation) -> tuple[Claim, ...]:
    """Every claim that *found* has the cells for. Acceptance is over all texts, speed-ups are paired by item."""
    return (
        *_translation(found, Translation.NAIVE, "naive translation"),
        *_translation(found, Translation.DIRECT, "none (direct)"),
        *_foreign_drafts(found),
        *_plain_wins(found),
        *_content_decides(found),
    )


def _drafting(found: Evaluation) -> Iterable[tuple[CellSpec, Summary]]:
    for summary in found.overall:
        if summary.acceptance is not None:
            yield found.cell(summary), summary


def _translation(found: Evaluation, other: Translation, named: str) -> Iterable[Claim]:
    """Context-aware translation against *other*, all else equal."""
    by_rest: dict[CellSpec, dict[Translation, float]] = defaultdict(dict)
    for cell, summary in _drafting(found):
        if cell.translation is not None and summary.acceptance is not None:
            rest = cell.model_copy(update={"translation": Translation.CONTEXT})
            by_rest[rest][cell.translation] = summary.acceptance
    pairs = [
        (one[Translation.CONTEXT], one[other]) for one in by_rest.values() if {Translation.CONTEXT, other} <= set(one)
    ]
    if pairs:
        better = sum(context > less for context, less in pairs)
        yield Claim(
            statement=f"Context-aware translation is accepted more often than {named}",
            holds=better == len(pairs),
            evidence=f"in {better} of {len(pairs)} configurations; mean acceptance "
            f"{_percent(pair[0] for pair in pairs)} against {_percent(pair[1] for pair in pairs)}",
        )


def _foreign_drafts(found: Evaluation) -> Iterable[Claim]:
    """Each draft with another tokenizer against the drafts with the target's own, at the same k."""
    own: dict[tuple[object, ...], list[float]] = defaultdict(list)
    foreign: dict[str, list[tuple[tuple[object, ...], float]]] = defaultdict(list)
    for cell, summary in _drafting(found):
        place = (cell.target, cell.k, cell.decoding)
        if cell.drafter is DrafterKind.NEURAL and summary.acceptance is not None:
            own[place].append(summary.acceptance)
        elif cell.translation is Translation.CONTEXT and summary.acceptance is not None:
            foreign[short(cell.draft)].append((place, summary.acceptance))
    for draft, figures in foreign.items():
        pairs = [(mine, max(own[place])) for place, mine in figures if place in own]
        if pairs:
            less = sum(mine < other for mine, other in pairs)
            yield Claim(
                statement=f"{draft}, with another tokenizer, is accepted less than a draft with the target's own",
                holds=less == len(pairs),
                evidence=f"at {less} of {len(pairs)} k; mean acceptance "
                f"{_percent(pair[0] for pair in pairs)} against {_percent(pair[1] for pair in pairs)}",
            )


def _plain_wins(found: Evaluation) -> Iterable[Claim]:
    """Longer drafts lose against plain decoding: at k = 4 and at k = 6."""
    by_k: dict[int, list[float]] = defaultdict(list)
    for cell, summary in _drafting(found):
        if cell.drafter is DrafterKind.CROSS and summary.speedup is not None:
            by_k[cell.k].append(summary.speedup.median)
    for k in sorted(set(by_k) & {4, 6}):
        slower = sum(speed < 1 for speed in by_k[k])
        yield Claim(
            statement=f"Plain decoding beats every draft of another tokenizer at k = {k}",
            holds=slower == len(by_k[k]),
            evidence=f"{slower} of {len(by_k[k])} cells are slower; the best reaches {max(by_k[k]):.2f}×",
        )
    if 2 in by_k and len(by_k) > 1:
        means = {k: statistics.mean(by_k[k]) for k in sorted(by_k)}
        falls = list(means.values())
        yield Claim(
            statement="Longer drafts pay less",
            holds=all(less < more for more, less in itertools.pairwise(falls)),
            evidence="mean speed-up " + ", ".join(f"{mean:.2f}× at k = {k}" for k, mean in means.items()),
        )


def _content_decides(found: Evaluation) -> Iterable[Claim]:
    """Structured text gains more than instructions do."""
    pairs = []
    for cell, summary in _drafting(found):
        sides = [found.of_kind(summary.position, kind) for kind in ("structured", "instruction")]
        speeds = [side.speedup.median for side in sides if side is not None and side.speedup is not None]
        if cell.drafter is DrafterKind.CROSS and len(speeds) == len(sides):
            pairs.append(speeds)
    if pairs:
        more = sum(structured > instruction for structured, instruction in pairs)
        yield Claim(
            statement="Content decides: structured text gains more than instructions",
            holds=more * 2 > len(pairs),
            evidence=f"in {more} of {len(pairs)} cells; mean speed-up "
            f"{_mean(pairs, 0):.2f}× against {_mean(pairs, 1):.2f}×",
        )


def short(source: str | None) -> str:
    """A model's name without its folders."""
    return (source or "").rstrip("/").rsplit("/", 1)[-1]


def _mean(pairs: Sequence[Sequence[float]], side: int) -> float:
    return statistics.mean(pair[side] for pair in pairs)


def _percent(shares: Iterable[float]) -> str:
    return f"{100 * statistics.mean(shares):.0f} %"
