"""An evaluation job's results held against its plain cell. Pure: records in, figures out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from db.groups import plain_positions
from db.parting import Parting, parting
from db.records import ResultRecord
from db.specs import CellSpec
from db.status import ResultState


@dataclasses.dataclass(frozen=True)
class AgainstPlain:
    """Strictly read-only. One result beside the plain result of its item."""

    #: Whether the two texts are equal.
    same: bool
    #: Where they are not, as the worker measured it; None where that is not known.
    parting: Parting | None
    #: Tokens a second over the plain result's; None where one of them has no speed.
    speed: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellSummary:
    """Strictly read-only. One cell over every item that it and plain have finished."""

    label: str
    compared: int
    same: int
    #: Of the others, how many part at a near tie.
    near_ties: int
    #: Accepted over proposed tokens; None where nothing was proposed.
    acceptance_rate: float | None
    #: Tokens a second over plain's, both over all compared items.
    speed: float | None


def beside_plain(compared: int, same: int, near_ties: int) -> str:
    """`17 of 18`, and where that is not all: `17 of 18 (1 near-tie, 0 DIFFERENT)`."""
    rest = "" if same == compared else f" ({near_ties} near-tie, {compared - same - near_ties} DIFFERENT)"
    return f"{same} of {compared}{rest}"


def against_plain(results: Iterable[ResultRecord], cells: Sequence[CellSpec]) -> dict[int, AgainstPlain]:
    """By result id, for each finished result whose item has finished plain too."""
    return {
        result.id: AgainstPlain(
            result.text == plain.text, _parting(result, plain), _ratio(result.tokens_per_s, plain.tokens_per_s)
        )
        for result, plain in _pairs(results, cells)
    }


def summaries(results: Iterable[ResultRecord], cells: Sequence[CellSpec]) -> list[CellSummary]:
    """One for each cell that is held against plain."""
    pairs = _pairs(results, cells)
    found = []
    for position in plain_positions(cells):
        own = [pair for pair in pairs if pair[0].cell_position == position]
        proposed = sum(int(result.metrics.get("proposed") or 0) for result, _ in own)
        accepted = sum(int(result.metrics.get("accepted") or 0) for result, _ in own)
        partings = [_parting(result, plain) for result, plain in own]
        speed = _ratio(_pace([result for result, _ in own]), _pace([plain for _, plain in own]))
        found.append(
            CellSummary(
                label=cells[position].label,
                compared=len(own),
                same=sum(result.text == plain.text for result, plain in own),
                near_ties=sum(one is not None and one.near_tie for one in partings),
                acceptance_rate=accepted / proposed if proposed else None,
                speed=speed,
            )
        )
    return found


def _pairs(results: Iterable[ResultRecord], cells: Sequence[CellSpec]) -> list[tuple[ResultRecord, ResultRecord]]:
    done = [result for result in results if result.state is ResultState.DONE]
    by_place = {(result.item_position, result.cell_position): result for result in done}
    positions = plain_positions(cells)
    places = [(result, (result.item_position, positions.get(result.cell_position, -1))) for result in done]
    return [(result, by_place[place]) for result, place in places if place in by_place]


def _parting(result: ResultRecord, plain: ResultRecord) -> Parting | None:
    return None if result.text == plain.text else parting(result.scores)


def _pace(results: Sequence[ResultRecord]) -> float | None:
    """Tokens a second over all of *results* that have a speed."""
    timed = [(result.completion_tokens or 0, result.tokens_per_s) for result in results if result.tokens_per_s]
    seconds = sum(tokens / speed for tokens, speed in timed)
    return sum(tokens for tokens, _ in timed) / seconds if seconds else None


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None
