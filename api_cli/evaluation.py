"""A job's results as figures: for each cell, over all texts and over each kind of text. Pure."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from api_cli.statistics import Estimate, estimate
from db.groups import plain_positions
from db.parting import BESIDE_PLAIN, Parting, parting
from db.records import ResultRecord
from db.specs import CellSpec
from db.status import ResultState


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """Strictly read-only. One finished result beside the plain result of its item, where that has finished too."""

    result: ResultRecord
    kind: str
    #: Whether the text is plain decoding's; None where there is no plain answer to hold it against.
    same: bool | None
    #: Where it is not plain's, as the worker measured it; None where it is or that is not known.
    parting: Parting | None
    #: Tokens a second over plain's, both decoded in this job; None where either was not.
    speed: float | None
    #: Accepted over proposed tokens.
    acceptance: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """Strictly read-only. One cell over one kind of text, or over all of it."""

    position: int
    label: str
    #: None: all kinds.
    kind: str | None
    total: int
    done: int
    failed: int
    #: Of the answers that could be held against plain decoding, how many are its own, and how many part at a near tie.
    compared: int
    same: int
    near_ties: int
    #: Median over the items.
    tokens_per_s: float | None
    #: Accepted over proposed tokens, and 1 + accepted / rounds; None where nothing was proposed.
    acceptance: float | None
    acceptance_length: float | None
    #: Of the rounds that proposed a token at a position, the share in which it stood.
    per_position: tuple[float, ...]
    #: Tokens a second over plain's, paired by item.
    speedup: Estimate | None
    #: Mean over the items that have it.
    joules_per_token: float | None
    #: Name of a scorer -> mean.
    scores: tuple[tuple[str, float], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Strictly read-only. Everything that a report says about a job's answers."""

    cells: tuple[CellSpec, ...]
    kinds: tuple[str, ...]
    answers: tuple[Answer, ...]
    #: One for each cell that is not a repeated baseline, in order.
    overall: tuple[Summary, ...]
    #: One for each of those and each kind, where there is more than one kind.
    by_kind: tuple[Summary, ...]

    def cell(self, summary: Summary) -> CellSpec:
        return self.cells[summary.position]

    def of_kind(self, position: int, kind: str | None) -> Summary | None:
        """The summary of the cell at *position* over texts of *kind*."""
        found = self.overall if kind is None else self.by_kind
        return next((one for one in found if (one.position, one.kind) == (position, kind)), None)


def evaluate(results: Iterable[ResultRecord], cells: Sequence[CellSpec]) -> Evaluation:
    """The figures of *results* so far. A baseline that groups repeat is one cell; answers pair in their own group."""
    everything = list(results)
    answers = tuple(_answers(everything, cells))
    kinds = tuple(dict.fromkeys(kind_of(result) for result in everything))
    alike: dict[CellSpec, list[int]] = defaultdict(list)
    for position, cell in enumerate(cells):
        alike[cell].append(position)
    overall, by_kind = [], []
    for positions in alike.values():
        mine = [result for result in everything if result.cell_position in positions]
        own = [answer for answer in answers if answer.result.cell_position in positions]
        label = cell_label(cells, positions[0])
        overall.append(_summary(positions[0], label, None, mine, own))
        for kind in kinds if len(kinds) > 1 else ():
            of_kind = [result for result in mine if kind_of(result) == kind]
            by_kind.append(_summary(positions[0], label, kind, of_kind, [one for one in own if one.kind == kind]))
    return Evaluation(cells=tuple(cells), kinds=kinds, answers=answers, overall=tuple(overall), by_kind=tuple(by_kind))


def kind_of(result: ResultRecord) -> str:
    """The kind of text, else its data set, else `text`."""
    return (result.item and (result.item.content_kind or result.item.dataset)) or "text"


def cell_label(cells: Sequence[CellSpec], position: int) -> str:
    """The cell's own label, with what tells it from cells that have the same: target, temperature, seed."""
    cell = cells[position]
    words = [cell.label]
    if len({one.target for one in cells}) > 1:
        words.append(f"on {cell.target.rstrip('/').rsplit('/', 1)[-1]}")
    if len({one.decoding.temperature for one in cells}) > 1:
        words.append(f"t={cell.decoding.temperature:g}")
    if len({one.decoding.seed for one in cells}) > 1:
        words.append(f"seed={cell.decoding.seed}")
    return " ".join(words)


def own_speed(result: ResultRecord) -> float | None:
    """Tokens a second of an answer that was decoded in this job; a copy's were measured at another hour."""
    return None if result.reused_from is not None else result.tokens_per_s or None


def _answers(results: Sequence[ResultRecord], cells: Sequence[CellSpec]) -> Iterable[Answer]:
    plain_of = plain_positions(cells)
    done = [result for result in results if result.state is ResultState.DONE]
    by_place = {(result.item_position, result.cell_position): result for result in done}
    for result in done:
        plain = by_place.get((result.item_position, plain_of.get(result.cell_position, -1)))
        mine, other = own_speed(result), own_speed(plain) if plain else None
        same = None if plain is None else result.text == plain.text
        yield Answer(
            result=result,
            kind=kind_of(result),
            same=same,
            parting=parting(result.scores) if same is False else None,
            speed=mine / other if mine and other else None,
            acceptance=result.acceptance_rate,
        )


def _summary(
    position: int, label: str, kind: str | None, results: Sequence[ResultRecord], answers: Sequence[Answer]
) -> Summary:
    proposed, accepted, rounds = (_sum(answers, name) for name in ("proposed", "accepted", "rounds"))
    speeds = [speed for answer in answers if (speed := own_speed(answer.result))]
    joules = [
        float(energy) / tokens
        for answer in answers
        if (energy := answer.result.metrics.get("energy_j")) and (tokens := answer.result.completion_tokens)
    ]
    return Summary(
        position=position,
        label=label,
        kind=kind,
        total=len(results),
        done=len(answers),
        failed=sum(result.state is ResultState.FAILED for result in results),
        compared=sum(answer.same is not None for answer in answers),
        same=sum(answer.same is True for answer in answers),
        near_ties=sum(answer.parting is not None and answer.parting.near_tie for answer in answers),
        tokens_per_s=statistics.median(speeds) if speeds else None,
        acceptance=accepted / proposed if proposed else None,
        acceptance_length=1 + accepted / rounds if rounds and proposed else None,
        per_position=_per_position(answers),
        speedup=estimate([answer.speed for answer in answers if answer.speed is not None]),
        joules_per_token=statistics.mean(joules) if joules else None,
        scores=_mean_scores(answers),
    )


def _sum(answers: Sequence[Answer], name: str) -> int:
    return sum(int(answer.result.metrics.get(name) or 0) for answer in answers)


def _per_position(answers: Sequence[Answer]) -> tuple[float, ...]:
    """From the traces: of the rounds that proposed a token at each position, the share in which it stood."""
    rounds = [step for answer in answers for step in answer.result.metrics.get("trace") or ()]
    longest = max((int(proposed) for _, proposed, _ in rounds), default=0)
    shares = []
    for at in range(longest):
        stood = [accepted > at for _, proposed, accepted in rounds if proposed > at]
        shares.append(sum(stood) / len(stood))
    return tuple(shares)


def _mean_scores(answers: Sequence[Answer]) -> tuple[tuple[str, float], ...]:
    found: dict[str, list[float]] = defaultdict(list)
    for answer in answers:
        for name, score in answer.result.scores.items():
            if name not in BESIDE_PLAIN:
                found[name].append(score)
    return tuple((name, statistics.mean(scores)) for name, scores in sorted(found.items()))
