"""`nocka sweep`: a grid in, an evaluation with many cells queued."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from api_cli import grid as grids
from api_cli.cli.progress import exit_code, follow
from api_cli.cli.render import json_text, progress_text, say
from api_cli.cli.submit import CLOCK, CLOCK_OPTIONS, TRUST_OPTION
from api_cli.client import Client, Submitted
from api_cli.clock import schedule
from api_cli.datasets import load, repeated
from api_cli.estimate import hours, hours_text
from api_cli.grid import Grid
from api_cli.preflight import checked
from api_cli.record import sentences
from db.errors import InputError
from db.specs import DrafterKind, JobKind, JobSpec, Translation
from db.status import JOB_ENDED
from db.summary import job_json

#: Options that stand for a key of the grid file: by the option's name, the key.
_LISTS = {
    "target": "targets",
    "draft": "drafts",
    "drafter": "drafters",
    "translation": "translations",
    "k": "k",
    "temperature": "temperatures",
    "seed": "seeds",
    "ngram": "ngrams",
    "data": "data",
    "scorer": "scorers",
    "trust_remote_code": "trust_remote_code",
}
_SINGLE = ("repeats", "limit", "max_tokens", "name")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Run:
    """What is done with the sweep, beside what it is. Strictly read-only."""

    add_to: str | None
    dry_run: bool
    wait: bool
    as_json: bool
    priority: int
    on_done: str | None


@click.command(short_help="Queue an evaluation: a grid of configurations over data sets.")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("--preset", metavar="NAME", help="A grid that ships here: paper, paper-mini, drafters.")
@click.option("--print", "print_it", is_flag=True, help="Print the grid file, to be copied and changed.")
@click.option(
    "--target", multiple=True, help="In place of the grid's; this and those below may be given several times."
)
@click.option("--draft", multiple=True)
@click.option("--drafter", multiple=True, type=click.Choice([kind.value for kind in DrafterKind]))
@click.option("--translation", multiple=True, type=click.Choice([kind.value for kind in Translation]))
@click.option("--k", multiple=True, type=int)
@click.option("--temperature", multiple=True, type=float)
@click.option("--seed", multiple=True, type=int)
@click.option("--ngram", multiple=True, metavar="FILE", help="N-gram file; the n-gram drafter joins the grid's.")
@click.option("--data", multiple=True, help="structured, instructions, questions, translation, a file or a folder.")
@click.option("--scorer", multiple=True, help="chrf, bleu, exact, contains, json_valid, length, regex:PATTERN, ...")
@click.option("--repeats", type=int, help="Each item so many times.")
@click.option("--limit", type=int, help="Items of each data set.")
@click.option("--max-tokens", type=int)
@click.option("--name")
@TRUST_OPTION
@CLOCK_OPTIONS
@click.option("--priority", type=click.IntRange(-100, 100), default=0, show_default=True, help="Higher goes first.")
@click.option("--on-done", metavar="CMD", help="Shell command for the worker to run at the end, the summary on stdin.")
@click.option("--add-to", metavar="JOB", help="Add what JOB lacks to it; its own items are run, and nothing again.")
@click.option("--dry-run", is_flag=True, help="Check everything and say what would run; queue nothing.")
@click.option("--wait", is_flag=True, help="Show progress until the sweep has ended; 3 when items failed.")
@click.option("--json", "as_json", is_flag=True, help="Say the outcome as JSON.")
@click.pass_context
def sweep(ctx: click.Context, /, file: str | None, preset: str | None, print_it: bool, **options: Any) -> None:
    """Queue an evaluation: targets x drafts x drafters x translations x k x temperatures, over data sets.

    FILE is TOML, a --preset, or options alone. Plain decoding is always part of it. Models, tokenizers, data sets and
    scorers are checked first; when anything is wrong, nothing is queued.

    \b
    Examples:
      nocka sweep --preset paper-mini --wait
      nocka sweep --preset paper --print > my.toml
      nocka sweep my.toml --dry-run
      nocka sweep my.toml --window 22:00-06:00
      nocka sweep my.toml --k 8 --add-to last
    """
    text, source, base = _written(file, preset, options)
    if print_it:
        click.echo(text, nl=False)
        return
    run = _Run(**{field.name: options.pop(field.name) for field in dataclasses.fields(_Run)})
    times = {name: options.pop(name) for name in CLOCK}
    grid = grids.parse(text, source, _over(text, options))
    with Client.open() as client:
        ctx.exit(_sweep(client, _spec(grid, base, run, times), run))


def _written(file: str | None, preset: str | None, options: dict[str, Any]) -> tuple[str, str, Path]:
    """The grid's text, what to call it, and the folder that its paths are relative to."""
    if file is not None and preset is not None:
        raise InputError("a grid file or --preset: give one of them")
    if preset is not None:
        return grids.preset_text(preset), f"preset {preset}", Path.cwd()
    if file is not None:
        try:
            return Path(file).read_text("utf-8"), file, Path(file).resolve().parent
        except UnicodeDecodeError as error:
            raise InputError(f"{file}: not UTF-8") from error
    if not options["target"] or not options["data"]:
        raise InputError("a grid file, --preset NAME, or at least --target and --data", "Type: nocka sweep --help")
    return "", "options", Path.cwd()


def _over(text: str, options: dict[str, Any]) -> dict[str, Any]:
    """What the options set, by the grid's keys. Paths among them are relative to where the user is."""
    over: dict[str, Any] = {key: list(options[name]) for name, key in _LISTS.items() if options[name]}
    over |= {name: options[name] for name in _SINGLE if options[name] is not None}
    for key in ("ngrams", "data"):
        if key in over:
            over[key] = [str(Path(one).resolve()) if Path(one).exists() else one for one in over[key]]
    if options["ngram"] and not options["drafter"]:
        over["drafters"] = [*grids.drafters_in(text), DrafterKind.NGRAM.value]
    return over


def _spec(grid: Grid, base: Path, run: _Run, times: dict[str, Any]) -> JobSpec:
    cells, task = checked(grids.cells(grid), grid.scorers, base, grid.trust_remote_code)
    try:
        return JobSpec(
            kind=JobKind.EVALUATION,
            name=grid.name,
            cells=cells,
            items=repeated(load(grid.data, grid.limit, base), grid.repeats),
            task=task,
            priority=run.priority,
            schedule=schedule(times, dt.datetime.now(dt.UTC)),
            on_done=run.on_done,
        )
    except ValidationError as error:
        raise InputError("; ".join(sentences(error))) from error


def _sweep(client: Client, spec: JobSpec, run: _Run) -> int:
    job_id, item_count, new = None, len(spec.items), spec.cells
    if run.add_to is not None:
        job = client.status(run.add_to)
        there = client.cells(job.id)
        job_id, item_count, new = job.id, job.counts.total // len(there), grids.lacking(spec.cells, there)
    plan = {
        "cells": [cell.label for cell in new],
        "items": item_count,
        "results": len(new) * item_count,
        "model_loads": grids.model_loads(new),
        "estimated_hours": hours(client, new, item_count),
    }
    said = f"{len(new)} cells x {item_count} items = {plan['results']} answers, {plan['model_loads']} model loads"
    say(f"{spec.name}: {said}, {hours_text(hours(client, new, item_count))}.")
    if run.dry_run:
        click.echo(json_text(plan) if run.as_json else "\n".join(cell.label for cell in new))
        return 0
    if job_id is None:
        submitted = client.submit(spec)
    elif new:
        submitted = client.add_cells(job_id, new)
    else:
        say(f"{job_id} has all of these cells already; nothing was added.")
        return 0
    return _queued(client, submitted, plan, run)


def _queued(client: Client, submitted: Submitted, plan: dict[str, Any], run: _Run) -> int:
    if submitted.not_woken is not None:
        say(f"The sweep is stored and starts when a worker runs: {submitted.not_woken}")
    if not run.as_json:
        click.echo(submitted.job_id)
    job = follow(client, submitted.job_id) if run.wait else None
    if job is not None:
        say(f"{job.state.value}: {progress_text(job)}")
    say(f"Look at it: nocka report {submitted.job_id} -o report.html")
    if run.as_json:
        click.echo(json_text({"job": submitted.job_id, **plan, "status": job_json(job) if job else None}))
    return exit_code(job) if job is not None and job.state in JOB_ENDED else 0
