"""Every test gets its own home and none of the user's settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before transformers is imported: no test waits on a model hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def isolated_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A fresh NOCKA_HOME that does not exist yet, and no other NOCKA_ variable."""
    for name in [name for name in os.environ if name.startswith("NOCKA_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "nocka-home"
    monkeypatch.setenv("NOCKA_HOME", str(home))
    return home
