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


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the environment over `<home>/config.toml` over defaults. Raises SettingsError."""
    environ = os.environ if environ is None else environ
    home = _home(environ)
    config = _read_config(home / "config.toml")
    socket = _broker_socket(home)
    redis_url = _url(environ, config, "redis_url", REDIS_SCHEMES)
    return Settings(
        home=home,
        database_url=_url(environ, config, "database_url", DATABASE_SCHEMES) or f"sqlite:///{home / 'nocka.db'}",
        redis_url=redis_url or f"unix://{quote(str(socket))}?db=0",
        embedded_broker=redis_url is None,
        broker_dir=home / "broker",
        broker_socket=socket,
        lock_path=home / "worker.lock",
        log_dir=home / "logs",
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
    known = ("database_url", "redis_url")
    for key, value in config.items():
        if key not in known:
            raise SettingsError(f"{path}: unknown key {key!r}", f"Known keys: {', '.join(known)}.")
        if not isinstance(value, str) or not value:
            raise SettingsError(f"{path}: {key} must be a text that is not empty")
    return config


def _url(environ: Mapping[str, str], config: Mapping[str, str], key: str, schemes: tuple[str, ...]) -> str | None:
    """The URL under *key*, its scheme checked; a message never repeats the URL, which may hold a password."""
    variable = f"NOCKA_{key.upper()}"
    given = environ.get(variable)
    url = given or config.get(key)
    if url is not None and not url.startswith(schemes):
        where = variable if given else f"{key} in config.toml"
        raise SettingsError(f"{where} must begin with one of: {', '.join(schemes)}")
    return url


def _broker_socket(home: Path) -> Path:
    socket = home / "run" / "broker.sock"
    if len(os.fsencode(socket)) <= MAX_SOCKET_PATH_BYTES:
        return socket
    # Not TMPDIR: every process of one home must find the same socket, from whatever shell it was started.
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    return Path("/tmp") / f"nocka-{os.getuid()}-{digest}" / "broker.sock"
