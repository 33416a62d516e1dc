"""What a person says about time becomes a schedule, or is refused in words."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from api_cli.clock import local_zone, moment, schedule, schedule_text
from db.errors import InputError
from db.schedule import Schedule
from tests.api_cli.conftest import Nocka

#: 20:00 in Warsaw.
NOW = dt.datetime(2026, 11, 30, 19, 0, tzinfo=dt.UTC)
NOTHING = {"not_before": None, "deadline": None, "window": None, "max_hours": None}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("22:30", "2026-11-30T22:30:00+01:00"),
        ("7:30", "2026-12-01T07:30:00+01:00"),
        ("20:00", "2026-12-01T20:00:00+01:00"),
        ("2026-12-05", "2026-12-05T00:00:00+01:00"),
        ("2026-12-05 08:15", "2026-12-05T08:15:00+01:00"),
        ("2026-07-05 08:15", "2026-07-05T08:15:00+02:00"),
        ("2026-12-05T08:15+00:00", "2026-12-05T08:15:00+00:00"),
    ],
)
def test_a_time_is_meant_in_the_persons_own_zone(text: str, meant: str) -> None:
    """A time of day is the next one."""
    assert moment(text, "--deadline", NOW, "Europe/Warsaw").isoformat() == meant


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"deadline": "jutro"}, "--deadline jutro: not a time"),
        ({"not_before": "25:00"}, "--not-before 25:00: not a time"),
        ({"deadline": "2026-11-01"}, "has passed already"),
        ({"window": "22-6"}, "window"),
        ({"max_hours": -1.0}, "max_hours"),
        ({"not_before": "23:00", "deadline": "22:00"}, ""),
    ],
)
def test_what_means_nothing_is_refused(said: dict[str, str], complaint: str) -> None:
    """By the name of the option."""
    if not complaint:  # the next 22:00 is before the next 23:00
        complaint = "before the job may begin"
    with pytest.raises(InputError, match=complaint):
        schedule({**NOTHING, **said}, NOW, "Europe/Warsaw")


def test_nothing_said_is_no_limit() -> None:
    """And is told so."""
    assert schedule(NOTHING, NOW, "Europe/Warsaw") == Schedule()
    assert schedule_text(Schedule()) == "at any time"


def test_the_zone_is_where_localtime_leads(tmp_path: Path) -> None:
    """`TZ` goes first; a machine without the file is on UTC; a copy of the file names nothing."""
    link = tmp_path / "localtime"
    assert local_zone({}, link) == "UTC"
    link.symlink_to("/usr/share/zoneinfo/Europe/Warsaw")
    if link.exists():
        assert local_zone({}, link) == "Europe/Warsaw"
    assert local_zone({"TZ": ":America/New_York"}, link) == "America/New_York"
    copy = tmp_path / "copy"
    copy.write_bytes(b"TZif2")
    for environ, file in (({}, copy), ({"TZ": "Nowhere/Else"}, link)):
        with pytest.raises(InputError, match="TZ=Europe/Warsaw"):
            local_zone(environ, file)


def test_submit_stores_the_schedule_and_status_tells_it(
    nocka: Nocka, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the zone of whoever submitted."""
    monkeypatch.setenv("TZ", "Europe/Warsaw")
    options = ("--window", "22:00-06:00", "--deadline", "2099-12-04 08:00", "--max-hours", "2.5")
    result = nocka("submit", reports, "--target", "mini-target", *options)
    told = "22:00-06:00 Europe/Warsaw, until 2099-12-04 08:00, 2.5 hours of work at most"
    assert told in result.stderr
    assert told in nocka("status").stdout
    stored = json.loads(nocka("status", "--json").stdout)["schedule"]
    assert stored["zone"] == "Europe/Warsaw"
    assert stored["deadline"] == "2099-12-04T08:00:00+01:00"

    refused = nocka("submit", reports, "--target", "mini-target", "--window", "22:00")
    assert refused.exit_code == 2
