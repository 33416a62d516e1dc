"""`nocka ngram build` and `info`: n-gram models, which draft without a model; a worker builds them."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from api_cli.asked import model_name, trusted
from api_cli.cli.progress import LINE_EVERY_S, exit_code, follow
from api_cli.cli.render import console, json_text, number, say, table, visible
from api_cli.cli.submit import TRUST_OPTION
from api_cli.client import Client
from api_cli.ngram_header import read_header
from api_cli.record import sentences
from db import catalogue
from db.errors import InputError
from db.records import JobRecord
from db.specs import CellSpec, ItemSpec, JobKind, JobSpec, NgramTask
from db.status import JobState, ResultState

SUFFIXES = (".txt", ".md", ".jsonl", ".csv")


@click.group()
def ngram() -> None:
    """Build and inspect n-gram models, which propose tokens at next to no cost.

    \b
    Example:
      nocka ngram build teksty/ -o polski.ngram
      nocka submit raporty/ --drafter ngram --ngram polski.ngram
    """


@ngram.command(short_help="Count texts into an n-gram file, as a job.")
@click.argument("corpus", nargs=-1, required=True, metavar="CORPUS...")
@click.option("-o", "--output", required=True, metavar="FILE", help="Where the model goes; replaced if it is there.")
@click.option("--target", help="The model it will draft for: its tokenizer cuts the texts. Default: as for submit.")
@TRUST_OPTION
@click.option("--order", type=click.IntRange(2, 5), default=3, show_default=True, help="2 is a bigram.")
@click.option("--column", default="text", show_default=True, help="JSONL field or CSV column that holds the text.")
@click.option("--detach", is_flag=True, help="Queue it and return.")
@click.pass_context
def build(
    ctx: click.Context, /, corpus: tuple[str, ...], output: str, target: str | None, detach: bool, **options: Any
) -> None:
    """Count the texts of CORPUS... (.txt, .md, .jsonl, .csv, or folders of them) into FILE.

    A worker does it, as a job; Ctrl-C stops the looking, not the job. FILE appears when it is whole.

    \b
    Example:
      nocka ngram build teksty/ wiki.jsonl -o polski.ngram --target mini-target
    """
    spec = _job(corpus, output, target, options)
    with Client.open() as client:
        submitted = client.submit(spec)
        click.echo(submitted.job_id)
        if submitted.not_woken is not None:
            say(f"The job is stored and starts when a worker runs: {submitted.not_woken}")
        if detach:
            return
        with shown(client) as show:
            job = follow(client, submitted.job_id, show)
        error = client.first_error(job)
        for result in client.results(job.id, {ResultState.DONE}):
            say(f"Built {result.text}")
    if error is not None:
        say(f"Error: {error}", style="red")
    ctx.exit(exit_code(job))


@ngram.command(short_help="Say what an n-gram file holds.")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(file: str, as_json: bool) -> None:
    """Say what FILE holds: its order, from how many tokens, and for which tokenizer.

    \b
    Example:
      nocka ngram info polski.ngram
    """
    header = read_header(Path(file))
    if as_json:
        click.echo(json_text(header, indent=2))
        return
    made = table("", "")
    made.show_header = False
    made.columns[0].style = "dim"
    levels = ", ".join(f"{number(level['contexts'])} of order {level['order']}" for level in header.get("levels", []))
    for name, value in [
        ("order", str(header.get("order"))),
        ("counted", f"{number(header.get('tokens'))} tokens"),
        ("contexts", levels),
        ("left out", f"contexts seen fewer than {header.get('min_count')} times"),
        ("tokenizer", f"{header.get('vocab_size')} tokens, {str(header.get('tokenizer_sha256'))[:16]}"),
        ("version", str(header.get("version"))),
        ("size", f"{number(Path(file).stat().st_size / 1e6, 1)} MB"),
    ]:
        made.add_row(name, Text(visible(value)))
    console().print(made)


def _job(corpus: tuple[str, ...], output: str, target: str | None, options: dict[str, Any]) -> JobSpec:
    """The whole job. Raises InputError."""
    path = Path(os.path.abspath(output))
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"--output {output}: " + ("this is a folder" if path.is_dir() else "its folder is not there"))
    if target is None:
        chosen = catalogue.default_target(catalogue.memory_bytes(), catalogue.is_apple_silicon()).name
    else:
        chosen = model_name(target, "target")
    trust = trusted(options.pop("trust_remote_code"), (chosen,))
    try:
        return JobSpec(
            kind=JobKind.NGRAM,
            name=path.name[:200],
            cells=(CellSpec(target=chosen, trust_remote_code=trust),),
            items=(ItemSpec(custom_id=path.name, text=str(path)),),
            task=NgramTask(corpora=tuple(_files(corpus)), output=str(path), **options),
        )
    except ValidationError as error:
        raise InputError("; ".join(sentences(error))) from error


def _files(corpus: tuple[str, ...]) -> list[str]:
    """Every file that is meant, absolute. Raises InputError for what cannot be read or holds nothing."""
    found: list[Path] = []
    for name in corpus:
        path = Path(os.path.abspath(name))
        if path.is_dir():
            inside = sorted(one for one in path.rglob("*") if one.suffix.lower() in SUFFIXES and one.is_file())
            if not inside:
                raise InputError(f"{name}: no {', '.join(SUFFIXES)} file in this folder")
            found += inside
        elif not os.access(path, os.R_OK):
            raise InputError(f"{name}: " + ("cannot be read" if path.exists() else "there is no such file or folder"))
        else:
            found.append(path)
    return [str(path) for path in found]


@contextlib.contextmanager
def shown(client: Client) -> Iterator[Callable[[JobRecord], None]]:
    """Show how far a task is: a bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _Lines(client).show
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True)) as bar:
        task = bar.add_task("waiting", total=1.0)

        def show(job: JobRecord) -> None:
            bar.update(task, completed=_done(client, job), description=job.state.value)

        yield show


class _Lines:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._said_at = time.monotonic()

    def show(self, job: JobRecord) -> None:
        if time.monotonic() - self._said_at >= LINE_EVERY_S:
            self._said_at = time.monotonic()
            say(f"{job.id} {job.state.value}: {_done(self._client, job):.0%}")


def _done(client: Client, job: JobRecord) -> float:
    """How far the build is, 0..1."""
    if job.state is JobState.DONE:
        return 1.0
    return max((float(result.metrics.get("progress", 0.0)) for result in client.results(job.id)), default=0.0)
