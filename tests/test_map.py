"""The README's tree is the map: it names every module, invents none, and each stays within its budget."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOUSES = ("api_cli", "db", "worker")
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS = 400, 60, 7

MODULES = sorted(path.relative_to(ROOT).as_posix() for house in HOUSES for path in (ROOT / house).rglob("*.py"))
SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix() for name in ("scripts", "bench") for path in (ROOT / name).glob("*.py")
)
MAPPED = [module for module in MODULES if not module.endswith("/__init__.py") and "/versions/" not in module]


def read_map() -> list[str]:
    """The paths that the README's tree names: one a line, a folder ends in `/`, two spaces deeper is inside it."""
    tree = re.search(r"<!-- map -->\n+```\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert tree is not None, "README.md has no <!-- map --> followed by a fenced tree"
    folders: list[str] = []
    named = []
    for line in filter(None, tree[1].splitlines()):
        name = line.split()[0]
        del folders[(len(line) - len(line.lstrip())) // 2 :]
        if name.endswith("/"):
            folders.append(name)
        else:
            named.append("".join(folders) + name)
    return named


def test_the_map_names_every_module_once() -> None:
    """A new file comes with its line in the README, and a removed one takes its line along."""
    named = [path for path in read_map() if path.endswith(".py")]
    assert sorted(named) == MAPPED


def test_the_map_invents_nothing() -> None:
    """Whatever else the tree names exists."""
    assert [path for path in read_map() if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("path", [*MODULES, *SCRIPTS])
def test_a_file_stays_within_its_budget(path: str) -> None:
    """No file above 400 lines, no function above 60 lines or 7 parameters (`self` and `cls` not counted)."""
    source = (ROOT / path).read_text(encoding="utf-8")
    assert len(source.splitlines()) <= MAX_FILE_LINES
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            where = f"{path}:{node.lineno} {node.name}"
            assert function_lines(node) <= MAX_FUNCTION_LINES, where
            assert parameters(node) <= MAX_PARAMETERS, where


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end; decorators, such as click's options, are not counted."""
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = node.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in {"self", "cls"}])
