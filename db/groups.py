"""Which cells of a job share loaded models and a baseline. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from db.specs import CellSpec, DrafterKind


def groups(cells: Sequence[CellSpec]) -> list[range]:
    """Positions of the job's *cells*, cut into groups: runs of one target, each begun by its plain cells.

    Items are outermost within a group: its cells meet an item minutes apart, and a baseline is never of another hour.
    """
    begins = [at for at in range(len(cells)) if at == 0 or _begins(cells[at - 1], cells[at])]
    return [range(begin, end) for begin, end in zip(begins, [*begins[1:], len(cells)], strict=True)]


def _begins(before: CellSpec, cell: CellSpec) -> bool:
    if (before.target, before.target_revision, before.dtype) != (cell.target, cell.target_revision, cell.dtype):
        return True
    return cell.drafter is DrafterKind.OFF and before.drafter is not DrafterKind.OFF


def plain_positions(cells: Sequence[CellSpec]) -> dict[int, int]:
    """For each cell with a drafter that has one, its baseline: the plain cell of its group with the same decoding.

    Where its own group has none, another group's with the same target and decoding stands in.
    """
    found = {}
    for group in groups(cells):
        for at in group:
            if cells[at].drafter is DrafterKind.OFF:
                continue
            alike = [other for other, cell in enumerate(cells) if _is_plain_of(cell, cells[at])]
            alike.sort(key=lambda other: (other not in group, other))
            found.update({at: alike[0]} if alike else {})
    return found


def _is_plain_of(plain: CellSpec, cell: CellSpec) -> bool:
    return plain.drafter is DrafterKind.OFF and all(
        getattr(plain, name) == getattr(cell, name) for name in ("target", "target_revision", "dtype", "decoding")
    )
