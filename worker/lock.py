"""One process per home for each role, held by `flock`: the kernel lets go when the process dies, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from db.errors import NockaError


class AlreadyRunning(NockaError):
    """Another process holds the lock."""

    code = "already_running"


@contextlib.contextmanager
def exclusive(path: Path, role: str, *, wait_s: float = 0.0) -> Iterator[int]:
    """
    Hold *path* for the length of the block and yield its file descriptor.

    A child that inherits the descriptor keeps the lock after its parent has gone. Raises `AlreadyRunning` when the
    lock is still taken after *wait_s*.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + wait_s
        while not _taken(descriptor):
            if time.monotonic() >= deadline:
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
                raise AlreadyRunning(
                    f"another {role} is already running here (process {holder}, {path})",
                    "Use that one, stop it first, or set NOCKA_HOME to another folder.",
                )
            time.sleep(0.05)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
