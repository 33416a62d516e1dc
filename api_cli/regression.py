"""One job held against an earlier one, item by item: what changed in speed, acceptance and text. Pure."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Sequence

from api_cli.evaluation import cell_label, own_speed
from api_cli.statistics import Estimate, estimate
from db.errors import InputError
from db.parting import Parting, parting
from db.records import ResultRecord
from db.specs import CellSpec
from db.status import ResultState


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """Strictly read-only. One item under one cell, finished in both jobs."""

    cell: str
    custom_id: str
    #: B's tokens a second over A's; None where one of them was copied or has none.
    speed: float | None
    acceptance_a: float | None
    acceptance_b: float | None
    same_text: bool
    #: Where the texts differ and B's is not its own job's plain text: how it left that.
    parting_b: Parting | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellChange:
    """Strictly read-only. One cell of both jobs over the items that both have finished."""

    cell: str
    pairs: int
    #: B's speed over A's, paired by item.
    speed: Estimate | None
    #: Means over the pairs in which tokens were proposed.
    acceptance_a: float | None
    acceptance_b: float | None
    texts_changed: int

    def is_slower(self, tolerance: float) -> bool:
        """Whether even the fast end of the interval is slower than A by more than *tolerance* (a share)."""
        return self.speed is not None and self.speed.high is not None and self.speed.high < 1 - tolerance


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Strictly read-only. What changed from A to B."""

    pairs: tuple[Pair, ...]
    cells: tuple[CellChange, ...]
    #: Over everything: each item counts once, by the median of its cells.
    overall: CellChange
    #: Labels of cells that only one of the jobs has.
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    #: Items of the same name whose inputs differ; they are not compared.
    other_inputs: int
    #: Pairs without a speed, since an answer was copied from an earlier job.
    copied: int

    def slower(self, tolerance: float) -> tuple[str, ...]:
        """What is slower in B beyond *tolerance*: cells by name, and `all cells`."""
        return tuple(change.cell for change in (*self.cells, self.overall) if change.is_slower(tolerance))


Job = tuple[Sequence[CellSpec], Sequence[ResultRecord]]


def compare(a: Job, b: Job) -> Comparison:
    """Hold B against A. Cells pair by their specification, or the only cell of each job. Raises InputError."""
    cells_a, cells_b = a[0], b[0]
    matched = _matched(cells_a, cells_b)
    if not matched:
        raise InputError("the two jobs have no cell in common", "`nocka results JOB` shows what their cells are")
    done_b = {(result.cell_position, result.custom_id): result for result in b[1] if _is_done(result)}
    pairs, other_inputs, copied = [], 0, 0
    for one in filter(_is_done, a[1]):
        position = matched.get(one.cell_position)
        other = None if position is None else done_b.get((position, one.custom_id))
        if other is None:
            continue
        if _input(one) != _input(other):
            other_inputs += 1
            continue
        copied += one.reused_from is not None or other.reused_from is not None
        pairs.append(_pair(cell_label(cells_a, one.cell_position), one, other))
    labels = list(dict.fromkeys(cell_label(cells_a, position) for position in sorted(matched)))
    return Comparison(
        pairs=tuple(pairs),
        cells=tuple(_change(label, [pair for pair in pairs if pair.cell == label]) for label in labels),
        overall=_overall(pairs),
        only_a=tuple(cell_label(cells_a, at) for at in range(len(cells_a)) if at not in matched),
        only_b=tuple(cell_label(cells_b, at) for at in range(len(cells_b)) if at not in matched.values()),
        other_inputs=other_inputs,
        copied=copied,
    )


def _matched(cells_a: Sequence[CellSpec], cells_b: Sequence[CellSpec]) -> dict[int, int]:
    """Positions in A -> in B. The same cell twice is a repeated baseline: the first goes with the first."""
    if len(cells_a) == len(cells_b) == 1:
        return {0: 0}
    free: dict[CellSpec, list[int]] = defaultdict(list)
    for position, cell in enumerate(cells_b):
        free[cell].append(position)
    return {at: free[cell].pop(0) for at, cell in enumerate(cells_a) if free[cell]}


def _is_done(result: ResultRecord) -> bool:
    return result.state is ResultState.DONE


def _input(result: ResultRecord) -> object:
    return None if result.item is None else (result.item.messages, result.item.text)


def _pair(cell: str, one: ResultRecord, other: ResultRecord) -> Pair:
    before, after = own_speed(one), own_speed(other)
    return Pair(
        cell=cell,
        custom_id=one.custom_id,
        speed=after / before if before and after else None,
        acceptance_a=one.acceptance_rate,
        acceptance_b=other.acceptance_rate,
        same_text=one.text == other.text,
        parting_b=None if one.text == other.text else parting(other.scores),
    )


def _change(label: str, pairs: Sequence[Pair]) -> CellChange:
    return CellChange(
        cell=label,
        pairs=len(pairs),
        speed=estimate([pair.speed for pair in pairs if pair.speed is not None]),
        acceptance_a=_mean([pair.acceptance_a for pair in pairs]),
        acceptance_b=_mean([pair.acceptance_b for pair in pairs]),
        texts_changed=sum(not pair.same_text for pair in pairs),
    )


def _overall(pairs: Sequence[Pair]) -> CellChange:
    by_item: dict[str, list[float]] = defaultdict(list)
    for pair in pairs:
        if pair.speed is not None:
            by_item[pair.custom_id].append(pair.speed)
    everything = _change("all cells", pairs)
    return dataclasses.replace(everything, speed=estimate([statistics.median(found) for found in by_item.values()]))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None
