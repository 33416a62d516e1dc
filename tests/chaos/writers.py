"""Four command lines that write into one store, each its own kind of change, and what they were told."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

from db.status import JobState
from tests.chaos.night import SUBMIT, Night

#: Items of every job.
ITEMS = 4
NEVER_DUE = ("--not-before", "2999-01-01")
#: More than any mini model reads: it fails within milliseconds, however often it is tried.
TOO_LONG = "słowo " * 20_000


class Writer:
    """One user's command line; `write` is one round of it."""

    def __init__(self, night: Night, folder: Path) -> None:
        self._night = night
        self._folder = folder
        #: Ids that `submit` printed, in their order.
        self.jobs: list[str] = []
        #: Everything that was printed.
        self.said: list[str] = []
        #: How often each change was accepted.
        self.accepted: Counter[str] = Counter()
        self.cancelled: set[str] = set()

    def write(self) -> None:
        """Submit."""
        self.submit()

    def submit(self, *options: str, text: str = "") -> str:
        """Submit a job like no other; its id."""
        name = f"{type(self).__name__}-{len(self.jobs)}"
        path = self._folder / f"{name}.jsonl"
        path.write_text("\n".join(json.dumps({"text": text or f"{name} {item}"}) for item in range(ITEMS)), "utf-8")
        done = self.run("submit", str(path), *SUBMIT, *options)
        assert done.returncode == 0, done.stderr
        self.jobs.append(done.stdout.strip())
        self.accepted["submit"] += 1
        return self.jobs[-1]

    def submit_in_turn(self) -> str:
        """Submit what is not due before it is changed, then what the worker may be running or have ended by then."""
        return self.submit(*(() if len(self.jobs) % 2 else NEVER_DUE))

    def change(self, verb: str, job_id: str) -> bool:
        """Ask for *verb*; whether the store took it. It says no only to a job that has ended."""
        done = self.run(verb, job_id)
        self.accepted[verb] += done.returncode == 0
        assert done.returncode == 0 or "already" in done.stderr, done.stderr
        return done.returncode == 0

    def cancel(self, job_id: str) -> None:
        """Cancel, and see it cancelled unless it has ended."""
        if self.change("cancel", job_id):
            self.cancelled.add(job_id)
            assert self.state(job_id) is JobState.CANCELLED

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line and keep what it says."""
        done = self._night.nocka(*arguments)
        self.said += [done.stdout, done.stderr]
        return done

    def state(self, job_id: str) -> JobState:
        return self._night.store.job(job_id).state


class Cancels(Writer):
    """Cancels what waits for good, and what may be running or have ended."""

    def write(self) -> None:
        """Submit and cancel."""
        self.cancel(self.submit_in_turn())


class Pauses(Writer):
    """Pauses and resumes."""

    def write(self) -> None:
        """Submit, pause, resume."""
        job_id = self.submit_in_turn()
        if self.change("pause", job_id):
            # What ran when it was paused may be its last.
            assert self.state(job_id) in {JobState.PAUSED, JobState.DONE}
        if self.change("resume", job_id):
            assert self.state(job_id) is not JobState.PAUSED
        if len(self.jobs) % 2:  # it was not due and would never end
            self.cancel(job_id)


class Retries(Writer):
    """Has one job run again, each time that its items have failed."""

    #: Results that were set waiting again.
    retried = 0

    def write(self) -> None:
        """Retry."""
        if not self.jobs:
            self.submit(text=TOO_LONG)
            self._night.await_end(self.jobs[0])
        done = self.run("retry", self.jobs[0], "--json")
        assert done.returncode == 0, done.stderr
        self.retried += json.loads(done.stdout)["retried"]
        self.accepted["retry"] += 1
