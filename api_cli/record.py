"""One input as read, whichever format it came in, and the checks that every format shares."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from db.specs import Message, Overrides

#: What a text may not hold: NUL (Postgres refuses it) and lone surrogates (no UTF-8 has them).
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_PREFIX = re.compile(r"^(Value error, |Input )")
MAX_CUSTOM_ID = 512
NO_OVERRIDES = Overrides()


@dataclasses.dataclass(frozen=True)
class Fault:
    """Strictly read-only. One thing wrong with one record; its place is not known here."""

    code: str
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """Strictly read-only. One input before the instruction is put around it.

    Without faults exactly one of `document`, `messages` and `text` is set.
    """

    #: The record's own id where it has a usable one.
    custom_id: str | None = None
    #: Plain text: `--prompt` goes around it.
    document: str | None = None
    #: A conversation that stands by itself.
    messages: tuple[Message, ...] | None = None
    #: Raw text that stands by itself, continued without a template.
    text: str | None = None
    reference: str | None = None
    overrides: Overrides = NO_OVERRIDES
    #: The model that the line names; the job's target answers all the same.
    model: str | None = None
    #: Fields that were accepted and have no effect here.
    ignored: frozenset[str] = frozenset()
    faults: tuple[Fault, ...] = ()


def sentences(error: ValidationError) -> list[str]:
    """What pydantic found, one plain sentence for each: `max_tokens: should be greater than or equal to 1, not 0`."""
    found = []
    for detail in error.errors(include_url=False):
        where = ".".join(str(part) for part in detail["loc"] if part != "decoding")
        what = _PREFIX.sub("", detail["msg"])
        if detail["type"] == "extra_forbidden":
            found.append(f"{where}: no such option")
        elif detail["type"] == "value_error":
            found.append(f"{where}: {what}" if where else what)
        else:
            found.append(f"{where}: {what}, not {shown(detail['input'])}")
    return found


def shown(value: Any) -> str:
    """*value* as JSON, cut to 60 characters."""
    written = json.dumps(value, ensure_ascii=False, default=str)
    return written if len(written) <= 60 else f"{written[:57]}..."


def storable(text: str) -> str:
    """*text* with what no store keeps written as escapes."""
    return _UNSTORABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def text_faults(field: str, text: str) -> list[Fault]:
    """Empty or unstorable."""
    if not text.strip():
        return [Fault("empty_prompt", f"{field} is empty")]
    return unstorable_faults(field, text)


def unstorable_faults(field: str, text: str) -> list[Fault]:
    """Characters that no store keeps."""
    found = _UNSTORABLE.search(text)
    if found is None:
        return []
    return [Fault("bad_value", f"{field} holds U+{ord(found[0]):04X}, which is not text")]


def custom_id_of(value: Any) -> tuple[str | None, list[Fault]]:
    """The usable id in *value*; None without a fault where there is none."""
    if value is None:
        return None, []
    if not isinstance(value, str):
        return None, [Fault("bad_value", f"custom_id should be a string, not {shown(value)}")]
    if not value.strip() or len(value) > MAX_CUSTOM_ID:
        return None, [Fault("bad_value", f"custom_id should be 1 to {MAX_CUSTOM_ID} characters long, not {len(value)}")]
    faults = unstorable_faults("custom_id", value)
    return (None if faults else value), faults


def overrides_of(options: Mapping[str, Any]) -> tuple[Overrides, list[Fault]]:
    """Decoding options, strictly typed: a number in quotes is not a number."""
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return NO_OVERRIDES, []
    if isinstance(given.get("stop"), str):
        given["stop"] = [given["stop"]]
    faults = [fault for text in _texts(given.get("stop")) for fault in unstorable_faults("stop", text)]
    if faults:
        return NO_OVERRIDES, faults
    try:
        return Overrides.model_validate_json(json.dumps(given), strict=True), []
    except ValidationError as error:
        return NO_OVERRIDES, [Fault("bad_value", sentence) for sentence in sentences(error)]


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def messages_of(value: Any, field: str = "messages") -> tuple[tuple[Message, ...], list[Fault]]:
    """A conversation in OpenAI's shape: content is a string or a list of text parts; `developer` is `system`."""
    if not isinstance(value, list) or not all(isinstance(turn, dict) for turn in value):
        return (), [Fault("bad_value", f"{field} should be a list of objects, not {shown(value)}")]
    faults: list[Fault] = []
    turns = []
    for number, turn in enumerate(value):
        role, content, wrong = _turn(turn, f"{field}[{number}]")
        faults += wrong
        if not wrong:
            turns.append(Message.model_validate({"role": role, "content": content}))
    if not faults and not any(turn.content.strip() for turn in turns if turn.role != "system"):
        faults.append(Fault("empty_prompt", f"{field} holds no text to answer"))
    return tuple(turns), faults


def _turn(turn: dict[str, Any], where: str) -> tuple[str, str, list[Fault]]:
    role = turn.get("role")
    role = "system" if role == "developer" else role
    faults = [
        Fault("unsupported_field", f"{where}.{name} is not supported")
        for name, value in turn.items()
        if name not in ("role", "content", "name") and value not in (None, [])
    ]
    if role in ("tool", "function"):
        faults.append(Fault("unsupported_field", f"{where}: role {role} is not supported"))
    elif role not in ("system", "user", "assistant"):
        faults.append(Fault("bad_value", f"{where}.role should be system, user or assistant, not {shown(role)}"))
    content, wrong = _content(turn.get("content"), where)
    return str(role), content, faults + wrong + unstorable_faults(f"{where}.content", content)


def _content(content: Any, where: str) -> tuple[str, list[Fault]]:
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list):
        return "", [Fault("bad_value", f"{where}.content should be a string, not {shown(content)}")]
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            return "", [
                Fault("unsupported_field", f"{where}.content: only text parts are supported, not {shown(part)}")
            ]
        texts.append(part["text"])
    return "".join(texts), []
