"""`nocka models`: the catalogue, and what of it this machine has and can hold."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from api_cli.cli.render import console, fit, json_text, table, visible
from db import catalogue
from db.errors import NotFound

_GIB = 2**30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Presence:
    """Strictly read-only. One model as this machine sees it."""

    #: Where its files are; None where they are not.
    folder: Path | None
    fits: bool


def presence(entry: catalogue.Entry) -> Presence:
    """Look for the files of *entry*, without any network."""
    folder = _packaged(entry) if entry.packaged else _downloaded(entry)
    fits = entry.packaged or entry.needed_bytes <= catalogue.memory_bytes()
    return Presence(folder=folder, fits=fits)


def _packaged(entry: catalogue.Entry) -> Path | None:
    spec = importlib.util.find_spec("worker")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parents[1] / entry.source.removeprefix(catalogue.PACKAGE)
    return folder if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")) else None


def _downloaded(entry: catalogue.Entry) -> Path | None:
    """In the Hugging Face cache, which only a machine with a worker has."""
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(entry.source, "config.json", revision=entry.revision)
    return Path(config).parent if isinstance(config, str) else None


@click.group(invoke_without_command=True, short_help="List the models known by name.")
@click.pass_context
def models(ctx: click.Context) -> None:
    """List the models known by name, or describe one.

    \b
    Examples:
      nocka models
      nocka models info bielik-11b-v3-8bit
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_models, as_json=False)


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_models(as_json: bool) -> None:
    """List the catalogue.

    \b
    Example:
      nocka models list --json
    """
    found = [(entry, presence(entry)) for entry in catalogue.entries()]
    if as_json:
        click.echo(json_text([_as_json(entry, here) for entry, here in found], indent=2))
        return
    made = table("name", "role", "size", "here", "note")
    made.columns[2].justify = "right"
    for entry, here in found:
        made.add_row(entry.name, entry.role, size(entry.size_bytes), _here(entry, here), entry.note)
    out = console()
    out.print(fit(made, out.width))


@models.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(name: str, as_json: bool) -> None:
    """Describe the model NAME of the catalogue.

    \b
    Example:
      nocka models info mini-target
    """
    entry = catalogue.entry(name)
    if entry is None:
        known = ", ".join(entry.name for entry in catalogue.entries())
        raise NotFound(f"no model named {name!r} in the catalogue", f"There are: {known}.")
    here = presence(entry)
    if as_json:
        click.echo(json_text(_as_json(entry, here), indent=2))
        return
    made = table("", "")
    made.show_header = False
    made.columns[0].style = "dim"
    made.columns[1].overflow, made.columns[1].no_wrap = "fold", False
    for label, value in _facts(entry, here):
        made.add_row(label, visible(value))
    console().print(made)


def _facts(entry: catalogue.Entry, here: Presence) -> list[tuple[str, str]]:
    return [
        ("name", entry.name),
        ("role", entry.role),
        ("note", entry.note),
        ("source", entry.source),
        ("revision", entry.revision or "not pinned"),
        ("size", size(entry.size_bytes)),
        ("needs", f"a machine with {size(entry.needed_bytes)} of memory; here are {size(catalogue.memory_bytes())}"),
        ("draft", entry.draft or "–"),
        ("files", str(here.folder) if here.folder else _absent(entry)),
        ("checked", "yes" if entry.verified else "no: the name could not be reached when the catalogue was written"),
    ]


def _absent(entry: catalogue.Entry) -> str:
    return "missing: install nocka again" if entry.packaged else "not here; the worker downloads them at the first use"


def _here(entry: catalogue.Entry, here: Presence) -> Text:
    if not here.fits:
        return Text("too large", style="yellow")
    if here.folder is not None:
        return Text("yes", style="green")
    return Text("missing", style="red") if entry.packaged else Text("to download", style="dim")


def size(size_bytes: int) -> str:
    """`11.1 GiB`, `20 MiB`."""
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes >= _GIB / 10 else f"{size_bytes / 2**20:.0f} MiB"


def _as_json(entry: catalogue.Entry, here: Presence) -> dict[str, Any]:
    return dataclasses.asdict(entry) | {"folder": str(here.folder) if here.folder else None, "fits": here.fits}
