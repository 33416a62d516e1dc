"""How much memory models and caches may take on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import mlx.core as mx

#: Of a machine without a GPU's own limit; as the catalogue does.
USABLE_SHARE = 0.75


def allowed_bytes() -> int:
    """What models and caches may take here: what Metal recommends, else three quarters of the memory."""
    if mx.metal.is_available():
        return int(mx.device_info()["max_recommended_working_set_size"])
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(min(physical, _container_limit() or physical) * USABLE_SHARE)


def _container_limit() -> int | None:
    """What a container may take; None outside one."""
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
