"""`--on-done CMD`: a job's command, run once the job has ended, with the job's summary as JSON on its stdin."""

from __future__ import annotations

import subprocess
import threading

import structlog

from db.store import Store

#: Seconds after which a command is killed.
TIME_LIMIT_S = 600.0

log = structlog.get_logger("worker")


def tell_ended(store: Store) -> None:
    """Start the commands of all jobs that have ended, each on a thread, so that a slow one is in nobody's way.

    A job counts as told before its command starts: it may be lost with the process, and is never run twice.
    """
    for telling in store.take_tellings():
        arguments = (telling.job_id, telling.command, telling.summary)
        threading.Thread(target=_run, args=arguments, name="on-done", daemon=True).start()


def _run(job_id: str, command: str, summary: str) -> None:
    try:
        ended = subprocess.run(
            ["/bin/sh", "-c", command],
            input=summary.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIME_LIMIT_S,
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("a job's command did not end well", job=job_id, reason=type(error).__name__)
    else:
        log.info("a job's command ended", job=job_id, code=ended.returncode)
