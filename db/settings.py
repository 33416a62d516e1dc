"""Where everything lives: the only reader of the environment and of the config file."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from db.errors import SettingsError

#: RQ's one queue, and the one function on it.
QUEUE = "nocka"
ADVANCE = "worker.jobs.slice.advance"

#: A UNIX socket's path may hold 104 bytes on macOS and 108 on Linux; the rest is for temporary names.
MAX_SOCKET_PATH_BYTES = 90

DATABASE_SCHEMES = ("sqlite:///", "postgresql://", "postgresql+psycopg://", "postgres://")
REDIS_SCHEMES = ("redis://", "rediss://", "unix://")
#: What `config.toml` may hold.
KEYS: dict[str, type] = {
    "database_url": str,
    "redis_url": str,
    "log_format": str,
    "restart_after_items": int,
    "restart_above_gb": int,
    "on_done": str,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Where this machine's nocka keeps things. Strictly read-only; nothing is created by reading it."""

    #: `NOCKA_HOME`, else `~/.nocka`.
    home: Path
    #: `NOCKA_DATABASE_URL`, else SQLite in the home.
    database_url: str
    #: `NOCKA_REDIS_URL`, else the embedded broker's socket.
    redis_url: str
    #: Whether nocka starts the broker itself.
    embedded_broker: bool
    broker_dir: Path
    #: Whoever makes its directory makes it 0700 and refuses one that belongs to somebody else.
    broker_socket: Path
    lock_path: Path
    log_dir: Path
    #: `NOCKA_LOG_FORMAT`: whether log lines are JSON (`json`) or for eyes (`text`).
    json_logs: bool
    #: `NOCKA_RESTART_AFTER_ITEMS`, `NOCKA_RESTART_ABOVE_GB`: when a supervised worker starts anew; None is never.
    restart_after_items: int | None
    restart_above_bytes: int | None
    #: `NOCKA_ON_DONE`: whether this machine's worker runs the commands of jobs. In a store of its own they are its own.
    runs_on_done: bool


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the environment over `<home>/config.toml` over defaults. Raises SettingsError."""
    environ = os.environ if environ is None else environ
    home = _home(environ)
    config = _read_config(home / "config.toml")
    socket = _broker_socket(home)
    redis_url = _url(environ, config, "redis_url", REDIS_SCHEMES)
    database_url = _url(environ, config, "database_url", DATABASE_SCHEMES) or f"sqlite:///{home / 'nocka.db'}"
    above_gb = _number(environ, config, "restart_above_gb")
    on_done = _choice(environ, config, "on_done", ("run", "ignore"))
    return Settings(
        home=home,
        database_url=database_url,
        redis_url=redis_url or f"unix://{quote(str(socket))}?db=0",
        embedded_broker=redis_url is None,
        broker_dir=home / "broker",
        broker_socket=socket,
        lock_path=home / "worker.lock",
        log_dir=home / "logs",
        json_logs=_choice(environ, config, "log_format", ("text", "json")) == "json",
        restart_after_items=_number(environ, config, "restart_after_items"),
        restart_above_bytes=None if above_gb is None else above_gb * 1024**3,
        runs_on_done=on_done == "run" if on_done else database_url.startswith("sqlite"),
    )


def _home(environ: Mapping[str, str]) -> Path:
    given = environ.get("NOCKA_HOME")
    try:
        home = (Path(given).expanduser() if given else Path.home() / ".nocka").resolve()
    except RuntimeError as error:
        raise SettingsError(f"no home directory: {error}", "Set NOCKA_HOME to a folder of your own.") from error
    if home.exists() and not home.is_dir():
        raise SettingsError(f"NOCKA_HOME is {home}, which is not a folder")
    return home


def _read_config(path: Path) -> dict[str, str]:
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"cannot read {path}: {error}") from error
    for key, value in config.items():
        if key not in KEYS:
            raise SettingsError(f"{path}: unknown key {key!r}", f"Known keys: {', '.join(KEYS)}.")
        if not isinstance(value, KEYS[key]) or isinstance(value, bool) or value == "":
            kind = "a whole number" if KEYS[key] is int else "a text that is not empty"
            raise SettingsError(f"{path}: {key} must be {kind}")
    return {key: str(value) for key, value in config.items()}


def _given(environ: Mapping[str, str], config: Mapping[str, str], key: str) -> tuple[str | None, str]:
    """What stands under *key*, and where."""
    variable = f"NOCKA_{key.upper()}"
    given = environ.get(variable)
    return (given, variable) if given else (config.get(key), f"{key} in config.toml")


def _choice(environ: Mapping[str, str], config: Mapping[str, str], key: str, choices: tuple[str, ...]) -> str | None:
    value, where = _given(environ, config, key)
    if value is not None and value not in choices:
        raise SettingsError(f"{where} must be one of: {', '.join(choices)}")
    return value


def _number(environ: Mapping[str, str], config: Mapping[str, str], key: str) -> int | None:
    value, where = _given(environ, config, key)
    if value is not None and not (value.isdecimal() and value.isascii() and int(value) > 0):
        raise SettingsError(f"{where} must be a whole number above 0")
    return None if value is None else int(value)


def _url(environ: Mapping[str, str], config: Mapping[str, str], key: str, schemes: tuple[str, ...]) -> str | None:
    """The URL under *key*, its scheme checked; a message never repeats the URL, which may hold a password."""
    url, where = _given(environ, config, key)
    if url is not None and not url.startswith(schemes):
        raise SettingsError(f"{where} must begin with one of: {', '.join(schemes)}")
    return url


def _broker_socket(home: Path) -> Path:
    socket = home / "run" / "broker.sock"
    if len(os.fsencode(socket)) <= MAX_SOCKET_PATH_BYTES:
        return socket
    # Not TMPDIR: every process of one home must find the same socket, from whatever shell it was started.
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    return Path("/tmp") / f"nocka-{os.getuid()}-{digest}" / "broker.sock"
