"""`nocka results` and `nocka show`: what came out."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console
from rich.text import Text

from api_cli.cli import exports
from api_cli.cli.render import console, counts_text, json_text, moment, say, state_text, visible
from api_cli.client import Client
from api_cli.comparison import AgainstPlain, against_plain
from db.errors import NockaError
from db.records import JobRecord, ResultRecord
from db.specs import CellSpec
from db.status import JOB_ENDED, ResultState

#: Characters in a line of a table in a file.
FILE_WIDTH = 160
FORMATS = ("table", "jsonl", "csv", "md")
#: Figures that are lists of one entry a round or a token.
_LONG = ("trace", "tokens")


@click.command(short_help="Print the results of a job.")
@click.argument("job", default="last")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Default: by the ending of -o, else table.")
@click.option("--failed", is_flag=True, help="Only the results that failed.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file, whole or not at all."
)
def results(job: str, form: str | None, failed: bool, output: Path | None) -> None:
    """Print the results of JOB (an id, a unique beginning of one, or `last`), finished or not.

    jsonl has OpenAI's batch output shape and holds what has ended; table, csv and md have a row for every result. Under
    an evaluation `= 1.20×` means: the same text as plain decoding, at 1.20 times its speed; `≈`: it parts where the
    target's two best tokens all but tie; `≠`: it is another text.

    \b
    Example:
      nocka results last
      nocka results last --format jsonl -o answers.jsonl
      nocka results 20261130-0122 --failed
    """
    form = form or (output.suffix.removeprefix(".") if output and output.suffix[1:] in FORMATS else "table")
    with Client.open() as client:
        record = client.status(job)
        cells = client.cells(record.id)
        found = client.results(record.id, states={ResultState.FAILED} if failed else None)
        if output is not None:
            write_whole(output, lambda file: _write_onto(file, form, found, cells))
        elif form == "table":
            _print_table(record, list(found), cells)
        else:
            _print_lines(_lines(form, found, cells), exact=form == "jsonl" or not sys.stdout.isatty())
    if record.state not in JOB_ENDED:
        say(f"Not finished yet: {counts_text(record.counts)}.")


def _lines(form: str, found: Iterable[ResultRecord], cells: list[CellSpec]) -> Iterable[str]:
    if form == "jsonl":
        return exports.jsonl(found, cells)
    return (exports.csv_lines if form == "csv" else exports.markdown)(list(found), cells)


def _print_lines(lines: Iterable[str], *, exact: bool) -> None:
    for line in lines:
        click.echo(line if exact else visible(line), nl=False)


def _print_table(job: JobRecord, found: list[ResultRecord], cells: list[CellSpec]) -> None:
    out = console()
    _table_onto(out, found, cells)
    out.print(Text(f"{job.id}: {counts_text(job.counts)}", style="dim"), soft_wrap=True)


def _table_onto(out: Console, found: list[ResultRecord], cells: list[CellSpec]) -> None:
    out.print(exports.results_table(found, cells, out.width))
    out.print()
    for line in exports.summary_lines(found, cells):
        out.print(Text(visible(line)), soft_wrap=True)


def write_whole(path: Path, write: Callable[[TextIO], object]) -> None:
    """Let *write* write beside *path* and move it there at the end, so that no reader ever meets half a file."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with open(descriptor, "w", encoding="utf-8", newline="") as file:  # noqa: PTH123
                write(file)
                file.flush()
                os.fchmod(descriptor, 0o666 & ~_umask())
                os.fsync(descriptor)
            os.replace(name, path)  # noqa: PTH105
        except BaseException:
            os.unlink(name)  # noqa: PTH108
            raise
    except OSError as error:
        raise NockaError(f"cannot write {path}: {error.strerror}") from error
    say(f"Written: {path}")


def _write_onto(file: TextIO, form: str, found: Iterable[ResultRecord], cells: list[CellSpec]) -> None:
    if form == "table":
        out = Console(file=file, width=FILE_WIDTH, color_system=None, highlight=False, markup=False, emoji=False)
        _table_onto(out, list(found), cells)
    else:
        file.writelines(_lines(form, found, cells))


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@click.command(short_help="Print one item whole.")
@click.argument("job")
@click.argument("item")
@click.option("--json", "as_json", is_flag=True, help="As JSON, one object a cell.")
def show(job: str, item: str, as_json: bool) -> None:
    """Print one ITEM of JOB whole: prompt, answer, figures, configuration, error; once for each cell.

    \b
    Example:
      nocka show last raport-07.txt
    """
    with Client.open() as client:
        record = client.status(job)
        found = client.store.result(record.id, item)
        cells = client.cells(record.id)
    if as_json:
        click.echo(json_text([_as_json(result, cells) for result in found], indent=2))
        return
    out = console()
    _show_item(out, found[0])
    beside = against_plain(found, cells)
    for result in found:
        against = beside.get(result.id)
        _show_result(out, result, "" if against is None else f" · {_beside_plain(against)}")


def _beside_plain(against: AgainstPlain) -> str:
    if against.same:
        return "same text as plain"
    return "NOT plain's text" + ("" if against.parting is None else f": {against.parting}")


def _as_json(result: ResultRecord, cells: list[CellSpec]) -> dict[str, Any]:
    return {
        "job": result.job_id,
        "custom_id": result.custom_id,
        "cell": result.cell_label,
        "state": result.state.value,
        "attempts": result.attempts,
        "reused_from": result.reused_from,
        "input": result.item.model_dump(mode="json") if result.item else None,
        "text": result.text,
        "finish_reason": result.finish_reason,
        "error": {"code": result.error_code, "message": result.error_message} if result.error_code else None,
        "metrics": result.metrics,
        "scores": result.scores,
        "config": result.config,
        "cell_spec": cells[result.cell_position].model_dump(mode="json"),
        "finished_at": result.finished_at.isoformat() if result.finished_at else None,
    }


def _show_item(out: Console, result: ResultRecord) -> None:
    _line(out, Text(visible(result.custom_id), style="bold"))
    item = result.item
    if item is None:
        _line(out, Text("This input was rejected; nothing of it was kept.", style="dim"))
        return
    for message in item.messages or ():
        _section(out, message.role, message.content)
    if item.text is not None:
        _section(out, "text", item.text)
    if item.reference is not None:
        _section(out, "reference", item.reference)
    options = item.overrides.model_dump(exclude_none=True)
    if options:
        _section(out, "options of this item", json_text(options))


def _show_result(out: Console, result: ResultRecord, against: str) -> None:
    heading = Text.assemble("\n── ", (visible(result.cell_label), "bold"), " · ", state_text(result.state), against)
    _line(out, heading)
    if result.reused_from is not None:
        _section(out, "taken over from", result.reused_from)
    if result.error_code:
        _section(out, "error", f"{result.error_code}: {result.error_message}", style="red")
    if result.text is not None:
        _section(out, f"answer ({result.finish_reason})", result.text)
    tries = f"{result.attempts} {'try' if result.attempts == 1 else 'tries'}"
    figures = [f"{name:<24}{_figure(value)}" for name, value in result.metrics.items() if name not in _LONG]
    _section(out, f"figures ({tries}, ended {moment(result.finished_at)})", "\n".join(figures))
    if result.metrics.get("trace"):
        trace = " ".join("/".join(str(count) for count in step) for step in result.metrics["trace"])
        _section(out, "rounds (drafted/proposed/accepted)", trace)
    if result.config:
        _section(out, "configuration", json_text(result.config, indent=2))


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value is None else json_text(value)


def _section(out: Console, title: str, body: str, style: str = "") -> None:
    _line(out, Text(f"\n{visible(title)}", style="dim"))
    if body:
        _line(out, Text(visible(body), style=style))


def _line(out: Console, text: Text) -> None:
    out.print(text, soft_wrap=not out.is_terminal)
