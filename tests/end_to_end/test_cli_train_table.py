"""``tacit train`` on tables: from a CSV or Parquet file with a schema to a network and what it predicts."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from commands import HOURS_AND_SEX, Outcome, Run, commands  # noqa: E402
from tacit import Budget, Ledger, Unit, jobs  # noqa: E402
from tacit.data import reading  # noqa: E402
from tacit.models import load  # noqa: E402

pytestmark = pytest.mark.usefixtures("tested_once")

SCHEMA = f"""
population = 400
[columns.age]
type = "integer"
bounds = [0, 100]
{HOURS_AND_SEX}
[columns.income]
type = "category"
categories = ["low", "high"]
"""
UNIT = '\n[unit]\ncolumn = "person"\nrows = {}\n'


def people(rows: int, seed: int) -> pd.DataFrame:
    """People whose income is high if they are old and work long."""
    rng = np.random.default_rng(seed)
    age, hours = rng.integers(18, 90, rows), rng.uniform(0, 80, rows).round(1)
    income = np.where(age + hours > 94, "high", "low")
    sex = rng.choice(["Female", "Male"], rows)
    return pd.DataFrame({"age": age, "hours": hours, "sex": sex, "income": income})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``tacit`` in a folder with data.csv, test.csv, schema.toml and study.db (ε = 5, δ = 1e-4)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "220")
    for name, rows, seed in (("data", 400, 1), ("test", 300, 2)):
        people(rows, seed).to_csv(f"{name}.csv", index=False)
    Path("schema.toml").write_text(SCHEMA)
    Ledger.open("study.db", Budget(epsilon=5.0, delta=1e-4)).close()
    return commands(monkeypatch, capsys)


def train(run: Run, *more: str, **changed: str) -> Outcome:
    options = {
        "schema": "schema.toml", "target": "income", "architecture": "mlp", "epsilon": "3", "delta": "1e-5",
        "epochs": "5", "batch-size": "80", "lr": "0.5", "ledger": "study.db", "out": "model.safetensors",
    } | changed  # fmt: skip
    data = options.pop("data", "data.csv")
    given = [word for name, value in options.items() for word in (f"--{name}", value) if value]
    return run("train", data, *given, *more)


def charges(ledger: str = "study.db") -> int:
    with Ledger.open(ledger) as book:
        return len(book.entries())


def weights() -> Any:
    return load("model.safetensors").model[1].weight.detach().numpy()


def test_from_a_csv_to_a_report(run: Run) -> None:
    done = train(run, "--test", "test.csv", "--test-epsilon", "1.5", "--report", "report.html").good()
    assert "A network with a hidden layer of income on data.csv" in done.out
    assert "4 features of 3 columns" in done.out
    assert "Taken as public: what the schema says of their columns." in done.out
    assert "(ε = 3, δ = 1e-05)-differentially private under add_remove of one row" in done.out
    with Ledger.open("study.db") as ledger:
        labels = [entry.label for entry in ledger.entries()]
        assert labels[0].startswith("mlp network of income [")
        assert labels[1:] == ["test of the mlp network of income"]
        assert 4.49 < ledger.spent().epsilon <= 4.5

    people(300, 2).drop(columns="income").to_csv("new.csv", index=False)
    predicted = run("predict", "model.safetensors", "new.csv", "--out", "guess.csv", "--proba").good()
    assert "Nothing was charged" in predicted.out
    with Path("guess.csv").open(encoding="utf-8") as stream:
        guesses = list(csv.DictReader(stream))
    answers = load("model.safetensors").predict(people(300, 2).drop(columns="income"))
    assert [row["income"] for row in guesses] == list(answers)
    right = np.mean(answers == people(300, 2)["income"])
    assert right > 0.6
    assert all(abs(float(row["p(low)"]) + float(row["p(high)"]) - 1) < 1e-4 for row in guesses)

    shown = run("inspect", "model.safetensors").good().out
    assert "network with a hidden layer of income" in shown
    assert "hours: clipped to [0, 80], scaled to [−1, 1]" in shown
    facts = json.loads(run("inspect", "model.safetensors", "--format", "json").good().out)
    assert facts["guarantee"]["epsilon"] == 3.0
    assert facts["preprocessor"]["target"] == "income"
    assert facts["parameters"]["1.weight"] == [128, 4]
    (found,) = facts["evaluations"]
    assert found["classes"] == ["low", "high"]
    assert abs(found["figures"]["accuracy"] - right) < 0.2  # noise of scale 2/3: beyond 1e-9 of the time

    page = Path("report.html").read_text(encoding="utf-8")
    assert "(ε = 3, δ = 1e-05)-differentially private" in page
    assert "clipped to [0, 80]" in page
    again = run("report", "model.safetensors", "--out", "again.html", "--ledger", "study.db").good()
    assert "Report written" in again.out
    public = jobs.evaluate("model.safetensors", "test.csv", public=True)
    assert public.accuracy == pytest.approx(right, abs=0.01)
    assert charges() == 2


def test_parquet_and_csv_train_the_same(run: Run) -> None:
    people(400, 1).to_parquet("data.parquet")
    train(run, "--seed", "1", epsilon="1", epochs="1").good()
    first = weights()
    train(run, "--seed", "1", "--overwrite", data="data.parquet", epsilon="1", epochs="1").good()
    np.testing.assert_array_equal(first, weights())


def test_the_schema_says_how_a_csv_is_written(run: Run) -> None:
    people(400, 1).to_csv("data.csv", index=False, sep=";", decimal=",", encoding="cp1252")
    people(300, 2).to_csv("test.csv", index=False, sep=";", decimal=",", encoding="cp1252")
    written = '\n[csv]\ndelimiter = ";"\ndecimal = ","\nencoding = "cp1252"\n'
    Path("schema.toml").write_text(SCHEMA + written)
    train(run, "--test", "test.csv", "--test-public").good()
    assert load("model.safetensors").evaluations_[0]["figures"]["accuracy"] > 0.8
    assert run("predict", "model.safetensors", "test.csv").good().out.count("\n") == 301


@pytest.mark.parametrize(
    ("architecture", "title"),
    [
        ("mlp", "regression network with a hidden layer"),
        ("autoencoder", "regression on the codes of an auto-encoder"),
    ],
)
def test_a_number_is_predicted_within_its_bounds(run: Run, architecture: str, title: str) -> None:
    for name, rows, seed in (("data", 400, 1), ("test", 300, 2)):
        table = people(rows, seed)
        table["hours"] = np.where(table["sex"] == "Male", 60.0, 20.0)
        table.to_csv(f"{name}.csv", index=False)
    done = train(run, "--test", "test.csv", "--test-public", target="hours", architecture=architecture).good()
    assert f"{title} of hours" in done.out
    assert "hours, a number from 0 to 80" in done.out
    network = load("model.safetensors")
    assert not hasattr(network, "predict_proba")
    assert network.evaluations_[0]["figures"]["mae"] < 12
    table = people(50, 3)
    table["age"] = 10**6
    found = network.predict(table)
    assert found.min() >= 0
    assert found.max() <= 80
    lines = run("predict", "model.safetensors", "test.csv").good().out.splitlines()
    assert (lines[0], len(lines)) == ("hours", 301)
    refused = run("predict", "model.safetensors", "test.csv", "--proba")
    assert (refused.code, "one with probabilities" in refused.err) == (2, True)


def test_nothing_is_read_before_the_charge(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    original = reading.private_rows

    def count(*given: Any, **named: Any) -> Any:
        counted.append(charges())
        return original(*given, **named)

    monkeypatch.setattr(reading, "private_rows", count)
    shown = train(run, "--dry-run").good()
    assert "noise multiplier" in shown.out
    assert "25 × PoissonSampled(0.2, Gaussian(" in shown.out
    assert "Nothing was charged, and no examples were read." in shown.out
    assert not counted
    train(run, epsilon="4.5").good()
    assert counted == [1]
    refused = train(run, out="second.safetensors")
    assert (refused.code, "remaining: ε = 0.5" in refused.err) == (2, True)
    assert "mlp network of income" in refused.err
    assert counted == [1]


def test_what_is_printed_does_not_depend_on_the_rows(run: Run) -> None:
    first = train(run, epsilon="1").good()
    Path("model.safetensors").unlink()
    Path("study.db").unlink()
    Ledger.open("study.db", Budget(epsilon=5.0, delta=1e-4)).close()
    strange = people(7, 3)
    strange["income"] = "unknown"
    strange.astype(str).replace("Male", "?").to_csv("data.csv", index=False)
    second = train(run, epsilon="1").good()
    assert first.out == second.out


def test_targets_that_mean_nothing_add_nothing(run: Run) -> None:
    """Seeded runs on as many rows differ in what the rows add, and in nothing else."""
    found = []
    words = ("--seed", "1", "--overwrite")
    odd_ones = ("income", "rich"), ("income", None), ("income", "high"), ("hours", "n/a"), ("hours", None)
    for target, odd in odd_ones:
        table = people(60, 4).astype(object)
        table[target] = odd
        table.to_csv("odd.csv", index=False)
        train(run, *words, data="odd.csv", target=target, epsilon="0.5", epochs="1").good()
        found.append(weights())
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[3], found[4])
    assert not np.array_equal(found[0], found[2])


def test_a_file_of_no_rows_is_a_run_like_any_other(run: Run) -> None:
    people(1, 1)[:0].to_csv("data.csv", index=False)
    train(run, epsilon="1").good()
    assert np.isfinite(weights()).all()


@pytest.mark.parametrize(
    ("words", "changed", "told"),
    [
        ((), {"schema": ""}, "Name its schema with --schema"),
        ((), {"target": ""}, "needs --target, the column to predict"),
        ((), {"target": "incom"}, "Did you mean 'income'?"),
        ((), {"target": "income", "schema": "absent.toml"}, "absent.toml"),
        ((), {"schema": "bare.toml"}, "two or more"),
        ((), {"schema": "open.toml"}, "declared with bounds"),
        ((), {"schema": "unknown.toml"}, "population"),
        ((), {"data": "absent.csv"}, "absent.csv"),
        ((), {"data": "empty.csv"}, "is empty"),
        ((), {"data": "short.csv"}, "The source has no column"),
        ((), {"data": "typed.parquet"}, "stored as"),
        ((), {"architecture": "cnn"}, "Use 'mlp' or 'linear' for other data"),
        (("--classes", "2"), {}, "--classes is for images and arrays"),
        (("--mean", "0.5"), {}, "--mean is for images and arrays"),
        (("--exclude", "agee"), {}, "Did you mean 'age'?"),
        (("--transform", "sex=log1p"), {}, "it has categories"),
        (("--test", "data.csv", "--test-public"), {}, "other rows than the ones that the model is fitted to"),
        (("--test", "absent.csv", "--test-public"), {}, "absent.csv"),
        (("--test", "short.csv", "--test-public"), {}, "The source has no column"),
        ((), {"schema": "units.toml", "ledger": "person.db"}, "one row, chosen at random"),
        ((), {"schema": "unit.toml"}, "person"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_are_told_before_anything_is_charged(run: Run, words: Any, changed: Any, told: str) -> None:
    Path("bare.toml").write_text(SCHEMA.replace('["low", "high"]', '["low"]'))
    Path("open.toml").write_text(SCHEMA.replace("bounds = [0, 80]", ""))
    Path("unknown.toml").write_text(SCHEMA.replace("population = 400", ""))
    Path("unit.toml").write_text(SCHEMA + UNIT.format(1))
    Path("units.toml").write_text(SCHEMA + UNIT.format(3))
    Path("empty.csv").touch()
    people(5, 1).drop(columns="hours").to_csv("short.csv", index=False)
    people(5, 1).assign(age=[[1]] * 5).to_parquet("typed.parquet")
    Ledger.open("person.db", Budget(5.0, 1e-4), unit=Unit("person", 3)).close()
    outcome = train(run, *words, **changed)
    assert outcome.code == 2
    assert told in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert (charges(), charges("person.db")) == (0, 0)
    assert not Path("model.safetensors").exists()


def test_of_each_unit_one_row_is_used(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.jobs.tabular import RowExamples

    table = pd.concat([people(100, 1).assign(person=range(100)), people(300, 2).assign(person=7)])
    table.to_csv("data.csv", index=False)
    Path("schema.toml").write_text(SCHEMA + UNIT.format(1))
    Ledger.open("person.db", Budget(5.0, 1e-4), unit=Unit("person", 1)).close()
    read = []
    original = RowExamples._read
    monkeypatch.setattr(RowExamples, "_read", lambda self: read.append(original(self)) or read[-1])
    done = train(run, ledger="person.db").good()
    assert "add_remove of one person (at most 1 rows)" in done.out
    (found,) = read
    assert len(found[0]) == len(found[1]) == 100
    assert load("model.safetensors").guarantee_.unit == Unit("person", 1)
    run("predict", "model.safetensors", "test.csv").good()


def test_where_one_is_replaced_the_rows_are_counted_first(run: Run) -> None:
    Ledger.open("swap.db", Budget(5.0, 1e-4), relation="replace_one").close()
    wrong = train(run, ledger="swap.db", population="401")
    assert (wrong.code, "the number of examples in the file" in wrong.err) == (2, True)
    assert charges("swap.db") == 0
    done = train(run, "--sampling", "fixed", ledger="swap.db").good()
    assert "under replace_one of one row" in done.out


def test_a_run_goes_on_from_its_checkpoint(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.training import Trainer

    original = Trainer._take

    def stopping(self: Any, parts: Any) -> None:
        original(self, parts)
        if self.step_number == 7:
            self.stop()

    monkeypatch.setattr(Trainer, "_take", stopping)
    words = ("--checkpoint", "run.safetensors")
    begun = train(run, *words)
    assert begun.code == 130
    assert "go on with --checkpoint run.safetensors --resume" in begun.out
    monkeypatch.setattr(Trainer, "_take", original)
    Path("other.toml").write_text(SCHEMA.replace("[0, 80]", "[0, 100]"))
    other = train(run, *words, "--resume", schema="other.toml")
    assert other.code == 2
    assert "as it was, with which the run in run.safetensors was started" in other.err
    assert len(other.err) < 400
    for left_out in ({"schema": "", "target": ""}, {"target": "sex"}):
        changed = train(run, *words, "--resume", "--dry-run", **left_out)
        assert (changed.code == 0) == ("sex" not in left_out.values())
    train(run, *words, "--resume", schema="", target="").good()
    network = load("model.safetensors")
    assert network.classes_ == ("low", "high")
    assert dict(network.run)["steps"] == "25 (5 epochs)"
    assert sum(entry.cost != type(entry.cost)() for entry in Ledger.open("study.db").entries()) == 1
