"""The commands as a person types them."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import click
import pytest
import redis

from api_cli.cli import cli
from api_cli.client import Client
from db.records import Claim, Finished
from db.specs import DrafterKind
from tests.api_cli.conftest import Nocka, PlayedWorker, drafted, finished

MINI = ("--target", "mini-target")


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "raporty"
    folder.mkdir()
    for number in range(1, 4):
        (folder / f"raport-{number}.txt").write_text(f"Treść raportu {number}.", encoding="utf-8")
    return folder


def every_command(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, command in group.commands.items():
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += every_command(command, (*path, name))
    return found


@pytest.mark.parametrize("command", [(), *every_command(cli)])
def test_every_command_explains_itself_with_an_example(nocka: Nocka, command: tuple[str, ...]) -> None:
    """--help ends with 0 and shows a line to type."""
    result = nocka(*command, "--help")

    assert result.exit_code == 0
    assert "Example" in result.stdout
    assert "nocka " in result.stdout


# -- submit -------------------------------------------------------------------------------------------------------


def test_submit_prints_the_id_and_stores_what_was_asked(broker: redis.Redis, nocka: Nocka, reports: Path) -> None:
    """Only the id goes to standard output; the spec is what the options say."""
    options = ["--draft", "mini-draft-bytes", "--max-tokens", 20, "--seed", 7, "--stop", "a", "--stop", "b"]

    result = nocka("submit", reports, "--prompt", "Streść: {text}", "--system", "Zwięźle.", *MINI, *options)

    assert result.exit_code == 0, result.stderr
    with Client.open() as client:
        job = client.status(result.stdout.strip())
        (cell,) = client.cells(job.id)
        first = next(client.results(job.id))
    assert (job.name, job.counts.waiting) == ("raporty", 3)
    assert cell.label == "cross context k=2 mini-draft-bytes"
    assert (cell.decoding.max_tokens, cell.decoding.seed, cell.decoding.stop) == (20, 7, ("a", "b"))
    assert first.item is not None
    assert [turn.content for turn in first.item.messages or ()] == ["Zwięźle.", "Streść: Treść raportu 1."]
    assert broker.llen("rq:queue:nocka") == 1


def test_submit_without_a_broker_is_safe(nocka: Nocka, reports: Path) -> None:
    """The job is stored, the person is told what starts it, and nothing failed."""
    result = nocka("submit", reports, *MINI)

    assert result.exit_code == 0
    assert "stored and starts when a worker runs" in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--target", "mini-targt"], "mini-target"),
        (["--target", "./brak"], "no such folder"),
        (["--target", "{tmp}"], "config.json"),
        ([*MINI, "--drafter", "neural"], "--draft NAME"),
        ([*MINI, "--drafter", "off", "--draft", "mini-draft"], "no draft model"),
        ([*MINI, "--translation", "naive"], "translation"),
        ([*MINI, "--drafter", "neural", "--draft", "mini-draft", "--translation", "naive"], "translation"),
        ([*MINI, "--k", "2"], "k is 1 to 16"),
        ([*MINI, "--draft", "mini-draft-bytes", "--k", "0"], "k is 1 to 16"),
        ([*MINI, "--draft", "mini-draft-bytes", "--k", "17"], "17"),
        ([*MINI, "--max-tokens", "0"], "max_tokens"),
        ([*MINI, "--top-p", "2"], "top_p"),
        ([*MINI, "--temperature", "nan"], "temperature"),
        ([*MINI, "--compare-plain"], "--draft NAME"),
        ([*MINI, "--target-revision", "abc"], "--target-revision"),
        ([*MINI, "--draft-revision", "abc"], "--draft-revision"),
        ([*MINI, "--raw", "--system", "x"], "--raw"),
        ([*MINI, "--prompt", " "], "prompt is empty"),
        ([*MINI, "--prompt", "x", "--prompt-file", "{tmp}/raport-1.txt"], "one of them"),
        ([*MINI, "--name", ""], "name"),
        ([*MINI, "--priority", "101"], "priority"),
        ([*MINI, "--dtype", "int8"], "dtype"),
        ([*MINI, "--nie-ma"], "--nie-ma"),
    ],
)
def test_a_bad_request_is_refused_before_anything_is_queued(
    broker: redis.Redis, nocka: Nocka, reports: Path, options: list[str], said: str
) -> None:
    """Exit code 2, a message that names the option, an empty store and an empty queue."""
    result = nocka("submit", reports, *(option.replace("{tmp}", str(reports)) for option in options))

    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert json.loads(nocka("jobs", "--json").stdout) == []
    assert broker.dbsize() == 0


def test_bad_lines_are_all_listed_and_nothing_is_queued(nocka: Nocka, tmp_path: Path) -> None:
    """Each problem with its file, line, reason and code; --json has them for programs."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"prompt":""}\n{"prompt":"ok"}\n[]\n\xff\n')

    result = nocka("submit", path, *MINI)
    as_json = nocka("submit", path, *MINI, "--json")

    assert (result.exit_code, as_json.exit_code) == (2, 2)
    for line, code in ((1, "empty_prompt"), (3, "not_an_object"), (4, "bad_utf8")):
        assert f"{path}:{line}: " in result.stderr
        assert f"[{code}]" in result.stderr
    assert [problem["line"] for problem in json.loads(as_json.stdout)["problems"]] == [1, 3, 4]
    assert json.loads(nocka("jobs", "--json").stdout) == []


def test_skip_invalid_records_the_bad_lines_as_failed_items(nocka: Nocka, tmp_path: Path) -> None:
    """The rest is queued; ids are the lines' own, or line-N where there is none or it is taken."""
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"custom_id":"a","prompt":"x"}\n{"custom_id":"a","prompt":"y"}\nzle\n{"custom_id":"b","prompt":""}\n'
    )

    result = nocka("submit", path, *MINI, "--skip-invalid", "--json")
    rows = nocka("results", "--failed", "--format", "jsonl").stdout.splitlines()

    assert (result.exit_code, json.loads(result.stdout)["rejected"]) == (0, 3)
    errors = {line["custom_id"]: line["error"]["code"] for line in map(json.loads, rows)}
    assert errors == {"line-2": "duplicate_custom_id", "line-3": "invalid_json_line", "b": "empty_prompt"}


def test_skip_invalid_does_not_excuse_a_missing_file(nocka: Nocka, reports: Path) -> None:
    """What is no item cannot be recorded as one."""
    result = nocka("submit", reports, "brak.txt", *MINI, "--skip-invalid")

    assert result.exit_code == 2
    assert "brak.txt" in result.stderr


def test_no_target_is_chosen_where_none_fits(nocka: Nocka, reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No mini model in silence: refused with what would fit, exit code 1. With room, the largest that fits."""
    monkeypatch.setattr("db.catalogue.is_apple_silicon", lambda: True)
    monkeypatch.setattr("db.catalogue.memory_bytes", lambda: 2 * 2**30)
    refused = nocka("submit", reports)
    monkeypatch.setattr("db.catalogue.memory_bytes", lambda: 64 * 2**30)
    chosen = nocka("submit", reports)

    assert refused.exit_code == 1
    assert "bielik-11b-v3-8bit" in refused.stderr
    assert chosen.exit_code == 0
    with Client.open() as client:
        (cell,) = client.cells("last")
    assert (cell.target, cell.draft) == ("bielik-11b-v3-8bit", "qwen2.5-1.5b-4bit")


def test_the_lines_model_is_taken_when_it_is_known_and_noted_when_it_is_not(nocka: Nocka, tmp_path: Path) -> None:
    """A catalogue name in the body is the target where none was asked for; any other is only said."""
    body = {"messages": [{"role": "user", "content": "x"}]}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions"}
    known, unknown = tmp_path / "known.jsonl", tmp_path / "unknown.jsonl"
    known.write_text(json.dumps(line | {"body": body | {"model": "mini-target"}}))
    unknown.write_text(json.dumps(line | {"body": body | {"model": "gpt-4o-mini"}}))

    taken, noted = nocka("submit", known), nocka("submit", unknown, *MINI)

    assert (taken.exit_code, noted.exit_code) == (0, 0)
    assert "mini-target (plain)" in taken.stderr
    assert "gpt-4o-mini; mini-target answers" in noted.stderr


def test_a_local_model_becomes_an_absolute_path(
    nocka: Nocka, reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has another current directory."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)

    assert nocka("submit", reports, "--target", "model").exit_code == 0
    with Client.open() as client:
        assert client.cells("last")[0].target == str((tmp_path / "model").resolve())


def test_standard_input(nocka: Nocka) -> None:
    """`-` reads one document, or JSONL."""
    assert nocka("submit", "-", *MINI, "--raw", stdin=b"Litwo!\n").exit_code == 0
    shown = json.loads(nocka("show", "last", "stdin", "--json").stdout)
    assert shown[0]["input"]["text"] == "Litwo!"


@pytest.mark.parametrize(("code", "expected"), [(None, 0), ("oops", 3)])
def test_wait_ends_as_the_job_does(
    nocka: Nocka, reports: Path, worker: PlayedWorker, monkeypatch: pytest.MonkeyPatch, code: str | None, expected: int
) -> None:
    """0 when all is done, 3 when items failed; no bar in a pipe, and the first error is said."""
    monkeypatch.setattr("time.sleep", lambda _: worker.end(lambda claim: (code, "nie") if code else finished("tak")))

    result = nocka("submit", reports, *MINI, "--wait")

    assert result.exit_code == expected
    assert ("First error: raport-1.txt: oops: nie" in result.stderr) is (code is not None)
    assert "\x1b" not in result.output


def test_a_job_that_fails_whole_ends_with_1(
    nocka: Nocka, reports: Path, worker: PlayedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its model cannot be loaded; the reason is shown by status too."""

    def fail(_: float) -> None:
        job_id = worker.client.store.next_job()
        assert job_id is not None
        worker.client.store.fail_job(job_id, "model_not_loadable", "brak wag")

    monkeypatch.setattr("time.sleep", fail)

    result = nocka("submit", reports, *MINI, "--wait")

    assert result.exit_code == 1
    assert "model_not_loadable: brak wag" in result.stderr
    assert "model_not_loadable: brak wag" in nocka("status").stdout


def test_ctrl_c_leaves_the_job_alone(nocka: Nocka, reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """130, and the way back is said."""

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)

    result = nocka("submit", reports, *MINI, "--wait")

    assert result.exit_code == 130
    assert "nocka watch" in result.stderr
    assert json.loads(nocka("status", "--json").stdout)["state"] == "waiting"


# -- reading ------------------------------------------------------------------------------------------------------


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
    submitted = nocka("submit", reports, *MINI, "--draft", "mini-draft-bytes", "--compare-plain")
    assert worker.end(evaluated) == 6
    return submitted.stdout.strip()


def test_the_table_holds_every_cell_against_plain(nocka: Nocka, evaluation: str) -> None:
    """`=` where the texts are equal, `≠` where not, with the speed; the summary counts."""
    result = nocka("results")
    rows = result.stdout.splitlines()

    assert next(row for row in rows if "= 1.50×" in row).split()[0] == "cross"
    assert any("≠ 1.50×" in row for row in rows)
    assert "same text as plain in 1 of 2, acceptance 40 %, 1.50× the speed of plain" in result.stdout
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


@pytest.mark.parametrize("command", ["status", "watch", "results", "cancel", "retry"])
def test_an_unknown_job_is_said(nocka: Nocka, command: str) -> None:
    """Exit code 1 and a sentence."""
    result = nocka(command, "20990101-0000")

    assert result.exit_code == 1
    assert result.stderr.startswith("nocka: ")


def test_cancelling_what_ended_is_refused(nocka: Nocka, evaluation: str) -> None:
    """A done job cannot be cancelled."""
    assert nocka("cancel", "last").exit_code == 1


# -- the machine --------------------------------------------------------------------------------------------------


def test_doctor_says_what_to_type(nocka: Nocka) -> None:
    """With nothing running a job would not run: 1, and the way out stands beside it."""
    result = nocka("doctor")
    found = {check["name"]: check for check in json.loads(nocka("doctor", "--json").stdout)}

    assert result.exit_code == 1
    assert "nocka up" in result.stdout
    assert found["store"]["verdict"] != "broken"
    assert (found["broker"]["verdict"], found["worker"]["verdict"]) == ("broken", "broken")


def test_doctor_is_content_where_a_job_would_run(broker: redis.Redis, nocka: Nocka) -> None:
    """A broker that answers and a worker that it knows: 0."""
    broker.sadd("rq:workers", "rq:worker:mac/1-a")
    broker.hset("rq:worker:mac/1-a", "birth", "now")

    result = nocka("doctor")

    assert result.exit_code == 0, result.stdout
    assert "valkey 9." in result.stdout


def test_bad_settings_are_one_sentence(nocka: Nocka, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every command, doctor included."""
    monkeypatch.setenv("NOCKA_REDIS_URL", "http://x")

    assert nocka("jobs").exit_code == 1
    assert nocka("doctor").exit_code == 1


def test_models_are_listed_and_described(nocka: Nocka) -> None:
    """Every name of the catalogue, and one in full."""
    names = [entry["name"] for entry in json.loads(nocka("models", "list", "--json").stdout)]

    assert "mini-target" in names
    assert all(name in nocka("models").stdout for name in names)
    assert "mini-draft-bytes" in nocka("models", "info", "mini-target").stdout
    assert nocka("models", "info", "brak").exit_code == 1


def test_up_refuses_where_no_worker_can_run(nocka: Nocka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client-only machine is told so instead of failing in an import."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    result = nocka("up")

    assert result.exit_code == 1
    assert "no MLX" in result.stderr
