"""What the clock decides, also in the two nights of the year in which it is changed."""

from __future__ import annotations

import datetime as dt
import zoneinfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from db.schedule import Schedule, Standing

WARSAW = zoneinfo.ZoneInfo("Europe/Warsaw")
#: The nights of 2026 in which clocks change: forward, back, and by half an hour.
CHANGES = [
    ("Europe/Warsaw", dt.datetime(2026, 3, 29, 1, tzinfo=dt.UTC)),
    ("Europe/Warsaw", dt.datetime(2026, 10, 25, 1, tzinfo=dt.UTC)),
    ("America/New_York", dt.datetime(2026, 11, 1, 6, tzinfo=dt.UTC)),
    ("Australia/Lord_Howe", dt.datetime(2026, 4, 4, 15, tzinfo=dt.UTC)),
]
STEP = dt.timedelta(minutes=15)
TIMES = st.integers(0, 95).map(lambda quarter: (dt.datetime.min + quarter * STEP).strftime("%H:%M"))


def is_due(window: str, zone: str, now: dt.datetime) -> bool:
    return Schedule(window=window, zone=zone).standing(now, 0.0) is Standing.DUE


def warsaw(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=WARSAW)


@pytest.mark.parametrize(
    ("window", "now", "due"),
    [
        ("22:00-06:00", "2026-12-01 21:59", False),
        ("22:00-06:00", "2026-12-01 22:00", True),
        ("22:00-06:00", "2026-12-02 00:00", True),
        ("22:00-06:00", "2026-12-02 05:59", True),
        ("22:00-06:00", "2026-12-02 06:00", False),
        ("09:00-17:00", "2026-12-01 12:00", True),
        ("09:00-17:00", "2026-12-01 17:00", False),
        ("22:00-00:00", "2026-12-01 23:59", True),
        ("22:00-00:00", "2026-12-02 00:00", False),
    ],
)
def test_a_window_opens_by_the_clock_of_its_zone(window: str, now: str, due: bool) -> None:
    """Also across midnight; the end is outside."""
    assert is_due(window, "Europe/Warsaw", warsaw(now)) is due


@settings(max_examples=60, deadline=None)
@given(change=st.sampled_from(CHANGES), begins=TIMES, ends=TIMES, offset=st.integers(-200, 200))
def test_a_window_and_the_rest_of_the_day_share_every_moment(
    change: tuple[str, dt.datetime], begins: str, ends: str, offset: int
) -> None:
    """At any moment around a change exactly one of the two is open."""
    if begins == ends:
        return
    zone, changes_at = change
    now = changes_at + offset * STEP
    assert is_due(f"{begins}-{ends}", zone, now) is not is_due(f"{ends}-{begins}", zone, now)


@settings(max_examples=25, deadline=None)
@given(change=st.sampled_from(CHANGES), begins=TIMES, hours=st.integers(2, 20))
def test_a_window_opens_once_a_day_whatever_the_clocks_do(
    change: tuple[str, dt.datetime], begins: str, hours: int
) -> None:
    """Each day around a change has one opening, as long as it says, give or take the change."""
    zone, changes_at = change
    ends = (dt.datetime.fromisoformat(f"2000-01-01 {begins}") + dt.timedelta(hours=hours)).strftime("%H:%M")
    first = changes_at - dt.timedelta(days=2)
    open_at = [is_due(f"{begins}-{ends}", zone, first + step * STEP) for step in range(5 * 96)]
    edges = [step for step in range(1, len(open_at)) if open_at[step] != open_at[step - 1]]
    openings = [step for step in edges if open_at[step]]
    days = [(first + step * STEP).astimezone(zoneinfo.ZoneInfo(zone)).date() for step in openings]
    assert days == [days[0] + dt.timedelta(days=number) for number in range(len(days))]
    assert len(days) in (4, 5, 6)
    for opening in openings:
        closing = next((step for step in edges if step > opening), None)
        if closing is not None:
            assert abs((closing - opening) * STEP - dt.timedelta(hours=hours)) <= dt.timedelta(hours=1)


def test_a_time_that_the_clocks_jump_over_is_the_moment_of_the_jump() -> None:
    """There is no 02:30 in Warsaw on 29 March 2026: 01:59 is followed by 03:00."""
    jump = dt.datetime(2026, 3, 29, 1, 0, tzinfo=dt.UTC)
    assert not is_due("02:30-05:00", "Europe/Warsaw", jump - dt.timedelta(seconds=1))
    assert is_due("02:30-05:00", "Europe/Warsaw", jump)


def test_a_deadline_ends_and_a_beginning_delays() -> None:
    """The deadline stands above the window: who is too late is not asked to come again."""
    schedule = Schedule(
        not_before=warsaw("2026-12-01 20:00"),
        deadline=warsaw("2026-12-02 12:00"),
        window="22:00-06:00",
        zone="Europe/Warsaw",
    )
    said = [
        schedule.standing(warsaw(now), 0.0)
        for now in ("2026-12-01 19:00", "2026-12-01 21:00", "2026-12-01 23:00", "2026-12-02 11:59", "2026-12-02 12:00")
    ]
    assert said == [Standing.LATER, Standing.LATER, Standing.DUE, Standing.LATER, Standing.DEADLINE_PASSED]


def test_hours_of_work_end_too() -> None:
    """To the second."""
    schedule = Schedule(max_hours=0.5)
    now = warsaw("2026-12-01 20:00")
    assert schedule.standing(now, 1799.0) is Standing.DUE
    assert schedule.standing(now, 1800.0) is Standing.HOURS_USED


def test_who_asks_for_the_rest_gets_it() -> None:
    """Only the limit that was reached is lifted."""
    schedule = Schedule(deadline=warsaw("2026-12-02 12:00"), max_hours=1.0, window="22:00-06:00")
    late = schedule.renewed(warsaw("2026-12-03 12:00"), 10.0)
    assert (late.deadline, late.max_hours, late.window) == (None, 1.0, "22:00-06:00")
    worked = schedule.renewed(warsaw("2026-12-01 12:00"), 3600.0)
    assert (worked.deadline, worked.max_hours) == (schedule.deadline, None)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"window": "22:00-22:00"}, "ends when it begins"),
        ({"window": "22-6"}, "pattern"),
        ({"window": "24:00-06:00"}, "pattern"),
        ({"window": "22:00-06:00", "zone": "Europe/Warszawa"}, "no time zone"),
        ({"window": "22:00-06:00", "zone": "../../etc/passwd"}, "no time zone"),
        ({"max_hours": 0}, "greater than 0"),
        ({"deadline": dt.datetime(2026, 12, 1)}, "timezone"),
        ({"not_before": warsaw("2026-12-02"), "deadline": warsaw("2026-12-01")}, "before the job may begin"),
    ],
)
def test_a_schedule_that_means_nothing_is_refused(fields: dict[str, object], complaint: str) -> None:
    """In words, when it is asked for."""
    with pytest.raises(ValidationError, match=complaint):
        Schedule.model_validate(fields)


def test_no_schedule_limits_nothing() -> None:
    """A zone alone is no limit."""
    assert not Schedule(zone="Europe/Warsaw").limits
    assert Schedule(max_hours=1).limits
