"""`nocka jobs`, `status`, `watch`, `cancel`, `pause`, `resume`, `retry`: jobs as wholes."""

from __future__ import annotations

import click
from rich.text import Text

from api_cli.cli.progress import exit_code, follow
from api_cli.cli.render import (
    console,
    counts_text,
    duration,
    jobs_table,
    json_text,
    moment,
    number,
    progress_text,
    say,
    state_text,
    table,
    visible,
)
from api_cli.client import Client, Submitted
from api_cli.clock import schedule_text
from api_cli.comparison import beside_plain
from api_cli.presence import workers
from db.records import JobRecord
from db.schedule import Schedule
from db.status import JOB_ENDED, RETRYABLE, JobState, ResultState
from db.summary import job_json, seconds_left, tokens_per_s

_BAR_CELLS = 24


@click.command()
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many, the newest first.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def jobs(limit: int, as_json: bool) -> None:
    """List the newest jobs.

    \b
    Example:
      nocka jobs --limit 5
    """
    with Client.open() as client:
        found = client.jobs(limit)
    if as_json:
        click.echo(json_text([job_json(job) for job in found], indent=2))
        return
    if not found:
        say("No jobs yet. Type: nocka submit --help")
        return
    out = console()
    out.print(jobs_table(found, out.width))


@click.command(short_help="Say where a job stands.")
@click.argument("job", default="last")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(job: str, as_json: bool) -> None:
    """Say where JOB stands (an id, a unique beginning of one, or `last`, the default).

    \b
    Examples:
      nocka status
      nocka status 20261130-0122 --json
    """
    with Client.open() as client:
        record = client.status(job)
        error = client.first_error(record)
        cells = client.cells(record.id)
        idle = record.state not in JOB_ENDED and not workers(client.settings)
    if as_json:
        found = job_json(record, error) | {"cells": [cell.model_dump(mode="json") for cell in cells]}
        click.echo(json_text(found, indent=2))
        return
    made = table("", "")
    made.show_header = False
    made.columns[0].style = "dim"
    made.columns[1].overflow, made.columns[1].no_wrap = "fold", False
    for name, value in _facts(record, error):
        made.add_row(name, value)
    for cell in cells:
        made.add_row(
            "cell", Text(visible(f"{cell.label}, target {cell.target}, {cell.decoding.max_tokens} tokens at most"))
        )
    console().print(made)
    if record.state is JobState.PAUSED:
        say(f"It is paused. Let it go on: nocka resume {record.id}")
    elif idle:
        say("No worker runs. Start one: nocka up")


def _facts(job: JobRecord, error: str | None) -> list[tuple[str, Text]]:
    left = seconds_left(job)
    facts = [
        ("job", Text(job.id)),
        ("name", Text(visible(job.name))),
        ("state", state_text(job.state)),
        ("progress", Text(f"{_bar(job)} {counts_text(job.counts)}")),
        ("tokens", Text(f"{number(job.completion_tokens)} written, {_read(job)}")),
        ("speed", Text(f"{number(tokens_per_s(job), 1)} tok/s, {duration(job.worked_s)} of work")),
        ("time left", Text("–" if left is None else f"about {duration(left)}")),
        *([("reused", Text(f"{job.reused} answers of earlier jobs"))] if job.reused else []),
        ("runs", Text(schedule_text(job.schedule or Schedule()))),
        *_evaluation_facts(job),
        ("created", Text(moment(job.created_at))),
        ("finished", Text(moment(job.finished_at))),
    ]
    return facts if error is None else [*facts, ("first error", Text(visible(error), style="red"))]


def _read(job: JobRecord) -> str:
    read_once = f", {number(job.reused_tokens)} of them once for several" if job.reused_tokens else ""
    return f"{number(job.prompt_tokens)} read{read_once}"


def _evaluation_facts(job: JobRecord) -> list[tuple[str, Text]]:
    found = job.evaluation
    if found is None:
        return []
    said = beside_plain(found.compared, found.same, found.near_ties)
    return [("plain's text", Text(said)), ("model loads", Text(number(found.model_loads)))]


def _bar(job: JobRecord) -> str:
    filled = _BAR_CELLS * job.counts.ended // job.counts.total if job.counts.total else _BAR_CELLS
    return "━" * filled + "╌" * (_BAR_CELLS - filled)


@click.command(short_help="Follow a job until it has ended.")
@click.argument("job", default="last")
@click.pass_context
def watch(ctx: click.Context, job: str) -> None:
    """Follow JOB until it has ended; Ctrl-C stops the watching, not the job.

    Ends with 0 when every item is done, 3 when items failed, 1 when the job failed or was cancelled.

    \b
    Example:
      nocka watch last
    """
    with Client.open() as client:
        record = follow(client, job)
        error = client.first_error(record)
    say(f"{record.state.value}: {progress_text(record)}")
    if error is not None:
        say(f"First error: {error}", style="red")
    ctx.exit(exit_code(record))


@click.command(short_help="End a job; what is finished stays.")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def cancel(job: str, as_json: bool) -> None:
    """End JOB; what is finished stays, the rest can be retried.

    \b
    Example:
      nocka cancel last
    """
    with Client.open() as client:
        record = client.cancel(job)
    _say_job(record, as_json)


@click.command(short_help="Hold a job; what is finished stays.")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def pause(job: str, as_json: bool) -> None:
    """Hold JOB until `nocka resume JOB`; an item that runs is handed back within seconds, at no charge.

    \b
    Example:
      nocka pause last
    """
    with Client.open() as client:
        record = client.pause(job)
    _say_job(record, as_json)
    say(f"Let it go on: nocka resume {record.id}")


@click.command(short_help="Let a paused job go on.")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def resume(job: str, as_json: bool) -> None:
    """Let JOB go on after `nocka pause`.

    \b
    Example:
      nocka resume last
    """
    with Client.open() as client:
        submitted, record = client.resume(job)
    _say_not_woken(submitted)
    _say_job(record, as_json)


@click.command(short_help="Run what failed, expired or was cancelled again.")
@click.argument("job")
@click.option("--failed", is_flag=True, help="Only what failed.")
@click.option("--cancelled", is_flag=True, help="Only what was cancelled.")
@click.option("--expired", is_flag=True, help="Only what a deadline or the hours of work cut off.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def retry(job: str, as_json: bool, **only: bool) -> None:
    """Run what failed, expired or was cancelled in JOB again, or only some of these; finished results are left alone.

    \b
    Examples:
      nocka retry last
      nocka retry last --failed
    """
    states = {ResultState(name) for name, wanted in only.items() if wanted} or RETRYABLE
    with Client.open() as client:
        submitted, count = client.retry(job, states)
    _say_not_woken(submitted)
    if as_json:
        click.echo(json_text({"job": submitted.job_id, "retried": count}))
    else:
        click.echo(f"{submitted.job_id}: {count} result{'s' if count != 1 else ''} to run again")


def _say_job(job: JobRecord, as_json: bool) -> None:
    click.echo(json_text(job_json(job)) if as_json else f"{job.id} {job.state.value}: {counts_text(job.counts)}")


def _say_not_woken(submitted: Submitted) -> None:
    if submitted.not_woken is not None:
        say(f"They wait in the store and start when a worker runs: {submitted.not_woken}")
