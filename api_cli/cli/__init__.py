"""The command line: `nocka`. Commands are thin; what they do is in `client`, `inputs`, `asked`."""

from __future__ import annotations

import gc
import importlib
from typing import Any

import click

from api_cli.cli.render import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, say
from db.errors import InputError, NockaError

#: Each command and the module that has it, in the order of their use.
COMMANDS = {
    "up": "up",
    "submit": "submit",
    "sweep": "sweep",
    "jobs": "jobs",
    "status": "jobs",
    "watch": "jobs",
    "results": "results",
    "show": "results",
    "report": "report",
    "compare": "compare",
    "cancel": "jobs",
    "pause": "jobs",
    "resume": "jobs",
    "retry": "jobs",
    "search": "ask",
    "query": "ask",
    "browse": "ask",
    "doctor": "doctor",
    "models": "models",
    "ngram": "ngram",
    "calibrate": "calibrate",
    "db": "database",
    "service": "service",
}


class _Nocka(click.Group):
    """Errors become a message on stderr and an exit code; a command's module is loaded when it is asked for."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except NockaError as error:
            say(f"nocka: {error}", style="red")
            ctx.exit(EXIT_USAGE if isinstance(error, InputError) else EXIT_FAILED)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"api_cli.cli.{COMMANDS[cmd_name]}"), cmd_name)
        return command


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


def main() -> None:
    """The `nocka` console script."""
    gc.set_threshold(100_000)  # what is loaded and read stays until the end: looking for garbage among it takes a tenth
    cli()
