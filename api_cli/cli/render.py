"""How things look: consoles, numbers, tables. What models and users wrote is neutralised before a terminal sees it."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from db.records import Counts, JobRecord
from db.status import JobState, ResultState
from db.summary import seconds_left, tokens_per_s

EXIT_FAILED, EXIT_USAGE, EXIT_FAILED_ITEMS, EXIT_INTERRUPTED = 1, 2, 3, 130

PIPE_WIDTH = 120
#: Cells between two columns, and the least that the last one gets.
_GAP, _LEAST = 2, 10
#: C0 but for newline and tab, DEL, C1, bidirectional controls, line and paragraph separators, the BOM.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")

STYLES: dict[str, str] = {
    JobState.WAITING.value: "dim",
    JobState.RUNNING.value: "cyan",
    JobState.PAUSED.value: "yellow",
    JobState.DONE.value: "green",
    JobState.FAILED.value: "red",
    JobState.CANCELLED.value: "yellow",
    ResultState.EXPIRED.value: "yellow",
}


def visible(text: str) -> str:
    """*text* with every character written out that could move a cursor, colour a line or turn its order around."""
    text = text.replace("\r\n", "\n")
    return _UNSAFE.sub(lambda found: _escape(found[0]), text)


def _escape(character: str) -> str:
    return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"


def excerpt(text: str) -> str:
    """*text* on one line; whoever shows it cuts it."""
    return visible(" ".join(text[:2000].split()))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """*value* as JSON with its letters readable; unsafe characters are escaped, which means the same to any reader."""
    written = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False, default=str)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def console(*, stderr: bool = False) -> Console:
    """A console for the stream as it is now: no colour and a fixed width in a pipe, `COLUMNS` and `NO_COLOR` obeyed."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    # Rich keeps bold and dim under NO_COLOR; whoever sets it means plain text.
    colors: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(file=stream, width=width, color_system=colors, highlight=False, markup=False, emoji=False)


def say(message: str, *, style: str | None = None) -> None:
    """A message for the person, on stderr."""
    console(stderr=True).print(Text(visible(message), style=style or ""), soft_wrap=True)


def table(*columns: str) -> Table:
    """An empty table in nocka's look."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for column in columns:
        made.add_column(column, no_wrap=True, overflow="ellipsis")
    return made


def fit(made: Table, width: int) -> Table:
    """*made* with every column as wide as it needs and the last one with what is left of *width*.

    Rich by itself would narrow the figures to make room for a long text.
    """
    for column in made.columns:
        shown = [column.header, *column.cells]
        needed = max(cell_len(cell.plain if isinstance(cell, Text) else str(cell)) for cell in shown)
        column.width = min(needed, column.max_width or needed)
    *others, last = made.columns
    taken = sum(column.width or 0 for column in others) + _GAP * len(others)
    last.width = min(last.width or 0, max(width - taken, _LEAST))
    return made


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def number(value: float | None, digits: int = 0) -> str:
    """`1 234`, `12.5`, `–`."""
    return "–" if value is None else f"{value:,.{digits}f}".replace(",", " ")


def factor(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def moment(time: dt.datetime | None) -> str:
    """In the person's own time zone, to the minute."""
    return "–" if time is None else f"{time.astimezone():%Y-%m-%d %H:%M}"


def counts_text(counts: Counts) -> str:
    """`12 of 30 done, 1 failed, 17 waiting`."""
    parts = [f"{counts.done} of {counts.total} done"]
    parts += [
        f"{count} {state.value}"
        for state, count in (
            (ResultState.FAILED, counts.failed),
            (ResultState.CANCELLED, counts.cancelled),
            (ResultState.EXPIRED, counts.expired),
            (ResultState.RUNNING, counts.running),
            (ResultState.WAITING, counts.waiting),
        )
        if count
    ]
    return ", ".join(parts)


def _ended_text(counts: Counts) -> str:
    failed = f", {counts.failed} failed" if counts.failed else ""
    cancelled = f", {counts.cancelled} cancelled" if counts.cancelled else ""
    expired = f", {counts.expired} expired" if counts.expired else ""
    return f"{counts.done} of {counts.total} done{failed}{cancelled}{expired}"


def progress_text(job: JobRecord) -> str:
    """One short line: what has ended, speed, time left."""
    parts = [_ended_text(job.counts)]
    speed, left = tokens_per_s(job), seconds_left(job)
    if speed is not None:
        parts.append(f"{speed:.1f} tok/s")
    if left is not None:
        parts.append(f"about {duration(left)} left")
    return " · ".join(parts)


def state_text(state: JobState | ResultState) -> Text:
    return Text(state.value, style=STYLES[state.value])


def jobs_table(jobs: Sequence[JobRecord], width: int) -> Table:
    """One row a job; the columns that matter least go first where it is narrow."""
    wide = width >= 80
    made = table("job", "state", "done", "failed", "tok/s", *(["created"] if wide else []), "name")
    for column in made.columns[2:5]:
        column.justify = "right"
    for job in jobs:
        failed = Text(str(job.counts.failed), style="red" if job.counts.failed else "dim")
        row: list[str | Text] = [job.id, state_text(job.state), f"{job.counts.done}/{job.counts.total}", failed]
        row += [number(tokens_per_s(job), 1), *([moment(job.created_at)] if wide else []), excerpt(job.name)]
        made.add_row(*row)
    return fit(made, width)
