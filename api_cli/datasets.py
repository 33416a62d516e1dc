"""Data sets of an evaluation as items: the four that ship here, a user's own files, Hugging Face's `datasets`."""

from __future__ import annotations

import dataclasses
import importlib.resources
import io
import json
import math
import re
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from api_cli.inputs import Instruction, read_inputs
from db.errors import InputError, InvalidInput
from db.specs import ItemSpec, Message, Spec

#: How much of a structured text, by words, is the prompt at least; the rest is what should follow.
PROMPT_SHARE = 0.4
_TRANSLATE = "Przetłumacz na język polski. Podaj samo tłumaczenie.\n\n"
_ENDS = re.compile(r"(?:[.!?:;,](?=\s)|(?=\n))")


class DataSpec(Spec):
    """One data set: a shipped one by `name`, files by `path`, or one of Hugging Face's by `huggingface`."""

    name: str | None = None
    #: A .jsonl, .csv, .txt or .md file, or a folder of them; relative to the grid's own folder.
    path: str | None = None
    #: A name on the hub, or a folder that `datasets.load_dataset` reads.
    huggingface: str | None = None
    #: Of a Hugging Face data set.
    subset: str | None = None
    split: str = "test"
    #: Column that holds the text, and the one with the right answer.
    column: str | None = None
    reference: str | None = None
    #: What kind of text it is, as reports group it.
    kind: str | None = None
    #: Instruction around each text; `{text}` is its place.
    prompt: str | None = None
    #: Continue the text without a chat template.
    raw: bool = False
    #: Cut each text in two: the first part is continued, the rest is the reference.
    split_text: bool = False
    limit: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(source is not None for source in (self.name, self.path, self.huggingface)) != 1:
            raise ValueError("a data set has one of name, path and huggingface")
        if self.name is not None and self.name not in SHIPPED:
            raise ValueError(f"no data set {self.name!r}; there are {', '.join(SHIPPED)}, files and folders")
        if self.huggingface is not None and self.column is None:
            raise ValueError(f"{self.huggingface}: say which column holds the text")
        return self

    @property
    def label(self) -> str:
        """What its items are filed under."""
        source = self.name or self.path or self.huggingface or ""
        return source.rstrip("/").rsplit("/", 1)[-1]


def split_text(text: str) -> tuple[str, str]:
    """*text* in two, cut behind a line, sentence or clause so that the first has `PROMPT_SHARE` of the words or more.

    The parts joined are the text; the second begins with its white space. It is empty where nothing is left to cut.
    """
    words = [word.end() for word in re.finditer(r"\S+", text)]
    if len(words) < 2:
        return text, ""
    least = words[max(0, min(len(words) - 2, math.ceil(len(words) * PROMPT_SHARE) - 1))]
    ends = (found.end() for found in _ENDS.finditer(text, max(0, least - 1)))
    cut = next((end for end in ends if least <= end < words[-2]), least)
    return text[:cut], text[cut:]


def _structured(line: dict[str, str]) -> dict[str, Any]:
    prompt, rest = split_text(line["text"])
    return {"text": prompt, "reference": rest}


def _asked(line: dict[str, str]) -> dict[str, Any]:
    return {"messages": _user(line["prompt"]), "reference": line.get("reference")}


def _translation(line: dict[str, str]) -> dict[str, Any]:
    return {"messages": _user(_TRANSLATE + line["en"]), "reference": line["pl"]}


def _user(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


@dataclasses.dataclass(frozen=True)
class _Shipped:
    kind: str
    item: Callable[[dict[str, str]], dict[str, Any]]


SHIPPED = {
    "structured": _Shipped("structured", _structured),
    "instructions": _Shipped("instruction", _asked),
    "questions": _Shipped("question", _asked),
    "translation": _Shipped("translation", _translation),
}


def load(specs: Iterable[DataSpec], limit: int | None, base: Path) -> tuple[ItemSpec, ...]:
    """The items of all *specs*, at most *limit* of each; paths are relative to *base*.

    Raises InputError, InvalidInput with every bad line of a file, and for a data set that cannot be had.
    """
    found: list[ItemSpec] = []
    for spec in specs:
        most = min((bound for bound in (limit, spec.limit) if bound is not None), default=None)
        items = [_filed(spec, item) for item in islice(_items(spec, base), most)]
        if not items:
            raise InputError(f"the data set {spec.label} is empty")
        found += items
    return tuple(found)


def repeated(items: Iterable[ItemSpec], repeats: int) -> tuple[ItemSpec, ...]:
    """Each item *repeats* times in a row, as `ID`, `ID#2`, ...: other noise when sampled, equal if greedy."""
    return tuple(
        item if number == 1 else item.model_copy(update={"custom_id": f"{item.custom_id}#{number}"})
        for item in items
        for number in range(1, repeats + 1)
    )


def _filed(spec: DataSpec, item: ItemSpec) -> ItemSpec:
    kind = spec.kind or (SHIPPED[spec.name].kind if spec.name else spec.label)
    named = {"custom_id": f"{spec.label}/{item.custom_id}", "dataset": spec.label, "content_kind": kind}
    return ItemSpec.model_validate({**item.model_dump(), **named})


def _items(spec: DataSpec, base: Path) -> Iterable[ItemSpec]:
    if spec.name is not None:
        return _shipped(spec.name)
    if spec.path is not None:
        return _own(spec, str(base / Path(spec.path).expanduser()))
    return _huggingface(spec, base)


def _shipped(name: str) -> Iterable[ItemSpec]:
    text = importlib.resources.files("api_cli").joinpath("data", f"{name}.jsonl").read_text("utf-8")
    for written in text.splitlines():
        line = json.loads(written)
        yield ItemSpec(custom_id=line["id"], **SHIPPED[name].item(line))


def _own(spec: DataSpec, path: str) -> Iterable[ItemSpec]:
    raw = spec.raw or spec.split_text
    read = read_inputs([path], Instruction(prompt=spec.prompt, raw=raw), spec.column, io.BytesIO())
    problems = (*read.refusals, *read.problems)
    if problems:
        raise InvalidInput(problems)
    return [_halved(item) for item in read.items] if spec.split_text else read.items


def _halved(item: ItemSpec) -> ItemSpec:
    if item.text is None:
        raise InputError(f"{item.custom_id}: split_text cuts texts, and this is a conversation")
    prompt, rest = split_text(item.text)
    return item.model_copy(update={"text": prompt, "reference": rest or None})


def _huggingface(spec: DataSpec, base: Path) -> Iterable[ItemSpec]:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise InputError(f"{spec.huggingface} needs the package datasets", "pip install 'nocka[datasets]'") from error
    folder = base / str(spec.huggingface)
    source = str(folder) if folder.is_dir() else spec.huggingface
    try:
        rows = datasets.load_dataset(source, spec.subset, split=spec.split)
    except Exception as error:  # whatever a hub, a script or a bad file makes it raise
        raise InputError(f"the data set {spec.huggingface} cannot be loaded: {error}") from error
    missing = {spec.column, spec.reference} - {None, *rows.column_names}
    if missing:
        raise InputError(f"{spec.huggingface} has no column {missing.pop()!r}; it has {', '.join(rows.column_names)}")
    return (_row(spec, at, row) for at, row in enumerate(rows))


def _row(spec: DataSpec, at: int, row: dict[str, Any]) -> ItemSpec:
    text = Instruction(prompt=spec.prompt).around(str(row[str(spec.column)]))
    reference = None if spec.reference is None else str(row[spec.reference])
    if spec.split_text:
        return _halved(ItemSpec(custom_id=str(at), text=text))
    if spec.raw:
        return ItemSpec(custom_id=str(at), text=text, reference=reference)
    return ItemSpec(custom_id=str(at), messages=_user(text), reference=reference)
