"""The embedded broker: one for each home, private, and never a reason not to start."""

from __future__ import annotations

import os
import signal
import stat

import pytest
import redis

from db.settings import Settings
from tests.worker.helpers import Start, alive, until
from worker.broker import answers, running_broker
from worker.lock import AlreadyRunning


def client(settings: Settings) -> redis.Redis:
    return redis.Redis.from_url(settings.redis_url)


def test_what_it_holds_outlives_a_restart(settings: Settings) -> None:
    """Appended to a file, on a socket that nobody else may open."""
    with running_broker(settings), client(settings) as connection:
        connection.set("key", "value")
        assert connection.config_get("appendfsync", "maxmemory-policy", "save") == {
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "save": "",
        }
        for path in (settings.broker_socket.parent, settings.broker_dir, *settings.broker_dir.glob("valkey-*")):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert stat.S_IMODE(settings.broker_socket.stat().st_mode) == 0o600
        assert stat.S_IMODE((settings.log_dir / "broker.log").stat().st_mode) == 0o600
    assert not answers(settings.broker_socket)
    with running_broker(settings), client(settings) as connection:
        assert connection.get("key") == b"value"


def test_data_that_cannot_be_read_is_set_aside(settings: Settings) -> None:
    """A corrupt append-only file costs the queue, which the store has anyway, and is kept for whoever wants to look."""
    with running_broker(settings), client(settings) as connection:
        connection.set("key", "value")
    (data,) = settings.broker_dir.glob("valkey-*/appendonlydir/*.incr.aof")
    data.write_bytes(b"no such format\r\n" + data.read_bytes())

    with running_broker(settings), client(settings) as connection:
        assert connection.get("key") is None
        connection.set("key", "new")
    (aside,) = settings.broker_dir.glob("*.unreadable-*")
    assert list(aside.rglob("*.incr.aof"))
    with running_broker(settings), client(settings) as connection:
        assert connection.get("key") == b"new"


def test_two_cannot_share_a_home(settings: Settings, start: Start) -> None:
    """The second says who has it and exits 1; the first goes on."""
    first = start("worker.broker")
    until(lambda: first.said("broker ready"))
    second = start("worker.broker")
    assert second.wait() == 1
    assert second.said("another broker is already running here")
    with pytest.raises(AlreadyRunning), running_broker(settings):
        pass
    assert answers(settings.broker_socket)
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    assert not answers(settings.broker_socket)


def test_a_server_that_lost_its_owner_is_replaced(settings: Settings, start: Start) -> None:
    """After kill -9 of the owner the next one ends the server left behind, keeps its data and serves."""
    owner = start("worker.broker")
    until(lambda: owner.said("broker ready"))
    with client(settings) as connection:
        connection.set("key", "value")
        orphan = connection.info("server")["process_id"]
    owner.kill()
    assert alive(orphan)

    with running_broker(settings), client(settings) as connection:
        assert connection.info("server")["process_id"] != orphan
        assert connection.get("key") == b"value"
    assert not alive(orphan)


def test_an_owner_whose_server_dies_exits(settings: Settings, start: Start) -> None:
    """So that a supervisor starts it again."""
    owner = start("worker.broker")
    until(lambda: owner.said("broker ready"))
    with client(settings) as connection:
        os.kill(connection.info("server")["process_id"], signal.SIGKILL)
    assert owner.wait() == 1


def test_a_broker_of_ones_own_is_left_alone(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NOCKA_REDIS_URL set none is started."""
    monkeypatch.setenv("NOCKA_REDIS_URL", "redis://localhost:1/0")
    process = start("worker.broker")
    assert process.wait() == 1
    assert process.said("NOCKA_REDIS_URL is set")
