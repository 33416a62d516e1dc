"""What an n-gram file says about itself. The file's own module is the worker's; its first two lines are for anyone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from db.errors import InputError

MAGIC = b"nocka-ngram\n"
HEADER_BYTES = 4096
_HOW = "Build one: nocka ngram build CORPUS... -o FILE"


def read_header(path: Path) -> dict[str, Any]:
    """The header: version, order, tokens, levels. Raises InputError where *path* is no n-gram file."""
    try:
        with path.open("rb") as file:
            data = file.read(HEADER_BYTES)
        header = json.loads(data[len(MAGIC) :]) if data.startswith(MAGIC) else None
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}", _HOW) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise InputError(f"{path} is no n-gram file", _HOW)
    return header
