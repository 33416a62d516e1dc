"""Which files a model's name stands for."""

from __future__ import annotations

from pathlib import Path

import worker
from db.catalogue import entry
from db.errors import ModelUnavailable
from db.specs import CellSpec
from worker.engine.values import ModelRef

SHIPPED = "package:worker/"


def target_ref(cell: CellSpec) -> ModelRef:
    """The target of *cell*. Raises `ModelUnavailable`."""
    return _resolve(cell, cell.target, cell.target_revision)


def draft_ref(cell: CellSpec) -> ModelRef | None:
    """The draft of *cell*, where it has one. Raises `ModelUnavailable`."""
    return None if cell.draft is None else _resolve(cell, cell.draft, cell.draft_revision)


def _resolve(cell: CellSpec, name: str, revision: str | None) -> ModelRef:
    """A catalogue name, a local folder or a Hugging Face repo id, told apart in this order."""
    known = entry(name)
    source = known.source if known is not None else name
    if source.startswith(SHIPPED):
        source = str(Path(worker.__file__).parent / source.removeprefix(SHIPPED))
    if Path(source).is_absolute() and not Path(source).is_dir():
        raise ModelUnavailable(
            f"the model {name!r} is not on this machine: there is no folder {source}",
            "`nocka models` lists what can be used here.",
        )
    return ModelRef(
        source=source,
        revision=revision or (known.revision if known else None),
        dtype=cell.dtype.value,
        trusted=name in cell.trust_remote_code,
    )
