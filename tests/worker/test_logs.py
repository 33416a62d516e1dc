"""Logs are for eyes or for programs, rotate, and are their owner's alone."""

from __future__ import annotations

import json
import logging
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.worker.helpers import Start, until
from worker import logs


@pytest.fixture(autouse=True)
def left_as_found() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    logs.configure()
    structlog.reset_defaults()
    root.handlers, root.level = handlers, level


def test_lines_are_for_eyes_or_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same event in both formats, on stderr and in the file; another library's chatter in neither."""
    logs.configure(file=tmp_path / "logs" / "worker.log")
    structlog.get_logger("worker").info("item done", job="j", tokens=3)
    logging.getLogger("rq.worker").info("chatter")
    text = (tmp_path / "logs" / "worker.log").read_text()
    assert "item done" in text and "tokens=3" in text and "chatter" not in text
    assert capsys.readouterr().err == text

    logs.configure(json_lines=True, file=tmp_path / "logs" / "worker.jsonl")
    structlog.get_logger("worker").warning("zażółć", job="j")
    [line] = (tmp_path / "logs" / "worker.jsonl").read_text().splitlines()
    assert json.loads(line).items() >= {"event": "zażółć", "job": "j", "level": "warning"}.items()


def test_files_rotate_and_stay_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is logged, there are five small files, each 0600 in a 0700 folder, and the last line is there."""
    monkeypatch.setattr(logs, "FILE_BYTES", 2000)
    logs.configure(json_lines=True, file=tmp_path / "logs" / "worker.log")
    for number in range(300):
        structlog.get_logger("worker").info("item done", number=number)
    files = sorted((tmp_path / "logs").iterdir())

    assert [file.name for file in files] == ["worker.log", *(f"worker.log.{number}" for number in range(1, 5))]
    assert all(file.stat().st_size <= 2000 and stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700
    assert json.loads(files[0].read_text().splitlines()[-1])["number"] == 299


def test_the_shipped_processes_log_into_the_home(
    isolated_environment: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Supervisor and broker write files of their own under NOCKA_HOME/logs, as JSON when that is set."""
    monkeypatch.setenv("NOCKA_LOG_FORMAT", "json")
    start("worker.supervisor")
    folder = isolated_environment / "logs"
    until(lambda: (folder / "broker-process.log").exists() and "ready" in (folder / "broker-process.log").read_text())

    for name in ("supervisor", "broker-process"):
        for line in (folder / f"{name}.log").read_text().splitlines():
            assert json.loads(line)["level"] == "info"
