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
    # Answers that are decoded together leave the order of the items.
    if cell.batch != before.batch:
        return True
    return cell.drafter is DrafterKind.OFF and before.drafter is not DrafterKind.OFF


def plain_positions(cells: Sequence[CellSpec]) -> dict[int, int]:
    """For each cell that has one, its baseline: the plain cell of its group with the same decoding.

    That is for each cell with a drafter, and for plain cells that decode several answers together.

    Where its own group has none, another group's with the same target and decoding stands in.
    """
    found = {}
    for group in groups(cells):
        for at in group:
            is_plain = cells[at].drafter is DrafterKind.OFF
            if is_plain and cells[at].batch == 1:
                continue
            alike = [other for other, cell in enumerate(cells) if _is_plain_of(cell, cells[at])]
            alike = [other for other in alike if cells[other].batch == 1] if is_plain else alike
            alike.sort(key=lambda other: (other not in group, other))
            found.update({at: alike[0]} if alike else {})
    return found


def _is_plain_of(plain: CellSpec, cell: CellSpec) -> bool:
    return plain.drafter is DrafterKind.OFF and all(
        getattr(plain, name) == getattr(cell, name) for name in ("target", "target_revision", "dtype", "decoding")
    )
