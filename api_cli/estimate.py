"""How long a sweep will take, by what this store knows of its targets."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from api_cli.client import Client
from db.specs import CellSpec


def hours(client: Client, cells: Iterable[CellSpec], item_count: int) -> float | None:
    """Hours for *cells* over so many items, every answer as long as it may be; None where a target is unknown here.

    Each cell counts as plain decoding, which a drafter may beat or lose to.
    """
    wanted = list(cells)
    speeds = {target: _speed(client.store.plain_speeds(target)) for target in {cell.target for cell in wanted}}
    return hours_of(wanted, item_count, speeds)


def hours_of(cells: Iterable[CellSpec], item_count: int, tokens_per_s: Mapping[str, float | None]) -> float | None:
    """`hours`, from tokens per second by target."""
    total_s = 0.0
    for cell in cells:
        speed = tokens_per_s.get(cell.target)
        if not speed:
            return None
        total_s += cell.decoding.max_tokens * item_count / speed
    return total_s / 3600


def hours_text(found: float | None) -> str:
    """`about 2.5 hours`, `about 12 minutes`, or that it is unknown."""
    if found is None:
        return "hours unknown (nothing was measured of these targets yet)"
    return f"about {found:.1f} hours" if found >= 1 else f"about {max(1, round(found * 60))} minutes"


def _speed(speeds: list[float]) -> float | None:
    return statistics.median(speeds) if speeds else None
