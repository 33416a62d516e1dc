"""What a measurement hands back: rows of figures, and the promises they are held against."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

Cell = float | int | str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One promise. *value* is None where it could not be measured here; the report's notes say why."""

    claim: str
    value: float | None
    bound: float
    #: Whether the bound is the least that was promised, or the most.
    at_least: bool = True

    @property
    def reached(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """One figure of the bench. *rows* map a label to its cells by column."""

    figure: int
    title: str
    rows: Mapping[str, Mapping[str, Cell]]
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    #: The columns that come out the same in every run.
    fixed: frozenset[str] = frozenset()
    #: Counts that come out the same but for so many, where another BLAS adds in another order.
    near: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "figure": self.figure,
            "title": self.title,
            "rows": {label: dict(cells) for label, cells in self.rows.items()},
            "checks": [dataclasses.asdict(check) | {"reached": check.reached} for check in self.checks],
            "notes": list(self.notes),
        }

    def fixed_cells(self) -> dict[str, dict[str, Cell]]:
        """What must come out the same again, by row."""
        held = self.fixed | self.near.keys()
        kept = {
            label: {name: _rounded(cell) for name, cell in cells.items() if name in held}
            for label, cells in self.rows.items()
        }
        return {label: cells for label, cells in kept.items() if cells}

    def differences(self, expected: Mapping[str, Mapping[str, Cell]]) -> Iterator[str]:
        """Where the fixed cells are not those of *expected*, in words. One that is missing on either side differs."""
        found = self.fixed_cells()
        for label in dict.fromkeys([*expected, *found]):
            due, cells = expected.get(label, {}), found.get(label, {})
            for name in dict.fromkeys([*due, *cells]):
                if not _agree(due.get(name), cells.get(name), self.near.get(name, 0)):
                    yield f"figure {self.figure}, {label}, {name}: {cells.get(name)}, expected {due.get(name)}"


def show(report: Report, console: Console) -> None:
    """Print *report* as a table, with its promises below."""
    columns = list(dict.fromkeys(name for cells in report.rows.values() for name in cells))
    table = Table(
        "", title=f"{report.figure}. {report.title}", title_justify="left", box=box.SIMPLE_HEAD, title_style="bold"
    )
    for name in columns:
        table.add_column(name, justify="right")
    for label, cells in report.rows.items():
        table.add_row(label, *[_shown(cells.get(name)) for name in columns])
    console.print(table)
    for check in report.checks:
        relation = "at least" if check.at_least else "at most"
        verdict = {True: "[green]reached[/]", False: "[red]missed[/]", None: "[yellow]not measured[/]"}[check.reached]
        console.print(f"   {verdict}  {check.claim}: {_shown(check.value)}, promised {relation} {check.bound:g}")
    for note in report.notes:
        console.print(f"   [dim]{note}[/]")


def _shown(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def _agree(due: Cell, cell: Cell, apart: int) -> bool:
    if isinstance(due, int) and isinstance(cell, int):
        return abs(due - cell) <= apart
    return due == cell


def _rounded(cell: Cell) -> Cell:
    return round(cell, 4) if isinstance(cell, float) else cell
