"""End with the process that started us: a supervisor that was killed leaves nothing behind."""

from __future__ import annotations

import os
import signal
import threading
import time

CHECK_EVERY_S = 1.0


def end_with_parent(parent_pid: int | None) -> None:
    """
    Send this process SIGTERM once *parent_pid* is no longer its parent; do nothing for None.

    The kernel's own parent-death signal would need a hook between fork and exec and exists on Linux only.
    """
    if parent_pid is not None:
        threading.Thread(target=_watch, args=(parent_pid,), name="parent", daemon=True).start()


def _watch(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(CHECK_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)
