"""`nocka search`, `query` and `browse`: asking the store."""

from __future__ import annotations

import csv
import importlib.util
import io
import math
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from api_cli.cli.render import console, excerpt, fit, json_text, number, say, table, visible
from api_cli.client import Client
from db.asking import Table, ask
from db.errors import NockaError
from db.search import Hit
from db.search import search as search_store

#: Rows that a table for the eye shows.
SHOWN = 200
#: Texts between two messages about their indexing.
TOLD = 5_000
FORMATS = ("table", "csv", "json", "jsonl")


@click.command(short_help="Find prompts and answers by their words.")
@click.argument("text")
@click.option("--job", help="Only of this job.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Hits at most.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, hits in the snippet between **.")
def search(text: str, job: str | None, limit: int, as_json: bool) -> None:
    """Find the prompts and answers that hold every word of TEXT, the best first.

    Case, accents and Polish letters mean nothing: `lodz` finds Łódź. "Quotes" ask for words in a row, a star for the
    beginning of a word. The first search after a large job takes a while: it is indexed then.

    \b
    Example:
      nocka search lodz
      nocka search '"umowa najmu" mieszkan*' --job last
    """
    with Client.open() as client:
        job_id = None if job is None else client.status(job).id
        hits = search_store(client.store.engine, text, job_id=job_id, limit=limit, indexed=_say_indexed)
    if as_json:
        click.echo(json_text([_hit_json(hit) for hit in hits], indent=2))
        return
    out = console()
    for hit in hits:
        part = "prompt" if hit.cell_label is None else f"answer ({hit.cell_label})"
        out.print(Text(visible(f"{hit.job_id} {hit.custom_id} · {part}"), style="bold"), soft_wrap=True)
        out.print(Text("  ").append_text(_snippet(hit, marked=out.color_system is None)), soft_wrap=True)
    if not hits:
        say("Nothing found.")


def _say_indexed(count: int) -> None:
    if count % TOLD == 0:
        say(f"Indexing what is new: {number(count)} texts ...")


def _snippet(hit: Hit, *, marked: bool) -> Text:
    """The snippet on one line; where there is no colour its hits stand between `**`."""
    shown = Text()
    for piece, found in hit.snippet:
        line = visible(" ".join(piece.replace("\n", " ").split(" ")))
        shown.append(f"**{line}**" if found and marked else line, style="bold yellow" if found else "")
    return shown


def _hit_json(hit: Hit) -> dict[str, Any]:
    return {
        "job": hit.job_id,
        "custom_id": hit.custom_id,
        "part": "prompt" if hit.cell_label is None else "answer",
        "cell": hit.cell_label,
        "snippet": "".join(f"**{piece}**" if found else piece for piece, found in hit.snippet),
    }


@click.command(short_help="Ask the store in SQL; nothing can be changed.")
@click.argument("sql")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option(
    "--timeout", "limit_s", type=click.FloatRange(0.1, 86_400), default=60.0, show_default=True, help="Seconds."
)
def query(sql: str, form: str, limit_s: float) -> None:
    """Run one SQL statement that reads. The views v_jobs, v_cells and v_results are made for this.

    Their columns are in docs/design/store.md; times are in UTC.

    \b
    Example:
      nocka query "SELECT label, tokens_per_s, acceptance_rate FROM v_cells WHERE job = (SELECT max(job) FROM v_jobs)"
      nocka query "SELECT custom_id, answer FROM v_results WHERE state = 'done'" --format csv > answers.csv
    """
    with Client.open() as client, ask(client.store.engine, sql, limit_s) as found:
        if form == "table":
            _print_table(found)
            return
        exact = form != "csv" or not sys.stdout.isatty()
        for line in _lines(form, found):
            click.echo(line if exact else visible(line), nl=False)


def _print_table(found: Table) -> None:
    out, made = console(), table(*(visible(name) for name in found.columns))
    for row in islice(found.rows, SHOWN):
        made.add_row(*("–" if cell is None else Text(excerpt(_shown(cell))) for cell in row))
    out.print(fit(made, out.width) if made.row_count else made)
    if next(found.rows, None) is not None:
        say(f"The first {SHOWN} rows; --format csv gives all of them.")


def _shown(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return (
        cell if isinstance(cell, str) else str(_plain(cell)) if not isinstance(cell, dict | list) else json_text(cell)
    )


def _lines(form: str, found: Table) -> Iterator[str]:
    """The rows as text; each as soon as it is read."""
    if form == "csv":
        yield _csv_line(found.columns)
        for row in found.rows:
            yield _csv_line("" if cell is None else _csv_cell(cell) for cell in row)
        return
    records = (dict(zip(found.columns, map(_plain, row), strict=True)) for row in found.rows)
    if form == "jsonl":
        yield from (json_text(record) + "\n" for record in records)
        return
    between = "[\n"
    for record in records:
        yield between + json_text(record)
        between = ",\n"
    yield "[]\n" if between == "[\n" else "\n]\n"


def _csv_line(cells: Iterable[Any]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow(cells)
    return written.getvalue()


def _csv_cell(cell: Any) -> Any:
    return json_text(cell) if isinstance(cell, dict | list) else _plain(cell)


def _plain(cell: Any) -> Any:
    """A value as JSON can hold it: bytes in hexadecimal, no infinities."""
    if isinstance(cell, bytes):
        return cell.hex()
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


@click.command(short_help="Look at the store in a browser (Datasette).")
@click.option("--port", type=click.IntRange(0, 65_535), default=8001, show_default=True, help="0 takes a free one.")
@click.option("--open", "opened", is_flag=True, help="Open the browser too.")
def browse(port: int, opened: bool) -> None:
    """Serve the database to this machine's browser with Datasette, to be read, until Ctrl-C.

    Needs the extra `browse`. The file is opened for reading, while a worker may go on writing it.

    \b
    Example:
      nocka browse --open
    """
    with Client.open() as client:
        url = client.store.engine.url
    if url.get_backend_name() != "sqlite":
        raise NockaError("Datasette reads SQLite files only", 'For Postgres: nocka query "SELECT ..."')
    if importlib.util.find_spec("datasette") is None:
        raise NockaError("Datasette is not installed", "Type: pip install 'nocka[browse]'")
    command = browse_command(Path(str(url.database)), port)
    raise SystemExit(subprocess.run([*command, *(["--open"] if opened else [])], check=False).returncode)


def browse_command(path: Path, port: int) -> list[str]:
    """Datasette on this machine's own address only. Not `--immutable`: that would not see what is still in the log."""
    settings = {"sql_time_limit_ms": "10000", "allow_download": "off", "max_csv_mb": "0"}
    command = [sys.executable, "-m", "datasette", "serve", str(path), "--host", "127.0.0.1", "--port", str(port)]
    return command + [word for name, value in settings.items() for word in ("--setting", name, value)]
