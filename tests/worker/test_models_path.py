"""Which files a model's name stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

import worker
from db.catalogue import Entry, entries
from db.errors import ModelUnavailable
from db.specs import CellSpec, DrafterKind, Dtype
from worker.models_path import SHIPPED, draft_ref, target_ref


@pytest.mark.parametrize("known", entries(), ids=lambda known: known.name)
def test_a_catalogue_name_is_its_source(known: Entry) -> None:
    """Shipped models are found inside the package, the others by repo id; the revision is the catalogue's."""
    ships = known.source.startswith(SHIPPED)
    folder = Path(worker.__file__).parent / known.source.removeprefix(SHIPPED)
    assert not ships or (folder / "model.safetensors").is_file()
    ref = target_ref(CellSpec(target=known.name))
    assert ref.source == (str(folder) if ships else known.source)
    assert ref.revision == known.revision


def test_a_folder_and_a_repo_id_are_taken_as_they_are(tmp_path: Path) -> None:
    """With the dtype and the revision that the cell asks for."""
    folder = target_ref(CellSpec(target=str(tmp_path), dtype=Dtype.FLOAT32))
    assert (folder.source, folder.revision, folder.dtype) == (str(tmp_path), None, "float32")
    repo = target_ref(CellSpec(target="someone/model", target_revision="abc"))
    assert (repo.source, repo.revision) == ("someone/model", "abc")


def test_only_the_model_that_was_named_is_trusted(tmp_path: Path) -> None:
    """By its own name: a draft is another model than its target."""
    how = {"drafter": DrafterKind.NEURAL, "draft": str(tmp_path), "k": 2}
    cell = CellSpec(target="someone/model", trust_remote_code=(str(tmp_path),), **how)  # type: ignore[arg-type]
    draft = draft_ref(cell)
    assert draft is not None
    assert (target_ref(cell).trusted, draft.trusted) == (False, True)
    assert not target_ref(CellSpec(target="someone/model")).trusted


def test_a_missing_folder_is_named() -> None:
    """It is no repo id either."""
    with pytest.raises(ModelUnavailable, match="/nowhere/model"):
        target_ref(CellSpec(target="/nowhere/model"))
