"""What a worker calls itself in the store: `<machine>/<pid>-<random>`."""

from __future__ import annotations

import os
import re
import secrets
import socket
from pathlib import Path


def machine_name(home: Path) -> str:
    """
    This home's name among all that share a store, written down at first use.

    A host's own name is not enough: a Mac changes it with the network, and the claims of before would stay lost.
    """
    path = home / "machine"
    if not path.exists():
        host = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().lower()).strip("-")[:40] or "host"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(f"{host}-{secrets.token_hex(3)}\n", "ascii")
    return path.read_text("ascii").strip()


def worker_name(machine: str) -> str:
    """New for each process, so that one killed a moment ago is never in its way."""
    return f"{machine}/{os.getpid()}-{secrets.token_hex(3)}"
