"""What a user hands in, as items and problems: everything is read and checked before anything is queued.

Accepted are .txt and .md (one document each), .csv (one document a row), .jsonl (see `plain_format`, `batch_format`),
folders of these (recursive, sorted, hidden files skipped) and `-` for standard input (JSONL where its first line that
is not blank begins with `{`, else one document). A byte order mark, CRLF, blank lines and a missing final newline are
fine.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import BinaryIO

from api_cli.record import Fault, Record, storable
from api_cli.sources import Entry, Sources
from db.errors import InputError, Problem
from db.specs import ItemSpec, Message, RejectedItem

PLACEHOLDER = "{text}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instruction:
    """What goes around each document."""

    #: Holds `{text}`, or the document follows after a blank line.
    prompt: str | None = None
    system: str | None = None
    #: Continue the text itself, without a chat template.
    raw: bool = False

    def __post_init__(self) -> None:
        if self.prompt is not None and not self.prompt.strip():
            raise InputError("the prompt is empty")
        if self.raw and self.system is not None:
            raise InputError("--system needs a chat template, and --raw continues the text without one")

    def around(self, document: str) -> str:
        """*document* with the instruction."""
        if self.prompt is None:
            return document
        if PLACEHOLDER in self.prompt:
            return self.prompt.replace(PLACEHOLDER, document)
        return f"{self.prompt.rstrip()}\n\n{document}"

    def faults(self, record: Record) -> list[Fault]:
        """What *record* brings that contradicts this."""
        own = "messages" if record.messages is not None else "prompt" if record.text is not None else None
        if own is None:
            return []
        faults = []
        if self.prompt is not None:
            faults.append(Fault("conflict", f"the line brings its own {own}; --prompt goes around documents only"))
        if self.raw and record.messages is not None:
            faults.append(Fault("conflict", "the line brings messages, which need a chat template; leave --raw out"))
        if self.system is not None and record.text is not None:
            faults.append(Fault("conflict", "the line's prompt is continued raw and takes no --system"))
        return faults


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """Everything that was read. Strictly read-only."""

    items: tuple[ItemSpec, ...]
    #: In reading order: `problems` of single records first found, then of whole sources.
    problems: tuple[Problem, ...]
    #: The records with problems, as `--skip-invalid` queues them.
    rejected: tuple[RejectedItem, ...]
    #: Problems that no record can be skipped for: a missing file, an empty folder, a CSV without its column.
    refusals: tuple[Problem, ...]
    #: The one model that the lines name, where they name one.
    model: str | None
    #: What the user should know although it is no problem.
    notes: tuple[str, ...]


def read_inputs(paths: Sequence[str], instruction: Instruction, column: str | None, stdin: BinaryIO) -> Inputs:
    """Read and check everything in *paths*; raises nothing for what it finds there."""
    sources = Sources(column, stdin)
    for path in paths:
        sources.read(path)
    entries = _distinct(sources.entries)
    faults = _all_faults(entries, instruction)
    ids = _assigned(entries, faults)
    items = [_item(entry.record, ids[at], instruction) for at, entry in enumerate(entries) if not faults[at]]
    rejected = [_rejected(ids[at], found) for at, found in enumerate(faults) if found]
    models = [entry.record.model for entry in entries if entry.record.model is not None]
    return Inputs(
        items=tuple(items),
        problems=tuple(_problem(entry, fault) for at, entry in enumerate(entries) for fault in faults[at]),
        rejected=tuple(rejected),
        refusals=tuple(sources.refusals),
        model=models[0] if models else None,
        notes=(*sources.notes, *_ignored_note(entries)),
    )


def _distinct(entries: Sequence[Entry]) -> list[Entry]:
    """The entries, with documents of the same name told apart by their path."""
    names = collections.Counter(entry.record.custom_id for entry in entries)
    return [
        dataclasses.replace(entry, record=dataclasses.replace(entry.record, custom_id=entry.path_id))
        if entry.path_id is not None and names[entry.record.custom_id] > 1
        else entry
        for entry in entries
    ]


def _all_faults(entries: Sequence[Entry], instruction: Instruction) -> list[list[Fault]]:
    """Per entry its own faults, the instruction's, and those that only show beside the other entries."""
    first: dict[str, Entry] = {}
    model: str | None = None
    found = []
    for entry in entries:
        record = entry.record
        faults = [*record.faults, *instruction.faults(record)]
        earlier = first.setdefault(record.custom_id, entry) if record.custom_id is not None else entry
        if earlier is not entry:
            faults.append(Fault("duplicate_custom_id", f"custom_id {record.custom_id!r} is taken by {_place(earlier)}"))
        model = model or record.model
        if record.model not in (None, model):
            faults.append(Fault("model_mismatch", f"model {record.model!r} after {model!r}; a job has one model"))
        found.append(faults)
    return found


def _assigned(entries: Sequence[Entry], faults: Sequence[Sequence[Fault]]) -> list[str]:
    """An id for each entry: its own where that is free, else `line-N`, else that with the file's name or a number."""
    taken: set[str] = set()
    ids: list[str | None] = []
    for entry in entries:
        own = entry.record.custom_id
        ids.append(own if own not in taken else None)
        taken |= {own} if own is not None else set()
    for at, entry in enumerate(entries):
        if ids[at] is None:
            ids[at] = next(name for name in _fallbacks(entry) if name not in taken)
            taken.add(str(ids[at]))
    return [str(name) for name in ids]


def _fallbacks(entry: Entry) -> Iterable[str]:
    short = f"line-{entry.line}" if entry.line is not None else "document"
    yield short
    source = entry.source.rsplit("/", 1)[-1]
    yield f"{source}:{short}"
    number = 2
    while True:
        yield f"{source}:{short}:{number}"
        number += 1


def _item(record: Record, custom_id: str, instruction: Instruction) -> ItemSpec:
    messages, text = record.messages, record.text
    if record.document is not None:
        whole = instruction.around(record.document)
        messages, text = (None, whole) if instruction.raw else ((Message(role="user", content=whole),), None)
    if messages is not None and instruction.system is not None and messages[0].role != "system":
        messages = (Message(role="system", content=instruction.system), *messages)
    return ItemSpec(
        custom_id=custom_id, messages=messages, text=text, reference=record.reference, overrides=record.overrides
    )


def _rejected(custom_id: str, faults: Sequence[Fault]) -> RejectedItem:
    message = storable("; ".join(fault.message for fault in faults))
    return RejectedItem(custom_id=custom_id, code=faults[0].code, message=message)


def _problem(entry: Entry, fault: Fault) -> Problem:
    return Problem(
        source=entry.source,
        line=entry.line,
        code=fault.code,
        message=storable(fault.message),
        custom_id=entry.record.custom_id,
    )


def _place(entry: Entry) -> str:
    return entry.source if entry.line is None else f"{entry.source}:{entry.line}"


def _ignored_note(entries: Sequence[Entry]) -> list[str]:
    names = sorted(frozenset().union(*(entry.record.ignored for entry in entries)))
    return [f"without effect here: {', '.join(names)}"] if names else []
