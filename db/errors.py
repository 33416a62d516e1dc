"""Every error that crosses a border of nocka, except the engine's own (`worker/engine/errors.py`).

NockaError
├── SettingsError          the environment or the config file cannot be used
├── InputError             what a client asked for is not valid (exit code 2)
│   └── InvalidInput       many problems at once, each with its line
├── NotFound               no such job, item or model
├── NotAllowed             the state of a job or result forbids it
├── ModelUnavailable       a model that is not there or does not fit this machine
├── StoreError             the database cannot be used
│   └── SchemaTooNew       written by a newer nocka
└── BrokerError            Redis cannot be reached or started
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


class NockaError(Exception):
    """*message* says what is wrong and where, *hint* how to mend it; *code* is stable and machine-readable."""

    code = "error"

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class SettingsError(NockaError):
    """The environment or the config file cannot be used."""

    code = "bad_settings"


class InputError(NockaError):
    """What a client asked for is not valid."""

    code = "bad_input"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """Strictly read-only. One thing wrong with an input."""

    #: File or `-` for standard input.
    source: str
    #: Line in that file, from 1; None where the input has no lines.
    line: int | None
    #: Machine-readable: `invalid_json_line`, `not_an_object`, `bad_envelope`, `missing_custom_id`, ...
    code: str
    #: What is wrong, in words.
    message: str
    #: The line's own id, where it has a usable one.
    custom_id: str | None = None

    def __str__(self) -> str:
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{where}: {self.message} [{self.code}]"


class InvalidInput(InputError):
    """Many problems at once; nothing was queued."""

    code = "invalid_input"

    def __init__(self, problems: Sequence[Problem], hint: str | None = None) -> None:
        count = len(problems)
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{count} invalid input{'s' if count != 1 else ''}, nothing was queued:\n{lines}", hint)
        self.problems = tuple(problems)


class NotFound(NockaError):
    """No such job, item or model."""

    code = "not_found"


class NotAllowed(NockaError):
    """The state of a job or result forbids it."""

    code = "not_allowed"


class ModelUnavailable(NockaError):
    """A model that is not there or does not fit this machine."""

    code = "model_unavailable"


class StoreError(NockaError):
    """The database cannot be used."""

    code = "store_error"


class SchemaTooNew(StoreError):
    """The database was written by a newer nocka."""

    code = "schema_too_new"


class BrokerError(NockaError):
    """Redis cannot be reached or started."""

    code = "broker_error"
