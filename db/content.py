"""What an answer's text depends on, as a hash: equal hashes mean equal texts, so the second need not be generated.

Of a draft nothing is in it, for drafts never show in the text.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

from db.catalogue import PACKAGE, entry
from db.specs import CellSpec, Decoding, ItemSpec, JobKind, JobSpec

#: To be raised when the same options begin to give another text.
SCHEME = 1
#: Options that mean nothing to a greedy answer.
_OF_CHANCE = {"temperature", "top_p", "top_k", "min_p", "seed"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Content:
    """The hashes of a job. Strictly read-only."""

    #: Equal for two submits that ask for the same answers to the same ids in the same order.
    job: str
    #: One for each item, in order.
    answers: tuple[str, ...]


def content(spec: JobSpec) -> Content | None:
    """The job's hashes; None where answers are never reused: of an evaluation, or of a model that is not here."""
    if spec.kind is not JobKind.GENERATION:
        return None
    [cell] = spec.cells
    model = _model(cell)
    if model is None:
        return None
    usual = _how(model, cell.decoding)
    answers = []
    for item in spec.items:
        own = item.overrides.model_fields_set
        decoding = cell.decoding.overridden(item.overrides) if own else cell.decoding
        answers.append(_answer_hash(item, decoding, _how(model, decoding) if own else usual))
    items = [(item.custom_id, item.reference, answer) for item, answer in zip(spec.items, answers, strict=True)]
    rejected = [(item.custom_id, item.code, item.message) for item in spec.rejected]
    return Content(job=_hash(_text([items, rejected])), answers=tuple(answers))


def _how(model: list[Any], decoding: Decoding) -> str:
    options = decoding.model_dump(mode="json", exclude=_OF_CHANCE if decoding.temperature == 0 else set())
    return _text([SCHEME, model, options])


def _answer_hash(item: ItemSpec, decoding: Decoding, how: str) -> str:
    turns = None if item.messages is None else [(turn.role, turn.content) for turn in item.messages]
    # The noise of a sampled answer depends on the item's id.
    chance = None if decoding.temperature == 0 else item.custom_id
    return _hash(how + _text([turns, item.text, chance]))


def _model(cell: CellSpec) -> list[Any] | None:
    """What tells *cell*'s target from any other model; None for a folder that is not on this machine."""
    known = entry(cell.target)
    source = cell.target if known is None else known.source
    revision = cell.target_revision or (None if known is None else known.revision)
    folder = _folder(source)
    if folder is None:
        return [source, revision, cell.dtype.value]
    try:
        files = sorted((path.name, path.stat()) for path in folder.iterdir() if path.is_file())
    except OSError:
        return None
    # A model that was trained or converted anew is another one.
    return [str(folder), [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files], cell.dtype.value]


def _folder(source: str) -> Path | None:
    """Where the model lies; None for one of a model hub."""
    if source.startswith(PACKAGE):
        package, _, inside = source.removeprefix(PACKAGE).partition("/")
        found = importlib.util.find_spec(package)
        places = list(found.submodule_search_locations or []) if found is not None else []
        return Path(places[0], inside) if places else Path(source)
    return Path(source) if Path(source).is_absolute() else None


_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
