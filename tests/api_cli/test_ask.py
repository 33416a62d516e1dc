"""`nocka search`, `query` and `browse` as a person types them."""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from api_cli.cli.ask import SHOWN, browse_command
from db.specs import CellSpec, ItemSpec, JobKind, JobSpec
from tests.api_cli.conftest import Nocka, PlayedWorker, finished


@pytest.fixture
def answered(nocka: Nocka, reports: Path, worker: PlayedWorker) -> str:
    """A job with three answers, one of them dangerous to a terminal; its id."""
    nocka("submit", reports, "--target", "mini-target")
    answers = {"raport-2.txt": "Stąd \x1b[31m do Łodzi\u202e <b>jedzie</b> pociąg."}
    worker.end(lambda claim: finished(answers.get(claim.item.custom_id, "Nic takiego.")))
    return worker.client.status("last").id


def test_a_hit_is_shown_with_its_place_and_no_escape(nocka: Nocka, answered: str) -> None:
    """Marked by stars where there is no colour."""
    result = nocka("search", "lodzi")
    assert result.exit_code == 0
    assert f"{answered} raport-2.txt · answer (auto)" in result.stdout
    assert "**Łodzi**" in result.stdout and "\\x1b[31m do" in result.stdout
    assert "\x1b" not in result.stdout and "\u202e" not in result.stdout


def test_hits_as_json_hold_the_text_as_it_is(nocka: Nocka, answered: str) -> None:
    """Escaped for the terminal, and the same to a reader of JSON."""
    result = nocka("search", '"do łodzi"', "--job", "last", "--json")
    assert "\x1b" not in result.stdout
    [hit] = json.loads(result.stdout)
    assert (hit["job"], hit["custom_id"], hit["part"], hit["cell"]) == (answered, "raport-2.txt", "answer", "auto")
    assert hit["snippet"].startswith("Stąd \x1b[31m **do Łodzi**")
    assert len(json.loads(nocka("search", "tresc raportu", "--json").stdout)) == 3
    assert len(json.loads(nocka("search", "tresc raportu", "--json", "--limit", 2).stdout)) == 2


def test_nothing_found_and_nothing_asked_are_told_apart(nocka: Nocka, answered: str) -> None:
    """The first is an answer, the second a mistake."""
    assert nocka("search", "słoń").exit_code == 0
    assert nocka("search", "***").exit_code == 2
    assert nocka("search", "x", "--job", "nope").exit_code == 1


def test_a_query_is_shown_in_four_forms(nocka: Nocka, answered: str) -> None:
    """The same rows each time."""
    sql = "SELECT custom_id, answer, tokens_per_s, reference FROM v_results ORDER BY custom_id"
    shown = nocka("query", sql).stdout
    assert "raport-2.txt" in shown and "\\x1b[31m" in shown and "\x1b" not in shown
    rows = json.loads(nocka("query", sql, "--format", "json").stdout)
    assert rows == [json.loads(line) for line in nocka("query", sql, "--format", "jsonl").stdout.splitlines()]
    assert rows[0] == {"custom_id": "raport-1.txt", "answer": "Nic takiego.", "tokens_per_s": 20.0, "reference": None}
    read = list(csv.DictReader(nocka("query", sql, "--format", "csv").stdout.splitlines()))
    assert [row["custom_id"] for row in read] == [row["custom_id"] for row in rows]
    assert json.loads(nocka("query", "SELECT 1 WHERE 1 = 0", "--format", "json").stdout) == []


def test_odd_values_are_shown_too(nocka: Nocka) -> None:
    """Bytes, an infinity, a huge number, no value, two columns of one name."""
    sql = "SELECT x'00ff' AS a, 9e999 AS b, 9223372036854775807 AS c, NULL AS d, char(27) AS e"
    row = {"a": "00ff", "b": None, "c": 9223372036854775807, "d": None, "e": "\x1b"}
    assert json.loads(nocka("query", sql, "--format", "json").stdout) == [row]
    for form in ("table", "csv"):
        assert nocka("query", sql, "--format", form).exit_code == 0
    assert "\x1b" not in nocka("query", sql).stdout


def test_a_long_table_says_that_it_was_cut(nocka: Nocka) -> None:
    """And how to get the rest."""
    result = nocka("query", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 500) SELECT i FROM n")
    assert len(result.stdout.splitlines()) == SHOWN + 2
    assert "--format csv" in result.stderr


@pytest.mark.parametrize("sql", ["DELETE FROM jobs", "SELECT nothing", "SELECT 1; DROP TABLE jobs"])
def test_a_query_that_is_none_ends_with_2(nocka: Nocka, answered: str, sql: str) -> None:
    """Asked wrongly; nothing is gone."""
    result = nocka("query", sql)
    assert result.exit_code == 2 and result.stderr.startswith("nocka: ")
    assert nocka("jobs").stdout.count(answered) == 1


def test_a_query_that_takes_too_long_ends_with_1(nocka: Nocka) -> None:
    """And says how to give it more time."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    result = nocka("query", endless, "--timeout", "0.2")
    assert result.exit_code == 1 and "--timeout" in result.stderr


def test_browse_says_what_is_missing(nocka: Nocka, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of the extra; nothing is started."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "datasette" else find(name))
    result = nocka("browse")
    assert result.exit_code == 1 and "nocka[browse]" in result.stderr


@pytest.mark.skipif(importlib.util.find_spec("datasette") is None, reason="pip install '.[browse]'")
def test_datasette_serves_the_views_and_changes_nothing(worker: PlayedWorker, isolated_environment: Path) -> None:
    """What was committed a moment ago is there, while the store is open."""
    item = ItemSpec(custom_id="a", text="Łódź")
    cell = CellSpec(target="t")
    worker.client.store.submit(JobSpec(kind=JobKind.GENERATION, name="n", cells=(cell,), items=(item,)))
    port = 18_000 + (time.time_ns() // 1000) % 2_000
    server = subprocess.Popen(browse_command(isolated_environment / "nocka.db", port), stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/nocka"
        rows = json.loads(_read(f"{url}/v_results.json?_shape=array"))
        assert [row["prompt"] for row in rows] == ["Łódź"]
        with pytest.raises(urllib.error.HTTPError):
            _read(f"{url}.json?sql=delete+from+jobs")
    finally:
        server.terminate()
        server.wait(20)
    assert worker.client.status("last").counts.waiting == 1


def _read(url: str) -> bytes:
    deadline = time.monotonic() + 40
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError:
            raise
        except OSError:
            assert time.monotonic() < deadline, "Datasette did not start"
            time.sleep(0.2)


def test_browse_is_this_machines_alone() -> None:
    """Its own address, and a file that is not taken for one that never changes."""
    command = browse_command(Path("/x/nocka.db"), 8001)
    assert command[:3] == [sys.executable, "-m", "datasette"]
    assert command[command.index("--host") + 1] == "127.0.0.1" and "--immutable" not in command
