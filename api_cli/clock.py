"""What a person says about time, made into a job's schedule. The clock and the zone are passed in."""

from __future__ import annotations

import datetime as dt
import os
import re
import zoneinfo
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from api_cli.record import sentences
from db.errors import InputError
from db.schedule import Schedule

_TIME = re.compile(r"^([01]?\d|2[0-3]):[0-5]\d$")
_LOCALTIME = Path("/etc/localtime")


def schedule(asked: Mapping[str, str | float | None], now: dt.datetime, zone: str | None = None) -> Schedule:
    """The schedule of `not_before`, `deadline`, `window` and `max_hours`, None where not said. Raises InputError.

    *zone* is this machine's unless given.
    """
    said = {name: value for name, value in asked.items() if value is not None}
    if not said:
        return Schedule()
    zone = zone or local_zone()
    for name in ("not_before", "deadline"):
        if name in said:
            said[name] = moment(str(said[name]), f"--{name.replace('_', '-')}", now, zone).isoformat()
    try:
        made = Schedule.model_validate({**said, "zone": zone})
    except ValidationError as error:
        raise InputError("; ".join(sentences(error))) from error
    if made.deadline is not None and made.deadline <= now:
        raise InputError(f"--deadline {asked['deadline']} has passed already")
    return made


def moment(text: str, option: str, now: dt.datetime, zone: str) -> dt.datetime:
    """`07:30` (the next one), `2026-12-01`, `2026-12-01 07:30`, or ISO 8601 with its own zone. Raises InputError."""
    local = zoneinfo.ZoneInfo(zone)
    if _TIME.match(text):
        time = dt.time.fromisoformat(text.zfill(5))
        today = now.astimezone(local).date()
        coming = (dt.datetime.combine(today + dt.timedelta(days=days), time, local) for days in (0, 1, 2))
        return next(found for found in coming if found > now)
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(
            f"{option} {text}: not a time", 'Say 07:30 (the next one), 2026-12-01 or "2026-12-01 07:30".'
        ) from error
    return found if found.tzinfo is not None else found.replace(tzinfo=local)


def local_zone(environ: Mapping[str, str] | None = None, localtime: Path = _LOCALTIME) -> str:
    """This machine's zone by its IANA name: `TZ`, else where `/etc/localtime` leads. Raises InputError."""
    named = (os.environ if environ is None else environ).get("TZ", "").removeprefix(":")
    if not named:
        _, found, named = str(localtime.resolve()).partition("zoneinfo/")
        if not localtime.exists():
            named = "UTC"
        elif not found:
            named = ""
    try:
        return zoneinfo.ZoneInfo(named).key
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError("cannot tell this machine's time zone", "Set TZ, as in TZ=Europe/Warsaw.") from error


def schedule_text(made: Schedule) -> str:
    """`22:00-06:00 Europe/Warsaw, not before 2026-12-01 20:00, until 2026-12-02 12:00, 8 hours of work at most`."""
    if not made.limits:
        return "at any time"
    local = zoneinfo.ZoneInfo(made.zone)
    parts = [f"{made.window} {made.zone}"] if made.window is not None else []
    if made.not_before is not None:
        parts.append(f"not before {made.not_before.astimezone(local):%Y-%m-%d %H:%M}")
    if made.deadline is not None:
        parts.append(f"until {made.deadline.astimezone(local):%Y-%m-%d %H:%M}")
    if made.max_hours is not None:
        parts.append(f"{made.max_hours:g} hours of work at most")
    return ", ".join(parts)
