"""tacit ledger init | show | verify | export."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tacit import events
from tacit.cli.ledger import app
from tacit.cli.wording import as_options
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


@pytest.fixture(params=["basic", "renyi", "gaussian"])
def busy(request: pytest.FixtureRequest, path: Path) -> Path:
    """A ledger of each rule with a label longer than any terminal, and parts."""
    with Ledger.open(path, Budget(3.0, 1e-6), filter=request.param) as ledger:
        ledger.charge(events.Gaussian(20.0), label="ä very long label " * 9, delta=1e-8)
        scope = ledger.parallel("region", partitions=["north", "south"])
        scope.charge("north", events.Laplace(8.0), label="count")
        ledger.charge(events.Gaussian(23.0), label="mean", delta=1.25e-8)
    return path


def test_show_fits_80_columns(busy: Path):
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["show", str(busy)]).output
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    table = lines[next(place for place, line in enumerate(lines) if line.startswith("Entries")) + 1 :]
    rows = [line for line in table if line.startswith("│")]
    assert len(rows) == 4, "a header and one line for each charge"
    with Ledger.open(busy) as ledger:
        assert f"{ledger.filter}: " in shown
        last = [cell.strip() for cell in rows[-1].strip("│").split("│")]
        header = [cell.strip() for cell in rows[0].strip("│").split("│")]
        assert float(last[header.index("ε in all")]) == pytest.approx(ledger.spent().epsilon, rel=1e-3)
        assert f"ε = {ledger.remaining():.4g}"[:-1] in shown
        if ledger.filter == "basic":
            assert float(last[header.index("δ in all")]) == pytest.approx(2.25e-8)
            assert "δ = 9.775e-07" in shown


def test_show_as_json_agrees_with_the_ledger(busy: Path):
    body = json.loads(run("show", busy, "--format", "json").output)
    with Ledger.open(busy) as ledger:
        (found,) = body["datasets"]
        spent = ledger.spent()
        assert body["head"] == ledger.head()
        assert found["filter"] == ledger.filter
        assert found["spent"] == {"epsilon": spent.epsilon, "delta": spent.delta}
        assert found["remaining"] == {"epsilon": ledger.remaining(), "delta": ledger.remaining_delta()}
        assert [charge["hash"] for charge in found["charges"]] == [entry.hash for entry in ledger.entries()]
        assert found["charges"][-1]["spent"] == found["spent"]
        assert [charge["epsilon"] for charge in found["charges"]] == [
            entry.cost.epsilon for entry in ledger.entries()
        ]
        if ledger.filter == "gaussian":
            assert found["charges"][0]["mu_squared"] == pytest.approx(1 / 400)


@pytest.mark.parametrize("rule", [None, "renyi", "gaussian"])
def test_init_says_which_rule_and_when_another_is_better(path: Path, rule: str | None):
    said = run("init", path, "--epsilon", 3, "--delta", "1e-6", *(["--filter", rule] if rule else [])).output
    assert f"Rule: {rule or 'basic'}: " in said
    for other in {"basic", "renyi", "gaussian"} - {rule or "basic"}:
        assert f"--filter {other} is for" in said
    assert "tacit plan --ledger" in said
    with Ledger.open(path) as ledger:
        assert ledger.filter == (rule or "basic")


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


def test_a_ledger_that_is_not_there_is_told_how_to_be_made(folder: Path):
    told = str(run("show", folder / "none.db").exception)
    assert re.search(r"Make one: tacit ledger init \S*none.db --epsilon 1, or in Python tacit.Ledger", told)
    assert as_options(told, {"epsilon", "delta"}) == told
