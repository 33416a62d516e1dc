"""`nocka compare`: what changed from one job to another; a gate against getting slower."""

from __future__ import annotations

import dataclasses
from typing import Any

import click
from rich.table import Table

from api_cli.cli.render import EXIT_FAILED, console, excerpt, factor, fit, json_text, number, percent, say, table
from api_cli.client import Client
from api_cli.regression import CellChange, Comparison, Pair
from api_cli.regression import compare as held_against
from api_cli.statistics import MIN_FOR_INTERVAL, Estimate
from db.errors import InputError


def share(text: str) -> float:
    """`5%`, `5 %` or `0.05` as 0.05. Raises InputError."""
    written = text.strip()
    try:
        value = float(written.removesuffix("%")) / (100 if written.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise InputError(f"--tolerance {text}: a share from 0 to 1, such as 5% or 0.05")
    return value


@click.command(short_help="Hold one job against another, item by item.")
@click.argument("a")
@click.argument("b", default="last")
@click.option("--by", type=click.Choice(("cell", "item")), default="cell", show_default=True, help="What a row is.")
@click.option("--tolerance", default="5%", show_default=True, help="How much slower B may be.")
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON.")
@click.pass_context
def compare(ctx: click.Context, a: str, b: str, by: str, tolerance: str, as_json: bool) -> None:
    """Show what changed from job A to job B in speed, acceptance and text, over the items that both have finished.

    Speed is the median of B's tokens a second over A's, item by item, with its 95 % interval. The exit code is 1 when
    that interval says that B is slower beyond the tolerance; below 20 items there is no interval and no verdict.

    \b
    Example:
      nocka compare 20261130-0122 last
      nocka compare 20261130-0122 last --tolerance 3% --json
    """
    allowed = share(tolerance)
    with Client.open() as client:
        jobs = [client.status(ref) for ref in (a, b)]
        found = held_against(*((client.cells(job.id), list(client.results(job.id))) for job in jobs))
    slower = found.slower(allowed)
    if as_json:
        click.echo(json_text(_as_json(jobs[0].id, jobs[1].id, found, allowed), indent=2))
    else:
        out = console()
        out.print(_items(found, out.width) if by == "item" else _cells(found, out.width))
        for line in _notes(found):
            say(line)
    verdict = f"{jobs[1].id} against {jobs[0].id}: {_verdict(found, slower, allowed)}"
    say(verdict, style="red" if slower else None)
    ctx.exit(EXIT_FAILED if slower else 0)


def interval(found: Estimate | None) -> str:
    """`0.95× [0.93–0.97]`; the median alone where there is no interval."""
    if found is None:
        return "–"
    return factor(found.median) + ("" if found.low is None else f" [{found.low:.2f}–{found.high:.2f}]")


def _verdict(found: Comparison, slower: tuple[str, ...], allowed: float) -> str:
    if slower:
        return f"slower by more than {100 * allowed:g} % in {', '.join(slower)}"
    if not found.pairs:
        return "no item has finished in both"
    if all(change.speed is None or change.speed.high is None for change in (*found.cells, found.overall)):
        return f"no verdict on speed, which takes {MIN_FOR_INTERVAL} items"
    return f"not slower by more than {100 * allowed:g} %"


def _notes(found: Comparison) -> list[str]:
    notes = []
    if found.only_a or found.only_b:
        notes.append(f"Cells without a counterpart: {len(found.only_a)} of A, {len(found.only_b)} of B.")
    if found.other_inputs:
        notes.append(f"Left out: {found.other_inputs} results of items whose input differs.")
    if found.copied:
        notes.append(f"Without a speed: {found.copied} results copied from an earlier job (submit with --force).")
    return notes


def _cells(found: Comparison, width: int) -> Table:
    made = table("pairs", "B's speed over A's", "accepted A", "B", "texts changed", "cell")
    changes: list[CellChange] = [*found.cells, *([found.overall] if len(found.cells) > 1 else [])]
    for change in changes:
        made.add_row(
            number(change.pairs),
            interval(change.speed),
            percent(change.acceptance_a),
            percent(change.acceptance_b),
            number(change.texts_changed),
            change.cell,
        )
    return fit(made, width)


def _items(found: Comparison, width: int) -> Table:
    """The slowest first."""
    made = table("speed", "accepted A", "B", "text", "item", "cell")
    for pair in sorted(found.pairs, key=lambda pair: (pair.speed is None, pair.speed or 0.0)):
        made.add_row(
            factor(pair.speed),
            percent(pair.acceptance_a),
            percent(pair.acceptance_b),
            _text(pair),
            excerpt(pair.custom_id),
            pair.cell,
        )
    return fit(made, width)


def _text(pair: Pair) -> str:
    if pair.same_text:
        return "same"
    return "changed" if pair.parting_b is None else f"changed; B beside its plain: {pair.parting_b}"


def _as_json(a: str, b: str, found: Comparison, allowed: float) -> dict[str, Any]:
    return {"a": a, "b": b, "tolerance": allowed, "slower": found.slower(allowed), **dataclasses.asdict(found)}
