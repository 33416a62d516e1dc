"""The catalogue is whole, and the default it chooses fits."""

from __future__ import annotations

import pytest

from db.catalogue import default_target, entries, entry, memory_bytes
from db.errors import ModelUnavailable

GIB = 2**30


def test_every_entry_is_whole_and_every_default_draft_is_there() -> None:
    """A target's draft is an entry with that role; what could not be reached is marked."""
    for found in entries():
        assert found.role in ("target", "draft")
        assert found.size_bytes > 1_000_000
        assert found.packaged == found.verified
        if found.draft is not None:
            draft = entry(found.draft)
            assert found.role == "target"
            assert draft is not None
            assert draft.role == "draft"
    assert entry("mini-target") is not None
    assert entry("no-such-model") is None


@pytest.mark.parametrize(
    ("memory_gib", "name"),
    [(64, "bielik-11b-v3-8bit"), (32, "bielik-11b-v3-8bit"), (16, "bielik-11b-v3-4bit")],
)
def test_the_largest_that_fits_is_the_default_on_a_mac(memory_gib: int, name: str) -> None:
    assert default_target(memory_gib * GIB, apple_silicon=True).name == name


@pytest.mark.parametrize(("memory_gib", "apple_silicon"), [(8, True), (512, False)])
def test_where_nothing_fits_it_refuses_and_lists_what_would(memory_gib: int, apple_silicon: bool) -> None:
    """A mini model is never chosen in silence."""
    with pytest.raises(ModelUnavailable) as caught:
        default_target(memory_gib * GIB, apple_silicon)
    assert "bielik-11b-v3-8bit: a Mac with 21 GiB" in caught.value.message
    assert "bielik-11b-v3-4bit" in caught.value.message
    assert "--target" in str(caught.value.hint)


def test_this_machine_has_memory() -> None:
    assert memory_bytes() > GIB // 4
