"""`nocka submit`: reads everything, checks everything, and only then queues."""

from __future__ import annotations

import dataclasses
import datetime as dt
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from api_cli.asked import Asked, Terms, default_name, job_spec
from api_cli.cli.progress import exit_code, follow
from api_cli.cli.render import EXIT_USAGE, json_text, progress_text, say
from api_cli.client import Client, Submitted
from api_cli.clock import schedule, schedule_text
from api_cli.inputs import Inputs, Instruction, read_inputs
from api_cli.sources import decoded
from db.errors import InputError, InvalidInput
from db.specs import MAX_BATCH, Decoding, DrafterKind, Dtype, JobSpec, Translation
from db.status import JOB_ENDED
from db.summary import job_json

_DECODING = tuple(Decoding.model_fields)
Command = Callable[..., Any]
Decorator = Callable[[Any], Any]


def _options(*options: Decorator) -> Decorator:
    """Several click options as one decorator, in their order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _choices(values: type[DrafterKind] | type[Translation] | type[Dtype]) -> click.Choice[str]:
    return click.Choice([value.value for value in values])


class Rows(click.ParamType[int]):
    """A number of items that run together, or `auto`, which is 0."""

    name = "rows"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "auto":
            return 0
        return click.IntRange(1, MAX_BATCH).convert(value, param, ctx)


INPUT_OPTIONS = _options(
    click.option("--prompt", help="Instruction around each document: `{text}` is the document, else it follows."),
    click.option("--prompt-file", type=click.Path(exists=True, dir_okay=False), help="The instruction from a file."),
    click.option("--system", help="System message for conversations that bring none."),
    click.option("--column", help="CSV column that holds the text."),
    click.option("--raw", is_flag=True, help="Continue the text itself, without a chat template."),
    click.option("--skip-invalid", is_flag=True, help="Queue the valid inputs; record the others as failed items."),
)
TRUST_OPTION = click.option(
    "--trust-remote-code",
    multiple=True,
    metavar="NAME",
    help="Run the code that this model's own files bring along. NAME is the target or the draft, as given; no other "
    "model's code is run.",
)
MODEL_OPTIONS = _options(
    click.option("--target", help="Model: a name of `nocka models`, a local folder, or a Hugging Face repo id."),
    click.option("--target-revision", help="Commit of that repo to pin."),
    click.option("--draft", help="Smaller model that proposes tokens."),
    click.option("--draft-revision", help="Commit of that repo to pin."),
    click.option(
        "--drafter",
        type=_choices(DrafterKind),
        help="auto (the default): each round whoever pays here, or nobody; neural: a draft with the target's "
        "tokenizer; cross, intersect: one with any other; ngram, lookup, suffix: no model; staged: suffix and ngram "
        "first, then a draft; off: plain decoding.",
    ),
    click.option(
        "--translation",
        type=_choices(Translation),
        help="Under cross, which it means if given alone. Default: context.",
    ),
    click.option("--ngram", metavar="FILE", help="N-gram file (`nocka ngram build`)."),
    click.option("--k", type=int, help="Tokens drafted in a round, 1 to 16. Default: 2; 16 for lookup and suffix."),
    click.option("--dtype", type=_choices(Dtype), default=Dtype.AUTO.value, show_default=True, help="Of the weights."),
    click.option(
        "--batch",
        type=Rows(),
        default="1",
        show_default=True,
        metavar="N|auto",
        help="Items that run together, each without a drafter; auto: as many as pay on this machine.",
    ),
    click.option("--compare-plain", is_flag=True, help="Run plain decoding too and hold the answers against it."),
    TRUST_OPTION,
)
DECODING_OPTIONS = _options(
    click.option("--max-tokens", type=int, help="Longest answer. Default: 256."),
    click.option("--temperature", type=float, help="0 is greedy, the default."),
    click.option("--top-p", type=float),
    click.option("--top-k", type=int),
    click.option("--min-p", type=float),
    click.option("--repetition-penalty", type=float),
    click.option("--seed", type=int, help="The same seed gives the same text, whatever the drafter."),
    click.option("--stop", multiple=True, help="Text that ends an answer; may be given several times."),
)

CLOCK_OPTIONS = _options(
    click.option("--not-before", metavar="TIME", help='07:30 (the next one), or "2026-12-01 07:30".'),
    click.option("--window", metavar="HH:MM-HH:MM", help="Run within these hours of each day only, as 22:00-06:00."),
    click.option("--deadline", metavar="TIME", help="What has not ended by then expires; finished answers stay."),
    click.option("--max-hours", type=float, help="Hours of work; what has not ended by then expires."),
)
CLOCK = ("not_before", "window", "deadline", "max_hours")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Run:
    """What is done with the job, beside what it is. Strictly read-only."""

    name: str | None
    priority: int
    on_done: str | None
    skip_invalid: bool
    wait: bool
    as_json: bool
    force: bool


@click.command(short_help="Queue files, folders or standard input.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@INPUT_OPTIONS
@MODEL_OPTIONS
@DECODING_OPTIONS
@CLOCK_OPTIONS
@click.option("--name", help="Default: the first PATH's name.")
@click.option("--priority", type=click.IntRange(-100, 100), default=0, show_default=True, help="Higher goes first.")
@click.option("--on-done", metavar="CMD", help="Shell command for the worker to run at the end, the summary on stdin.")
@click.option("--force", is_flag=True, help="Run all of it, also where the same job or answers are there already.")
@click.option("--wait", is_flag=True, help="Show progress until the job has ended; 3 when items failed.")
@click.option("--json", "as_json", is_flag=True, help="Say the outcome as JSON.")
@click.pass_context
def submit(ctx: click.Context, /, paths: tuple[str, ...], prompt_file: str | None, **options: Any) -> None:
    """Queue a job from PATH...: .txt, .md, .csv or .jsonl files, folders of them, or `-` for standard input.

    JSONL lines are OpenAI Batch requests, or {"text": ...} / {"prompt": ...} / {"messages": [...]} with optional
    custom_id, reference and decoding options. Everything is checked first; when anything is wrong, nothing is queued.
    The job's id goes to standard output. What was asked before is not run again: the same job is that job, and of a
    folder with one more file only that file is run.

    \b
    Examples:
      nocka submit raporty/ --prompt "Streść w trzech zdaniach:" --max-tokens 200 --wait
      nocka submit batch.jsonl --target bielik-11b-v3-4bit --draft qwen2.5-1.5b-4bit
      nocka submit raporty/ --prompt "Streść:" --window 22:00-06:00 --deadline "2026-12-04 08:00"
      echo "Litwo! Ojczyzno moja!" | nocka submit - --raw --target mini-target
    """
    run = _Run(**{field.name: options.pop(field.name) for field in dataclasses.fields(_Run)})
    instruction = Instruction(
        prompt=_prompt(options.pop("prompt"), prompt_file), system=options.pop("system"), raw=options.pop("raw")
    )
    try:
        spec, inputs = _specified(paths, instruction, options, run)
    except InvalidInput as error:
        if not run.as_json:
            raise
        click.echo(json_text({"error": error.code, "problems": [dataclasses.asdict(one) for one in error.problems]}))
        ctx.exit(EXIT_USAGE)
    with Client.open() as client:
        ctx.exit(_queue(client, spec, inputs, run))


def _specified(
    paths: tuple[str, ...], instruction: Instruction, options: dict[str, Any], run: _Run
) -> tuple[JobSpec, Inputs]:
    inputs = read_inputs(paths, instruction, options.pop("column"), sys.stdin.buffer)
    problems = (*inputs.refusals, *(() if run.skip_invalid else inputs.problems))
    if problems:
        hint = None if inputs.refusals else "--skip-invalid queues the rest and records these as failed items."
        raise InvalidInput(problems, hint)
    decoding = {name: options.pop(name) for name in _DECODING}
    decoding["stop"] = decoding["stop"] or None
    times = schedule({name: options.pop(name) for name in CLOCK}, dt.datetime.now(dt.UTC))
    asked = Asked(decoding=decoding, **options)
    terms = Terms(
        name=default_name(paths) if run.name is None else run.name,
        priority=run.priority,
        schedule=times,
        on_done=run.on_done,
    )
    spec = job_spec(asked, inputs, terms, run.skip_invalid)
    return spec, inputs


def _prompt(prompt: str | None, file: str | None) -> str | None:
    if file is None:
        return prompt
    if prompt is not None:
        raise InputError("--prompt and --prompt-file: give one of them")
    text, fault = decoded(Path(file).read_bytes())
    if fault is not None:
        raise InputError(f"--prompt-file {file}: {fault.message}")
    return text.replace("\r\n", "\n")


def _queue(client: Client, spec: JobSpec, inputs: Inputs, run: _Run) -> int:
    submitted = client.submit(spec, force=run.force)
    for note in _notes(spec, inputs, submitted):
        say(note)
    if not run.as_json:
        click.echo(submitted.job_id)
    job = None
    if run.wait:
        job = follow(client, submitted.job_id)
        error = client.first_error(job)
        say(f"{job.state.value}: {progress_text(job)}")
        if error is not None:
            say(f"First error: {error}", style="red")
        say(f"See the answers: nocka results {job.id}")
    else:
        say(f"Follow it: nocka watch {submitted.job_id}")
    if run.as_json:
        click.echo(json_text(_outcome(spec, submitted) | {"status": job_json(job) if job else None}))
    return exit_code(job) if job is not None and job.state in JOB_ENDED else 0


def _outcome(spec: JobSpec, submitted: Submitted) -> dict[str, Any]:
    return {
        "job": submitted.job_id,
        "items": len(spec.items),
        "rejected": len(spec.rejected),
        "cells": [cell.label for cell in spec.cells],
        "existed": submitted.existed,
        "reused": submitted.reused,
        "worker_woken": submitted.not_woken is None,
    }


def _notes(spec: JobSpec, inputs: Inputs, submitted: Submitted) -> list[str]:
    """What the person should know about the job that was just stored."""
    target = spec.cells[0].target
    notes = [_stored(spec, submitted), *(f"Note: {note}" for note in inputs.notes)]
    if inputs.model not in (None, target):
        notes.append(f"Note: the lines name the model {inputs.model}; {target} answers.")
    if submitted.not_woken is not None:
        notes.append(f"The job is stored and starts when a worker runs: {submitted.not_woken}")
    return notes


def _stored(spec: JobSpec, submitted: Submitted) -> str:
    if submitted.existed:
        return f"The same job is there already: {submitted.job_id}. Nothing was stored; --force runs all of it again."
    target = spec.cells[0].target
    cells = ", ".join(cell.label for cell in spec.cells)
    said = f"Stored {len(spec.items)} item{'s' if len(spec.items) != 1 else ''} for {target} ({cells})."
    if spec.schedule.limits:
        said += f" It runs: {schedule_text(spec.schedule)}."
    if submitted.reused:
        said += f" {submitted.reused} of the answers were there already and are taken over; --force runs them again."
    if spec.rejected:
        said += f" {len(spec.rejected)} invalid recorded as failed."
    return said
