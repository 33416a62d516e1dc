"""The models known by name (`catalogue.toml`), and which of them this machine can hold."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import os
import platform
import tomllib
from typing import Literal

from db.errors import ModelUnavailable

#: Sources that begin so ship with nocka.
PACKAGE = "package:"

_GIB = 2**30
#: What a model needs beside its weights: caches and buffers, with 2 GiB on top.
_OVERHEAD = 1.2
#: The share of its memory that Metal lets a process wire down.
_USABLE = 0.75


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One model. Strictly read-only."""

    name: str
    #: Hugging Face repo id, or `package:worker/mini/...`.
    source: str
    revision: str | None = None
    role: Literal["target", "draft"]
    size_bytes: int
    #: Name of the draft a target takes when none is asked for.
    draft: str | None = None
    #: False where the name could not be reached when it was written down.
    verified: bool
    note: str

    @property
    def packaged(self) -> bool:
        return self.source.startswith(PACKAGE)

    @property
    def needed_bytes(self) -> int:
        """Memory a machine must have to hold it."""
        return int((self.size_bytes * _OVERHEAD + 2 * _GIB) / _USABLE)


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Read every entry, in the file's order."""
    text = importlib.resources.files("db").joinpath("catalogue.toml").read_text(encoding="utf-8")
    return tuple(Entry(name=name, **fields) for name, fields in tomllib.loads(text).items())


def entry(name: str) -> Entry | None:
    """Find an entry by its name."""
    return next((found for found in entries() if found.name == name), None)


def memory_bytes() -> int:
    """Measure this machine's physical memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def is_apple_silicon() -> bool:
    return platform.system() == "Darwin" and platform.machine() == "arm64"


def default_target(memory_bytes: int, apple_silicon: bool) -> Entry:
    """Choose the largest target that fits; never a mini model. Raises ModelUnavailable, which lists what fits where."""
    targets = [found for found in entries() if found.role == "target" and not found.packaged]
    fitting = [found for found in targets if found.needed_bytes <= memory_bytes]
    if apple_silicon and fitting:
        return max(fitting, key=lambda found: found.size_bytes)
    here = f"a Mac with {_gib(memory_bytes)} of memory" if apple_silicon else "no Apple-silicon Mac"
    wanted = "\n".join(f"    {found.name}: a Mac with {_gib(found.needed_bytes)} or more" for found in targets)
    raise ModelUnavailable(
        f"no model is chosen by itself here: this is {here}, and there are\n{wanted}",
        "Name one with --target NAME, a local folder or a Hugging Face repo id; "
        "`--target mini-target` runs anywhere and shows the machinery only.",
    )


def _gib(size_bytes: int) -> str:
    return f"{-(-size_bytes // _GIB)} GiB"
