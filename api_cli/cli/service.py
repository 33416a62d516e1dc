"""`nocka service`: `nocka up` without a terminal, from login on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click

from api_cli.cli.render import say
from api_cli.services import Service, launchd, systemd
from db.errors import NockaError
from db.settings import load_settings


@click.group(short_help="Run `nocka up` from login on, without a terminal.")
def service() -> None:
    """Install, remove or look at a service of yours that runs `nocka up`: launchd on macOS, systemd on Linux.

    \b
    Example:
      nocka service install
      nocka service status
    """


@service.command(short_help="Write the service and start it.")
def install() -> None:
    """Write the service and start it, with the NOCKA_ variables of this shell. Again is fine: it starts anew.

    \b
    Example:
      NOCKA_HOME=~/noc nocka service install
    """
    load_settings()  # what is wrong with the variables is said here, not in a log
    chosen = _service()
    chosen.path.parent.mkdir(parents=True, exist_ok=True)
    # Its variables may hold a password.
    with open(chosen.path, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(chosen.content)
    chosen.path.chmod(0o600)
    say(f"Wrote {chosen.path}")
    _run(chosen.start, "It starts with:")


@service.command(short_help="Stop the service and remove it.")
def uninstall() -> None:
    """Stop the service and remove its file; the database and every job stay.

    \b
    Example:
      nocka service uninstall
    """
    chosen = _service()
    if not chosen.path.exists():
        say(f"There is no service: {chosen.path} does not exist.")
        return
    _run(chosen.stop, "Stop it with:")
    chosen.path.unlink()
    say(f"Removed {chosen.path}")


@service.command(short_help="Say whether it is installed and runs.")
@click.pass_context
def status(ctx: click.Context) -> None:
    """Say whether the service is installed and what launchd or systemd knows of it; ends with 1 when it does not run.

    \b
    Example:
      nocka service status
    """
    chosen = _service()
    if not chosen.path.exists():
        say(f"Not installed: {chosen.path} does not exist. Type: nocka service install")
        ctx.exit(1)
    say(f"Installed: {chosen.path}")
    if shutil.which(chosen.status[0]) is None:
        say(f"There is no {chosen.status[0]} here that could tell whether it runs; nocka doctor does.")
        ctx.exit(1)
    ctx.exit(1 if subprocess.run(chosen.status, check=False).returncode else 0)


def _service() -> Service:
    nocka = Path(sys.argv[0]).resolve()
    if not (nocka.name == "nocka" and nocka.is_file()):
        nocka = Path(sys.executable).with_name("nocka")
    if sys.platform == "darwin":
        return launchd(Path.home(), os.getuid(), nocka, os.environ)
    if sys.platform.startswith("linux"):
        config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        return systemd(config, nocka, os.environ)
    raise NockaError(f"there are no services for {sys.platform}", "Run `nocka up` in a terminal.")


def _run(commands: tuple[tuple[str, ...], ...], otherwise: str) -> None:
    """Run *commands*, of which only the last must succeed: the ones before make room for it."""
    typed = "\n".join("  " + " ".join(command) for command in commands)
    if shutil.which(commands[0][0]) is None:
        say(f"There is no {commands[0][0]} here. {otherwise}\n{typed}")
        return
    for command in commands:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode and command == commands[-1]:
            raise NockaError(f"{' '.join(command)}: {ended.stderr.strip() or 'it failed'}", f"{otherwise}\n{typed}")
