"""`nocka calibrate`: what a pair of models costs on the worker's machine, and what therefore pays."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table
from rich.text import Text

from api_cli.asked import model_name, trusted
from api_cli.cli.ngram import shown
from api_cli.cli.progress import exit_code, follow
from api_cli.cli.render import console, factor, json_text, number, percent, say, table, visible
from api_cli.cli.submit import TRUST_OPTION
from api_cli.client import Client
from db import catalogue
from db.specs import CalibrationTask, CellSpec, DrafterKind, ItemSpec, JobKind, JobSpec, Translation
from db.status import ResultState

BAR = 24
BUSY = "Something else ran meanwhile, so these figures are rough: measure again with --force when it has ended."


@click.command(short_help="Measure what a pair of models costs here, and what pays.")
@click.option("--target", help="Default: as for `nocka submit`.")
@click.option("--draft", help="Smaller model, of any tokenizer. Default: the one of the catalogue, if any.")
@TRUST_OPTION
@click.option("--force", is_flag=True, help="Measure anew where this machine did before.")
@click.option("--no-wait", is_flag=True, help="Only queue it.")
@click.option("--json", "as_json", is_flag=True, help="Every figure as JSON.")
@click.pass_context
def calibrate(
    ctx: click.Context,
    target: str | None,
    draft: str | None,
    trust_remote_code: tuple[str, ...],
    force: bool,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Measure one forward of 1 to 17 tokens, the draft's steps and every other drafter, on the worker's machine.

    Prints the curve, the acceptance above which drafting pays, and one sentence of advice. What was measured before is
    shown again, until models, machine or MLX change.

    \b
    Example:
      nocka calibrate --target mini-target --draft mini-draft-bytes
    """
    with Client.open() as client:
        submitted = client.submit(_job(target, draft, trust_remote_code, force), force=True)
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


def _job(target: str | None, draft: str | None, trust: tuple[str, ...], force: bool) -> JobSpec:
    known = catalogue.entry(target) if target else None
    if target is None:
        known = catalogue.default_target(catalogue.memory_bytes(), catalogue.is_apple_silicon())
    chosen = known.name if known is not None else model_name(target or "", "target")
    other = model_name(draft, "draft") if draft is not None else known.draft if known is not None else None
    how: dict[str, Any] = {"target": chosen, "trust_remote_code": trusted(trust, (chosen, other))}
    if other is not None:
        how |= {"draft": other, "drafter": DrafterKind.CROSS, "translation": Translation.CONTEXT, "k": 2}
    name = f"{chosen} with {other}" if other else chosen
    return JobSpec(
        kind=JobKind.CALIBRATION,
        name=f"calibrate {name}"[:200],
        cells=(CellSpec(**how),),
        items=(ItemSpec(custom_id="calibration", text=name),),
        task=CalibrationTask(force=force),
    )


def _print(figures: dict[str, Any]) -> None:
    out = console()
    where = figures["where"]
    out.print(Text(visible(f"On {where['machine']}: {where['device']}, {where['dtype']}, mlx {where['mlx']}")))
    out.print()
    out.print(_curve(figures))
    out.print(Text(_other_costs(figures)), soft_wrap=True)
    for made in (_break_even(figures), _fitted(figures), _predicted(figures), _published(figures)):
        out.print()
        out.print(made)
    out.print()
    if figures["busy"]:
        out.print(Text(BUSY, style="yellow"), soft_wrap=True)
    out.print(Text(figures["advice"], style="bold"), soft_wrap=True)


def _curve(figures: dict[str, Any]) -> Table:
    """One row a size of forward; the bar is its time beside the longest."""
    costs, spread = figures["costs"], figures["spread"]
    (near, first), (far, last) = costs["verify"][0], costs["verify"][-1]
    made = table("new tokens", f"ms behind {near}", "spread", f"ms behind {far}", "spread", "plain tokens", "")
    made.title = f"One forward of the target: medians of {figures['rounds']} rounds, {figures['seconds']:.0f} s in all"
    plain_s, longest_s = costs["plain"][0][1], max(seconds for _, seconds in first)
    for (tokens, seconds), (_, far_s) in zip(first, last, strict=True):
        bar = "█" * max(1, round(BAR * seconds / longest_s))
        times = (_ms(seconds), percent(spread[f"verify {near} {tokens}"]), _ms(far_s))
        made.add_row(str(tokens), *times, percent(spread[f"verify {far} {tokens}"]), number(seconds / plain_s, 2), bar)
    times = (_ms(plain_s), percent(spread[f"plain {near}"]), _ms(costs["plain"][-1][1]))
    made.add_row("1, streamed", *times, percent(spread[f"plain {far}"]), "1.00", "")
    return made


def _other_costs(figures: dict[str, Any]) -> str:
    costs = figures["costs"]
    said = f"Waiting for a token costs {_ms(max(0.0, figures['host_s']))} ms, reading one of a prompt "
    said += f"{_ms(costs['prefill_token_s'])} ms."
    if costs["draft_step_s"]:
        said += f" The draft's own token takes {_ms(costs['draft_step_s'])} ms, one of a prompt "
        said += f"{_ms(costs['draft_prefill_token_s'])} ms."
    return said


def _break_even(figures: dict[str, Any]) -> Table:
    made = table("drafter", "ms for 2", *(f"k={k}" for k in range(1, 9)))
    made.title = f"Acceptance above which drafting pays, behind {figures['context_tokens']} tokens"
    for name, evens in figures["break_even"].items():
        [seconds] = [seconds for k, seconds in figures["costs"]["propose"][name] if k == 2]
        made.add_row(name, _ms(seconds), *(_even(even) for even in evens))
    return made


def _fitted(figures: dict[str, Any]) -> Table:
    made = table("drafter", "r", "beta", *(f"k={k}" for k in range(1, 9)))
    made.title = "The paper's r and beta fitted; what a round takes beyond, in plain tokens"
    for name, law in figures["parametric"].items():
        left = [f"{residual:+.2f}" for residual in law["residuals"]]
        made.add_row(name, number(law["r"], 3), number(law["beta"], 4), *left)
    return made


def _predicted(figures: dict[str, Any]) -> Table:
    lengths = figures["published_break_even"]
    made = table("predicted, not measured", "pair", "tok/s", *(f"k={k}" for k in lengths))
    made.title = "Other machines: what their bandwidth predicts, and the acceptance above which a draft would pay"
    for found in figures["predictions"]:
        evens = [_even(even) for even in found["break_even"].values()]
        made.add_row(found["machine"], found["pair"], number(found["tokens_per_s"], 1), *evens)
    ranges = [
        f"above {percent(low)}" if high is None else f"{100 * low:.0f}–{percent(high)}"
        for low, high in lengths.values()
    ]
    made.add_row("M2 Pro, as published", "Bielik 11B and three drafts", "14.6–15.1", *ranges)
    return made


def _published(figures: dict[str, Any]) -> Table:
    made = table("M2 Pro, as published", "k", "acceptance", "published", "predicted", "residual")
    made.title = "How far the prediction is from the paper's speed-ups"
    for point in figures["published"]:
        speeds = (factor(point["speedup"]), factor(point["predicted"]), f"{point['residual']:+.2f}")
        made.add_row(point["what"], str(point["k"]), percent(point["alpha"]), *speeds)
    return made


def _ms(seconds: float) -> str:
    return number(1e3 * seconds, 3 if abs(seconds) < 1e-4 else 2)


def _even(acceptance: float) -> str:
    return percent(acceptance) if acceptance < 1 else "never"
