"""Keeps a Mac awake while there is work, and only then: `caffeinate`, which ends with this process whatever happens."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from types import TracebackType


class Caffeine:
    """Awake between `__enter__` and `__exit__`; on other systems, or without `caffeinate`, it does nothing."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> None:
        command = shutil.which("caffeinate") if sys.platform == "darwin" else None
        if command is not None:
            # -i: the machine does not sleep by itself; the display may. -w: until this process ends.
            self._process = subprocess.Popen([command, "-i", "-w", str(os.getpid())], stdin=subprocess.DEVNULL)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None
