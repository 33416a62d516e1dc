"""`nocka up` as a service of the user: the files that launchd and systemd read. Pure texts."""

from __future__ import annotations

import dataclasses
import plistlib
from collections.abc import Mapping
from pathlib import Path

LABEL = "org.nocka.up"
UNIT = "nocka.service"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Service:
    """Strictly read-only. One file, and what is run to put it into force or out of it, in order."""

    path: Path
    content: bytes
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]
    status: tuple[str, ...]


def carried(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings that the service must know too: it is not started from this shell."""
    return {name: value for name, value in sorted(environ.items()) if name.startswith("NOCKA_")}


def launchd(home: Path, uid: int, nocka: Path, environ: Mapping[str, str]) -> Service:
    """An agent of macOS: runs at login, is started again when it dies, and is left to finish what it drains."""
    path = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    agent = {
        "Label": LABEL,
        "ProgramArguments": [str(nocka), "up"],
        "EnvironmentVariables": carried(environ),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        # The supervisor drains for up to 20 s and then stops the broker.
        "ExitTimeOut": 40,
        "ProcessType": "Standard",
        "StandardOutPath": "/dev/null",
        "StandardErrorPath": "/dev/null",
    }
    domain = f"gui/{uid}"
    return Service(
        path=path,
        content=plistlib.dumps(agent, sort_keys=False),
        start=(("launchctl", "bootout", f"{domain}/{LABEL}"), ("launchctl", "bootstrap", domain, str(path))),
        stop=(("launchctl", "bootout", f"{domain}/{LABEL}"),),
        status=("launchctl", "print", f"{domain}/{LABEL}"),
    )


def systemd(config_home: Path, nocka: Path, environ: Mapping[str, str]) -> Service:
    """A user unit of systemd. For a machine that nobody logs in to: `loginctl enable-linger`."""
    lines = [
        "[Unit]",
        "Description=nocka: broker and worker",
        "",
        "[Service]",
        f"ExecStart={_quoted(str(nocka))} up",
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in carried(environ).items()),
        "Restart=on-failure",
        "RestartSec=10",
        # The supervisor ends its children in order, and drains for up to 20 s.
        "KillMode=mixed",
        "TimeoutStopSec=40",
        "StandardOutput=null",
        "StandardError=null",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    control = ("systemctl", "--user")
    return Service(
        path=config_home / "systemd" / "user" / UNIT,
        content="\n".join(lines).encode(),
        start=((*control, "daemon-reload"), (*control, "enable", UNIT), (*control, "restart", UNIT)),
        stop=((*control, "disable", "--now", UNIT), (*control, "daemon-reload")),
        status=(*control, "status", "--no-pager", UNIT),
    )


def _quoted(text: str) -> str:
    """*text* as one word of a unit file, in which `%` and `$` mean something too."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
