"""`nocka db` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

from db.connect import connect
from db.migrations import HEAD
from db.store import Store
from tests.api_cli.conftest import Nocka


def test_a_copy_is_made_checked_and_named(nocka: Nocka, reports: Path, isolated_environment: Path) -> None:
    """Its path goes to standard output, for a script."""
    assert nocka("db", "check").exit_code == 1
    nocka("submit", reports, "--target", "mini-target")
    path = Path(nocka("db", "backup").stdout.strip())
    assert path.parent == isolated_environment / "backups"
    copy = connect(f"sqlite:///{path}")
    assert Store(copy).job("last").counts.waiting == 3
    copy.dispose()
    assert json.loads(nocka("db", "check", "--json").stdout) == {"sound": True, "problems": []}
    assert nocka("db", "vacuum").exit_code == 0
    again = nocka("db", "backup", path)
    assert again.exit_code == 1 and "left alone" in again.stderr


def test_upgrade_says_what_it_found(nocka: Nocka, isolated_environment: Path) -> None:
    """A missing database is made, the newest is left alone."""
    assert nocka("db", "upgrade").stdout == f"The schema is {HEAD} now; it was not there.\n"
    assert nocka("db", "upgrade").stdout == f"The schema is {HEAD}, the newest.\n"


def test_damage_ends_with_1(nocka: Nocka, isolated_environment: Path) -> None:
    """And says what it is."""
    isolated_environment.mkdir()
    (isolated_environment / "nocka.db").write_bytes(b"nothing of the kind" * 1000)
    result = nocka("db", "check")
    assert result.exit_code == 1
    assert "not a database" in result.stderr
