"""What machines measured of models, by a key that changes with whatever would make it untrue."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, delete, insert, select

from db.tables import calibrations
from db.transactions import reading, writing


class Calibrations:
    """The part of `db.store.Store` that keeps measurements."""

    def __init__(self, engine: Engine, now: Callable[[], dt.datetime]) -> None:
        self.engine = engine
        self._now = now

    def calibration(self, key: str) -> dict[str, Any] | None:
        """The figures under *key*; None where nothing was measured."""
        with reading(self.engine) as connection:
            found: dict[str, Any] | None = connection.scalar(
                select(calibrations.c.figures).where(calibrations.c.key == key)
            )
        return found

    def record_calibration(self, key: str, what: tuple[str, str | None, str], figures: dict[str, Any]) -> None:
        """Keep *figures* of *what* (target, draft, machine) under *key*, in place of older ones."""
        target, draft, machine = what
        row = {"key": key, "target": target, "draft": draft, "machine": machine, "figures": figures}
        with writing(self.engine) as connection:
            connection.execute(delete(calibrations).where(calibrations.c.key == key))
            connection.execute(insert(calibrations).values(**row, measured_at=self._now()))

    def calibrations_of(self, target: str) -> list[tuple[str | None, str, dict[str, Any]]]:
        """Draft, machine and figures of everything measured of *target*, the latest first."""
        chosen = select(calibrations.c.draft, calibrations.c.machine, calibrations.c.figures)
        chosen = chosen.where(calibrations.c.target == target).order_by(calibrations.c.measured_at.desc())
        with reading(self.engine) as connection:
            return [(row.draft, row.machine, row.figures) for row in connection.execute(chosen)]
