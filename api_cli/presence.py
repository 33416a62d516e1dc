"""Whether a worker runs, as far as this machine can tell. Changes nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os

from db.errors import BrokerError
from db.settings import Settings


def local_worker(settings: Settings) -> int | None:
    """The process id of this home's worker; None where none runs."""
    try:
        descriptor = os.open(settings.lock_path, os.O_RDWR)
    except OSError:
        return None
    try:
        pid = int(os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or 0)
        # The lock is only tried when its holder seems to live, so that no starting worker meets it taken by us.
        return pid if pid > 0 and _alive(pid) and _held(descriptor) else None
    except ValueError:
        return None
    finally:
        os.close(descriptor)


def workers(settings: Settings) -> list[str]:
    """Every worker known: this home's, and under a shared broker those of other machines."""
    pid = local_worker(settings)
    found = [f"process {pid} on this machine"] if pid is not None else []
    if not settings.embedded_broker:
        from api_cli.enqueue import registered_workers  # RQ is slow to load

        with contextlib.suppress(BrokerError):
            found = registered_workers(settings) or found
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
