"""What a program does with nocka: submit, look, wait, read, cancel, pause, retry. The CLI is a thin coat over this.

For a program:

    with Client.open() as client:
        submitted = client.submit(spec)
        job = client.wait(submitted.job_id)
        for result in client.results(job.id): ...
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Self

from db.connect import open_store
from db.errors import BrokerError
from db.records import JobRecord, ResultRecord, Stored
from db.settings import Settings, load_settings
from db.specs import CellSpec, JobSpec
from db.status import JOB_ENDED, RETRYABLE, ResultState
from db.store import Store

POLL_S = 0.25


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submitted:
    """A job that is in the store. Strictly read-only."""

    job_id: str
    #: Why no worker could be woken; the job is safe and starts when one does.
    not_woken: BrokerError | None
    #: Whether the same job was there already, so that nothing was stored.
    existed: bool = False
    #: How many answers of earlier jobs it begins with.
    reused: int = 0


class Client:
    """One user of the store and the queue."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.settings = settings

    @classmethod
    def open(cls, settings: Settings | None = None) -> Client:
        """Connect as the environment says. Raises SettingsError, StoreError."""
        settings = settings or load_settings()
        return cls(open_store(settings), settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def submit(self, spec: JobSpec, *, force: bool = False) -> Submitted:
        """Store the job, then wake a worker. A broker that is away costs nothing but time.

        What was asked before is not run again: the same job is that job, and finished answers are copied, unless
        *force*.
        """
        if force:
            stored = Stored(job_id=self.store.submit(spec), existed=False, reused=0)
        else:
            stored = self.store.submit_once(spec)
        ended = self.store.job(stored.job_id).state in JOB_ENDED
        not_woken = None if ended else self._wake(stored.job_id)
        return Submitted(job_id=stored.job_id, not_woken=not_woken, existed=stored.existed, reused=stored.reused)

    def add_cells(self, ref: str, more: Sequence[CellSpec]) -> Submitted:
        """Run an evaluation's items under *more* cells too. Raises NotAllowed where it cannot go on."""
        job_id = self.store.find(ref)
        count = self.store.add_cells(job_id, more)
        return Submitted(job_id=job_id, not_woken=self._wake(job_id) if count else None)

    def jobs(self, limit: int | None = None) -> list[JobRecord]:
        """Read the newest jobs, newest first."""
        return self.store.jobs(limit)

    def status(self, ref: str) -> JobRecord:
        """Read a job by id, unique prefix, or `last`. Raises NotFound."""
        return self.store.job(ref)

    def wait(
        self, ref: str, progress: Callable[[JobRecord], None] = lambda job: None, poll_s: float = POLL_S
    ) -> JobRecord:
        """Block until the job has ended, calling *progress* at once and then every *poll_s* seconds."""
        job_id = self.store.find(ref)
        while True:
            job = self.store.job(job_id)
            progress(job)
            if job.state in JOB_ENDED:
                return job
            time.sleep(poll_s)

    def cells(self, ref: str) -> list[CellSpec]:
        """Read the job's cells in order."""
        return self.store.cells(self.store.find(ref))

    def results(self, ref: str, states: Collection[ResultState] | None = None) -> Iterator[ResultRecord]:
        """Read the job's results so far, in turn order."""
        return self.store.results(self.store.find(ref), states=states)

    def first_error(self, job: JobRecord) -> str | None:
        """Say why the job failed, or its first failed result."""
        if job.error_code is not None:
            return f"{job.error_code}: {job.error_message}"
        if not job.counts.failed:
            return None
        failed = next(iter(self.store.results(job.id, states={ResultState.FAILED})), None)
        return f"{failed.custom_id}: {failed.error_code}: {failed.error_message}" if failed else None

    def cancel(self, ref: str) -> JobRecord:
        """End the job; finished results stay. Raises NotAllowed when it has ended by itself."""
        return self.store.cancel(self.store.find(ref))

    def pause(self, ref: str) -> JobRecord:
        """Hold the job; an item that runs is handed back within seconds. Raises NotAllowed when it has ended."""
        return self.store.pause(self.store.find(ref))

    def resume(self, ref: str) -> tuple[Submitted, JobRecord]:
        """Let a paused job go on. Raises NotAllowed when it has ended."""
        job = self.store.resume(self.store.find(ref))
        return Submitted(job_id=job.id, not_woken=self._wake(job.id)), job

    def retry(self, ref: str, states: Collection[ResultState] = RETRYABLE) -> tuple[Submitted, int]:
        """Set the job's results in *states* waiting again; also return how many."""
        job_id = self.store.find(ref)
        count = self.store.retry(job_id, states)
        return Submitted(job_id=job_id, not_woken=self._wake(job_id) if count else None), count

    def _wake(self, job_id: str) -> BrokerError | None:
        from api_cli.enqueue import enqueue  # RQ is slow to load, and looking needs none

        try:
            enqueue(self.settings, job_id)
        except BrokerError as error:
            return error
        return None
