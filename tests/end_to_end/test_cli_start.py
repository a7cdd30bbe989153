"""How the command starts: it imports what it uses, and lists its commands without importing them."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.cli.lazy import COMMANDS
from tacit.estimators.registry import ESTIMATORS

NOT_FOR_HELP = ("duckdb", "ibis", "numpy", "pandas", "scipy", "sklearn", "sqlalchemy", "torch")


def loaded_by(code: str) -> set[str]:
    """The modules that are there after this code, in a process of its own."""
    code += "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_imports_no_command_and_nothing_that_commands_need() -> None:
    there = loaded_by(
        "from typer.testing import CliRunner; from tacit.cli import app\n"
        "assert 'Commands' in CliRunner().invoke(app, ['--help']).output"
    )
    assert not there & {command.module for command in COMMANDS.values()}
    assert not there & set(NOT_FOR_HELP)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_help_lists_is_what_the_command_says_of_itself(name: str) -> None:
    command = COMMANDS[name].loaded()
    assert command.name == name
    assert (command.help or "").split("\n\n")[0].replace("\n", " ").strip() == COMMANDS[name].help
    shown = CliRunner(env={"COLUMNS": "160"}).invoke(app, ["--help"])
    assert f"{name} " in shown.output
    assert COMMANDS[name].help in shown.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_reached_by_its_name(name: str) -> None:
    shown = CliRunner(env={"COLUMNS": "160"}).invoke(app, [name, "--help"])
    assert shown.exit_code == 0
    assert COMMANDS[name].help in shown.output
    assert f"Usage: tacit {name}" in shown.output


def test_no_command_is_imported_with_torch_or_sklearn() -> None:
    """``fit`` lists the registered estimators in its help, so it imports scikit-learn; no other does."""
    modules = {command.module for command in COMMANDS.values()}
    assert "torch" not in loaded_by("\n".join(f"import {module}" for module in sorted(modules)))
    others = modules - {"tacit.cli.fit"}
    assert "sklearn" not in loaded_by("\n".join(f"import {module}" for module in sorted(others)))


def test_a_name_that_is_no_command_is_compared_with_those_that_are() -> None:
    outcome = CliRunner().invoke(app, ["fti"])
    assert outcome.exit_code == 2
    assert "Did you mean 'fit'?" in outcome.output


def test_the_help_of_commands_is_not_broken_at_80_columns() -> None:
    """A line of a docstring that is longer is broken, and what is left of it stands alone in the next one."""
    commands = [COMMANDS[name].loaded() for name in COMMANDS]
    below = [each for command in commands for each in getattr(command, "commands", {}).values()]
    for command in (*commands, *below):
        _, *paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
        assert max((len(line) for part in paragraphs for line in part.splitlines()), default=0) <= 78, command


def test_fit_says_of_every_model_what_it_is_for() -> None:
    told = COMMANDS["fit"].loaded().help or ""
    for name in ESTIMATORS:
        assert re.search(rf"^ +{name} {{2,}}\w+", told, flags=re.MULTILINE), name
