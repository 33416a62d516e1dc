"""`nocka db`: copy, check, update and tidy the database."""

from __future__ import annotations

import contextlib
import datetime as dt
from pathlib import Path

import click

from api_cli.cli.render import json_text, say
from db import care, migrations
from db.connect import as_it_is, open_store, sqlite_version
from db.errors import NotFound
from db.settings import load_settings


@click.group()
def db() -> None:
    """Copy, check, update and tidy the database. Each is safe beside a running worker.

    \b
    Example:
      nocka db backup
    """


@db.command(short_help="Copy the database.")
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
def backup(file: Path | None) -> None:
    """Copy the database to FILE (default: the home's `backups` folder), while a worker goes on writing.

    \b
    Example:
      nocka db backup ~/nocka-before-the-update.db
    """
    settings = load_settings()
    path = file or settings.home / "backups" / f"nocka-{dt.datetime.now():%Y%m%d-%H%M%S}.db"
    with as_it_is(settings) as engine:
        care.back_up(engine, path.absolute())
    click.echo(path.absolute())


@db.command(short_help="Look for damage.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Look for damage: of the file, of references between rows, of the schema. Exit code 1 where there is any.

    \b
    Example:
      nocka db check
    """
    with as_it_is(load_settings()) as engine:
        problems = care.check(engine)
    if as_json:
        click.echo(json_text({"sound": not problems, "problems": problems}, indent=2))
    elif problems:
        for problem in problems:
            say(problem, style="red")
        say("Older copies are in the home's `backups` folder, and beside the database as *.before-SCHEMA.")
    else:
        click.echo("The database is sound.")
    ctx.exit(1 if problems else 0)


@db.command(short_help="Bring the schema up to date.")
def upgrade() -> None:
    """Bring the schema up to date, which any other command does too; an older SQLite file is copied first.

    \b
    Example:
      nocka db upgrade
    """
    settings = load_settings()
    before = None
    with contextlib.suppress(NotFound), as_it_is(settings) as engine:
        before = care.schema(engine)
    store = open_store(settings)
    on_sqlite = sqlite_version(store.engine) is not None
    store.close()
    if before == migrations.HEAD:
        click.echo(f"The schema is {before}, the newest.")
        return
    click.echo(f"The schema is {migrations.HEAD} now; it was {before or 'not there'}.")
    if before is not None and on_sqlite:
        say(f"The database as it was: {store.engine.url.database}.before-{before}")


@db.command(short_help="Give back unused room.")
def vacuum() -> None:
    """Give the room that deleted rows left back to the disk.

    \b
    Example:
      nocka db vacuum
    """
    with as_it_is(load_settings()) as engine:
        care.vacuum(engine)
    click.echo("The database holds no unused room.")
