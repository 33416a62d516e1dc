"""Everything that a sweep needs, checked before it is queued for the night."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from api_cli.asked import model_name, trusted
from api_cli.ngram_header import read_header
from api_cli.record import sentences
from db import catalogue
from db.errors import InputError
from db.specs import CellSpec, DrafterKind, EvaluationTask

#: Packages that a scorer needs, with the extra that brings them.
_PACKAGES = {"chrf": ("sacrebleu", "eval"), "bleu": ("sacrebleu", "eval")}


def checked(
    specs: Iterable[CellSpec], scorers: Iterable[str], base: Path, trust: Iterable[str] = ()
) -> tuple[tuple[CellSpec, ...], EvaluationTask]:
    """*specs* with models and files by their full names (paths relative to *base*), and the task.

    Each names those of its models that are in *trust*. Raises InputError with everything that is wrong: a model that is
    no name, folder or repo id, a `neural` draft with another tokenizer than its target's, an n-gram file that is none,
    a scorer that is none or lacks its package, a trusted model that is in no cell.
    """
    faults: dict[str, None] = {}
    found = []
    for spec in specs:
        try:
            found.append(_resolved(spec, base))
            _same_tokenizer(found[-1])
        except InputError as error:
            faults[str(error)] = None
    task = EvaluationTask()
    try:
        names = trusted(trust, [model for spec in found for model in (spec.target, spec.draft)])
        found = [_trusting(spec, names) for spec in found]
        task = EvaluationTask(scorers=tuple(dict.fromkeys(scorers)))
        _installed(task.scorers)
    except ValidationError as error:
        faults.update(dict.fromkeys(sentences(error)))
    except InputError as error:
        faults[str(error)] = None
    if faults:
        raise InputError("nothing was queued:\n" + "\n".join(f"  {fault}" for fault in faults))
    return tuple(found), task


def local_folder(name: str) -> Path | None:
    """Where the model *name* lies on this machine; None for one of a hub, or where the worker is not installed."""
    known = catalogue.entry(name)
    source = known.source if known is not None else name
    if source.startswith("package:worker/"):
        package = importlib.util.find_spec("worker")
        root = next(iter(package.submodule_search_locations or ()), None) if package is not None else None
        return None if root is None else Path(root) / source.removeprefix("package:worker/")
    return Path(source) if Path(source).is_dir() else None


def _resolved(spec: CellSpec, base: Path) -> CellSpec:
    update: dict[str, Any] = {"target": model_name(spec.target, "target")}
    if spec.draft is not None:
        update["draft"] = model_name(spec.draft, "draft")
    if spec.ngram is not None:
        path = Path(os.path.abspath(base / Path(spec.ngram).expanduser()))
        read_header(path)
        update["ngram"] = str(path)
    return spec.model_copy(update=update)


def _trusting(spec: CellSpec, names: Iterable[str]) -> CellSpec:
    """*spec* with those of its models named that are among *names*."""
    own = tuple(name for name in names if name in (spec.target, spec.draft))
    return spec.model_copy(update={"trust_remote_code": own}) if own else spec


def _same_tokenizer(spec: CellSpec) -> None:
    """Refuse a `neural` draft whose vocabulary is not its target's, where both lie here."""
    if spec.drafter is not DrafterKind.NEURAL or spec.draft is None:
        return
    target, draft = (_vocabulary(local_folder(name)) for name in (spec.target, spec.draft))
    if target is not None and draft is not None and target != draft:
        raise InputError(
            f"{spec.draft} cuts text differently from {spec.target}, so it cannot draft under neural",
            f'Leave it out with exclude = [{{drafter = "neural", draft = "{spec.draft}"}}], or take cross',
        )


def _vocabulary(folder: Path | None) -> Any:
    file = None if folder is None else folder / "tokenizer.json"
    if file is None or not file.is_file():
        return None
    try:
        return json.loads(file.read_text("utf-8"))["model"]["vocab"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _installed(scorers: Iterable[str]) -> None:
    for scorer in scorers:
        package, extra = _PACKAGES.get(scorer, (None, None))
        if package is not None and importlib.util.find_spec(package) is None:
            raise InputError(f"the scorer {scorer} needs {package}: pip install 'nocka[{extra}]'")
