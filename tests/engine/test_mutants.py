"""The core tests can fail: each patch breaks the engine in one place, and is seen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The fast ones first: one failure is enough.
CORE = ("tests/engine/test_core_toys.py", "tests/engine/test_core.py")
PATCHES = sorted((Path(__file__).parent / "mutants").glob("*.patch"))


def run_core(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the core tests on the copy of the engine in *folder*."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *CORE]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the engine with its core tests, to be broken and mended."""
    folder = tmp_path_factory.mktemp("mutants")
    shutil.copytree(ROOT / "worker" / "engine", folder / "worker" / "engine")
    shutil.copytree(ROOT / "tests" / "engine", folder / "tests" / "engine")
    for name in ("worker/__init__.py", "pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "worker" / "mini").symlink_to(ROOT / "worker" / "mini")
    return folder


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_mutant_is_killed(clone: Path, patch: Path) -> None:
    """The core tests fail on the patched engine, by an assertion or an error of the engine, not for want of a file."""
    subprocess.run(["git", "apply", str(patch)], cwd=clone, check=True, timeout=30)
    try:
        outcome = run_core(clone)
    finally:
        subprocess.run(["git", "apply", "--reverse", str(patch)], cwd=clone, check=True, timeout=30)

    assert 1 == outcome.returncode, outcome.stdout[-2000:]
    assert "failed" in outcome.stdout and "error" not in outcome.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_unbroken_copy_passes(clone: Path) -> None:
    """Without a patch the same copy passes: the mutants die of their patch alone."""
    outcome = run_core(clone)

    assert 0 == outcome.returncode, outcome.stdout[-2000:]
