"""An evaluation job's results held against its plain cell. Pure: records in, figures out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from db.groups import plain_positions
from db.records import ResultRecord
from db.specs import CellSpec
from db.status import ResultState


@dataclasses.dataclass(frozen=True)
class AgainstPlain:
    """Strictly read-only. One result beside the plain result of its item."""

    #: Whether the two texts are equal.
    same: bool
    #: Tokens a second over the plain result's; None where one of them has no speed.
    speed: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellSummary:
    """Strictly read-only. One cell over every item that it and plain have finished."""

    label: str
    compared: int
    same: int
    #: Accepted over proposed tokens; None where nothing was proposed.
    acceptance_rate: float | None
    #: Tokens a second over plain's, both over all compared items.
    speed: float | None


def against_plain(results: Iterable[ResultRecord], cells: Sequence[CellSpec]) -> dict[int, AgainstPlain]:
    """By result id, for each finished result whose item has finished plain too."""
    return {
        result.id: AgainstPlain(result.text == plain.text, _ratio(result.tokens_per_s, plain.tokens_per_s))
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
        speed = _ratio(_pace([result for result, _ in own]), _pace([plain for _, plain in own]))
        found.append(
            CellSummary(
                label=cells[position].label,
                compared=len(own),
                same=sum(result.text == plain.text for result, plain in own),
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


def _pace(results: Sequence[ResultRecord]) -> float | None:
    """Tokens a second over all of *results* that have a speed."""
    timed = [(result.completion_tokens or 0, result.tokens_per_s) for result in results if result.tokens_per_s]
    seconds = sum(tokens / speed for tokens, speed in timed)
    return sum(tokens for tokens, _ in timed) / seconds if seconds else None


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None
