"""`nocka up`: becomes the supervisor of broker and worker."""

from __future__ import annotations

import importlib.util
import os
import sys

import click

from db.errors import NockaError


@click.command(short_help="Run the broker and a worker until Ctrl-C.")
def up() -> None:
    """Run the broker and one worker here until Ctrl-C, which lets the worker finish and stops both.

    \b
    Example:
      nocka up
    """
    if importlib.util.find_spec("mlx") is None:
        raise NockaError(
            "this machine has no MLX, so no worker can run here; submitting and reading work",
            "Run `nocka up` on an Apple-silicon Mac or on Linux, with the same NOCKA_REDIS_URL and NOCKA_DATABASE_URL.",
        )
    # Replaced, not imported or forked: the terminal's signals reach the supervisor itself. -P keeps a folder named
    # `worker` in the current directory from being run instead.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "worker.supervisor"])
