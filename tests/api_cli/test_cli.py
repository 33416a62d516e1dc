"""The commands that look at the machine, and what all commands share."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
import redis

from api_cli.cli import cli
from tests.api_cli.conftest import Nocka


def every_command(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += every_command(command, (*path, name))
    return found


@pytest.mark.parametrize("command", [(), *every_command(cli)])
def test_every_command_explains_itself_with_an_example(nocka: Nocka, command: tuple[str, ...]) -> None:
    """--help ends with 0 and shows a line to type."""
    result = nocka(*command, "--help")

    assert result.exit_code == 0
    assert "Example" in result.stdout
    assert "nocka " in result.stdout


#: What takes long to load and is of no use to somebody who looks.
HEAVY = "alembic huggingface_hub mlx numpy redis rq sacrebleu tokenizers transformers worker"
LOOK = """
import sys
from api_cli.cli import cli
cli(sys.argv[2:], standalone_mode=False)
sys.exit(" ".join(name for name in sys.argv[1].split() if name in sys.modules) or 0)
"""


@pytest.mark.parametrize("command", [("jobs",), ("status",), ("results", "last"), ("show", "last", "line-1")])
def test_looking_loads_nothing_that_it_does_not_need(nocka: Nocka, command: tuple[str, ...]) -> None:
    """A look is asked for more often than anything else, and most of its time is loading."""
    assert nocka("submit", "-", "--target", "mini-target", "--raw", stdin=b'{"text": "Litwo!"}').exit_code == 0
    python = [sys.executable, "-c", LOOK, HEAVY, *command]

    ran = subprocess.run(python, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr


def test_an_unknown_command_is_refused(nocka: Nocka) -> None:
    """As a wrong usage, whatever module its name might be."""
    assert nocka("render").exit_code == 2


def test_doctor_says_what_to_type(nocka: Nocka) -> None:
    """With nothing running a job would not run: 1, and the way out stands beside it."""
    result = nocka("doctor")
    found = {check["name"]: check for check in json.loads(nocka("doctor", "--json").stdout)}

    assert result.exit_code == 1
    assert "nocka up" in result.stdout
    assert found["store"]["verdict"] != "broken"
    assert (found["broker"]["verdict"], found["worker"]["verdict"]) == ("broken", "broken")


def test_doctor_is_content_where_a_job_would_run(broker: redis.Redis, nocka: Nocka) -> None:
    """A broker that answers and a worker that it knows: 0."""
    broker.sadd("rq:workers", "rq:worker:mac/1-a")
    broker.hset("rq:worker:mac/1-a", "birth", "now")

    result = nocka("doctor")

    assert result.exit_code == 0, result.stdout
    assert "valkey 9." in result.stdout


def test_bad_settings_are_one_sentence(nocka: Nocka, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every command, doctor included."""
    monkeypatch.setenv("NOCKA_REDIS_URL", "http://x")

    assert nocka("jobs").exit_code == 1
    assert nocka("doctor").exit_code == 1


def test_models_are_listed_and_described(nocka: Nocka) -> None:
    """Every name of the catalogue, and one in full."""
    names = [entry["name"] for entry in json.loads(nocka("models", "list", "--json").stdout)]

    assert "mini-target" in names
    assert all(name in nocka("models").stdout for name in names)
    assert "mini-draft-bytes" in nocka("models", "info", "mini-target").stdout
    assert nocka("models", "info", "brak").exit_code == 1


def test_up_refuses_where_no_worker_can_run(nocka: Nocka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client-only machine is told so instead of failing in an import."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    result = nocka("up")

    assert result.exit_code == 1
    assert "no MLX" in result.stderr
