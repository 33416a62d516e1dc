"""Log lines of nocka's processes, on stderr and in rotating files. None ever holds text of a document or an answer."""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys
from pathlib import Path
from typing import IO

import structlog

#: A role's log is at most this many files of this size.
FILES, FILE_BYTES = 5, 4 * 1024**2
OURS = ("worker", "supervisor", "broker")


def configure(*, json_lines: bool = False, file: Path | None = None) -> None:
    """Write one line per event to stderr and to *file*, for eyes or, with *json_lines*, for programs.

    Of other libraries only warnings are kept. May be called again; the files of before are closed.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=json_lines),
    ]
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        if isinstance(old, _PrivateFile):
            old.close()
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if file is not None:
        handlers.append(_private_file(file))
    for handler in handlers:
        coloured = not isinstance(handler, _PrivateFile) and sys.stderr.isatty()
        renderer: structlog.typing.Processor = (
            structlog.processors.JSONRenderer(ensure_ascii=False)
            if json_lines
            else structlog.dev.ConsoleRenderer(colors=coloured, pad_event_to=0)
        )
        last = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
        handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
        handler.addFilter(_worth_a_line)
        root.addHandler(handler)
    root.setLevel(logging.INFO)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _worth_a_line(record: logging.LogRecord) -> bool:
    return record.name in OURS or record.levelno >= logging.WARNING


class _PrivateFile(logging.handlers.RotatingFileHandler):
    """Only its owner can read it, also after a rotation."""

    def _open(self) -> IO[str]:  # type: ignore[override]
        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=_private)


def _private_file(path: Path) -> logging.Handler:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _PrivateFile(path, maxBytes=FILE_BYTES, backupCount=FILES - 1, encoding="utf-8")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
