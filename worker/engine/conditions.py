"""How a Mac is doing: whether heat slows it down, and whether it saves power. Asked of its own tools."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time

#: So long what was asked is believed.
FRESH_S = 30.0
PRESSURE = "com.apple.system.thermalpressurelevel"
#: By the level that `notifyutil` prints.
PRESSURES = ("nominal", "moderate", "heavy", "trapping", "sleeping")


@dataclasses.dataclass(frozen=True)
class Conditions:
    """Strictly read-only. None: not known, or not a Mac."""

    #: One of PRESSURES; from `moderate` on the chip is slowed down.
    thermal: str | None = None
    low_power: bool | None = None


def thermal_pressure(text: str) -> str | None:
    """What `notifyutil -g` printed of PRESSURE."""
    for line in text.splitlines():
        name, _, level = line.strip().rpartition(" ")
        if name == PRESSURE and level.isdigit() and int(level) < len(PRESSURES):
            return PRESSURES[int(level)]
    return None


def low_power_mode(text: str) -> bool | None:
    """What `pmset -g` printed of it."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "lowpowermode" and words[1] in ("0", "1"):
            return words[1] == "1"
    return None


class Asking:
    """Asks at most every half minute."""

    def __init__(self) -> None:
        self._found = Conditions()
        self._ask_at = 0.0

    def __call__(self) -> Conditions:
        if sys.platform == "darwin" and time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + FRESH_S
            pressure, settings = _said("notifyutil", "-g", PRESSURE), _said("pmset", "-g")
            self._found = Conditions(thermal_pressure(pressure), low_power_mode(settings))
        return self._found


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=2, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


conditions = Asking()
