"""
How a worker died, told by its supervisor to the next one: `<home>/logs/last-crash.json`.

The store puts it beside an item that was put aside. Log lines hold no text of a document, so neither does this.
"""

from __future__ import annotations

import collections
import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

FILE = "last-crash.json"
#: What is kept of a dead worker's log.
LINES, LINE_CHARACTERS = 20, 300


class Tail:
    """Passes a process's log on to stderr and remembers its last lines."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._lines: collections.deque[str] = collections.deque(maxlen=LINES)
        self._thread = threading.Thread(target=self._pass_on, name="log", daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        with self._pipe:
            for line in self._pipe:
                os.write(sys.stderr.fileno(), line)
                self._lines.append(line.decode("utf-8", "replace").rstrip()[:LINE_CHARACTERS])

    def last_lines(self, within_s: float = 1.0) -> list[str]:
        """The last lines, once the process has closed its log; whatever came *within_s* where a child holds it open."""
        self._thread.join(within_s)
        return list(self._lines)


def write(log_dir: Path, cause: str, lines: Sequence[str]) -> None:
    """Leave word of a death, over the word of the one before."""
    log_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = log_dir / f"{FILE}.new"
    with open(unfinished, "w", encoding="utf-8", opener=_private) as file:
        json.dump({"cause": cause, "last_lines": list(lines)}, file, ensure_ascii=False, indent=1)
    unfinished.replace(log_dir / FILE)


def read(log_dir: Path) -> str | None:
    """The last death in words: its cause, then the log's last lines. None where nobody left word."""
    try:
        found = json.loads((log_dir / FILE).read_text("utf-8"))
        return "\n".join([found["cause"], *found["last_lines"]])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget(log_dir: Path) -> None:
    """Remove the word, once the store has it."""
    (log_dir / FILE).unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
