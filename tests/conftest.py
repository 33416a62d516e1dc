"""Every test gets its own home and none of the user's settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before transformers is imported: no test waits on a model hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def isolated_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A fresh NOCKA_HOME that does not exist yet, and no other NOCKA_ variable but those meant for the tests."""
    for name in list(os.environ):
        if name.startswith("NOCKA_") and not name.startswith("NOCKA_TEST_"):
            monkeypatch.delenv(name)
    home = tmp_path / "nocka-home"
    monkeypatch.setenv("NOCKA_HOME", str(home))
    return home
