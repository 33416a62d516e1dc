"""Print constraints.txt: the installed version of everything that nocka and the extras below need.

make lock
"""

from __future__ import annotations

from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT, EXTRAS = "nocka", ("bench", "browse", "datasets", "dev", "energy", "parquet", "postgres")
# Packages that another platform needs and this one may not have installed.
ELSEWHERE = {"mlx": "mlx-metal"}
ELSEWHERE_ONLY = {"zeus-apple-silicon": "1.1.0"}
# What a virtual environment brings along by itself.
UNPINNED = {"pip"}


def main() -> None:
    seen: set[tuple[str, str]] = set()
    waiting = [(ROOT, extra) for extra in ("", *EXTRAS)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        waiting += needed(name, extra)
    names = sorted({name for name, _ in seen} - {ROOT} - UNPINNED)
    pins = {name: metadata.version(name) for name in names}
    pins |= {other: pins[name] for name, other in ELSEWHERE.items() if name in pins}
    pins |= ELSEWHERE_ONLY
    print("# What was tested. Written by `make lock`; used by `make setup` and, with `pip install -c`, by you.")
    for name, version in sorted(pins.items()):
        print(f"{name}=={version.partition('+')[0]}")  # a build for one kind of machine is no version of its own


def needed(name: str, extra: str) -> list[tuple[str, str]]:
    """What *name* with *extra* requires on this machine, as (name, extra)."""
    found = []
    for line in metadata.requires(name) or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            for inner in ("", *requirement.extras):
                found.append((canonicalize_name(requirement.name), inner))
    return found


if __name__ == "__main__":
    main()
