"""Every command that prints a table prints JSON too, with --format json."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tacit.cli
from commands import Run, commands
from tacit import Budget, Ledger
from tacit.cli.lazy import COMMANDS

SCHEMA = """
population = 400
[columns.x]
type = "number"
bounds = [0, 1]
[columns.y]
type = "category"
categories = ["no", "yes"]
"""


def modules() -> dict[str, ModuleType]:
    found = pkgutil.walk_packages(tacit.cli.__path__, "tacit.cli.")
    return {one.name: importlib.import_module(one.name) for one in found if not one.name.endswith("__main__")}


def leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
    else:
        for name, one in below.items():
            yield from leaves(one, (*path, name))


ALL = [leaf for name, command in COMMANDS.items() for leaf in leaves(command.loaded(), (name,))]


def calls() -> dict[tuple[str, str], set[tuple[str, str]]]:
    """Which functions of the command line use which, each by its module and name; rich's Table among them."""
    graph: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for name, module in modules().items():
        tree = ast.parse(inspect.getsource(module))
        functions = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
        for function in (one for one in tree.body if isinstance(one, ast.FunctionDef)):
            used = graph.setdefault((name, function.name), set())
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and node.id in functions:
                    used.add((name, node.id))
                elif isinstance(node, ast.Name | ast.Attribute):
                    used |= _elsewhere(module, node)
                elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tacit.cli"):
                    used |= {(str(node.module), alias.name) for alias in node.names}
    return graph


def _elsewhere(module: ModuleType, node: ast.Name | ast.Attribute) -> set[tuple[str, str]]:
    """The function that a name, or a name in an imported module, stands for."""
    if isinstance(node, ast.Name):
        meant = getattr(module, node.id, None)
    elif isinstance(node.value, ast.Name):
        meant = getattr(getattr(module, node.value.id, None), node.attr, None)
    else:
        return set()
    home, name = getattr(meant, "__module__", ""), getattr(meant, "__name__", "")
    return {(home, name)} if isinstance(home, str) and home.startswith(("tacit.cli", "rich.table")) else set()


GRAPH = calls()


def prints_a_table(function: Any) -> bool:
    """Whether what the command prints on success is, or has, a table of rich; refusals tell of one too."""
    seen: set[tuple[str, str]] = set()
    left = [(function.__module__, function.__name__)]
    while left:
        one = left.pop()
        if one == ("rich.table", "Table"):
            return True
        if one not in seen and one != ("tacit.cli.spending", "refusals"):
            seen.add(one)
            left += GRAPH.get(one, ())
    return False


def names_of(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_the_walk_finds_the_tables() -> None:
    found = {path for path, command in ALL if prints_a_table(inspect.unwrap(command.callback))}
    assert found >= {("query",), ("fit",), ("train",), ("inspect",), ("plan",)}
    assert found >= {("ledger", "show"), ("schema", "check")}
    assert ("predict",) not in found
    assert ("schema", "init") not in found


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_a_command_with_tables_prints_json_too(path: tuple[str, ...], command: Any) -> None:
    assert "--json" not in names_of(command), "one way to ask for it"
    if prints_a_table(inspect.unwrap(command.callback)):
        assert "--format" in names_of(command), f"tacit {' '.join(path)} prints tables, and no JSON"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    lines = [f"{i % 100 / 100},{'yes' if i % 3 else 'no'}" for i in range(400)]
    Path("data.csv").write_text("x,y\n" + "\n".join(lines) + "\n", encoding="utf-8")
    Path("test.csv").write_text("x,y\n" + "\n".join(lines[:90]) + "\n", encoding="utf-8")
    Path("schema.toml").write_text(SCHEMA, encoding="utf-8")
    Ledger.open("study.db", Budget(epsilon=10.0)).close()
    return commands(monkeypatch, capsys)


def test_fit_predict_and_inspect_speak_json(run: Run) -> None:
    fit = ("fit", "data.csv", "--schema", "schema.toml", "--target", "y", "--model", "logistic", "--epsilon",
           "2", "--ledger", "study.db", "--out", "m.tacit", "--test", "test.csv",
           "--test-public")  # fmt: skip
    plan = run(*fit, "--dry-run", "--format", "json").json
    assert plan["epsilon"] == 2.0
    assert plan["features"]
    (budget,) = plan["ledgers"]
    assert (budget["remaining"], budget["remaining_after"], budget["dataset"]) == (10.0, 8.0, "default")
    made = run(*fit, "--format", "json").json
    assert made["model"] == "m.tacit"
    assert made["guarantee"]["epsilon"] == 2.0
    assert 0 <= made["evaluation"]["figures"]["accuracy"] <= 1
    assert run("inspect", "m.tacit", "--format", "json").json["guarantee"] == made["guarantee"]
    predicted = run("predict", "m.tacit", "test.csv", "--proba", "--format", "json").json
    assert len(predicted) == 90
    assert set(predicted[0]) == {"y", "probabilities"}
    assert set(predicted[0]["probabilities"]) == {"no", "yes"}
    run("predict", "m.tacit", "test.csv", "--out", "p.json").good()
    assert Path("p.json").read_text(encoding="utf-8").startswith("[")


def test_another_format_is_refused_before_anything_is_charged(run: Run) -> None:
    for arguments in (
        ("inspect", "m.tacit"),
        ("predict", "m.tacit", "data.csv"),
        ("plan", "--delta", "1e-5"),
        ("query", "data.csv", "count()", "--schema", "schema.toml", "--ledger", "study.db", "--epsilon", "1"),
    ):
        refused = run(*arguments, "--format", "yaml")
        assert refused.code == 2
        assert "one of " in refused.err
        assert "'json'" in refused.err
    with Ledger.open("study.db") as ledger:
        assert not ledger.entries()
