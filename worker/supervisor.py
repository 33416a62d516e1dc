"""
Keeps a broker and a worker alive: `python -P -m worker.supervisor`, which is what `nocka up` runs.

Holds no model and no store, so nothing that kills the worker (Metal aborts a process that is out of memory) reaches it.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

import structlog

from db.errors import NockaError
from db.settings import Settings, load_settings
from worker import crash, logs
from worker.blas import worker_environment
from worker.lock import exclusive

RESTART_AFTER_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
#: A child that lived this long has recovered from whatever killed the ones before it.
HEALTHY_AFTER_S = 60.0
#: How long a worker may take to hand its item back; it may be loading a model.
DRAIN_S = 20.0
END_S = 15.0
BROKER_READY_S = 5.0
TICK_S = 0.1

log = structlog.get_logger("supervisor")


class Child:
    """One process that is started again whenever it ends; with *crash_dir*, word of each death is left there."""

    def __init__(
        self, name: str, command: Sequence[str], environ: Mapping[str, str], crash_dir: Path | None = None
    ) -> None:
        self.name = name
        self._command = command
        self._environ = environ
        self._crash_dir = crash_dir
        self._tail: crash.Tail | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._start_at = 0.0
        self._deaths = 0

    def tend(self, now_s: float) -> None:
        """Start the process when it is due, and note its death. *now_s* is monotonic."""
        if self._process is None:
            if now_s >= self._start_at:
                self.start(now_s)
        elif (code := self._process.poll()) is not None:
            self._process = None
            if code == 0:  # it ended by its own will, as a worker does that has worked enough
                self.start(now_s)
                return
            self._deaths = 0 if now_s - self._started_at >= HEALTHY_AFTER_S else self._deaths
            wait_s = RESTART_AFTER_S[min(self._deaths, len(RESTART_AFTER_S) - 1)]
            self._deaths += 1
            self._start_at = now_s + wait_s
            log.warning(f"{self.name} ended and is started again", cause=cause_of(code), in_s=wait_s)
            if self._crash_dir is not None and self._tail is not None:
                crash.write(self._crash_dir, cause_of(code), self._tail.last_lines())

    def start(self, now_s: float) -> None:
        """Start the process now."""
        self._process = subprocess.Popen(
            [*self._command, "--parent", str(os.getpid())],
            env=dict(self._environ),
            stdin=subprocess.DEVNULL,
            stderr=None if self._crash_dir is None else subprocess.PIPE,
            # A terminal's Ctrl-C comes to the supervisor alone, which ends its children in order.
            start_new_session=True,
        )
        self._tail = None if self._process.stderr is None else crash.Tail(self._process.stderr)
        self._started_at = now_s
        log.info(f"{self.name} started", pid=self._process.pid)

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        if self._process is not None:
            self._process.terminate()

    def ended(self, within_s: float) -> bool:
        """Whether it is gone, waited for."""
        if self._process is None:
            return True
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        if self._tail is not None:
            self._tail.last_lines()  # so that its last words are out before the supervisor's own
        return True

    def kill(self) -> None:
        """End it without asking."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def cause_of(code: int) -> str:
    """An exit code in words: `exit code 1`, `SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


@dataclasses.dataclass
class _Asked:
    """How often a signal asked the supervisor to end."""

    times: int = 0

    def handle(self, signum: int, frame: FrameType | None) -> None:
        self.times += 1


def supervise(settings: Settings, worker_arguments: Sequence[str] = ("-m", "worker")) -> None:
    """
    Run until a signal; then drain the worker and stop the broker. A second signal does not wait for the drain.

    *worker_arguments* say to Python what the worker is.
    """
    asked = _Asked()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, asked.handle)
    python = [sys.executable, "-P"]
    broker = Child("broker", [*python, "-m", "worker.broker"], os.environ) if settings.embedded_broker else None
    worker = Child("worker", [*python, *worker_arguments], worker_environment(os.environ), settings.log_dir)
    if broker is not None:
        broker.start(time.monotonic())
        _await_socket(settings, asked)
    children = [child for child in (broker, worker) if child is not None]
    while not asked.times:
        for child in children:
            child.tend(time.monotonic())
        time.sleep(TICK_S)
    log.info("draining: the running item is handed back; once more to stop at once")
    _end_worker(worker, asked)
    if broker is not None:
        broker.ask_to_end()
        if not broker.ended(END_S):
            broker.kill()
    log.info("stopped")


def _await_socket(settings: Settings, asked: _Asked) -> None:
    """Give the broker a moment, so that the worker does not begin by reporting it missing."""
    deadline = time.monotonic() + BROKER_READY_S
    while not settings.broker_socket.exists() and not asked.times and time.monotonic() < deadline:
        time.sleep(TICK_S)


def _end_worker(worker: Child, asked: _Asked) -> None:
    """Ask, ask again after a while or when asked again, and then end it."""
    worker.ask_to_end()
    deadline, before = time.monotonic() + DRAIN_S, asked.times
    while time.monotonic() < deadline and asked.times == before:
        if worker.ended(TICK_S):
            return
    worker.ask_to_end()
    if not worker.ended(2.0):
        worker.kill()


def main() -> int:
    """Supervise until a signal: 0, or 1 when another supervisor already does."""
    logs.configure()
    try:
        settings = load_settings()
        logs.configure(json_lines=settings.json_logs, file=settings.log_dir / "supervisor.log")
        with exclusive(settings.home / "supervisor.lock", "supervisor"):
            in_home = settings.database_url.startswith("sqlite")  # any other URL may hold a password
            database = settings.database_url if in_home else "another server"
            log.info("nocka is up, Ctrl-C drains and stops", home=str(settings.home), database=database)
            supervise(settings)
    except NockaError as error:
        log.error(str(error), code=error.code)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
