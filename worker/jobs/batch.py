"""Results of one cell that run together: claimed one by one, committed one by one, and replaced as they end."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, Protocol

import structlog

from db.errors import NockaError
from db.records import Claim
from db.specs import CellSpec
from db.store import Store
from worker.engine.batch import Ended
from worker.engine.cost import Costs
from worker.engine.energy import Meter, Window
from worker.engine.rows import Sized, from_calibration
from worker.engine.values import Generation, Request
from worker.jobs.generation import request

#: Context at which a calibration is asked how many rows pay.
CONTEXT_TOKENS = 512

#: A batch that ends has ever fewer rows, so it goes on for longer than a slice; what is more urgent ends it before.
BATCH_S = 600.0

log = structlog.get_logger("worker")


class Decodes(Protocol):
    """As `worker.engine.batch.Batch`."""

    size: int
    config: dict[str, Any]

    def __len__(self) -> int: ...

    def admits(self, request: Request) -> bool: ...

    def add(self, request: Request, interrupted: Callable[[], bool]) -> int | None: ...

    def step(self) -> list[Ended]: ...

    def drop(self, ticket: int) -> None: ...

    def close(self) -> None: ...


class Desk(Protocol):
    """As `worker.jobs.slice.Shift`."""

    meter: Meter

    def another(self, like: Claim) -> Claim | None: ...

    def interrupt(self, claim: Claim) -> Callable[[], bool]: ...

    def commit(self, claim: Claim, generation: Generation, config: dict[str, Any], took_s: float) -> None: ...

    def give_back(self, claim: Claim) -> None: ...

    def fail(self, claim: Claim, error: Exception) -> None: ...

    def alone(self, claim: Claim, why: str) -> None: ...


def rows_of(cell: CellSpec, store: Store, machine: str) -> Sized | None:
    """How many results of *cell* to run at once; None where that has to be measured."""
    if cell.batch != 0:
        return Sized(rows=cell.batch, why="asked for")
    for _, where, figures in store.calibrations_of(cell.target):
        if where == machine:
            return from_calibration(Costs.from_json(figures["costs"]), CONTEXT_TOKENS)
    return None


def run(first: Claim, batch: Decodes, desk: Desk) -> None:
    """Run *first* and whatever joins it, until nothing does and all have ended."""
    together = Together(batch, desk)
    ends_at = time.monotonic() + BATCH_S
    waiting: Claim | None = first
    asking = True
    while waiting is not None or asking or together.held:
        if waiting is None and asking and len(together.held) < batch.size:
            waiting = desk.another(first) if time.monotonic() < ends_at else None
            asking = waiting is not None
        if waiting is not None and not together.held and waiting.attempt > 1:
            # A worker may have died of it: nobody else is to die with them.
            desk.alone(waiting, "it was tried before, so it runs by itself")
            waiting, asking = None, True
        elif waiting is not None and waiting.attempt == 1 and together.take(waiting):
            waiting = None
        else:
            asking |= together.step()
    batch.close()


@dataclasses.dataclass(frozen=True)
class Held:
    """A claim in the batch."""

    claim: Claim
    interrupted: Callable[[], bool]
    began_at: float
    window: Window


class Together:
    """The claims in a batch, by ticket."""

    def __init__(self, batch: Decodes, desk: Desk) -> None:
        self._batch = batch
        self._desk = desk
        self.held: dict[int, Held] = {}

    def take(self, claim: Claim) -> bool:
        """Let *claim* join, or end it where it cannot be read; False where there is no room for it yet."""
        held = Held(claim, self._desk.interrupt(claim), time.monotonic(), self._desk.meter.open())
        try:
            asked = request(claim)
            if not self._batch.admits(asked):
                return False
            ticket = self._batch.add(asked, held.interrupted)
        except NockaError:  # the store's own trouble, not the item's
            raise
        except Exception as error:  # one item never harms the others
            self._desk.fail(claim, error)
            return True
        if ticket is None:
            self._desk.give_back(claim)
        else:
            self.held[ticket] = held
        return True

    def step(self) -> bool:
        """One token for every row; whether a place became free."""
        before = len(self.held)
        for ticket, held in list(self.held.items()):
            if held.interrupted():
                self._batch.drop(ticket)
                self._desk.give_back(self.held.pop(ticket).claim)
        try:
            ended = self._batch.step()
        except Exception as error:  # whoever is to blame: by itself it will fail by itself
            log.error("a batch failed, its items run one by one", items=len(self.held), kind=type(error).__name__)
            self._apart()
            return True
        for one in ended:
            self._settle(self.held.pop(one.ticket), one.outcome)
        return len(self.held) < before

    def _settle(self, held: Held, outcome: Generation | Exception) -> None:
        if isinstance(outcome, Exception):
            self._desk.fail(held.claim, outcome)
        else:
            took_s = time.monotonic() - held.began_at
            own_s = outcome.metrics.prefill_s + outcome.metrics.decode_s
            measured = held.window.measured(outcome, min(1.0, own_s / took_s))
            self._desk.commit(held.claim, measured, self._batch.config, took_s)

    def _apart(self) -> None:
        for ticket, held in list(self.held.items()):
            self._batch.drop(ticket)
            del self.held[ticket]
            self._desk.alone(held.claim, "the batch that it was in failed")
