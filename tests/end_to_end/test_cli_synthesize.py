"""``tacit synthesize``, and ``inspect`` and ``report`` of its model, as their users run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import HOURS_AND_SEX, Outcome, Run, commands
from tacit import Budget, Ledger, Unit, jobs, load
from tacit.data.source import PrivateSource
from tacit.estimators import MarginalSynthesizer

SCHEMA = f"""
[csv]
delimiter = ";"
decimal = ","
{HOURS_AND_SEX}
[columns.age]
type = "integer"
bounds = [18, 90]
[columns.since]
type = "date"
bounds = [2000-01-01, 2020-12-31]
"""
WITH_TEXT = SCHEMA + '[columns.person]\ntype = "text"\n'
PERSON = '[unit]\ncolumn = "person"\nrows = 2\n' + SCHEMA


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``tacit`` in a folder with data.csv, schemas and ledgers (ε = 3, δ = 1e-5)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    random = np.random.default_rng(1)
    male = random.integers(0, 2, 1500)
    days = pd.to_datetime("2005-01-01") + pd.to_timedelta(random.integers(0, 4000, 1500), "D")
    pd.DataFrame({
        "person": np.arange(1500) // 3,
        "hours": random.uniform(20, 40, 1500).round(2) + 30 * male,
        "sex": np.where(np.arange(1500) % 50 == 0, "?", np.array(["Female", "Male"])[male]),
        "age": random.integers(18, 91, 1500),
        "since": days.strftime("%Y-%m-%d"),
    }).to_csv("data.csv", index=False, sep=";", decimal=",")  # fmt: skip
    for name, text in (("schema", SCHEMA), ("person", PERSON), ("text", WITH_TEXT)):
        Path(f"{name}.toml").write_text(text, encoding="utf-8")
    Ledger.open("study.db", Budget(epsilon=3.0, delta=1e-5)).close()
    Ledger.open("person.db", Budget(epsilon=3.0, delta=1e-5), unit=Unit("person", 2)).close()
    return commands(monkeypatch, capsys)


def synthesize(run: Run, *more: str, **changed: str) -> Outcome:
    options = {
        "schema": "schema.toml", "epsilon": "1", "delta": "1e-6", "ledger": "study.db", "out": "made.csv",
    } | changed  # fmt: skip
    given = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    return run("synthesize", "data.csv", *given, *more)


def charges(ledger: str = "study.db") -> int:
    with Ledger.open(ledger) as book:
        return len(book.entries())


def unreadable(self: PrivateSource, expression: Any) -> Any:
    raise AssertionError("rows were read")


def test_a_table_a_model_and_pages(run: Run) -> None:
    said = synthesize(run, model_out="model.tacit").good().out
    assert "synthetic rows written to made.csv" in said
    assert "Charged now: ε = 1" in said
    assert charges() == 1
    made = pd.read_csv("made.csv", sep=";", decimal=",")
    assert made.columns.tolist() == ["hours", "sex", "age", "since"]
    assert 1300 < len(made) < 1700
    assert made["hours"].dropna().between(0, 80).all()
    means = made.groupby("sex")["hours"].mean()
    assert means["Male"] - means["Female"] == pytest.approx(30, abs=6)
    model = load("model.tacit")
    assert model.guarantee_.epsilon == 1.0
    assert len(model.sample(7)) == 7
    assert "measured pairs" in run("inspect", "model.tacit").good().out
    run("report", "model.tacit", "--out", "page.html").good()
    page = Path("page.html").read_text(encoding="utf-8")
    assert "Which columns depend on each other" in page
    assert "How close" not in page

    refused = run("report", "model.tacit", "--out", "other.html", "--against", "data.csv")
    assert refused.code == 2
    assert "--curator" in refused.err
    shown = run("report", "model.tacit", "--out", "curator.html", "--against", "data.csv", "--curator").good()
    assert "NOT PRIVATE" in shown.out
    assert "NOT PRIVATE: for the curator" in Path("curator.html").read_text(encoding="utf-8")
    public = ("--against", "made.csv", "--against-public")
    run("report", "model.tacit", "--out", "public.html", *public).good()
    page = Path("public.html").read_text(encoding="utf-8")
    assert "How close the synthetic rows are" in page
    assert "NOT PRIVATE" not in page
    assert charges() == 1


def test_a_dry_run_reads_and_writes_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivateSource, "run", unreadable)
    monkeypatch.setattr(PrivateSource, "blocks", unreadable)
    said = synthesize(run, "--dry-run").good().out
    assert "This would fit" in said
    assert "chosen pairs of columns" in said
    assert synthesize(run, "--dry-run", epsilon="9").code == 2
    assert charges() == 0
    assert not Path("made.csv").exists()
    plan = synthesize(run, "--dry-run", "--format", "json").json
    assert plan["columns"] == ["hours", "sex", "age", "since"]
    assert plan["ledgers"][0]["spent_after"] == pytest.approx(1.0)


def test_refusals_cost_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivateSource, "run", unreadable)
    monkeypatch.setattr(PrivateSource, "blocks", unreadable)
    Path("there.csv").write_text("kept", encoding="utf-8")
    for outcome, word in (
        (synthesize(run, out="there.csv"), "--overwrite"),
        (synthesize(run, out="data.csv"), "data.csv"),
        (synthesize(run, epsilon="9"), "budget"),
        (synthesize(run, schema="text.toml"), "--exclude"),
        (synthesize(run, "--cut", "age"), "COLUMN=EDGE"),
        (synthesize(run, "--method", "copy"), "marginals"),
        (synthesize(run, "--method", "histogram", "--rounds", "3"), "rounds"),
        (synthesize(run, "--rows", "0"), "rows"),
    ):
        assert outcome.code == 2
        assert word in outcome.err
    assert Path("there.csv").read_text(encoding="utf-8") == "kept"
    assert charges() == 0


def test_parquet_histograms_cuts_and_people(run: Run) -> None:
    few = ("--exclude", "hours", "--exclude", "since", "--cut", "age=30,60", "--rows", "120")
    told = synthesize(
        run, "--method", "histogram", *few, "--format", "json",
        out="made.parquet", schema="person.toml", ledger="person.db",
    ).json  # fmt: skip
    assert (told["rows"], told["table"], told["model"]) == (120, "made.parquet", None)
    assert "at most 2 rows" in told["protects"]
    made = pd.read_parquet("made.parquet")
    assert made.columns.tolist() == ["sex", "age"]
    assert len(made) == 120
    assert charges("person.db") == 1


def test_what_was_paid_for_is_not_lost(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure to generate rows saves the model, which has no file yet, before the error goes on."""

    def fails(self: Any, *given: Any, **named: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(MarginalSynthesizer, "sample", fails)
    facts = {"schema": "schema.toml", "epsilon": 1.0, "ledger": "study.db", "exclude": ["hours", "since"]}
    with pytest.warns(UserWarning, match="What was paid for was written to"), pytest.raises(MemoryError):
        jobs.synthesize("data.csv", **facts)
    assert charges() == 1
