"""Whole jobs, called from Python as the guides and a service call them: charge first, then read."""

from __future__ import annotations

import csv
import inspect
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from commands import Run, commands
from tacit import Budget, Column, Ledger, Schema, jobs
from tacit.data.source import PrivateSource
from tacit.errors import LedgerCorrupted, LedgerMissing, TacitError

SCHEMA = Schema(
    {
        "age": Column("integer", bounds=(18, 90)),
        "sex": Column("category", categories=("Female", "Male")),
        "income": Column("category", categories=("low", "high")),
    }
)
FIT = {"schema": "schema.toml", "target": "income", "model": "logistic", "epsilon": 1.0}


def write_rows(path: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with Path(path).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["age", "sex", "income"])
        for age in rng.integers(18, 91, 800):
            writer.writerow([age, rng.choice(["Female", "Male"]), "high" if age > 50 else "low"])


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    SCHEMA.save("schema.toml")
    write_rows("data.csv", 1)
    write_rows("others.csv", 2)
    Ledger.open("study.db", Budget(epsilon=3.0)).close()


@pytest.fixture
def charged_when_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many charges there were whenever rows were read."""
    counted: list[int] = []

    def watch(name: str) -> None:
        original = getattr(PrivateSource, name)

        def count(self: PrivateSource, expression: Any) -> Any:
            counted.append(charges())
            return original(self, expression)

        monkeypatch.setattr(PrivateSource, name, count)

    watch("run")
    watch("blocks")
    return counted


def charges() -> int:
    with Ledger.open("study.db") as book:
        return len(book.entries())


def test_models_without_a_target_read_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """No job reads the rows as a whole."""

    def never(self: PrivateSource, expression: Any) -> Any:
        raise AssertionError("all rows were read at once")

    monkeypatch.setattr(PrivateSource, "run", never)
    paid = {"schema": "schema.toml", "epsilon": 1.0, "ledger": "study.db"}
    for model in ("kmeans", "pca"):
        assert jobs.fit("data.csv", model=model, **paid).guarantee.epsilon == 1.0
    assert len(jobs.synthesize("data.csv", rows=30, rounds=1, **paid).table) == 30
    assert charges() == 3


def test_every_job_charges_and_then_reads(charged_when_read: list[int]) -> None:
    made = jobs.fit("data.csv", **FIT, ledger="study.db", out="model.tacit")
    assert (made.path, made.evaluation) == (Path("model.tacit"), None)
    assert made.guarantee.epsilon == 1.0
    found = jobs.evaluate("model.tacit", "others.csv", epsilon=0.5, ledger="study.db", groups_by=["sex"])
    assert found.guarantee is not None
    assert "sex=Female: accuracy" in found.figures
    answered = jobs.query("data.csv", ["mean(age)"], schema="schema.toml", ledger="study.db", epsilon=0.5)
    assert abs(answered.releases[0].value - 54) < 10
    assert charged_when_read == [1, 2, 3]
    with Ledger.open("study.db") as book:
        assert book.spent().epsilon == pytest.approx(2.0)
    predicted = jobs.predict("model.tacit", "others.csv", proba=True)
    assert len(predicted.values) == len(predicted.probabilities) == 800
    page = jobs.report("model.tacit", out="page.html", ledger="study.db")
    assert "differentially private" in page.read_text(encoding="utf-8")
    assert charges() == 3


def test_an_open_ledger_is_charged_and_stays_open(charged_when_read: list[int]) -> None:
    with Ledger.open("study.db") as book:
        jobs.fit("data.csv", **FIT, ledger=book, test="others.csv", test_epsilon=0.25)
        assert book.spent().epsilon == 1.25
        with pytest.raises(jobs.Refused, match=r"ε = 1 .* and ε = 2 for the test would not fit") as refused:
            jobs.fit("data.csv", **FIT, ledger=book, test="others.csv", test_epsilon=2.0)
        assert refused.value.ledger is book
        assert book.spent().epsilon == 1.25
    assert charged_when_read == [1, 2]


def test_a_plan_knows_the_price_and_reads_nothing(charged_when_read: list[int]) -> None:
    with jobs.plan_fit("data.csv", **FIT, ledger="study.db", out="model.tacit") as job:
        (balance,) = job.balances()
        assert (balance.spent, balance.after, balance.left) == (0.0, 1.0, 2.0)
        assert [due.label for due in job.dues] == ["logistic model of income"]
        job.afford()
    assert (charged_when_read, charges()) == ([], 0)
    assert not Path("model.tacit").exists()


def test_errors_name_arguments_in_python_and_options_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("model.tacit").write_text("mine")
    with pytest.raises(TacitError, match="add overwrite=True"):
        jobs.fit("data.csv", **FIT, ledger="study.db", out="model.tacit")
    with pytest.raises(TacitError, match="either test_epsilon= or test_public="):
        jobs.fit("data.csv", **FIT, ledger="study.db", test="others.csv")
    run: Run = commands(monkeypatch, capsys)
    given = [word for name, value in FIT.items() for word in (f"--{name}", str(value))]
    words = ("fit", "data.csv", *given, "--ledger", "study.db", "--out")
    assert "or add --overwrite." in run(*words, "model.tacit").err
    lacking = run(*words, "new.tacit", "--test", "others.csv")
    assert "--test needs either --test-epsilon or --test-public." in lacking.err


def test_a_test_that_fails_does_not_lose_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file was named for it, so it is written to one, and a warning says which."""
    original = PrivateSource.run

    def broken(self: PrivateSource, expression: Any) -> Any:
        if charges() == 2:
            raise TacitError("The engine broke.")
        return original(self, expression)

    monkeypatch.setattr(PrivateSource, "run", broken)
    with (
        pytest.warns(UserWarning, match="What was paid for was written to") as told,
        pytest.raises(TacitError, match="The engine broke"),
    ):
        jobs.fit("data.csv", **FIT, ledger="study.db", test="others.csv", test_epsilon=0.5)
    place = str(told[0].message).removesuffix(".").split("written to ")[1]
    assert tacit.load(place)[-1].guarantee_.epsilon == 1.0


def test_the_training_rows_are_no_public_test() -> None:
    Path("data.csv").rename("first.csv")
    lines = Path("first.csv").read_text(encoding="utf-8").splitlines()
    Path("again.csv").write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n", encoding="utf-8")
    with (
        pytest.warns(UserWarning, match="What was paid for was written to"),
        pytest.raises(TacitError, match="other rows than the ones"),
    ):
        jobs.fit("first.csv", **FIT, ledger="study.db", test="again.csv", test_public=True)


def test_an_emptied_ledger_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run: Run = commands(monkeypatch, capsys)
    asked = (
        "query",
        "data.csv",
        "count()",
        "--schema",
        "schema.toml",
        "--ledger",
        "study.db",
        "--epsilon",
        "1",
    )
    Path("study.db").unlink()
    assert "There is no ledger at study.db. Make it with" in run(*asked).err
    Path("study.db").touch()
    told = {run(*words).err for words in (asked, ("ledger", "init", "study.db", "--epsilon", "1"))}
    assert len(told) == 1
    assert "has been emptied, or none was begun" in told.pop()
    with pytest.raises(LedgerCorrupted):
        jobs.query("data.csv", ["count()"], schema="schema.toml", ledger="study.db", epsilon=1.0)
    os.remove("study.db")
    with pytest.raises(LedgerMissing):
        jobs.query("data.csv", ["count()"], schema="schema.toml", ledger="study.db", epsilon=1.0)


@pytest.mark.parametrize("name", ["query", "fit", "train", "evaluate"])
def test_a_job_takes_the_arguments_of_its_plan(name: str) -> None:
    whole, plan = (inspect.signature(getattr(jobs, each)) for each in (name, f"plan_{name}"))
    assert whole.parameters == plan.parameters
    assert {"ledger", "epsilon"} <= set(whole.parameters)
