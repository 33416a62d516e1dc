"""Joules, where the machine can tell: through `zeus`, from Apple silicon's own counters or from RAPL."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from worker.engine.conditions import Conditions, conditions
from worker.engine.values import Generation

#: What an Apple chip is made of, as zeus names it; the rest that it tells is part of these.
APPLE_PARTS = ("cpu_total_mj", "gpu_mj", "gpu_sram_mj", "ane_mj", "dram_mj")
#: How long the machine must have been idle for its power to be believed, and the longest wait that is idleness.
IDLE_S, WAIT_S = 3.0, 2.0


class Counter(Protocol):
    """Counts what the machine uses."""

    def joules(self) -> float:
        """Since some moment; never falls."""


class NoCounter(Exception):
    """Why this machine does not tell what it uses."""


def open_counter() -> Counter:
    """This machine's counter. Raises NoCounter."""
    try:
        import zeus.device.cpu.rapl as rapl
        import zeus.device.soc as soc
        from zeus.exception import ZeusBaseError
    except ImportError as error:
        raise NoCounter(f"zeus is not installed ({error}): pip install 'nocka[energy]'") from error
    try:
        if sys.platform == "darwin":
            return Apple(soc.get_soc())
        return Rapl([Zone(Path(each.energy_uj_path), int(each.max_energy_range_uj)) for each in _files(rapl)])
    except (ZeusBaseError, OSError, AttributeError) as error:
        raise NoCounter(str(error) or type(error).__name__) from error


class Apple:
    """The chip of a Mac: processors, graphics, memory. Nobody needs to be root."""

    def __init__(self, soc: Any) -> None:
        self._soc = soc
        if not any(getattr(soc.get_total_energy_consumption(), part) is not None for part in APPLE_PARTS):
            raise NoCounter("this chip tells of none of its parts what they use")

    def joules(self) -> float:
        used = self._soc.get_total_energy_consumption()
        return sum(getattr(used, part) or 0 for part in APPLE_PARTS) / 1000


@dataclasses.dataclass(frozen=True)
class Zone:
    """Strictly read-only. A counter of microjoules, which begins anew after *range_uj*."""

    path: Path
    range_uj: int

    def read_uj(self) -> int:
        return int(self.path.read_text(encoding="ascii"))


class Rapl:
    """All processors and their memory. Read at least once in the half hour or more in which a counter goes round.

    zeus would read each counter with a process of its own, which outlives a worker that is killed.
    """

    def __init__(self, zones: Sequence[Zone]) -> None:
        self._zones = zones
        self._last_uj = [zone.read_uj() for zone in zones]
        self._used_uj = 0

    def joules(self) -> float:
        now_uj = [zone.read_uj() for zone in self._zones]
        for zone, last_uj, read_uj in zip(self._zones, self._last_uj, now_uj, strict=True):
            self._used_uj += (read_uj - last_uj) % zone.range_uj
        self._last_uj = now_uj
        return self._used_uj / 1e6


class Meter:
    """Measures generations, and what the machine takes while it waits. Without a counter it tells nothing of either."""

    def __init__(self, counter: Counter | None, conditions: Callable[[], Conditions] = conditions) -> None:
        self._counter = counter
        self._conditions = conditions
        self._idle_from: tuple[float, float] | None = None
        self._idle_to_s = 0.0
        #: The least that it took in any few seconds of waiting; None where that is not known yet.
        self.idle_w: float | None = None

    def open(self) -> Window:
        """Begin to measure a generation."""
        return Window(self, self._joules())

    def rest(self, now_s: float) -> None:
        """Note that the worker did nothing but wait up to now. *now_s* is monotonic."""
        used_j = self._joules()
        if used_j is None:
            return
        if self._idle_from is None or now_s - self._idle_to_s > WAIT_S:
            self._idle_from = now_s, used_j
        self._idle_to_s = now_s
        since_s, since_j = self._idle_from
        if now_s - since_s >= IDLE_S:
            watts = (used_j - since_j) / (now_s - since_s)
            self.idle_w = watts if self.idle_w is None else min(watts, self.idle_w)
            self._idle_from = now_s, used_j

    def measured(self, generation: Generation, began_j: float | None, share: float) -> Generation:
        """*generation* with what it took since *began_j*, of which *share* was its own, and how the machine was."""
        now_j, found = self._joules(), self._conditions()
        metrics = dataclasses.replace(
            generation.metrics,
            energy_j=None if now_j is None or began_j is None else (now_j - began_j) * share,
            idle_w=self.idle_w,
            thermal=found.thermal,
            low_power=found.low_power,
        )
        return dataclasses.replace(generation, metrics=metrics)

    def _joules(self) -> float | None:
        return None if self._counter is None else self._counter.joules()


@dataclasses.dataclass(frozen=True)
class Window:
    """Strictly read-only. Measures one generation with *meter*."""

    meter: Meter
    began_j: float | None

    def measured(self, generation: Generation, share: float = 1.0) -> Generation:
        """*generation* with its energy. *share* of the time was its own, not that of others beside it."""
        return self.meter.measured(generation, self.began_j, share)


def _files(rapl: Any) -> list[Any]:
    """zeus's files of every processor and its memory, where it has a counter of its own."""
    return [file for cpu in rapl.RAPLCPUs().cpus for file in (cpu.rapl_file, cpu.dram) if file is not None]
