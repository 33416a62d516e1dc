"""
The shipped worker around the echo engine, in a process of its own: `python -P tests/worker/echo_worker.py`.

A file `kill-<point>` in the home makes it SIGKILL itself, once, when it comes to that point.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from echo import EchoModels, Journal
from rq import Queue
from rq.job import Job

from db.connect import open_store
from db.errors import NockaError
from db.records import Claim, Finished, Turnover
from db.settings import load_settings
from db.store import Store
from worker import logs, pulse, resident
from worker.__main__ import Limits, serve
from worker.jobs import slice as job_slice
from worker.lock import exclusive
from worker.parent import end_with_parent

HOME = Path(os.environ["NOCKA_HOME"])


def die_at(point: str) -> None:
    marker = HOME / f"kill-{point}"
    if marker.exists():
        marker.rename(HOME / f"killed-{point}")
        os.kill(os.getpid(), signal.SIGKILL)


class DyingStore(Store):
    """The real store, with the points at which to die."""

    def claim(self, worker: str) -> Claim | None:
        die_at("before-claim")
        claim = super().claim(worker)
        die_at("after-claim")
        return claim

    def finish(self, claim: Claim, finished: Finished) -> bool:
        written = super().finish(claim, finished)
        self._wrote(claim, written)
        return written

    def finish_and_claim(self, claim: Claim, finished: Finished, worker: str) -> Turnover:
        turnover = super().finish_and_claim(claim, finished, worker)
        self._wrote(claim, turnover.committed)
        if turnover.following is not None:
            die_at("after-claim")
        return turnover

    def _wrote(self, claim: Claim, written: bool) -> None:
        Journal(HOME).write("committed" if written else "stale", claim.item.custom_id)
        die_at("after-commit")


class DyingWorker(resident.ResidentWorker):
    """The real worker, with the point after RQ's acknowledgement."""

    def perform_job(self, job: Job, queue: Queue) -> bool:
        done = super().perform_job(job, queue)
        die_at("after-acknowledgement")
        return done


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int)
    logs.configure()
    end_with_parent(parser.parse_args().parent)
    job_slice.SLICE_RESULTS = 5
    pulse.BEAT_EVERY_S = float(os.environ.get("ECHO_BEAT_EVERY_S", pulse.BEAT_EVERY_S))
    pulse.LEASE_S = float(os.environ.get("ECHO_LEASE_S", pulse.LEASE_S))
    sys.modules["worker.__main__"].ResidentWorker = DyingWorker  # type: ignore[attr-defined]
    settings = load_settings()
    logs.configure(json_lines=settings.json_logs, file=settings.log_dir / "worker.log")
    try:
        with exclusive(settings.lock_path, "worker"):
            store = DyingStore(open_store(settings).engine)
            models = EchoModels(HOME, on_half=lambda: die_at("mid-generation"))
            serve(settings, store, models, Limits(settings))
    except NockaError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
