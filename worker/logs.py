"""Log lines of the worker's processes, on stderr. No line ever holds text of a document or an answer."""

from __future__ import annotations

import logging
import sys

import structlog


def configure(*, json_lines: bool = False) -> None:
    """Write one line per event to stderr, for eyes or, with *json_lines*, for programs."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=json_lines),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if json_lines
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    # RQ tells each wake-up in several lines, with its arguments.
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    logging.getLogger("rq").setLevel(logging.WARNING)
