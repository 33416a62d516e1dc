"""Which workers live: one row for each start of a worker, beaten while it lives."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from sqlalchemy import Engine, delete, insert, select, update

from db.records import WorkerRecord
from db.tables import workers
from db.transactions import reading, writing

#: How long a worker counts as alive without a beat.
LEASE_S = 90.0


class Leases:
    """The part of `db.store.Store` that knows who works. Safe on a thread of its own."""

    def __init__(self, engine: Engine, now: Callable[[], dt.datetime]) -> None:
        self.engine = engine
        self._now = now

    def beat(self, worker: str, pid: int, result_id: int | None, progress_at: dt.datetime | None) -> None:
        """Say that *worker* (`<machine>/...`) lives, what it runs, and when that last got on."""
        now = self._now()
        values = {
            "seen_at": now,
            "lease_until": now + dt.timedelta(seconds=LEASE_S),
            "result_id": result_id,
            "progress_at": progress_at,
        }
        with writing(self.engine) as connection:
            if not connection.execute(update(workers).where(workers.c.name == worker).values(values)).rowcount:
                machine = worker.partition("/")[0]
                born = {"name": worker, "machine": machine, "pid": pid, "started_at": now}
                connection.execute(insert(workers).values({**born, **values}))

    def leave(self, worker: str) -> None:
        """Forget *worker*, which has ended or is known to be dead."""
        with writing(self.engine) as connection:
            connection.execute(delete(workers).where(workers.c.name == worker))

    def workers(self) -> list[WorkerRecord]:
        """Every worker that began and did not leave, the oldest first; some may be dead."""
        with reading(self.engine) as connection:
            rows = connection.execute(select(workers).order_by(workers.c.started_at, workers.c.name)).all()
        return [WorkerRecord(**row._mapping) for row in rows]
