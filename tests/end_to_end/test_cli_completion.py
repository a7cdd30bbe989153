"""Shell completion, driven as shells drive it: by environment variables."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.cli import completion, main
from tacit.cli.lazy import COMMANDS
from tacit.estimators.registry import ESTIMATORS

SCHEMA = """
[columns.age]
type = "integer"
bounds = [0, 100]
[columns.sex]
type = "category"
categories = ["Female", "Male"]
"""
Complete = Callable[..., list[str]]


@pytest.fixture
def complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Complete:
    """What a shell is offered for the last of these words."""
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text(SCHEMA)
    monkeypatch.setattr(sys, "argv", ["tacit"])

    def offered(*words: str, shell: str = "bash") -> list[str]:
        line = " ".join(["tacit", *words])
        given = {"_TACIT_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
        if shell == "bash":
            given |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words))}
        if shell == "fish":
            given["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
        with monkeypatch.context() as patch:
            for name, value in given.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit):
                main()
        return capsys.readouterr().out.split()

    return offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_and_options_are_offered(complete: Complete, shell: str) -> None:
    assert any("train" in line for line in complete("tr", shell=shell))
    assert any("--architecture" in line for line in complete("train", "--arch", shell=shell))
    assert any("--install-completion" in line for line in complete("--inst", shell=shell))


def test_every_command_offers_its_options(complete: Complete) -> None:
    for name, command in COMMANDS.items():
        loaded = command.loaded()
        below = getattr(loaded, "commands", None)
        found = complete(name, "" if below else "--")
        assert set(below or ["--help"]) <= set(found), name


def test_values_are_offered_where_they_are_known(complete: Complete) -> None:
    assert complete("train", "--architecture", "s") == ["scattering"]
    assert set(ESTIMATORS) <= set(complete("fit", "--model", "l")) | {
        name for name in ESTIMATORS if not name.startswith("l")
    }
    for command in ("fit", "train"):
        assert complete(command, "data.csv", "--schema", "schema.toml", "--target", "s") == ["sex"]
        assert complete(command, "data.csv", "--schema", "absent.toml", "--target", "s") == []
        assert complete(command, "data.csv", "--target", "s") == []
    Path("schema.toml").write_text("no TOML at all")
    assert complete("fit", "data.csv", "--schema", "schema.toml", "--target", "s") == []


def test_the_architectures_that_are_offered_are_those_there_are() -> None:
    architectures = pytest.importorskip("tacit.training.networks.architectures", exc_type=ImportError)
    assert tuple(architectures.RECIPES) == completion.ARCHITECTURES


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tacit"])
    monkeypatch.setenv("_TACIT_COMPLETE", f"source_{shell}")
    with pytest.raises(SystemExit):
        main()
    script = capsys.readouterr().out
    assert f"_TACIT_COMPLETE=complete_{shell}" in script
    assert "tacit" in script
