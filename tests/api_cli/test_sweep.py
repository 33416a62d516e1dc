"""`nocka sweep` from the command line to scored answers in the store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from api_cli.cli import cli
from api_cli.client import Client
from db.settings import load_settings
from db.status import JobState
from tests.worker.echo import EchoModels, Journal
from worker.jobs.slice import Shift

GRID = """
name = "próba"
targets = ["mini-target"]
drafts = ["mini-draft-bytes"]
k = [2]
data = ["questions", "structured"]
limit = 2
max_tokens = 8
scorers = ["contains", "length"]
"""


class NoWakeups:
    """The test itself is the wake-up."""

    def ensure(self, job_id: str) -> None: ...


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    file = tmp_path / "grid.toml"
    file.write_text(GRID, "utf-8")
    return file


def nocka(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["sweep", *arguments])


def work(client: Client) -> int:
    return Shift(client.store, EchoModels(client.settings.home), NoWakeups(), "here/1-a").advance()  # type: ignore[arg-type]


def test_a_grid_trusts_the_models_that_it_names(grid: Path) -> None:
    """In its file or by the option, each in the cells that use it; one that no cell uses is a fault."""
    grid.write_text('trust_remote_code = ["mini-draft-bytes"]\n' + GRID, "utf-8")
    in_file = nocka(str(grid)).stdout.strip()
    by_option = nocka(str(grid), "--trust-remote-code", "mini-target").stdout.strip()

    with Client.open() as client:
        assert [(), ("mini-draft-bytes",)] == [cell.trust_remote_code for cell in client.cells(in_file)]
        assert [("mini-target",)] * 2 == [cell.trust_remote_code for cell in client.cells(by_option)]
    refused = nocka(str(grid), "--trust-remote-code", "mini-draft")
    assert (2, True) == (refused.exit_code, "--trust-remote-code mini-draft" in refused.stderr)


def test_a_grid_becomes_scored_answers_and_grows_by_a_k(grid: Path) -> None:
    """Two cells of four items; then one more cell with its baseline, and what was there is not run again."""
    job_id = nocka(str(grid)).stdout.strip()
    with Client.open() as client:
        assert 8 == work(client)
        results = list(client.results(job_id))
        assert ["plain", "cross context k=2 mini-draft-bytes"] * 4 == [one.cell_label for one in results]
        assert {("questions", "question"), ("structured", "structured")} == {
            (one.item.dataset, one.item.content_kind) for one in results if one.item
        }
        assert all({"contains", "length"} <= one.scores.keys() for one in results)
        assert [None, 1.0] * 4 == [one.scores.get("same_as_plain") for one in results]

        added = nocka(str(grid), "--k", "2", "--k", "4", "--add-to", "last")
        assert (0, job_id) == (added.exit_code, added.stdout.strip()), added.output
        assert 8 == work(client)
        assert ["plain", "cross context k=2 mini-draft-bytes", "plain", "cross context k=4 mini-draft-bytes"] == [
            cell.label for cell in client.cells(job_id)
        ]
        assert JobState.DONE is client.status(job_id).state
        assert 16 == Journal(client.settings.home).count("end")

        again = nocka(str(grid), "--k", "4", "--add-to", job_id)
        assert "has all of these cells already" in again.stderr
        assert 0 == work(client)


def test_a_dry_run_says_what_would_run_and_stores_nothing(grid: Path) -> None:
    """Cells, items, loads and hours, as JSON too."""
    plan = json.loads(nocka(str(grid), "--dry-run", "--json", "--limit", "3").stdout)

    assert (6, 12, 2, None) == (plan["items"], plan["results"], plan["model_loads"], plan["estimated_hours"])
    with Client.open() as client:
        assert [] == client.jobs()


def test_hours_are_estimated_once_the_target_was_measured_here(grid: Path) -> None:
    """By its own plain answers."""
    nocka(str(grid))
    with Client.open() as client:
        work(client)
    plan = json.loads(nocka(str(grid), "--dry-run", "--json").stdout)

    assert plan["estimated_hours"] > 0


def test_a_preset_is_a_file_to_copy(tmp_path: Path) -> None:
    """Printed as it ships, and the copy is the same sweep."""
    printed = nocka("--preset", "paper-mini", "--print").stdout
    copy = tmp_path / "copy.toml"
    copy.write_text(printed, "utf-8")

    assert nocka("--preset", "paper-mini", "--dry-run").stdout == nocka(str(copy), "--dry-run").stdout
    assert 24 == len(nocka(str(copy), "--dry-run").stdout.splitlines())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("limit = 2", "limt = 2"), "limt: no such key. Did you mean limit?"),
        (('"mini-target"', '"mini-taget"'), "Did you mean mini-target"),
        (('"questions", ', '"nowhere.jsonl", '), "nowhere.jsonl"),
        (('"length"', '"lenght"'), "no scorer 'lenght'"),
    ],
)
def test_nothing_is_queued_when_anything_is_wrong(grid: Path, change: tuple[str, str], said: str) -> None:
    """Exit code 2, and the fault by name."""
    grid.write_text(GRID.replace(*change), "utf-8")
    refused = nocka(str(grid))

    assert (2, True) == (refused.exit_code, said in refused.stderr), refused.output
    with Client.open(load_settings()) as client:
        assert [] == client.jobs()


def test_options_alone_are_a_grid() -> None:
    """Without a file."""
    asked = ("--target", "mini-target", "--drafter", "lookup", "--drafter", "suffix", "--data", "questions")
    said = nocka(*asked, "--limit", "1", "--dry-run")

    assert ["plain", "lookup k=16", "suffix k=16"] == said.stdout.splitlines(), said.output
    assert 2 == nocka("--target", "mini-target").exit_code
