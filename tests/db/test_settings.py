"""Where settings come from, which one wins, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from db.errors import SettingsError
from db.settings import MAX_SOCKET_PATH_BYTES, load_settings


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "dom żółwia"
    folder.mkdir()
    return folder


def test_everything_lives_in_the_home_by_default(home: Path) -> None:
    """And reading the settings creates nothing."""
    settings = load_settings({"NOCKA_HOME": str(home)})
    assert settings.home == home
    assert settings.database_url == f"sqlite:///{home}/nocka.db"
    assert settings.embedded_broker
    assert {settings.broker_dir.parent, settings.lock_path.parent, settings.log_dir.parent} == {home}
    assert list(home.iterdir()) == []


def test_the_home_is_nocka_in_the_users_own_by_default(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable counts as none."""
    monkeypatch.setenv("HOME", str(home))
    assert load_settings({}).home == home / ".nocka"
    assert load_settings({"NOCKA_HOME": ""}).home == home / ".nocka"
    assert load_settings({"NOCKA_HOME": "~/praca"}).home == home / "praca"


def test_the_environment_wins_over_the_file_and_the_file_over_defaults(home: Path) -> None:
    """Key by key."""
    home.joinpath("config.toml").write_text(
        'redis_url = "redis://file:6379/0"\ndatabase_url = "postgresql://file/nocka"\n', encoding="utf-8"
    )
    settings = load_settings({"NOCKA_HOME": str(home), "NOCKA_REDIS_URL": "redis://environment:6379/0"})
    assert settings.redis_url == "redis://environment:6379/0"
    assert settings.database_url == "postgresql://file/nocka"
    assert not settings.embedded_broker


def test_the_process_environment_is_read_where_none_is_given(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOCKA_HOME", str(home))
    assert load_settings().home == home


def test_the_brokers_url_leads_to_its_socket_whatever_the_home_is_called(home: Path) -> None:
    """Blanks and Polish letters are quoted."""
    settings = load_settings({"NOCKA_HOME": str(home)})
    assert unquote(urlsplit(settings.redis_url).path) == str(settings.broker_socket)


def test_a_long_home_gets_a_short_socket_of_its_own(tmp_path: Path) -> None:
    """A socket's path is limited to about a hundred bytes; two homes never share one."""
    sockets = [
        load_settings({"NOCKA_HOME": str(tmp_path / name / ("ż" * 60))}).broker_socket for name in ("one", "two")
    ]
    assert all(len(os.fsencode(socket)) <= MAX_SOCKET_PATH_BYTES for socket in sockets)
    assert sockets[0].parent != sockets[1].parent


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ('databse_url = "sqlite:///x.db"', "unknown key 'databse_url'"),
        ("redis_url = 5", "must be a text"),
        ('redis_url = ""', "must be a text"),
        ('redis_url = "http://localhost"', "redis_url in config.toml must begin with"),
        ("redis_url = ", "cannot read"),
    ],
)
def test_a_config_file_that_cannot_be_used_is_refused(home: Path, config: str, complaint: str) -> None:
    """By name, so that a typing error never passes for a default."""
    home.joinpath("config.toml").write_text(config, encoding="utf-8")
    with pytest.raises(SettingsError, match=complaint):
        load_settings({"NOCKA_HOME": str(home)})


def test_a_url_of_another_kind_is_refused_without_repeating_it(home: Path) -> None:
    """It may hold a password."""
    with pytest.raises(SettingsError, match="NOCKA_DATABASE_URL must begin") as caught:
        load_settings({"NOCKA_HOME": str(home), "NOCKA_DATABASE_URL": "mysql://me:secret@host/db"})
    assert "secret" not in str(caught.value)


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(SettingsError, match="not a folder"):
        load_settings({"NOCKA_HOME": str(path)})
