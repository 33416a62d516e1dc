"""Grams of n tokens, counted in bounded memory: full chunks are sorted, counted and written, then merged by blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.uint64]

#: Grams held before they are sorted and written; with what sorting takes, about 100 MB.
CHUNK_GRAMS = 2 << 20
#: Counted grams of all chunks that are merged at once.
BLOCK_GRAMS = 2 << 20


@dataclasses.dataclass(frozen=True, eq=False)
class Counted:
    """Different grams in ascending order, each with how often it occurred."""

    grams: Longs
    counts: Longs


class GramCounts:
    """Counts grams of *order* tokens, each of *bits* bits, the first token in the highest."""

    def __init__(self, order: int, bits: int, folder: Path) -> None:
        if order * bits > 64:
            raise ValueError(f"{order} tokens of {bits} bits do not fit into 64")
        self._order = order
        self._bits = np.uint64(bits)
        self._folder = folder
        self._held: list[Longs] = []
        self._held_grams = 0
        self._runs: list[Path] = []

    def add(self, ids: Longs) -> None:
        """Count the grams of one text."""
        count = len(ids) - self._order + 1
        if count < 1:
            return
        grams = ids[:count].copy()
        for at in range(1, self._order):
            grams = (grams << self._bits) | ids[at : at + count]
        self._held.append(grams)
        self._held_grams += count
        if self._held_grams >= CHUNK_GRAMS:
            self._write()

    def merged(self) -> Iterator[tuple[float, Counted]]:
        """Every gram once, in ascending blocks with how far they are (0..1); grams of one context stay together."""
        self._write()
        runs = [_mapped(path) for path in self._runs]
        total = sum(len(run.grams) for run in runs)
        step = max(1, BLOCK_GRAMS // max(1, len(runs)))
        merged, starts = 0, [0] * len(runs)
        while merged < total:
            bound = self._bound(runs, starts, step)
            ends = [len(run.grams) if bound is None else int(np.searchsorted(run.grams, bound)) for run in runs]
            parts = [(run, slice(start, end)) for run, start, end in zip(runs, starts, ends, strict=True)]
            starts = ends
            merged = sum(ends)
            yield (
                merged / total,
                _summed(
                    np.concatenate([run.grams[part] for run, part in parts]),
                    np.concatenate([run.counts[part] for run, part in parts]),
                ),
            )

    def _bound(self, runs: list[Counted], starts: list[int], step: int) -> Any:
        """The first gram of the context behind the next block, *step* of a run at least; None at the end."""
        nexts = [
            run.grams[start + step] for run, start in zip(runs, starts, strict=True) if start + step < len(run.grams)
        ]
        if not nexts:
            return None
        bits = int(self._bits)
        bound = ((int(min(nexts)) >> bits) + 1) << bits
        return np.uint64(bound) if bound < 1 << 64 else None

    def _write(self) -> None:
        if not self._held:
            return
        grams, counts = np.unique(np.concatenate(self._held), return_counts=True)
        path = self._folder / f"{self._order}-{len(self._runs)}"
        grams.tofile(path.with_suffix(".grams"))
        counts.astype(np.uint64).tofile(path.with_suffix(".counts"))
        self._runs.append(path)
        self._held, self._held_grams = [], 0


def _mapped(path: Path) -> Counted:
    return Counted(
        np.memmap(path.with_suffix(".grams"), dtype=np.uint64, mode="r"),
        np.memmap(path.with_suffix(".counts"), dtype=np.uint64, mode="r"),
    )


def _summed(grams: Longs, counts: Longs) -> Counted:
    """Each gram once, with the sum of its counts."""
    order = np.argsort(grams, kind="stable")
    grams = grams[order]
    firsts = np.flatnonzero(np.concatenate([[True], grams[1:] != grams[:-1]]))
    return Counted(grams[firsts], np.add.reduceat(counts[order], firsts))
