"""`nocka doctor` tells a working, a stalled and a vanished worker apart, and says what waits."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from sqlalchemy import insert

from api_cli.cli.doctor import STALLED_S, energy_check
from db.tables import workers
from db.transactions import writing
from tests.api_cli.conftest import Nocka, PlayedWorker


@pytest.mark.parametrize(
    ("beat_s", "progress_s", "verdict", "words"),
    [
        (5, None, "ok", "idle"),
        (5, 20, "ok", "got on 20 s ago"),
        (5, STALLED_S + 60, "note", "stalled"),
        (500, 500, "note", "it died or its machine sleeps"),
    ],
)
def test_each_lease_is_judged_by_its_beat_and_its_progress(
    nocka: Nocka, worker: PlayedWorker, beat_s: float, progress_s: float | None, verdict: str, words: str
) -> None:
    """A fresh beat under old progress is what a person cannot see otherwise."""
    now = dt.datetime.now(dt.UTC)
    seen = now - dt.timedelta(seconds=beat_s)
    row = {
        "name": "mac/7-ab",
        "machine": "mac",
        "pid": 7,
        "started_at": now - dt.timedelta(hours=1),
        "seen_at": seen,
        "lease_until": seen + dt.timedelta(seconds=90),
        "result_id": None if progress_s is None else 1,
        "progress_at": None if progress_s is None else now - dt.timedelta(seconds=progress_s),
    }
    with writing(worker.client.store.engine) as connection:
        connection.execute(insert(workers), row)
    found = {check["name"]: check for check in json.loads(nocka("doctor", "--json").stdout)}
    assert found["lease of mac/7-ab"]["verdict"] == verdict
    assert words in found["lease of mac/7-ab"]["found"]


def test_what_waits_and_runs_is_counted(nocka: Nocka, worker: PlayedWorker, reports: Path) -> None:
    """Over every job that has not ended."""
    nocka("submit", reports, "--target", "mini-target")
    worker.client.store.claim("test/1-a")
    found = {check["name"]: check for check in json.loads(nocka("doctor", "--json").stdout)}
    assert found["work"]["found"].startswith("results waiting: 2, running: 1")


@pytest.mark.parametrize(
    ("installed", "readable", "verdict", "words", "mend"),
    [
        (True, [], "note", "no energy counter", None),
        (False, [], "note", "no energy counter", None),
        (True, [True, False], "note", "may not be read by this user", "sudo chmod a+r"),
        (False, [True], "note", "is not installed", "pip install 'nocka[energy]'"),
        (False, None, "note", "is not installed", "pip install 'nocka[energy]'"),
        (True, [True], "ok", "measured by it", None),
        (True, None, "ok", "measured by it", None),
    ],
)
def test_why_energy_is_not_measured(
    installed: bool, readable: list[bool] | None, verdict: str, words: str, mend: str | None
) -> None:
    """First what the machine lacks, then what the user may do; installing what cannot help is not advised."""
    check = energy_check("it", installed, readable)
    assert (check.name, check.verdict) == ("energy", verdict)
    assert words in check.found
    assert (check.mend is None) if mend is None else mend in str(check.mend)


def test_doctor_speaks_of_energy_where_a_worker_could_run(nocka: Nocka, worker: PlayedWorker) -> None:
    """Measured or not, it says so, and a job runs all the same."""
    [found] = [check for check in json.loads(nocka("doctor", "--json").stdout) if check["name"] == "energy"]
    assert found["verdict"] in ("ok", "note")
    assert "measured" in found["found"]
