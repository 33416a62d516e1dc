"""What a user asks for on the command line, made into the spec of a job. Touches neither store nor queue."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from api_cli.inputs import Inputs
from api_cli.ngram_header import read_header
from api_cli.record import sentences
from db import catalogue
from db.errors import InputError
from db.schedule import Schedule
from db.specs import WITHOUT_K, CellSpec, DrafterKind, JobKind, JobSpec, Translation

#: A draft that costs nothing may be as long as a round can be; what it is not sure of it leaves out by itself.
DEFAULT_K = (
    dict.fromkeys(DrafterKind, 2) | dict.fromkeys(WITHOUT_K, 0) | {DrafterKind.LOOKUP: 16, DrafterKind.SUFFIX: 16}
)
#: Drafters that take the draft which comes with the target.
DRAFTS_BY_DEFAULT = frozenset({DrafterKind.CROSS, DrafterKind.AUTO})
MAX_NAME = 200
_REPO_ID = re.compile(r"^[\w.-]+/[\w.-]+$")
#: Endings of a name that cannot be a repo id's and so must be a path.
_LIKE_A_PATH = ("/", "./", "../", "~")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """The options that shape a job's cells; None is not said. Strictly read-only."""

    target: str | None = None
    target_revision: str | None = None
    draft: str | None = None
    draft_revision: str | None = None
    drafter: str | None = None
    translation: str | None = None
    #: Path of an n-gram file as the user wrote it.
    ngram: str | None = None
    k: int | None = None
    dtype: str = "auto"
    #: Results at once; 0 is as many as pay.
    batch: int = 1
    #: Options of `db.specs.Decoding` by name; None is not said.
    decoding: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    compare_plain: bool = False
    #: Models that may run code of their own, as the user named them.
    trust_remote_code: tuple[str, ...] = ()


def cells(asked: Asked, model: str | None) -> tuple[CellSpec, ...]:
    """The cells: one, or plain and the asked one. *model* is the one that the input names.

    Raises InputError for a combination that means nothing, ModelUnavailable where no target was named and none fits.
    """
    target, default_draft = _target(asked, model)
    drafter = _drafter(asked)
    # Nobody chose a drafter: rows that run together do without.
    if asked.batch != 1 and asked.drafter is None and asked.draft is None and asked.ngram is None:
        drafter, default_draft = DrafterKind.OFF, None
    draft = asked.draft
    if draft is None and drafter in DRAFTS_BY_DEFAULT:
        known = catalogue.entry(target) if asked.drafter is not None else None
        draft = default_draft or (known.draft if known else None)
    translation = asked.translation
    if translation is None and drafter is DrafterKind.CROSS:
        translation = Translation.CONTEXT.value
    k = asked.k if asked.k is not None else DEFAULT_K[drafter]
    draft = model_name(draft, "draft") if draft is not None else None
    wanted = _cell(
        {
            "target": target,
            "target_revision": _revision(asked.target_revision, target, "target"),
            "draft": draft,
            "draft_revision": _revision(asked.draft_revision, draft, "draft"),
            "trust_remote_code": trusted(asked.trust_remote_code, (target, draft)),
            "drafter": drafter,
            "translation": translation,
            "ngram": None if asked.ngram is None else _ngram_path(asked.ngram),
            "k": k,
            "dtype": asked.dtype,
            "batch": asked.batch,
            "decoding": {name: value for name, value in asked.decoding.items() if value is not None},
        }
    )
    if not asked.compare_plain:
        return (wanted,)
    if wanted.drafter is DrafterKind.OFF:
        raise InputError("--compare-plain needs something to compare: add --draft NAME or --drafter KIND")
    return plain(wanted), wanted


def plain(cell: CellSpec) -> CellSpec:
    """*cell* without its drafter."""
    off = {"drafter": DrafterKind.OFF, "translation": None, "ngram": None, "k": 0}
    trust = tuple(name for name in cell.trust_remote_code if name == cell.target)
    return cell.model_copy(update={"draft": None, "draft_revision": None, "trust_remote_code": trust, **off})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """What a job is called, when it runs, and what happens at its end. Strictly read-only."""

    name: str
    priority: int
    schedule: Schedule
    on_done: str | None


def job_spec(asked: Asked, inputs: Inputs, terms: Terms, skip_invalid: bool) -> JobSpec:
    """The whole job. Raises InputError."""
    chosen = cells(asked, inputs.model)
    try:
        return JobSpec(
            kind=JobKind.EVALUATION if len(chosen) > 1 else JobKind.GENERATION,
            name=terms.name,
            cells=chosen,
            items=inputs.items,
            rejected=inputs.rejected if skip_invalid else (),
            priority=terms.priority,
            schedule=terms.schedule,
            on_done=terms.on_done,
        )
    except ValidationError as error:
        raise InputError("; ".join(sentences(error))) from error


def default_name(paths: tuple[str, ...]) -> str:
    """`raporty`, `a.txt and 3 more`, `stdin`."""
    first = "stdin" if paths[0] == "-" else os.path.basename(os.path.abspath(paths[0])) or "input"  # noqa: PTH119
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return first.encode("utf-8", "replace").decode()[: MAX_NAME - len(more)] + more


def model_name(name: str, role: str) -> str:
    """A catalogue name or repo id as it is, a local folder as an absolute path. Raises InputError for anything else."""
    if catalogue.entry(name) is not None:
        return name
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(f"--{role} {name}: that folder holds no config.json, so it is no model")
        return str(folder.resolve())
    if name.startswith(_LIKE_A_PATH) or name.endswith("/"):
        raise InputError(f"--{role} {name}: there is no such folder")
    if _REPO_ID.match(name):
        return name
    near = difflib.get_close_matches(name, [known.name for known in catalogue.entries()], n=3, cutoff=0.5)
    raise InputError(
        f"--{role} {name}: neither a name of the catalogue nor a local folder nor a Hugging Face repo id (ORG/NAME)",
        f"Did you mean {', '.join(near)}?" if near else "Type: nocka models",
    )


def trusted(names: Iterable[str], models: Iterable[str | None]) -> tuple[str, ...]:
    """Those of *models* that *names* name. Raises InputError for a name that is none of theirs."""
    known = {_source(model): model for model in models if model is not None}
    found: dict[str, None] = {}
    for name in names:
        if _source(name) not in known:
            hint = f"Name {' or '.join(known.values())}."
            raise InputError(f"--trust-remote-code {name}: it is neither the target nor the draft", hint)
        found[known[_source(name)]] = None
    return tuple(found)


def _source(name: str) -> str:
    """What the model *name* stands for: a catalogue name and its repo id are one, as are all ways to a folder."""
    known = catalogue.entry(name)
    folder = Path(name).expanduser()
    return known.source if known is not None else str(folder.resolve()) if folder.is_dir() else name


def _target(asked: Asked, model: str | None) -> tuple[str, str | None]:
    """The target, and the draft that comes with it when nobody chose anything."""
    if asked.target is not None:
        return model_name(asked.target, "target"), None
    if model is not None and catalogue.entry(model) is not None:
        return model, None
    chosen = catalogue.default_target(catalogue.memory_bytes(), catalogue.is_apple_silicon())
    return chosen.name, chosen.draft


def _drafter(asked: Asked) -> DrafterKind:
    if asked.drafter is not None:
        return DrafterKind(asked.drafter)
    if asked.translation is None and asked.k is None:
        return DrafterKind.AUTO
    return DrafterKind.NGRAM if asked.ngram is not None and asked.draft is None else DrafterKind.CROSS


def _ngram_path(name: str) -> str:
    """An n-gram file as an absolute path. Raises InputError where it is none."""
    path = Path(os.path.abspath(name))
    read_header(path)
    return str(path)


def _revision(revision: str | None, name: str | None, role: str) -> str | None:
    """*revision*, refused where nothing could be pinned."""
    if revision is None:
        return None
    known = catalogue.entry(name) if name else None
    source = known.source if known else name or ""
    if not _REPO_ID.match(source) or Path(source).is_dir():
        raise InputError(f"--{role}-revision belongs to a model of the Hugging Face hub, which {name or 'none'} is not")
    return revision


def _cell(fields: dict[str, Any]) -> CellSpec:
    try:
        return CellSpec.model_validate(fields)
    except ValidationError as error:
        raise InputError("; ".join(sentences(error))) from error
