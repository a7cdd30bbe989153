"""tacit ledger init | show | verify | export."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tacit import events
from tacit.cli.ledger import app
from tacit.errors import InvalidValue, LedgerCorrupted, LedgerExists, LedgerMissing, TacitError
from tacit.ledger import Budget, Ledger
from tacit.relations import Unit


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def study(path: Path) -> Path:
    with Ledger.open(path, Budget(3.0)) as ledger:
        ledger.charge(events.Laplace(2.0), label="age [bold]histogram[/bold]")
        ledger.parallel("region", partitions=["north", "south"]).charge(
            "north", events.Laplace(4.0), label="count"
        )
    return path


def test_init(path: Path):
    budget = ("--epsilon", 3, "--delta", "1e-6", "--relation", "replace_one")
    result = run("init", path, *budget, "--unit", "patient", "--rows-per-unit", 5)
    assert result.exit_code == 0
    assert "'default' may spend ε = 3, δ = 1e-06, under replace_one of one patient" in result.output
    with Ledger.open(path) as ledger:
        assert (ledger.budget, ledger.unit) == (Budget(3.0, 1e-6), Unit("patient", 5))
    assert run("init", path, "--epsilon", 1, "--dataset", "hospital").exit_code == 0
    assert Ledger.datasets_in(path) == ("default", "hospital")


def test_init_with_another_budget_is_refused(study: Path):
    assert isinstance(run("init", study, "--epsilon", 4).exception, LedgerExists)
    assert isinstance(run("init", study, "--epsilon", -4, "--dataset", "x").exception, InvalidValue)


def test_show(study: Path):
    result = run("show", study)
    assert result.exit_code == 0
    for words in (
        "ε = 3, δ = 0",
        "ε = 0.75",
        "fixed in advance",
        "ε = 2.25",
        "age [bold]histogram[/bold]",
        "66.7%",
        "region: north",
        "no row is in two partitions of 'region'",
        "Laplace(2)",
    ):
        assert words in result.output
    assert "The last 1 of 2 entries" in run("show", study, "--last", 1).output


def test_show_every_dataset_or_one(study: Path):
    run("init", study, "--epsilon", 1, "--dataset", "hospital")
    assert ": hospital" in run("show", study).output
    assert ": default" not in run("show", study, "--dataset", "hospital").output


def test_verify(study: Path):
    result = run("verify", study)
    assert result.exit_code == 0
    head = result.output.split()[-1]
    assert run("verify", study, "--head", head).exit_code == 0
    assert run("verify", study, "--head", "4:" + "0" * 32).exit_code == 1
    with closing(sqlite3.connect(study)) as connection, connection:
        connection.execute("DROP TRIGGER tacit_no_update")
        connection.execute("UPDATE tacit_entries SET label = 'x' WHERE number = 2")
    result = run("verify", study)
    assert result.exit_code == 1
    assert "Entry 2 has been edited" in result.stderr


def test_verify_of_a_damaged_file(path: Path):
    path.write_bytes(b"nonsense")
    assert run("verify", path).exit_code == 1


def test_export(study: Path, folder: Path):
    lines = run("export", study).output.splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2, 3, 4]
    assert run("export", study, "--out", folder / "out.jsonl").exit_code == 0
    assert (folder / "out.jsonl").read_text().splitlines() == lines
    assert isinstance(run("export", study, "--out", folder / "no" / "out").exception, TacitError)


def test_an_emptied_file_is_told_as_such_by_every_command(path: Path):
    """None of them advises to make a ledger, which init would refuse to do there."""
    path.touch()
    for words in (("init", path, "--epsilon", 3), ("show", path), ("export", path)):
        told = run(*words).exception
        assert isinstance(told, LedgerCorrupted)
        assert "a ledger in it has been emptied, or none was begun" in str(told)
        assert "delete the file" in str(told)
    verified = run("verify", path)
    assert verified.exit_code == 1
    assert "a ledger in it has been emptied" in verified.stderr


def test_export_replaces_a_file_only_if_told(study: Path, folder: Path):
    place = folder / "out.jsonl"
    place.write_text("mine")
    assert "add overwrite=True" in str(run("export", study, "--out", place).exception)
    assert place.read_text() == "mine"
    assert run("export", study, "--out", place, "--overwrite").exit_code == 0
    assert place.read_text().splitlines() == run("export", study).output.splitlines()


@pytest.mark.parametrize("command", ["show", "verify", "export"])
def test_a_missing_ledger(path: Path, command: str):
    assert isinstance(run(command, path).exception, LedgerMissing)
