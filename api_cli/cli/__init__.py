"""The command line: `nocka`. Commands are thin; what they do is in `client`, `inputs`, `asked`."""

from __future__ import annotations

from typing import Any

import click

from api_cli.cli.ask import browse, query, search
from api_cli.cli.calibrate import calibrate
from api_cli.cli.compare import compare
from api_cli.cli.database import db
from api_cli.cli.doctor import doctor
from api_cli.cli.jobs import cancel, jobs, pause, resume, retry, status, watch
from api_cli.cli.models import models
from api_cli.cli.ngram import ngram
from api_cli.cli.progress import EXIT_FAILED, EXIT_INTERRUPTED
from api_cli.cli.render import say
from api_cli.cli.report import report
from api_cli.cli.results import results, show
from api_cli.cli.service import service
from api_cli.cli.submit import EXIT_USAGE, submit
from api_cli.cli.sweep import sweep
from api_cli.cli.up import up
from db.errors import InputError, NockaError


class _Nocka(click.Group):
    """Errors become a message on stderr and an exit code; commands are listed in the order of their use."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except NockaError as error:
            say(f"nocka: {error}", style="red")
            ctx.exit(EXIT_USAGE if isinstance(error, InputError) else EXIT_FAILED)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_Nocka, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="nocka")
def cli() -> None:
    """Offline batch generation and evaluation on your own machine.

    Exit codes: 0 fine, 1 failed, 2 asked wrongly, 3 the job ended with failed items, 130 Ctrl-C.

    \b
    Example:
      nocka up                                   in one terminal
      nocka submit raporty/ --prompt "Streść:"   in another
      nocka results last
    """


COMMANDS = (
    up,
    submit,
    sweep,
    jobs,
    status,
    watch,
    results,
    show,
    report,
    compare,
    cancel,
    pause,
    resume,
    retry,
    search,
    query,
    browse,
    doctor,
    models,
    ngram,
    calibrate,
    db,
    service,
)
for command in COMMANDS:
    cli.add_command(command)


def main() -> None:
    """The `nocka` console script."""
    cli()
