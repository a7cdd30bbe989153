"""Jobs that destroy what they use, charge for nothing, or lose what was paid for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tacit
from commands import Run, commands
from tacit import Budget, Column, Ledger, Schema, Unit, jobs
from tacit.data import reading
from tacit.data.splitting import SPLIT
from tacit.errors import InvalidValue, SourceMissing, TacitError

SCHEMA = Schema(
    {"age": Column("integer", bounds=(0, 90)), "sick": Column("category", categories=("no", "yes"))},
    population=120,
)
FIT: dict[str, Any] = {"schema": "schema.toml", "target": "sick", "model": "logistic", "ledger": "study.db"}
ASK = ("--schema", "schema.toml", "--ledger", "study.db", "--epsilon", "0.1")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``tacit`` in a folder with data.csv, others.csv, schema.toml and study.db, a ledger with ε = 1."""
    monkeypatch.chdir(tmp_path)
    SCHEMA.save("schema.toml")
    for name, sick in (("data.csv", "yes"), ("others.csv", "no")):
        lines = [f"{age},{sick if age > 40 else 'no'}" for age in range(90)]
        Path(name).write_text("\n".join(["age,sick", *lines]) + "\n", encoding="utf-8")
    Ledger.open("study.db", Budget(epsilon=1.0)).close()
    return commands(monkeypatch, capsys)


def charges() -> int:
    with Ledger.open("study.db") as ledger:
        return len(ledger.entries())


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_query_overwrites_no_file_unless_it_is_asked_to(run: Run, more: tuple[str, ...]) -> None:
    Path("kept.csv").write_text("kept", encoding="utf-8")
    shown = run("query", "data.csv", "count()", *ASK, "--out", "kept.csv", *more)
    assert shown.code == 2
    assert "kept.csv exists and was left as it is. Name another file, or add --overwrite." in shown.err
    assert Path("kept.csv").read_text(encoding="utf-8") == "kept"
    assert charges() == 0
    run("query", "data.csv", "count()", *ASK, "--out", "kept.csv", "--overwrite", *more).good()
    assert Path("kept.csv").read_text(encoding="utf-8") != "kept"


@pytest.mark.parametrize("out", ["data.csv", "schema.toml", "study.db", "link"])
def test_no_job_overwrites_what_it_uses(run: Run, out: str) -> None:
    """If the ledger is overwritten, nobody knows any more what was spent."""
    os.symlink("study.db", "link")
    before = Path(out).read_bytes()
    shown = run("query", "data.csv", "count()", *ASK, "--out", out, "--overwrite")
    assert shown.code == 2
    assert f"{out} is used by the job itself, and was left as it is." in shown.err
    with pytest.raises(TacitError, match="is used by the job itself"):
        jobs.fit("data.csv", **FIT, epsilon=0.1, out=out, overwrite=True)
    assert Path(out).read_bytes() == before
    assert charges() == 0


def test_a_plan_leaves_a_link_to_no_file_as_it_is(run: Run) -> None:
    os.symlink("later.tacit", "model.tacit")
    with jobs.plan_fit("data.csv", **FIT, epsilon=0.1, out="model.tacit") as job:
        assert Path("model.tacit").is_symlink()
        assert not Path("later.tacit").exists()
        job.run()
    assert Path("model.tacit").is_symlink()
    assert tacit.load("later.tacit").predict_proba


@pytest.mark.parametrize("same", ["study.db", "link"])
@pytest.mark.parametrize("opened", [False, True])
def test_a_fit_and_a_test_from_one_budget_are_afforded_together(run: Run, same: str, opened: bool) -> None:
    """However often the ledger of that budget is opened, and under whatever name."""
    os.symlink("study.db", "link")
    with Ledger.open("study.db") as one, Ledger.open(same) as other:
        ledger = {"ledger": one} if opened else {}
        with pytest.raises(TacitError, match="would not fit"):
            jobs.fit(
                "data.csv", **{**FIT, **ledger}, epsilon=0.7,
                test="others.csv", test_epsilon=0.7, test_dataset=other,
            )  # fmt: skip
    assert charges() == 0


def _fit(ledger: Ledger) -> jobs.FitJob:
    return jobs.plan_fit("data.csv", **{**FIT, "ledger": ledger}, epsilon=0.1)


def _query(ledger: Ledger) -> jobs.QueryJob:
    return jobs.plan_query("data.csv", ["count()"], schema=SCHEMA, ledger=ledger, epsilon=0.1)


def _evaluate(ledger: Ledger) -> jobs.EvaluateJob:
    return jobs.plan_evaluate("model.tacit", "others.csv", ledger=ledger, epsilon=0.1)


@pytest.mark.parametrize("plan", [_fit, _query, _evaluate])
def test_a_job_whose_files_are_closed_charges_nothing(run: Run, plan: Callable[[Ledger], Any]) -> None:
    jobs.fit("data.csv", **FIT, epsilon=0.1, out="model.tacit")
    with Ledger.open("study.db") as ledger:
        with plan(ledger) as job:
            pass
        with pytest.raises(SourceMissing, match="closed"):
            job.run()
        assert len(ledger.entries()) == 1


def test_a_fit_that_is_run_twice_is_charged_once(run: Run) -> None:
    with jobs.plan_fit("data.csv", **FIT, epsilon=0.1) as job:
        job.run()
        with pytest.raises(SourceMissing, match="closed"):
            job.run()
    assert charges() == 1


def test_a_synthetic_table_that_is_made_twice_is_charged_once(run: Run) -> None:
    facts = {name: FIT[name] for name in ("schema", "ledger")}
    with jobs.plan_synthesize("data.csv", **facts, epsilon=0.1, out="made.csv") as job:
        job.run(warn=lambda text: None)
        with pytest.raises(SourceMissing, match="closed"):
            job.run(warn=lambda text: None)
    assert charges() == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), ValueError("odd")])
def test_a_model_that_was_paid_for_survives_whatever_interrupts_its_saving(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    original, raised, told = tacit.save, [error], []

    def interrupted(*arguments: Any, **options: Any) -> None:
        if raised:
            raise raised.pop()
        original(*arguments, **options)

    monkeypatch.setattr(tacit, "save", interrupted)
    with (
        jobs.plan_fit("data.csv", **FIT, epsilon=0.1, out="model.tacit") as job,
        pytest.raises(type(error)),
    ):
        job.run(warn=told.append)
    place = told[0].rpartition("written to ")[2].removesuffix(" instead.")
    assert tacit.load(place).predict_proba


@pytest.mark.parametrize("questions", [[], (), "count()"])
def test_a_query_without_a_list_of_questions_is_refused(run: Run, questions: Any) -> None:
    with pytest.raises(InvalidValue, match="a list of one question or more"):
        jobs.query("data.csv", questions, schema=SCHEMA, ledger="study.db", epsilon=0.1)
    assert charges() == 0


def test_a_share_that_is_set_aside_has_units_of_its_own_and_is_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No unit is fitted to and measured on, both are charged, and both say how the table was split."""
    generator = np.random.default_rng(1)
    rows = pd.DataFrame({"who": np.arange(300) % 100, "age": generator.uniform(0, 100, 300)})
    rows.assign(sick=np.where(rows["age"] > 50, "yes", "no")).to_csv(tmp_path / "a.csv", index=False)
    columns = {"age": Column("number", bounds=(0, 100)), "sick": Column("category", categories=("no", "yes"))}
    schema = Schema(columns, unit=Unit("who", 2))
    read: list[set[str]] = []
    real = reading.private_rows

    def noted(*given: Any, **options: Any) -> pd.DataFrame:
        frame = real(*given, **options)
        read.append(set(frame[reading.UNIT]))
        return frame

    monkeypatch.setattr(reading, "private_rows", noted)
    with Ledger.open(tmp_path / "study.db", Budget(3.0), unit=schema.unit) as ledger:
        made = jobs.fit(
            tmp_path / "a.csv", schema=schema, target="sick", model="logistic", epsilon=1.0, ledger=ledger,
            test_share=0.3, test_epsilon=0.5,
        )  # fmt: skip
        assert [entry.cost.epsilon for entry in ledger.entries()] == [1.0, 0.5]
    assert len(read) == 2
    assert not read[0] & read[1]
    assert len(read[0] | read[1]) == 100
    assert made.evaluation is not None
    assert made.evaluation.guarantee is not None
    for guarantee in (made.guarantee, made.evaluation.guarantee):
        assert SPLIT in guarantee.assumptions
        assert any("keep to their format" in each for each in guarantee.assumptions)
