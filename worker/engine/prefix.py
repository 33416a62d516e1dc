"""
Beginnings that prompts of one cell share, as a system prompt or an instruction: read once.

Of each cell stay the context of its last request, and copies at the lengths at which two of its prompts parted. A
request starts from whichever has the longest beginning in common with its prompt, and reads only the rest. It starts
from a copy, or takes the last context for itself: nothing that is kept is written to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from worker.engine.context import Context
from worker.engine.model import Model

#: Fewer tokens are not worth a copy.
LEAST_TOKENS = 16
#: Copies of one cell, beside its last context.
MOST_COPIES = 4


@dataclasses.dataclass(frozen=True)
class Held:
    """Strictly read-only. Tokens that were read, and the shortest length to which that reading can be rewound."""

    tokens: Sequence[int]
    earliest: int
    #: Whether it is a copy, which stays, and not the last context.
    stays: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Strictly read-only. How to read a prompt."""

    #: Which of those held to begin with; None where none is worth it.
    source: int | None
    #: How many of the prompt's tokens it has read.
    reused: int
    #: The length at which to keep a copy for later prompts, `reused` or more.
    keep_at: int | None


def plan(ids: Sequence[int], held: Sequence[Held]) -> Plan:
    """How to read *ids* where *held* was read before."""
    shared = [common(ids, one.tokens) for one in held]
    usable = [length if length >= one.earliest else 0 for length, one in zip(shared, held, strict=True)]
    reused = max(usable, default=0)
    staying = max((length for length, one in zip(usable, held, strict=True) if one.stays), default=0)
    longest = max(shared, default=0)
    worthwhile = reused >= LEAST_TOKENS
    return Plan(
        source=usable.index(reused) if worthwhile else None,
        reused=reused if worthwhile else 0,
        keep_at=longest if longest - staying >= LEAST_TOKENS else None,
    )


def common(ids: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens the two begin with in common."""
    pairs = enumerate(zip(ids, others, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(ids), len(others)))


class Opening:
    """A prompt's context, which has read the first `reused` of *ids* already."""

    def __init__(self, context: Context, ids: Sequence[int], keep_at: int | None, keep: Callable[[Context], None]):
        self.context = context
        self.reused = len(context)
        self._ids = ids
        self._keep_at = keep_at
        self._keep = keep

    def read(self, interrupted: Callable[[], bool]) -> bool:
        """Read the rest in chunks, asking *interrupted* between them; whether all was read."""
        if self._keep_at is not None:
            if not self.context.read_on(self._ids[self.reused : self._keep_at], interrupted):
                return False
            self._keep(self.context)
        return self.context.read_on(self._ids[len(self.context) :], interrupted)


@dataclasses.dataclass(frozen=True, eq=False)
class Kept:
    """Strictly read-only. A context of *cell*."""

    cell: str
    context: Context
    stays: bool


class Prefixes:
    """What is kept for all cells of *target*: *room_bytes()* at most, and what was used longest ago goes first."""

    def __init__(self, target: Model, room_bytes: Callable[[], int]) -> None:
        self._target = target
        self._room_bytes = room_bytes
        # In the order of their last use.
        self._kept: list[Kept] = []

    def of(self, cell: str) -> CellPrefixes:
        """What *cell* may use: nothing of another's."""
        return CellPrefixes(self, cell)

    @property
    def held_bytes(self) -> int:
        return sum(kept.context.held_bytes for kept in self._kept)

    def open(self, cell: str, ids: Sequence[int]) -> Opening:
        """Begin to read *ids*, a prompt of *cell*."""
        mine = [kept for kept in self._kept if kept.cell == cell]
        held = [Held(kept.context.tokens, kept.context.earliest, kept.stays) for kept in mine]
        chosen = plan(ids, held)
        # The last context is this request's, or makes room for it.
        self._kept = [kept for kept in self._kept if kept.cell != cell or kept.stays]
        context = Context(self._target)
        if chosen.source is not None:
            source = mine[chosen.source]
            context = source.context
            if source.stays:
                self._kept.remove(source)
                self._kept.append(source)
                context = context.copy()
            context.rewind(chosen.reused)
        return Opening(context, ids, chosen.keep_at, lambda read: self._keep(cell, read))

    def close(self, cell: str, context: Context) -> None:
        """Keep *context*, which its request is done with, until the next request of *cell*."""
        self._add(Kept(cell, context, stays=False))

    def _keep(self, cell: str, read: Context) -> None:
        copies = [kept for kept in self._kept if kept.cell == cell and kept.stays]
        for oldest in copies[: len(copies) - MOST_COPIES + 1]:
            self._kept.remove(oldest)
        self._add(Kept(cell, read.copy(), stays=True))

    def _add(self, kept: Kept) -> None:
        """Keep one more, and as much of the others as there is room for."""
        room_bytes = self._room_bytes()
        if not kept.context.copyable or kept.context.held_bytes > room_bytes:
            return
        if kept.stays:
            kept.context.compact()
        self._kept.append(kept)
        while self.held_bytes > room_bytes:
            del self._kept[0]


@dataclasses.dataclass(frozen=True)
class CellPrefixes:
    """The part of *prefixes* that belongs to *cell*."""

    prefixes: Prefixes
    cell: str

    def open(self, ids: Sequence[int]) -> Opening:
        """Begin to read *ids*."""
        return self.prefixes.open(self.cell, ids)

    def close(self, context: Context) -> None:
        """Keep *context*, which its request is done with, until the next."""
        self.prefixes.close(self.cell, context)


def forgetful(target: Model) -> CellPrefixes:
    """Nothing is kept: every prompt is read whole."""
    return Prefixes(target, lambda: 0).of("")
