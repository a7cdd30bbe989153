"""``tacit local`` as its users run it: a table in, reports out; reports in, frequencies out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Outcome, Run, commands
from tacit import Budget, Ledger, Unit, accounting, events, jobs
from tacit.cli import completion
from tacit.data.source import PrivateSource
from tacit.errors import InvalidValue, SourceMissing
from tacit.local import Reports
from tacit.local.reports import METHODS, description_of

ROWS = 4000
SCHEMA = """
population = 4000
[columns.colour]
type = "category"
categories = ["red", "green", "blue"]
other = "another"
[columns.smokes]
type = "boolean"
[columns.size]
type = "integer"
categories = [1, 2, 3, 4, 5, 6, 7, 8]
[columns.age]
type = "integer"
bounds = [0, 120]
"""
SHARES = {"red": 0.5, "green": 0.3, "blue": 0.1, "another": 0.1}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``tacit`` in a folder with a table of colours, schemas and ledgers (ε = 5, δ = 1e-4)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    colours = ["red"] * 2000 + ["green"] * 1200 + ["blue"] * 400 + ["mauve"] * 400
    lines = [f"{colour},{('yes', 'no')[i % 4 > 0]},{1 + i % 8},{i % 90}" for i, colour in enumerate(colours)]
    Path("data.csv").write_text("colour,smokes,size,age\n" + "\n".join(lines) + "\n", encoding="utf-8")
    Path("schema.toml").write_text(SCHEMA, encoding="utf-8")
    Path("open.toml").write_text(SCHEMA.replace("population = 4000", ""), encoding="utf-8")
    Path("person.toml").write_text(SCHEMA + '[unit]\ncolumn = "age"\nrows = 2\n', encoding="utf-8")
    Ledger.open("study.db", Budget(epsilon=5.0, delta=1e-4)).close()
    Ledger.open("replace.db", Budget(epsilon=5.0, delta=1e-4), relation="replace_one").close()
    Ledger.open("person.db", Budget(epsilon=5.0, delta=1e-4), unit=Unit("age", 2)).close()
    return commands(monkeypatch, capsys)


def randomize(run: Run, *more: str, **changed: str) -> Outcome:
    options = {
        "column": "colour", "schema": "schema.toml", "epsilon": "4", "ledger": "study.db",
        "out": "reports.csv",
        "seed": "1",
    } | changed  # fmt: skip
    given = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    return run("local", "randomize", "data.csv", *given, *more)


def spent(ledger: str = "study.db") -> tuple[float, int]:
    with Ledger.open(ledger) as book:
        return book.spent().epsilon, len(book.entries())


def unreadable(self: PrivateSource, expression: Any) -> Any:
    raise AssertionError("rows were read")


@pytest.mark.parametrize("method", ["recommended", *METHODS])
def test_there_and_back(run: Run, method: str):
    said = randomize(run, method=method).good().out
    assert "4,000 reports written to reports.csv" in said
    assert "Charged now: ε = 4" in said
    assert spent() == (4.0, 1)
    lines = Path("reports.csv").read_text().splitlines()
    assert lines[0] == "colour"
    assert len(lines) == 1 + ROWS
    found = run("local", "estimate", "reports.csv", "--format", "json").json
    assert found["reports"] == ROWS
    assert found["refused"] == 0
    assert found["guarantee"]["noise"] == "seeded"
    for row in found["frequencies"]:
        assert abs(row["frequency"] - SHARES[row["category"]]) < 0.08
        assert row["low"] <= SHARES[row["category"]] <= row["high"]
    shown = run("local", "estimate", "reports.csv").good().out
    assert "another" in shown
    assert "From 4,000 reports. Nothing was charged." in shown
    assert spent() == (4.0, 1)


def test_columns_of_truth_values_and_whole_numbers(run: Run):
    for column, method in (("smokes", "randomized-response"), ("size", "local-hashing")):
        randomize(run, "--overwrite", column=column, method=method, epsilon="2").good()
        found = run("local", "estimate", "reports.csv", "--format", "json").json["frequencies"]
        truth = {False: 0.75, True: 0.25} if column == "smokes" else dict.fromkeys(range(1, 9), 0.125)
        assert {row["category"] for row in found} == set(truth)
        assert all(abs(row["frequency"] - truth[row["category"]]) < 0.1 for row in found)


def test_every_run_is_charged(run: Run):
    randomize(run, epsilon="2").good()
    first = Path("reports.csv").read_text()
    refused = randomize(run, epsilon="2")
    assert refused.code == 2
    assert "reports.csv exists" in refused.err
    assert spent() == (2.0, 1)
    randomize(run, "--overwrite", epsilon="2", seed="2").good()
    assert spent() == (4.0, 2)
    assert Path("reports.csv").read_text() != first
    over = randomize(run, "--overwrite", epsilon="2")
    assert over.code == 2
    assert "ε = 2 for the reports of colour would not fit" in over.err
    assert spent() == (4.0, 2)


def test_reports_are_in_random_order(run: Run):
    """The first rows are all red: the first reports are not."""
    randomize(run, epsilon="5", method="randomized-response").good()
    first = Path("reports.csv").read_text().splitlines()[1:1001]
    assert first.count("red") < 650


def test_a_shuffled_batch_costs_less(run: Run):
    plan = randomize(run, "--dry-run", "--format", "json", epsilon="2", delta="1e-5").json
    event = events.Shuffled(events.RandomizedResponse(2.0, 4), ROWS)
    assert events.from_json(str(plan["event"]).replace("'", '"')) == event
    assert plan["epsilon"] == accounting.epsilon(event, 1e-5) < 0.2
    assert spent() == (0.0, 0)
    assert not Path("reports.csv").exists()
    randomize(run, epsilon="2", delta="1e-5").good()
    assert spent()[0] == pytest.approx(plan["epsilon"])


def test_the_number_of_rows_is_shown_only_where_it_is_public(run: Run):
    refused = randomize(run, schema="open.toml")
    assert refused.code == 2
    assert "population" in refused.err
    assert spent() == (0.0, 0)
    randomize(run, schema="open.toml", ledger="replace.db").good()
    assert len(Path("reports.csv").read_text().splitlines()) == 1 + ROWS
    shuffled = randomize(run, "--overwrite", schema="open.toml", ledger="replace.db", delta="1e-6")
    assert shuffled.code == 2
    assert "population" in shuffled.err


@pytest.mark.parametrize("population", [1000, 6000])
def test_as_many_reports_as_the_population(run: Run, population: int):
    """Of too many rows some report; in place of absent ones, a uniform category is reported."""
    Path("other.toml").write_text(SCHEMA.replace("4000", str(population)), encoding="utf-8")
    randomize(run, schema="other.toml", epsilon="5", method="randomized-response").good()
    counts = Counter(Path("reports.csv").read_text().splitlines()[1:])
    assert counts.total() == population
    there = min(population, ROWS)
    uniform = (population - there) / 4
    for name, share in SHARES.items():
        assert abs(counts[name] - uniform - there * share) < 0.06 * population


def test_what_is_wrong_is_said_before_rows_are_read(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(PrivateSource, "run", unreadable)
    for changed, said in (
        ({"column": "color"}, "Did you mean 'colour'?"),
        ({"column": "age"}, "a column with categories"),
        ({"method": "best"}, "'local-hashing'"),
        ({"epsilon": "0"}, "epsilon must be"),
        ({"epsilon": "9"}, "would not fit"),
        ({"delta": "0.1"}, "more than the ledger allows"),
        ({"schema": "person.toml", "ledger": "person.db"}, "each person reports once"),
        ({"out": "data.csv"}, "data.csv exists"),
        ({"ledger": "no.db"}, "tacit ledger init no.db"),
    ):
        refused = randomize(run, **changed)
        assert refused.code == 2, changed
        assert said in refused.err
    assert spent() == (0.0, 0)
    assert spent("person.db") == (0.0, 0)


def test_a_description_in_the_way_is_kept(run: Run):
    """The file beside the reports is refused as the reports are, before anything is charged."""
    Path("reports.csv.toml").write_text("mine", encoding="utf-8")
    refused = randomize(run)
    assert refused.code == 2
    assert "reports.csv.toml exists" in refused.err
    assert Path("reports.csv.toml").read_text() == "mine"
    assert spent() == (0.0, 0)


def test_the_charge_comes_first(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(PrivateSource, "run", unreadable)
    with pytest.raises(AssertionError, match="rows were read"):
        jobs.local_randomize(
            "data.csv", column="colour", schema="schema.toml", epsilon=1.0, ledger="study.db"
        )
    assert spent() == (1.0, 1)


def test_files_that_are_no_reports(run: Run):
    randomize(run, method="randomized-response").good()
    described = description_of("reports.csv").read_text()
    for name, text, description, said in (
        ("absent.csv", None, described, "There is no file absent.csv"),
        (
            "alone.csv",
            "colour\nred\n",
            None,
            "alone.csv.toml, which says how the reports were made, is not there",
        ),
        ("empty.csv", "", described, "first line"),
        ("header.csv", "colour\n", described, "at least one"),
        ("other.csv", "color\nred\n", described, "first line of other.csv"),
        ("broken.csv", "colour\nred\n", "method = [", "no description of reports"),
        (
            "method.csv",
            "colour\nred\n",
            described.replace("randomized-response", "magic"),
            "method must be one of",
        ),
        ("key.csv", "colour\nred\n", described + "seed = 1\n", "key of key.csv.toml"),
        (
            "short.csv",
            "colour\nred\n",
            described.replace("epsilon", "# "),
            "epsilon must be in short.csv.toml",
        ),
    ):
        if text is not None:
            Path(name).write_text(text, encoding="utf-8")
        if description is not None:
            description_of(name).write_text(description, encoding="utf-8")
        refused = run("local", "estimate", name)
        assert refused.code == 2, name
        assert said in refused.err, refused.err


@pytest.mark.parametrize(
    "method", ["randomized-response", "local-hashing", "optimized-unary", "subset-selection"]
)
def test_lines_that_hold_no_report_are_left_out(run: Run, method: str):
    randomize(run, method=method).good()
    good = Path("reports.csv").read_text()
    Path("reports.csv").write_text(good + '"",x\nzz\n-1\n99999999999999999999\n"""\n', encoding="utf-8")
    found = jobs.local_estimate("reports.csv")
    assert found.reports == ROWS
    assert found.refused >= 4
    assert "hold no report" in run("local", "estimate", "reports.csv").good().out


def test_reports_among_other_columns():
    """A batch of reports is a column: a collector's file may hold other columns too."""
    oracle = METHODS["hadamard-response"](categories=["a", "b", "c"], epsilon=3.0, random_state=1)
    reports = Reports(oracle, oracle.randomize(["a"] * 900 + ["c"] * 100), "answer")
    again = Reports.of_texts(oracle, reports.texts(), "answer")
    assert np.array_equal(again.values, reports.values)
    assert again.estimate().value == pytest.approx(reports.estimate().value)


def test_completion_and_missing_names():
    assert completion.oracles("local") == ["local-hashing"]
    with pytest.raises(SourceMissing):
        Reports.load("nowhere.csv")
    with pytest.raises(InvalidValue):
        Reports(METHODS["randomized-response"](categories=2, epsilon=1.0), np.array([], dtype=int)).estimate()
