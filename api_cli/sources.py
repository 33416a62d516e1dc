"""Files, folders and standard input as records, each with its place. Knows lines and encodings, not jobs."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from api_cli.plain_format import parse_object, parse_row, text_column
from api_cli.record import Fault, Record, shown, text_faults
from db.errors import Problem

STDIN = "-"
TEXT_SUFFIXES = frozenset({".txt", ".md"})
SUFFIXES = TEXT_SUFFIXES | {".csv", ".jsonl"}
_READ = "nocka reads .txt, .md, .csv and .jsonl"
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """Strictly read-only. One record and where it came from."""

    source: str
    #: From 1; None for a file that is one document.
    line: int | None
    record: Record
    #: An unambiguous id, for a document whose short one another has too.
    path_id: str | None = None


class Sources:
    """Reads what a user names. A record each lands in `entries`, what is wrong with a whole source in `refusals`."""

    def __init__(self, column: str | None, stdin: BinaryIO) -> None:
        self._column = column
        self._stdin = stdin
        self.entries: list[Entry] = []
        self.refusals: list[Problem] = []
        self.notes: list[str] = []

    def read(self, path: str) -> None:
        """Read a file, a folder, or `-`."""
        if path == STDIN:
            self._read_stdin()
        elif Path(path).is_dir():
            self._read_folder(Path(path))
        elif Path(path).suffix.lower() not in SUFFIXES and Path(path).exists():
            self._refuse(path, "unsupported_file", _READ)
        else:
            self._read_file(Path(path), path, nfc(Path(path).name))

    def _read_stdin(self) -> None:
        data = self._stdin.read()
        first = next((line for line in data.removeprefix(_BOM).split(b"\n") if line.strip()), b"")
        if first.lstrip().startswith(b"{"):
            self._read_jsonl(STDIN, data)
        else:
            self._read_document(STDIN, data, "stdin", STDIN)

    def _read_folder(self, folder: Path) -> None:
        found, other = 0, []
        for path in sorted(_visible_files(folder), key=lambda path: nfc(str(path))):
            if path.suffix.lower() not in SUFFIXES:
                other.append(path.name)
                continue
            found += 1
            self._read_file(path, str(path), nfc(path.relative_to(folder).as_posix()))
        if other:
            self.notes.append(f"{folder}: skipped {len(other)} other file(s), such as {other[0]}; {_READ}")
        if not found:
            self._refuse(str(folder), "empty_folder", f"no input in this folder; {_READ}")

    def _read_file(self, path: Path, source: str, name: str) -> None:
        try:
            data = path.read_bytes()
        except OSError as error:
            self._refuse(source, "unreadable", error.strerror or str(error))
            return
        suffix = path.suffix.lower()
        if suffix in TEXT_SUFFIXES:
            self._read_document(source, data, name, nfc(Path(source).as_posix()))
        elif not data.removeprefix(_BOM).strip():
            self._refuse(source, "empty_file", "the file is empty")
        elif suffix == ".csv":
            self._read_csv(source, data)
        else:
            self._read_jsonl(source, data)

    def _read_document(self, source: str, data: bytes, name: str, path_id: str) -> None:
        try:
            name.encode()
        except UnicodeEncodeError:
            self._refuse(source, "bad_utf8", "the file's name is not UTF-8")
            return
        text, fault = decoded(data)
        # The editor's last newline is no part of the prompt, and Windows' line ends mean nothing to a model.
        text = text.replace("\r\n", "\n").rstrip("\n")
        faults = [fault] if fault else text_faults("the file" if source != STDIN else "standard input", text)
        record = Record(custom_id=name, document=text, faults=tuple(faults))
        self.entries.append(Entry(source=source, line=None, record=record, path_id=path_id))

    def _read_jsonl(self, source: str, data: bytes) -> None:
        # Only \n ends a line: JSON strings may hold U+2028 and other characters that str.splitlines cuts at.
        for number, line in enumerate(data.removeprefix(_BOM).split(b"\n"), start=1):
            if line.strip():
                self.entries.append(Entry(source=source, line=number, record=_json_record(line)))

    def _read_csv(self, source: str, data: bytes) -> None:
        # Bytes that are not UTF-8 become lone surrogates, so that only their own row is refused.
        rows = _csv_rows(data.removeprefix(_BOM).decode("utf-8", "surrogateescape"))
        try:
            _, header = next(rows)
            column = text_column(header, self._column)
            if isinstance(column, Fault):
                self._refuse(source, column.code, column.message)
                return
            before = len(self.entries)
            for number, cells in rows:
                self.entries.append(Entry(source=source, line=number, record=_csv_record(header, cells, column)))
            if len(self.entries) == before:
                self._refuse(source, "empty_file", "a header and no rows")
        except csv.Error as error:
            self._refuse(source, "bad_csv", f"not a CSV file: {error}")

    def _refuse(self, source: str, code: str, message: str) -> None:
        self.refusals.append(Problem(source=printable(source), line=None, code=code, message=message))


def nfc(name: str) -> str:
    """*name* as Linux and Windows write it; macOS hands out decomposed letters."""
    return unicodedata.normalize("NFC", name)


def printable(name: str) -> str:
    """*name* with undecodable bytes replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def decoded(data: bytes) -> tuple[str, Fault | None]:
    """The text in *data*, or the fault that it is not UTF-8."""
    try:
        return data.removeprefix(_BOM).decode("utf-8"), None
    except UnicodeDecodeError as error:
        if data.startswith(_UTF16):
            return "", Fault("bad_utf8", "this is UTF-16; save it as UTF-8")
        line = data.count(b"\n", 0, error.start) + 1
        where = f"byte 0x{error.object[error.start]:02x} in line {line}"
        return "", Fault("bad_utf8", f"not UTF-8 ({where}); for a Windows file: iconv -f cp1250 -t utf-8")


def _visible_files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(root, name) for name in names if not name.startswith("."))


def _json_record(line: bytes) -> Record:
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_doubles)
    except UnicodeDecodeError as error:
        return Record(
            faults=(Fault("bad_utf8", f"not UTF-8 (byte 0x{line[error.start]:02x} in column {error.start + 1})"),)
        )
    except json.JSONDecodeError as error:
        return Record(faults=(Fault("invalid_json_line", f"not JSON: {error.msg} in column {error.colno}"),))
    except (ValueError, RecursionError) as error:
        return Record(faults=(Fault("invalid_json_line", f"not JSON: {error}"),))
    if not isinstance(value, dict):
        return Record(faults=(Fault("not_an_object", f"a JSON object is needed, not {shown(value)}"),))
    return parse_object(value)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return found


def _csv_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """The rows with the line each begins in; blank ones are skipped. Excel writes `;` where the comma is decimal."""
    csv.field_size_limit(1 << 30)
    lines = text.split("\n")
    header = next((line for line in lines if line.strip()), "")
    delimiter = max(",;\t", key=header.count)
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    begins = 1
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield begins, cells
        begins = reader.line_num + 1


def _csv_record(header: list[str], cells: list[str], column: str) -> Record:
    if any("\ud800" <= character <= "\udfff" for cell in cells for character in cell):
        return Record(faults=(Fault("bad_utf8", "not UTF-8; for a Windows file: iconv -f cp1250 -t utf-8"),))
    if len(cells) != len(header):
        message = f"{len(cells)} cells where the header has {len(header)}; put text with separators in double quotes"
        return Record(faults=(Fault("bad_row", message),))
    row = dict(zip(header, cells, strict=True))
    return parse_row({name: value.replace("\r\n", "\n") for name, value in row.items()}, column)
