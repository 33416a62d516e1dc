"""nocka's own, shorter input: plain JSONL records and CSV rows.

A record is an object with exactly one of

    {"text": "..."}        a document; `--prompt` goes around it
    {"prompt": "..."}      the same thing under the name that many files use
    {"messages": [...]}    a conversation that stands by itself

and optionally `custom_id` (else `line-N`), `reference` (the right answer) and decoding options for this item alone:
max_tokens, temperature, top_p, top_k, min_p, repetition_penalty, seed, stop. Any other key is an error.

A CSV has a header. The document is the column named by `--column`, else `text` or `prompt`, else the only column
that is not `custom_id` or `reference`; those two mean what they mean above and other columns are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from api_cli.batch_format import ENVELOPE_KEYS, parse_request
from api_cli.record import Fault, Record, custom_id_of, messages_of, overrides_of, shown, text_faults, unstorable_faults
from db.specs import Overrides

_INPUTS = ("text", "prompt", "messages")
_OPTIONS = frozenset(Overrides.model_fields)


def parse_object(line: dict[str, Any]) -> Record:
    """The record in one JSON object: a batch request where it looks like one, else a plain record."""
    if ENVELOPE_KEYS & line.keys():
        return parse_request(line)
    if "response" in line:
        fault = Fault("bad_envelope", "this is a line of a batch's output; a request has method, url and body")
        return Record(custom_id=custom_id_of(line.get("custom_id"))[0], faults=(fault,))
    return _parse_plain(line)


def _parse_plain(line: dict[str, Any]) -> Record:
    custom_id, faults = custom_id_of(line.get("custom_id"))
    given = [name for name in _INPUTS if line.get(name) is not None]
    if not given:
        faults.append(
            Fault(
                "bad_envelope", "neither a batch request (method, url, body) nor a record with text, prompt or messages"
            )
        )
    if len(given) > 1:
        faults.append(Fault("bad_value", f"{' and '.join(given)}: give one of them"))
    options = line.keys() - {"custom_id", "reference", *_INPUTS}
    for name in sorted(options - _OPTIONS):
        faults.append(Fault("unknown_option", f"{name}: no such option"))
    overrides, wrong = overrides_of({name: line[name] for name in options & _OPTIONS})
    reference = line.get("reference")
    faults += wrong + _reference_faults(reference)
    document, messages = None, None
    if given == ["messages"]:
        messages, wrong = messages_of(line["messages"])
        faults += wrong
    elif len(given) == 1:
        document, wrong = _document(given[0], line[given[0]])
        faults += wrong
    return Record(
        custom_id=custom_id,
        document=document,
        messages=messages,
        reference=reference if isinstance(reference, str) else None,
        overrides=overrides,
        faults=tuple(faults),
    )


def _document(field: str, value: Any) -> tuple[str | None, list[Fault]]:
    if not isinstance(value, str):
        return None, [Fault("bad_value", f"{field} should be a string, not {shown(value)}")]
    return value, text_faults(field, value)


def _reference_faults(reference: Any) -> list[Fault]:
    if reference is None:
        return []
    if not isinstance(reference, str):
        return [Fault("bad_value", f"reference should be a string, not {shown(reference)}")]
    return unstorable_faults("reference", reference)


def text_column(header: Sequence[str], asked: str | None) -> str | Fault:
    """The column that holds the documents, or why there is none."""
    doubled = sorted({name for name in header if header.count(name) > 1})
    if doubled:
        return Fault("bad_columns", f"the header names {', '.join(doubled)} twice")
    if asked is not None:
        return asked if asked in header else Fault("bad_columns", f"no column {asked!r}; there are {', '.join(header)}")
    named = [name for name in header if name in ("text", "prompt")]
    others = [name for name in header if name not in ("custom_id", "reference")]
    if len(named) == 1 or len(others) == 1:
        return named[0] if len(named) == 1 else others[0]
    return Fault("bad_columns", f"which column holds the text? Say --column NAME; there are {', '.join(header)}")


def parse_row(row: dict[str, str], column: str) -> Record:
    """The record in one CSV row; an empty custom_id or reference is none."""
    custom_id, faults = custom_id_of(row.get("custom_id") or None)
    reference = row.get("reference") or None
    if column == "reference":
        reference = None
    return Record(
        custom_id=custom_id,
        document=row[column],
        reference=reference,
        faults=(*faults, *text_faults(column, row[column]), *_reference_faults(reference)),
    )
