"""The design notes say what the code does: their tables are the code's, and every test they name exists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from db.status import JOB_TRANSITIONS, RESULT_TRANSITIONS, JobState, ResultState

ROOT = Path(__file__).parents[1]
JOBS = (ROOT / "docs" / "design" / "jobs.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("heading", "states", "transitions"),
    [("a job is", JobState, JOB_TRANSITIONS), ("a result is", ResultState, RESULT_TRANSITIONS)],
)
def test_the_table_of_states_is_the_codes(
    heading: str, states: type[JobState | ResultState], transitions: Mapping[str, frozenset[str]]
) -> None:
    """Every state has its row, with exactly the states that may follow."""
    table = JOBS.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    rows = re.findall(r"^\| (\w+) \|[^|]*\| ([^|]*) \|$", table, re.MULTILINE)
    names = {state.value for state in states}
    told = {state: set(re.findall(r"\w+", re.sub(r"\(.*?\)", "", targets))) & names for state, targets in rows}
    assert told == {state.value: {target.value for target in transitions[state]} for state in states}


def test_every_test_that_is_named_exists() -> None:
    """A promise names the test that keeps it."""
    files = re.findall(r"`(tests/[\w/]+\.py)`", JOBS)
    assert files
    assert [file for file in files if not (ROOT / file).is_file()] == []
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in re.findall(r"`(test_\w+)`", JOBS) if f"def {name}(" not in sources] == []
