"""`nocka service` writes what launchd and systemd read, and says what it could not do."""

from __future__ import annotations

import os
import plistlib
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from api_cli.cli import cli
from api_cli.services import carried, launchd, systemd

ENVIRON = {"NOCKA_HOME": '/home/ala/moja "noc" 100%', "PATH": "/bin", "NOCKA_DATABASE_URL": "postgresql://a:$x@b/c"}


def test_launchd_gets_a_whole_agent() -> None:
    """It reads back as a property list that runs `nocka up` with the settings and nothing else of the shell."""
    service = launchd(Path("/Users/ala"), 501, Path("/opt/nocka/bin/nocka"), ENVIRON)
    agent = plistlib.loads(service.content)

    assert service.path == Path("/Users/ala/Library/LaunchAgents/org.nocka.up.plist")
    assert agent["ProgramArguments"] == ["/opt/nocka/bin/nocka", "up"]
    assert agent["EnvironmentVariables"] == carried(ENVIRON) == {k: ENVIRON[k] for k in sorted(ENVIRON) if k != "PATH"}
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert service.start[-1] == ("launchctl", "bootstrap", "gui/501", str(service.path))


def test_systemd_gets_a_unit_with_every_word_quoted() -> None:
    """Blanks, quotes, `%` and `$` of a setting reach the process as they are."""
    service = systemd(Path("/home/ala/.config"), Path("/opt/my nocka/bin/nocka"), ENVIRON)
    lines = service.content.decode().splitlines()

    assert 'ExecStart="/opt/my nocka/bin/nocka" up' in lines
    settings = [line.removeprefix("Environment=") for line in lines if line.startswith("Environment=")]
    assert any("100%%" in line for line in settings) and any("a:$$x@b" in line for line in settings)
    assert not any("%" in line.replace("%%", "") or "$" in line.replace("$$", "") for line in settings)
    read = [shlex.split(line)[0].replace("%%", "%").replace("$$", "$") for line in settings]
    assert read == [f"{name}={value}" for name, value in carried(ENVIRON).items()]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """systemd's own check finds nothing wrong."""
    nocka = shutil.which("true")
    assert nocka is not None
    service = systemd(tmp_path, Path(nocka), {"NOCKA_HOME": "/tmp/noc"})
    unit = tmp_path / "nocka.service"
    unit.write_bytes(service.content)
    checked = subprocess.run(["systemd-analyze", "--user", "verify", unit], capture_output=True, text=True, check=False)
    assert "nocka.service" not in checked.stderr


def test_install_status_uninstall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed twice it is one private file; what systemctl is told comes in order; removed, it is gone."""
    said = tmp_path / "said"
    control = tmp_path / "bin" / "systemctl"
    control.parent.mkdir()
    control.write_text(f'#!/bin/sh\necho "$*" >> {said}\n')
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{control.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("sys.platform", "linux")
    run = CliRunner()
    assert run.invoke(cli, ["service", "status"]).exit_code == 1
    for _ in range(2):
        assert run.invoke(cli, ["service", "install"]).exit_code == 0
    unit = tmp_path / "config" / "systemd" / "user" / "nocka.service"

    assert stat.S_IMODE(unit.stat().st_mode) == 0o600
    assert f"NOCKA_HOME={os.environ['NOCKA_HOME']}" in unit.read_text()
    assert run.invoke(cli, ["service", "status"]).exit_code == 0
    assert run.invoke(cli, ["service", "uninstall"]).exit_code == 0
    assert not unit.exists()
    started = ["--user daemon-reload", "--user enable nocka.service", "--user restart nocka.service"]
    assert said.read_text().splitlines()[:6] == started * 2


def test_without_a_service_manager_it_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is written, and the commands that would start it are shown."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("sys.platform", "linux")
    found = CliRunner().invoke(cli, ["service", "install"])

    assert found.exit_code == 0
    assert "systemctl --user enable nocka.service" in found.stderr
