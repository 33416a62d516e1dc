"""`nocka calibrate`: what a pair of models costs on the worker's machine, and what therefore pays."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text

from api_cli.asked import model_name
from api_cli.cli.ngram import shown
from api_cli.cli.progress import exit_code, follow
from api_cli.cli.render import console, json_text, number, percent, say, table
from api_cli.client import Client
from db import catalogue
from db.specs import CalibrationTask, CellSpec, DrafterKind, ItemSpec, JobKind, JobSpec, Translation
from db.status import ResultState

BAR = 24


@click.command(short_help="Measure what a pair of models costs here, and what pays.")
@click.option("--target", help="Default: as for `nocka submit`.")
@click.option("--draft", help="Smaller model, of any tokenizer. Default: the one of the catalogue, if any.")
@click.option("--force", is_flag=True, help="Measure anew where this machine did before.")
@click.option("--no-wait", is_flag=True, help="Only queue it.")
@click.option("--json", "as_json", is_flag=True, help="Every figure as JSON.")
@click.pass_context
def calibrate(
    ctx: click.Context, target: str | None, draft: str | None, force: bool, no_wait: bool, as_json: bool
) -> None:
    """Measure one forward of 1 to 17 tokens, the draft's steps and every other drafter, on the worker's machine.

    Prints the curve, the acceptance above which drafting pays, and one sentence of advice. What was measured before is
    shown again, until models, machine or MLX change.

    \b
    Example:
      nocka calibrate --target mini-target --draft mini-draft-bytes
    """
    with Client.open() as client:
        submitted = client.submit(_job(target, draft, force), force=True)
        if submitted.not_woken is not None:
            say(f"The job is stored and starts when a worker runs: {submitted.not_woken}")
        if no_wait:
            click.echo(submitted.job_id)
            return
        with shown(client) as show:
            job = follow(client, submitted.job_id, show)
        error = client.first_error(job)
        figures = [result.metrics for result in client.results(job.id, {ResultState.DONE})]
    if error is not None:
        say(f"Error: {error}", style="red")
    for found in figures:
        if as_json:
            click.echo(json_text(found, indent=2))
        else:
            _print(found)
    ctx.exit(exit_code(job))


def _job(target: str | None, draft: str | None, force: bool) -> JobSpec:
    known = catalogue.entry(target) if target else None
    if target is None:
        known = catalogue.default_target(catalogue.memory_bytes(), catalogue.is_apple_silicon())
    chosen = known.name if known is not None else model_name(target or "", "target")
    other = model_name(draft, "draft") if draft is not None else known.draft if known is not None else None
    cell = CellSpec(target=chosen)
    if other is not None:
        how = {"drafter": DrafterKind.CROSS, "translation": Translation.CONTEXT, "k": 2}
        cell = CellSpec(target=chosen, draft=other, **how)
    name = f"{chosen} with {other}" if other else chosen
    return JobSpec(
        kind=JobKind.CALIBRATION,
        name=f"calibrate {name}"[:200],
        cells=(cell,),
        items=(ItemSpec(custom_id="calibration", text=name),),
        task=CalibrationTask(force=force),
    )


def _print(figures: dict[str, Any]) -> None:
    out = console()
    out.print(_curve(figures))
    out.print(_break_even(figures))
    out.print(_predictions(figures))
    out.print(Text(figures["advice"], style="bold"))


def _curve(figures: dict[str, Any]) -> Any:
    """One row a size of forward; the bar is its time beside the longest."""
    costs = figures["costs"]
    (near, first), *rest = costs["verify"]
    far, last = rest[-1] if rest else (near, first)
    made = table("new tokens", f"ms at {near}", f"ms at {far}", "plain tokens' time", "")
    made.title = f"One forward of the target ({number(figures['seconds'], 1)} s of measuring; medians)"
    plain_s, longest_s = costs["plain"][0][1], max(seconds for _, seconds in first)
    for (tokens, seconds), (_, far_s) in zip(first, last, strict=True):
        bar = "█" * max(1, round(BAR * seconds / longest_s))
        made.add_row(str(tokens), number(seconds * 1e3, 2), number(far_s * 1e3, 2), number(seconds / plain_s, 2), bar)
    made.add_row("plain", number(plain_s * 1e3, 2), number(costs["plain"][-1][1] * 1e3, 2), "1.00", "")
    return made


def _break_even(figures: dict[str, Any]) -> Any:
    made = table("drafter", *(f"k={k}" for k in range(1, 9)), "r", "beta", "residual")
    made.title = "Acceptance above which drafting pays, and the paper's two constants fitted to it"
    for name, evens in figures["break_even"].items():
        law = figures["parametric"][name]
        worst = max(law["residuals"], key=abs)
        cells = [percent(even) if even <= 1 else "never" for even in evens]
        made.add_row(name, *cells, number(law["r"], 3), number(law["beta"], 3), f"{worst:+.2f}")
    return made


def _predictions(figures: dict[str, Any]) -> Any:
    made = table("predicted, not measured", "pair", "tok/s", "k=2", "k=4", "k=6")
    made.title = "What bandwidth alone predicts for other machines"
    for found in figures["predictions"]:
        evens = [percent(even) if even <= 1 else "never" for even in found["break_even"]]
        made.add_row(found["machine"], found["pair"], number(found["tokens_per_s"], 1), *evens)
    for point in figures["published"]:
        said = f"{point['speedup']:.2f}× published, prediction {point['residual']:+.2f}"
        made.add_row("M2 Pro (the paper)", f"{point['what']}, k={point['k']}", "", said, "", "")
    return made
