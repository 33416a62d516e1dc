"""Following a job until it ends: a bar on a terminal, a line now and then elsewhere; always on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator

from api_cli.cli.render import EXIT_FAILED, EXIT_FAILED_ITEMS, console, progress_text, say
from api_cli.client import Client
from api_cli.presence import workers
from db.records import JobRecord
from db.status import JOB_ENDED, JobState

LINE_EVERY_S = 5.0
#: How often is looked whether anybody works.
PATIENCE_S = 3.0


def follow(client: Client, ref: str, show: Callable[[JobRecord], None] | None = None) -> JobRecord:
    """Show the job's progress until it has ended, by *show* or in items. Ctrl-C stops the looking, not the job."""
    job_id = client.status(ref).id
    hint = _WorkerHint(client)
    try:
        with _shown() if show is None else contextlib.nullcontext(show) as shown:

            def progress(job: JobRecord) -> None:
                shown(job)
                hint.look(job)

            return client.wait(job_id, progress)
    except KeyboardInterrupt:
        say(f"Job {job_id} goes on without you. Look again: nocka watch {job_id}")
        raise


def exit_code(job: JobRecord) -> int:
    """What a followed job ends the command with."""
    if job.state is not JobState.DONE:
        return EXIT_FAILED
    return EXIT_FAILED_ITEMS if job.counts.failed or job.counts.expired else 0


class _WorkerHint:
    """Says once that no worker runs, when the job has not ended and none can be seen."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._look_at = time.monotonic() + PATIENCE_S
        self._said = False

    def look(self, job: JobRecord) -> None:
        """Look for a worker now and then."""
        if self._said or job.state in JOB_ENDED or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + PATIENCE_S
        if not workers(self._client.settings):
            self._said = True
            say("No worker runs. The job is safe and goes on with one; in another terminal type: nocka up")


@contextlib.contextmanager
def _shown() -> Iterator[Callable[[JobRecord], None]]:
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _Lines().show
        return
    from rich.progress import BarColumn, Progress, TextColumn  # slow to load, and only a terminal has a bar

    columns = (BarColumn(bar_width=20), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console(stderr=True)) as bar:
        task = bar.add_task("", total=None)

        def show(job: JobRecord) -> None:
            bar.update(task, total=job.counts.total, completed=job.counts.ended, description=progress_text(job))

        yield show


class _Lines:
    """One line whenever the counts changed, at most every few seconds, and at the end."""

    def __init__(self) -> None:
        self._last = ""
        self._at = -LINE_EVERY_S

    def show(self, job: JobRecord) -> None:
        """Print the line if it is due."""
        line = f"{job.id} {job.state.value}: {progress_text(job)}"
        due = time.monotonic() - self._at >= LINE_EVERY_S or job.state in JOB_ENDED
        if line != self._last and due:
            self._last, self._at = line, time.monotonic()
            say(line)
