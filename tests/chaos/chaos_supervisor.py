"""The shipped supervisor over a worker with a fault: `python -P tests/chaos/chaos_supervisor.py`."""

from __future__ import annotations

from pathlib import Path

from db.settings import load_settings
from worker import logs
from worker.lock import exclusive
from worker.supervisor import supervise

if __name__ == "__main__":
    logs.configure()
    settings = load_settings()
    with exclusive(settings.home / "supervisor.lock", "supervisor"):
        supervise(settings, [str(Path(__file__).with_name("chaos_worker.py"))])
