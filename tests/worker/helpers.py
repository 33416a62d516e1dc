"""Processes that a test can watch, signal and kill."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class Process:
    """One child with its output in a file."""

    def __init__(self, name: str, command: list[str], output: Path, environ: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.output = output
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=output.parent,
                env={**(os.environ if environ is None else environ), "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}"},
            )
        self.pid = self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None while it lives."""
        return self._process.poll()

    def said(self, text: str) -> bool:
        return text in self.output.read_text("utf-8")

    def signal(self, signum: int) -> None:
        self._process.send_signal(signum)

    def wait(self, within_s: float = 30) -> int:
        return self._process.wait(within_s)

    def kill(self) -> None:
        if self.code is None:
            self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Ask, so that it ends its own children, and kill it when it does not."""
        if self.code is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        self.kill()


Start = Callable[..., Process]


def until(true: Callable[[], bool], within_s: float = 40.0) -> None:
    """Wait until *true*; fail after *within_s*."""
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.03)


def alive(pid: int) -> bool:
    """Whether a process that is no child of ours lives."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
