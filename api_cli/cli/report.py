"""`nocka report`: what an evaluation found, as a page, as CSV or as Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from api_cli.advice import BreakEvens, words
from api_cli.cli.render import counts_text, say
from api_cli.cli.results import write_whole
from api_cli.client import Client
from api_cli.evaluation import Evaluation, evaluate
from api_cli.report.page import Material, csv_rows, page
from db.errors import InputError
from db.status import JOB_ENDED, ResultState
from db.store import utc_now

FORMATS = ("html", "csv", "parquet")
#: Columns of whole numbers.
COUNTS = ("total", "done", "failed", "compared", "same_as_plain", "near_ties", "speedup_items")


@click.command(short_help="Say what an evaluation found, with pictures.")
@click.argument("job", default="last")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Default: by the ending of -o, else html.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file, whole or not at all."
)
def report(job: str, form: str | None, output: Path | None) -> None:
    """Write what JOB found: what to run on this machine and why, every cell's figures, charts, and what went wrong.

    The page is one file that opens without a network. A job that still runs is reported as far as it is. csv and
    parquet (an extra) have a row for each cell and kind of text.

    \b
    Example:
      nocka report last -o report.html
      nocka report last --format csv
    """
    ending = "" if output is None else output.suffix.removeprefix(".")
    form = form or (ending if ending in FORMATS else "html")
    if form == "parquet" and output is None:
        raise InputError("parquet is no text for a terminal", "name a file: -o report.parquet")
    with Client.open() as client:
        record = client.status(job)
        cells = client.cells(record.id)
        results = list(client.results(record.id))
        found = evaluate(results, cells)
        known = break_evens(client, found)
    if form == "parquet":
        written = _parquet(found)
    elif form == "csv":
        written = _csv(found).encode()
    else:
        failed = tuple(result for result in results if result.state is ResultState.FAILED)
        material = Material(job=record, found=found, failed=failed, break_evens=known, written_at=utc_now())
        written = page(material).encode()
    if output is None:
        click.echo(written, nl=False)
    else:
        write_whole(output, lambda file: file.buffer.write(written))
        for line in words(found, record.counts, known):
            say(line)
    if record.state not in JOB_ENDED:
        say(f"Not finished yet: {counts_text(record.counts)}.")


def break_evens(client: Client, found: Evaluation) -> BreakEvens:
    """The latest calibration of each pair whose target is in the job."""
    known: dict[tuple[str, str | None], Mapping[str, Sequence[float]]] = {}
    for target in {cell.target for cell in found.cells}:
        for draft, _, figures in client.store.calibrations_of(target):
            known.setdefault((target, draft), figures["break_even"])
    return known


def _parquet(found: Evaluation) -> bytes:
    """The rows of the CSV with their types. Raises InputError where pyarrow is not installed."""
    try:
        import pyarrow as arrow
        from pyarrow.parquet import write_table
    except ImportError as error:
        raise InputError("parquet needs the package pyarrow", "pip install 'nocka[parquet]'") from error
    headings, *rows = csv_rows(found)
    kinds = {"cell": arrow.string(), "kind": arrow.string()} | dict.fromkeys(COUNTS, arrow.int64())
    columns = {
        str(name): arrow.array([row[at] for row in rows], kinds.get(str(name), arrow.float64()))
        for at, name in enumerate(headings)
    }
    sink = arrow.BufferOutputStream()
    write_table(arrow.table(columns), sink)
    return bytes(sink.getvalue())


def _csv(found: Evaluation) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(csv_rows(found))
    return written.getvalue()
