"""When a job may run. Pure: the time is always passed in, the zone is the job's own."""

from __future__ import annotations

import datetime as dt
import enum
import re
import zoneinfo
from typing import Annotated, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, model_validator

_MINUTE = dt.timedelta(minutes=1)
_WINDOW = re.compile(r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$")


class Standing(enum.StrEnum):
    """What the clock says to a job's waiting results."""

    #: They may run.
    DUE = "due"
    #: They may run some other time.
    LATER = "later"
    #: They expire: the deadline is over.
    DEADLINE_PASSED = "deadline_passed"
    #: They expire: the job has had its hours of work.
    HOURS_USED = "hours_used"


#: Standings under which what is left expires, each in words.
OVER = {
    Standing.DEADLINE_PASSED: "the job's deadline passed first",
    Standing.HOURS_USED: "the job's hours of work were used up first",
}


class Schedule(BaseModel):
    """When a job may run; None limits nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    not_before: AwareDatetime | None = None
    #: What has not ended by then expires.
    deadline: AwareDatetime | None = None
    #: Hours of each day, as `22:00-06:00`, by the clocks of *zone*.
    window: Annotated[str, StringConstraints(pattern=_WINDOW)] | None = None
    #: Of the IANA's names, `Europe/Warsaw`.
    zone: str = "UTC"
    #: Hours of work, over all attempts; what has not ended by then expires.
    max_hours: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _usable(self) -> Self:
        try:
            if self.limits:
                zoneinfo.ZoneInfo(self.zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"there is no time zone {self.zone!r} here") from error
        if self.window is not None and self.window[:5] == self.window[6:]:
            raise ValueError(f"the window {self.window} ends when it begins; leave it out for the whole day")
        if None not in (self.not_before, self.deadline) and self.not_before >= self.deadline:  # type: ignore[operator]
            raise ValueError("the deadline comes before the job may begin")
        return self

    @property
    def limits(self) -> bool:
        """Whether it limits anything."""
        return (self.not_before, self.deadline, self.window, self.max_hours) != (None, None, None, None)

    def standing(self, now: dt.datetime, worked_s: float) -> Standing:
        """What the clock says at *now*, after *worked_s* seconds of work."""
        if self.deadline is not None and now >= self.deadline:
            return Standing.DEADLINE_PASSED
        if self.max_hours is not None and worked_s >= self.max_hours * 3600:
            return Standing.HOURS_USED
        if self.not_before is not None and now < self.not_before:
            return Standing.LATER
        return Standing.DUE if self.window is None or self._open(self.window, now) else Standing.LATER

    def renewed(self, now: dt.datetime, worked_s: float) -> Schedule:
        """Without the limit that has been reached: for who asks for the rest all the same."""
        deadline = self.deadline if self.deadline is None or now < self.deadline else None
        hours_left = self.max_hours is None or worked_s < self.max_hours * 3600
        return self.model_copy(update={"deadline": deadline, "max_hours": self.max_hours if hours_left else None})

    def _open(self, window: str, now: dt.datetime) -> bool:
        """Each day's opening is one interval: an hour that the clocks show twice does not open or close it twice."""
        zone = zoneinfo.ZoneInfo(self.zone)
        begins, ends = (dt.time.fromisoformat(part) for part in window.split("-"))
        today = now.astimezone(zone).date()
        nights = dt.timedelta(days=1 if ends < begins else 0)
        return any(
            _first_at(day, begins, zone) <= now < _first_at(day + nights, ends, zone)
            for day in (today - dt.timedelta(days=1), today)
        )


def _first_at(day: dt.date, time: dt.time, zone: dt.tzinfo) -> dt.datetime:
    """The first moment of *day* at which the clocks of *zone* show *time*, or a later one where they jump over it."""
    wall = dt.datetime.combine(day, time)
    moment = wall.replace(tzinfo=zone).astimezone(dt.UTC)
    while (moment - _MINUTE).astimezone(zone).replace(tzinfo=None) >= wall:
        moment -= _MINUTE
    return moment
