"""`nocka submit` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis

from api_cli.client import Client
from tests.api_cli.conftest import Nocka, PlayedWorker, finished

MINI = ("--target", "mini-target")


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
    assert cell.label == "auto mini-draft-bytes"
    assert (cell.decoding.max_tokens, cell.decoding.seed, cell.decoding.stop) == (20, 7, ("a", "b"))
    assert first.item is not None
    assert [turn.content for turn in first.item.messages or ()] == ["Zwięźle.", "Streść: Treść raportu 1."]
    assert broker.llen("rq:queue:nocka") == 1


def test_a_model_is_trusted_by_its_name(nocka: Nocka, reports: Path, tmp_path: Path) -> None:
    """As it was given; the baseline beside it trusts no model that it does not use."""
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text("{}")
    draft = str(tmp_path / "draft" / ".." / "draft")
    options = ["--draft", draft, "--compare-plain", "--trust-remote-code", draft]

    assert nocka("submit", reports, *MINI, *options).exit_code == 0

    with Client.open() as client:
        plain, drafted = client.cells("last")
    assert (plain.trust_remote_code, drafted.trust_remote_code) == ((), (str(tmp_path / "draft"),))
    assert nocka("submit", reports, *MINI).exit_code == 0
    with Client.open() as client:
        assert client.cells("last")[0].trust_remote_code == ()


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
        ([*MINI, "--translation", "naive"], "--draft NAME"),
        ([*MINI, "--drafter", "auto", "--translation", "naive"], "translation"),
        ([*MINI, "--drafter", "auto", "--k", "2"], "0 under off and auto"),
        ([*MINI, "--drafter", "neural", "--draft", "mini-draft", "--translation", "naive"], "translation"),
        ([*MINI, "--k", "2"], "--draft NAME"),
        ([*MINI, "--draft", "mini-draft-bytes", "--k", "0"], "k is 1 to 16"),
        ([*MINI, "--draft", "mini-draft-bytes", "--k", "17"], "17"),
        ([*MINI, "--max-tokens", "0"], "max_tokens"),
        ([*MINI, "--top-p", "2"], "top_p"),
        ([*MINI, "--temperature", "nan"], "temperature"),
        ([*MINI, "--drafter", "off", "--compare-plain"], "--draft NAME"),
        ([*MINI, "--target-revision", "abc"], "--target-revision"),
        ([*MINI, "--draft-revision", "abc"], "--draft-revision"),
        ([*MINI, "--raw", "--system", "x"], "--raw"),
        ([*MINI, "--prompt", " "], "prompt is empty"),
        ([*MINI, "--prompt", "x", "--prompt-file", "{tmp}/raport-1.txt"], "one of them"),
        ([*MINI, "--name", ""], "name"),
        ([*MINI, "--priority", "101"], "priority"),
        ([*MINI, "--dtype", "int8"], "dtype"),
        ([*MINI, "--nie-ma"], "--nie-ma"),
        ([*MINI, "--trust-remote-code", "mini-draft"], "neither the target nor the draft"),
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
    assert "mini-target (auto)" in taken.stderr
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


def test_nothing_is_run_twice_unless_forced(
    broker: redis.Redis, nocka: Nocka, reports: Path, worker: PlayedWorker
) -> None:
    """The same submit is the same job; one more file is the only one to run; changed options run everything."""
    command = ("submit", reports, "--target", "org/model")
    first = nocka(*command).stdout.strip()
    assert worker.end(lambda claim: finished("tak")) == 3

    same = nocka(*command)
    assert same.stdout.strip() == first
    assert "The same job is there already" in same.stderr

    (reports / "raport-4.txt").write_text("Treść raportu 4.", encoding="utf-8")
    more = nocka(*command)
    assert more.stdout.strip() != first
    assert "3 of the answers were there already" in more.stderr
    assert "3 answers of earlier jobs" in nocka("status").stdout
    assert first in nocka("show", "last", "raport-1.txt").stdout
    assert worker.end(lambda claim: finished("tak")) == 1

    outcome = json.loads(nocka(*command, "--max-tokens", "5", "--json").stdout)
    assert (outcome["existed"], outcome["reused"]) == (False, 0)
    assert worker.end(lambda claim: finished("tak")) == 4
    assert json.loads(nocka(*command, "--force", "--json").stdout)["reused"] == 0
    assert worker.end(lambda claim: finished("tak")) == 4
