"""A grid file -> cells. Pure but for reading the file: neither models nor data are looked at here."""

from __future__ import annotations

import difflib
import importlib.resources
import itertools
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationError, field_validator

from api_cli.asked import DEFAULT_K
from api_cli.datasets import SHIPPED, DataSpec
from api_cli.record import sentences
from db.errors import InputError
from db.groups import groups
from db.specs import (
    NEEDS_DRAFT,
    TAKES_DRAFT,
    TAKES_NGRAM,
    WITHOUT_K,
    CellSpec,
    Decoding,
    DrafterKind,
    Dtype,
    Spec,
    Translation,
)

#: What an `exclude` rule may name, and where a cell has it.
_RULE_KEYS = ("target", "draft", "drafter", "translation", "k", "temperature", "seed", "batch", "ngram")
Scalar = str | int | float


class Grid(Spec):
    """What is crossed with what. Plain decoding is in every group of cells whether it is named or not."""

    name: str = Field(default="sweep", min_length=1, max_length=200)
    targets: tuple[str, ...] = Field(min_length=1)
    drafts: tuple[str, ...] = ()
    drafters: tuple[DrafterKind, ...] = (DrafterKind.CROSS,)
    translations: tuple[Translation, ...] = (Translation.CONTEXT,)
    #: Empty: each drafter's own default.
    k: tuple[int, ...] = ()
    #: Answers decoded at once; 0 lets the worker choose. Speculation has 1.
    batches: tuple[int, ...] = (1,)
    #: N-gram files.
    ngrams: tuple[str, ...] = ()
    temperatures: tuple[float, ...] = (0.0,)
    #: One cell for each; they mean nothing at temperature 0 and collapse there.
    seeds: tuple[int, ...] = (0,)
    #: Each item so many times.
    repeats: int = Field(default=1, ge=1, le=100)
    data: tuple[DataSpec, ...] = Field(min_length=1)
    #: Items of each data set.
    limit: int | None = Field(default=None, ge=1)
    max_tokens: int = Field(default=128, ge=1)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    dtype: Dtype = Dtype.AUTO
    scorers: tuple[str, ...] = ()
    #: Which of targets and drafts may run code of their own.
    trust_remote_code: tuple[str, ...] = ()
    #: A cell goes that matches one of these in every key it names: {drafter = "cross", k = [4, 6]}.
    exclude: tuple[dict[str, Scalar | tuple[Scalar, ...]], ...] = ()

    @field_validator("data", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return [({"name": one} if one in SHIPPED else {"path": one}) if isinstance(one, str) else one for one in value]


def presets() -> list[str]:
    """The names of the grids that ship here."""
    folder = importlib.resources.files("api_cli").joinpath("presets")
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def preset_text(name: str) -> str:
    """A shipped grid file as it stands, for a user to copy. Raises InputError."""
    if name not in presets():
        raise InputError(f"no preset {name!r}; there are {', '.join(presets())}", _nearest(name, presets()))
    return importlib.resources.files("api_cli").joinpath("presets", f"{name}.toml").read_text("utf-8")


def parse(text: str, source: str, over: Mapping[str, Any] | None = None) -> Grid:
    """The grid in *text*, with what *over* sets in its place. Raises InputError that names *source* and every fault."""
    try:
        written = tomllib.loads(text) | dict(over or {})
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source}: not TOML: {error}") from error
    unknown = _unknown(written, Grid.model_fields, "")
    for at, rule in enumerate(_tables(written.get("exclude"))):
        unknown += _unknown(rule, _RULE_KEYS, f"exclude[{at}].")
    for at, data in enumerate(_tables(written.get("data"))):
        unknown += _unknown(data, DataSpec.model_fields, f"data[{at}].")
    if unknown:
        raise InputError(f"{source}: {'; '.join(unknown)}")
    try:
        return Grid.model_validate(written)
    except ValidationError as error:
        raise InputError(f"{source}: {'; '.join(sentences(error))}") from error


def drafters_in(text: str) -> list[str]:
    """The drafters that a grid file names, or those of a grid that names none."""
    try:
        return list(tomllib.loads(text).get("drafters", [DrafterKind.CROSS.value] if text else []))
    except tomllib.TOMLDecodeError:
        return []


def cells(grid: Grid) -> tuple[CellSpec, ...]:
    """The grid's cells, group by group: of one target and one draft, the plain cells first. Raises InputError.

    Drafters without a model go with each target's first group, answers that are decoded together come last. Options
    that a cell has no use for collapse.
    """
    found: list[CellSpec] = []
    for target in dict.fromkeys(grid.targets):
        made = [_group(grid, target, draft, at == 0) for at, draft in enumerate(_drafts(grid))]
        whole = [group for group in made if any(cell.drafter is not DrafterKind.OFF for cell in group)]
        found += itertools.chain.from_iterable(whole or made[:1])
        found += _together(grid, target)
    return tuple(found)


def lacking(wanted: Sequence[CellSpec], there: Sequence[CellSpec]) -> tuple[CellSpec, ...]:
    """Of *wanted* what *there* has not, each group of it with its own plain cells again."""
    found: list[CellSpec] = []
    for group in groups(wanted):
        new = [wanted[at] for at in group if wanted[at] not in there]
        if new:
            plain = [wanted[at] for at in group if wanted[at].drafter is DrafterKind.OFF]
            found += [*plain, *(cell for cell in new if cell not in plain)]
    return tuple(found)


def model_loads(specs: Iterable[CellSpec]) -> int:
    """How often a worker that runs *specs* in order loads a model: a change of target lets go of all others."""
    loaded: set[tuple[str, str | None]] = set()
    target, count = None, 0
    for cell in specs:
        if (cell.target, cell.target_revision) != target:
            target = (cell.target, cell.target_revision)
            loaded &= {target}
        needed = {target} | ({(cell.draft, cell.draft_revision)} if cell.draft else set())
        count += len(needed - loaded)
        loaded |= needed
    return count


def _drafts(grid: Grid) -> list[str | None]:
    needing = sorted(drafter.value for drafter in set(grid.drafters) & NEEDS_DRAFT)
    if needing and not grid.drafts:
        raise InputError(f"drafters {', '.join(needing)} need drafts = [...]")
    if DrafterKind.NGRAM in grid.drafters and not grid.ngrams:
        raise InputError("drafter ngram needs ngrams = [FILE] (`nocka ngram build` makes one)")
    return [*dict.fromkeys(grid.drafts)] or [None]


def _group(grid: Grid, target: str, draft: str | None, is_first: bool) -> list[CellSpec]:
    """The cells of one target and draft, plain ones first, without doubles and what is excluded."""
    kinds = [DrafterKind.OFF, *(kind for kind in grid.drafters if kind is not DrafterKind.OFF)]
    mine = [kind for kind in kinds if kind is DrafterKind.OFF or kind in TAKES_DRAFT or is_first]
    made = [
        _cell(grid, {"target": target, "draft": draft, "drafter": kind, **dict(zip(_AXES, point, strict=True))})
        for kind in mine
        for point in itertools.product(*_axes(grid, kind))
    ]
    kept = [cell for cell in made if cell.drafter is DrafterKind.OFF or not _excluded(grid, cell)]
    return list(dict.fromkeys(kept))


def _together(grid: Grid, target: str) -> list[CellSpec]:
    """The plain cells of more than one answer at a time: a group of their own, or others' items would wait for all."""
    point = {"target": target, "draft": None, "drafter": DrafterKind.OFF, "translation": None, "ngram": None, "k": 0}
    sizes = [size for size in dict.fromkeys(grid.batches) if size != 1]
    made = [
        _cell(grid, {**point, "batch": size, "temperature": temperature, "seed": seed})
        for size, temperature, seed in itertools.product(sizes, grid.temperatures, grid.seeds)
    ]
    return list(dict.fromkeys(cell for cell in made if not _excluded(grid, cell)))


_AXES = ("translation", "ngram", "k", "batch", "temperature", "seed")


def _axes(grid: Grid, kind: DrafterKind) -> tuple[Sequence[Any], ...]:
    """The values of `_AXES` that mean something under *kind*, in the order of the cells."""
    return (
        grid.translations if kind is DrafterKind.CROSS else (None,),
        grid.ngrams or (None,) if kind in TAKES_NGRAM else (None,),
        (0,) if kind in WITHOUT_K else grid.k or (DEFAULT_K[kind],),
        (1,),
        grid.temperatures,
        grid.seeds,
    )


def _cell(grid: Grid, point: dict[str, Any]) -> CellSpec:
    temperature, seed, batch = point.pop("temperature"), point.pop("seed"), point.pop("batch")
    if point["drafter"] not in TAKES_DRAFT:
        point["draft"] = None
    if batch != 1:
        point["batch"] = batch
    options = {"max_tokens": grid.max_tokens, "temperature": temperature, "top_p": grid.top_p}
    decoding = options | {"seed": seed if temperature > 0 else 0}
    try:
        return CellSpec.model_validate({**point, "dtype": grid.dtype, "decoding": Decoding.model_validate(decoding)})
    except ValidationError as error:
        raise InputError("; ".join(sentences(error))) from error


def _excluded(grid: Grid, cell: CellSpec) -> bool:
    return any(all(_matches(cell, key, value) for key, value in rule.items()) for rule in grid.exclude if rule)


def _matches(cell: CellSpec, key: str, value: Scalar | tuple[Scalar, ...]) -> bool:
    holder = cell.decoding if key in ("temperature", "seed") else cell
    return getattr(holder, key, None) in (value if isinstance(value, tuple) else (value,))


def _tables(value: Any) -> list[Mapping[str, Any]]:
    """The tables in a list that may hold other things, which the grid's own checks refuse."""
    return [one if isinstance(one, dict) else {} for one in value] if isinstance(value, list) else []


def _unknown(table: Mapping[str, Any], known: Iterable[str], where: str) -> list[str]:
    names = list(known)
    return [f"{where}{key}: no such key. {_nearest(key, names)}" for key in table if key not in names]


def _nearest(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else f"There are {', '.join(names)}"
