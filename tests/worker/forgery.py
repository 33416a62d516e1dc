"""What an intruder with access to Redis would have the worker run. Importing or calling it leaves a mark."""

from __future__ import annotations

import os
from pathlib import Path


def mark(*args: object, **kwargs: object) -> None:
    (Path(os.environ["NOCKA_HOME"]) / "intruded").touch()


mark()
