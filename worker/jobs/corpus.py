"""Text files as texts, one chunk or record at a time, with how many bytes were read for them."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

CHUNK_CHARS = 32_768


class CorpusError(Exception):
    """A record that holds no text; the message names file and line and quotes nothing."""


def texts(path: Path, column: str) -> Iterator[tuple[str, int]]:
    """Read *path*: of .jsonl lines and .csv rows the field *column*, else all of it, cut at line ends.

    Raises CorpusError, OSError. What is not UTF-8 becomes U+FFFD.
    """
    with path.open("rb") as raw, TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="") as file:
        match path.suffix.lower():
            case ".jsonl":
                found = _jsonl(file, path, column)
            case ".csv":
                found = _csv(file, path, column)
            case _:
                found = _plain(file)
        for text in found:
            yield text, raw.tell()


def _plain(file: TextIO) -> Iterator[str]:
    while text := file.read(CHUNK_CHARS):
        yield text + file.readline(CHUNK_CHARS)


def _jsonl(file: TextIO, path: Path, column: str) -> Iterator[str]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise CorpusError(f"{path}:{number}: not JSON") from error
        text = record.get(column) if isinstance(record, dict) else None
        if not isinstance(text, str):
            raise CorpusError(f"{path}:{number}: no text under {column!r} (--column NAME)")
        yield text


def _csv(file: TextIO, path: Path, column: str) -> Iterator[str]:
    csv.field_size_limit(sys.maxsize)
    rows = csv.DictReader(file)
    if column not in (rows.fieldnames or ()):
        raise CorpusError(f"{path}: no column {column!r} (--column NAME)")
    for row in rows:
        yield row[column] or ""
