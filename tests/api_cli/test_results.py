"""`nocka results`, `show`, `status`, `watch`, `cancel`, `retry` as a person types them."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

from db.records import Claim, Finished
from db.specs import DrafterKind
from tests.api_cli.conftest import Nocka, PlayedWorker, drafted, finished

MINI = ("--target", "mini-target")


def evaluated(claim: Claim) -> Finished | tuple[str, str]:
    """Item 1: equal and faster; item 2: another text; item 3: fails. The text is hostile to terminals."""
    if claim.item.custom_id == "raport-3.txt":
        return "prompt_too_long", "5000 tokens are too many"
    text = "Ala \x1b[31mma\x9b kota\u202e | [bold]\ndrugi wiersz"
    if claim.cell.drafter is DrafterKind.OFF:
        return finished(text, 20.0)
    return drafted(text if claim.item.custom_id == "raport-1.txt" else "coś innego", 30.0, proposed=10, accepted=4)


@pytest.fixture
def evaluation(nocka: Nocka, reports: Path, worker: PlayedWorker) -> str:
    submitted = nocka("submit", reports, *MINI, "--draft", "mini-draft-bytes", "--k", 2, "--compare-plain")
    assert worker.end(evaluated) == 6
    return submitted.stdout.strip()


def test_the_table_holds_every_cell_against_plain(nocka: Nocka, evaluation: str) -> None:
    """`=` where the texts are equal, `≠` where not, with the speed; the summary counts."""
    result = nocka("results")
    rows = result.stdout.splitlines()

    assert next(row for row in rows if "= 1.50×" in row).split()[0] == "cross"
    assert any("≠ 1.50×" in row for row in rows)
    said = "same text as plain in 1 of 2 (0 near-tie, 1 DIFFERENT), acceptance 40 %, 1.50× the speed of plain"
    assert said in result.stdout
    assert "prompt_too_long: 5000 tokens" in result.stdout
    assert max(map(len, rows[:8])) <= 100


@pytest.mark.parametrize("command", [("results",), ("show", "last", "raport-1.txt"), ("results", "--format", "md")])
def test_a_models_text_cannot_touch_the_terminal(nocka: Nocka, evaluation: str, command: tuple[str, ...]) -> None:
    """Escapes, C1 and bidirectional controls are written out, and Rich's markup is text."""
    shown = nocka(*command).stdout

    assert not {"\x1b", "\x9b", "\u202e"} & set(shown)
    assert "x1b[31mma" in shown
    assert command == ("results",) or "[bold]" in shown


def test_jsonl_is_openais_output(nocka: Nocka, evaluation: str) -> None:
    """F10: what failed has no response and an error; every line parses and its text is exact."""
    written = nocka("results", "--format", "jsonl").stdout
    lines = [json.loads(line) for line in written.splitlines()]

    assert not {"\x1b", "\x9b", "\u202e"} & set(written)
    assert len(lines) == 6
    body = lines[0]["response"]["body"]
    assert lines[0]["error"] is None
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"]["content"] == "Ala \x1b[31mma\x9b kota\u202e | [bold]\ndrugi wiersz"
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 10, "total_tokens": 15}
    assert [line["nocka"]["drafter"] for line in lines[:2]] == ["off", "cross"]
    failed = [line for line in lines if line["custom_id"] == "raport-3.txt"]
    assert all(line["response"] is None and line["error"]["code"] == "prompt_too_long" for line in failed)


def test_a_cancelled_result_is_an_error_line_and_a_waiting_one_is_none(nocka: Nocka, reports: Path) -> None:
    """Partial results can be read at any time."""
    nocka("submit", reports, *MINI)
    before = nocka("results", "--format", "jsonl")
    cancelled = nocka("cancel", "last")
    lines = [json.loads(line) for line in nocka("results", "--format", "jsonl").stdout.splitlines()]

    assert (before.stdout, cancelled.exit_code) == ("", 0)
    assert "Not finished yet" in before.stderr
    assert [line["error"]["code"] for line in lines] == ["cancelled"] * 3


def test_csv_keeps_every_text_exact(nocka: Nocka, evaluation: str, tmp_path: Path) -> None:
    """In a pipe and in a file nothing is neutralised; a file appears whole, its format by its ending."""
    path = tmp_path / "out.csv"
    os.umask(0o022)

    assert nocka("results", "-o", path).exit_code == 0

    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["text"] == "Ala \x1b[31mma\x9b kota\u202e | [bold]\ndrugi wiersz"
    assert [row["same_as_plain"] for row in rows] == ["", "True", "", "False", "", ""]
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".out")] == []


def test_an_interrupted_write_leaves_the_old_file(
    nocka: Nocka, evaluation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reader meets half a file."""
    path = tmp_path / "out.jsonl"
    path.write_text("stary")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    result = nocka("results", "-o", path)

    assert (result.exit_code, path.read_text()) == (1, "stary")
    assert "No space left" in result.stderr
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".out")] == []


def test_show_has_prompt_answer_figures_and_error(nocka: Nocka, evaluation: str) -> None:
    """Once for each cell, and what failed says why."""
    shown = nocka("show", evaluation[:-2], "raport-2.txt").stdout
    failed = nocka("show", "last", "raport-3.txt").stdout

    for part in ("Treść raportu 2.", "coś innego", "tokens_per_s", "2/10/4", "NOT plain's text", '"nocka": "test"'):
        assert part in shown
    assert failed.count("prompt_too_long: 5000 tokens are too many") == 2


def test_status_counts_and_names_the_first_error(nocka: Nocka, evaluation: str) -> None:
    """For a person and for a program, exit code 0."""
    shown, status = nocka("status"), json.loads(nocka("status", evaluation, "--json").stdout)

    assert shown.exit_code == 0
    assert "4 of 6 done, 2 failed" in shown.stdout
    assert status["first_error"] == "raport-3.txt: prompt_too_long: 5000 tokens are too many"
    assert (status["counts"]["total"], status["state"], len(status["cells"])) == (6, "done", 2)
    assert status["tokens_per_s"] > 0


def test_retry_and_watch(nocka: Nocka, evaluation: str, worker: PlayedWorker) -> None:
    """Two results failed; run again they succeed, and watch ends with 0."""
    assert nocka("watch", evaluation).exit_code == 3
    assert json.loads(nocka("retry", "last", "--json").stdout)["retried"] == 2
    assert worker.end(lambda claim: finished("tak")) == 2
    assert nocka("watch", evaluation).exit_code == 0


def test_pause_resume_and_retry_of_one_kind(nocka: Nocka, reports: Path, worker: PlayedWorker) -> None:
    """A paused job is no one's work until it is resumed; `--failed` leaves the cancelled ones alone."""
    nocka("submit", reports, "--target", "mini-target")
    paused = nocka("pause", "last")
    assert "paused" in paused.stdout and "nocka resume" in paused.stderr
    assert "nocka resume" in nocka("status").stderr
    assert worker.end(lambda claim: finished("tak")) == 0

    assert json.loads(nocka("resume", "last", "--json").stdout)["state"] == "waiting"
    taken = worker.client.store.claim("test/1-a")
    assert taken is not None and worker.client.store.fail(taken, "generation_failed", "boom")
    nocka("cancel", "last")
    assert json.loads(nocka("retry", "last", "--failed", "--json").stdout)["retried"] == 1
    assert json.loads(nocka("retry", "last", "--expired", "--json").stdout)["retried"] == 0
    assert json.loads(nocka("retry", "last", "--json").stdout)["retried"] == 2


@pytest.mark.parametrize("command", ["status", "watch", "results", "cancel", "pause", "resume", "retry"])
def test_an_unknown_job_is_said(nocka: Nocka, command: str) -> None:
    """Exit code 1 and a sentence."""
    result = nocka(command, "20990101-0000")

    assert result.exit_code == 1
    assert result.stderr.startswith("nocka: ")


def test_cancelling_what_ended_is_refused(nocka: Nocka, evaluation: str) -> None:
    """A done job cannot be cancelled."""
    assert nocka("cancel", "last").exit_code == 1
