"""``tacit pate`` as its users run it: votes in, answers and guarantee out; a table in, a student out."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import HOURS_AND_SEX, Outcome, Run, commands
from tacit import Budget, Ledger, Unit, accounting, jobs, load
from tacit.cli import completion
from tacit.data.source import PrivateSource
from tacit.jobs import pate as home
from tacit.pate import ConfidentGNMax, GNMax
from tacit.pate.student import KINDS

SCHEMA = f"""
{HOURS_AND_SEX}
[columns.income]
type = "category"
categories = ["low", "high"]
"""
VOTES = np.array([[240, 10], [20, 230], [130, 120], [5, 245]])


def write_rows(path: str, rows: int, seed: int, *, target: bool = True) -> None:
    rng = np.random.default_rng(seed)
    with Path(path).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["person", "hours", "sex", *(["income"] if target else [])])
        for row in range(rows):
            hours, male = rng.uniform(0, 80), rng.integers(2)
            label = "high" if hours + 10 * male + rng.normal(0, 3) > 45 else "low"
            writer.writerow(
                [row // 2, round(hours, 1), ("Female", "Male")[male], *([label] if target else [])]
            )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``tacit`` in a folder with votes, a table, public rows and ledgers (ε = 4, δ = 1e-4)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    np.save("votes.npy", VOTES)
    np.savetxt("votes.csv", VOTES, fmt="%d", delimiter=",")
    write_rows("data.csv", 1500, 1)
    write_rows("public.csv", 200, 2, target=False)
    Path("schema.toml").write_text(SCHEMA, encoding="utf-8")
    Path("person.toml").write_text('[unit]\ncolumn = "person"\nrows = 2\n' + SCHEMA, encoding="utf-8")
    Ledger.open("study.db", Budget(epsilon=4.0, delta=1e-4)).close()
    Ledger.open("person.db", Budget(epsilon=4.0, delta=1e-4), unit=Unit("person", 2)).close()
    return commands(monkeypatch, capsys)


CONFIDENT = ("--aggregator", "confident", "--threshold", "200", "--sigma-threshold", "30", "--sigma", "20")
PAID = ("--delta", "1e-5", "--ledger", "study.db", "--seed", "1")


def answer(run: Run, *more: str, votes: str = "votes.npy") -> Outcome:
    return run("pate", "answer", votes, *CONFIDENT, *PAID, *more)


def fit(run: Run, *more: str, **changed: str) -> Outcome:
    options = {
        "schema": "schema.toml", "target": "income", "queries": "public.csv", "epsilon": "3", "delta": "1e-5",
        "ledger": "study.db", "out": "student.tacit", "teachers": "30", "teacher": "decision-tree",
        "student": "logistic", "seed": "1",
    } | changed  # fmt: skip
    return run("pate", "fit", "data.csv", *(w for n, v in options.items() for w in (f"--{n}", v)), *more)


def charges(ledger: str = "study.db") -> int:
    with Ledger.open(ledger) as book:
        return len(book.entries())


def test_votes_are_answered_and_the_worst_case_is_charged(run: Run) -> None:
    found = answer(run, "--answers", "2").good()
    lines = found.out.splitlines()
    assert lines[0] == "query,answer"
    assert len(lines) == 5
    assert sum(not line.endswith(",") for line in lines[1:]) <= 2
    with Ledger.open("study.db") as book:
        (entry,) = book.entries()
    assert entry.event == ConfidentGNMax(200, 30, 20).event(asked=4, answered=2)
    assert "differentially private" in found.err


def test_answers_as_json_and_in_a_file(run: Run) -> None:
    found = answer(run, "--format", "json").json
    assert [each in (None, 0, 1) for each in found["answers"]] == [True] * 4
    assert found["guarantee"]["noise"] == "seeded"
    assert found["most_answers"] == 4
    answer(run, "--out", "answers.csv").good()
    assert Path("answers.csv").read_text().startswith("query,answer\n0,")
    assert answer(run, "--out", "answers.csv").code == 2
    assert charges() == 2


def test_a_dry_run_charges_and_reads_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "_votes_in", lambda source: pytest.fail("votes were read"))
    answer(run, "--dry-run").good()
    planned = answer(run, "--dry-run", "--format", "json", "--epsilon", "0.5").json
    assert planned["epsilon"] <= 0.5
    assert planned["queries"] == 4
    assert planned["most_answers"] < 4
    assert charges() == 0


def test_a_refused_charge_reads_no_vote(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "_votes_in", lambda source: pytest.fail("votes were read"))
    found = run("pate", "answer", "votes.npy", "--aggregator", "gnmax", "--sigma", "0.5", *PAID)
    assert found.code == 2
    assert "no votes were read" in found.err
    assert charges() == 0


def test_the_charge_stands_before_votes_are_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = home._votes_in

    def spied(source: Path) -> Any:
        seen.append(charges())
        return original(source)

    monkeypatch.setattr(home, "_votes_in", spied)
    answer(run).good()
    assert seen == [1]


def test_a_csv_file_needs_its_shape(run: Run) -> None:
    refused = answer(run, votes="votes.csv")
    assert refused.code == 2
    assert "queries must be given" in refused.err
    assert charges() == 0
    answer(run, "--queries", "4", "--classes", "2", votes="votes.csv").good()
    assert answer(run, "--queries", "5", "--classes", "2", votes="votes.csv").code == 2
    Path("odd.csv").write_text("1,secret\n3,4\n", encoding="utf-8")
    odd = answer(run, "--queries", "2", "--classes", "2", votes="odd.csv")
    assert odd.code == 2
    assert "secret" not in odd.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--aggregator", "confident", "--sigma", "3"), "threshold"),
        (("--aggregator", "gnmax", "--sigma", "3", "--gamma", "1"), "gamma"),
        (("--aggregator", "median"), "aggregator"),
        (("--aggregator", "gnmax", "--sigma", "9", "--answers", "9"), "answers"),
        (("--aggregator", "gnmax", "--sigma", "9", "--answers", "3"), "tacit: answers must be 4"),
        (("--aggregator", "gnmax", "--sigma", "9", "--classes", "3"), "classes"),
    ],
)
def test_wrong_options_are_named(run: Run, words: tuple[str, ...], named: str) -> None:
    found = run("pate", "answer", "votes.npy", *words, *PAID)
    assert found.code == 2
    assert named in found.err
    assert charges() == 0


def test_laplace_noise_needs_no_delta(run: Run) -> None:
    run(
        "pate", "answer", "votes.npy", "--aggregator", "lnmax", "--gamma", "0.1", "--ledger", "study.db"
    ).good()
    refused = run(
        "pate", "answer", "votes.npy", "--aggregator", "gnmax", "--sigma", "9", "--ledger", "study.db"
    )
    assert refused.code == 2
    assert "delta must be above 0" in refused.err


def test_a_table_becomes_a_student(run: Run) -> None:
    made = fit(
        run, "--format", "json", "--exclude", "sex", "--ask", "20", "--answers", "20", teachers="80"
    ).json
    assert made["facts"]["teachers"] == "80"
    assert made["guarantee"]["epsilon"] <= 3.0
    assert charges() == 1
    model = load("student.tacit")
    assert model[-1].teacher is None
    assert accounting.epsilon(model[-1].event_, 1e-5) <= 3.0
    predicted = run("predict", "student.tacit", "public.csv").good().out.splitlines()
    assert len(predicted) == 201
    assert set(predicted[1:]) == {"low", "high"}
    assert "student of private teachers" in run("inspect", "student.tacit").good().out
    run("report", "student.tacit", "--out", "page.html").good()


def test_units_of_the_schema_are_kept_together(run: Run) -> None:
    fit(run, schema="person.toml", ledger="person.db", teacher="gaussian-nb").good()
    assert load("student.tacit")[-1].guarantee_.unit == Unit("person", 2)


def test_a_student_that_cannot_be_paid_reads_no_row(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    original = PrivateSource.run

    def only_public(self: Any, expression: Any) -> Any:
        assert "income" not in expression.columns, "private rows were read"
        return original(self, expression)

    monkeypatch.setattr(PrivateSource, "run", only_public)
    assert fit(run, epsilon="5").code == 2
    assert fit(run, "--dry-run").good()
    assert json.loads(fit(run, "--dry-run", "--format", "json").good().out)["epsilon"] <= 3.0
    assert charges() == 0
    assert not Path("student.tacit").exists()


def test_unknown_names_and_targets_are_refused(run: Run) -> None:
    for changed in (
        {"teacher": "pca"},
        {"student": "oracle"},
        {"target": "hours"},
        {"queries": "absent.csv"},
    ):
        assert fit(run, **changed).code == 2
    assert fit(run, "--ask", "999").err.startswith("tacit: ask must be at most the number of queries, 200")
    assert charges() == 0


def test_a_job_in_python_is_the_same(run: Run) -> None:
    with Ledger.open("study.db") as book:
        made = jobs.pate_answer(
            "votes.npy", aggregator=GNMax(20.0), ledger=book, delta=1e-5, epsilon=1.0, random_state=1
        )
    assert made.guarantee.epsilon <= 1.0
    assert len(made.labels) == 4


def test_completion_knows_the_classifiers() -> None:
    assert set(completion.STUDENTS) == set(KINDS) - {"pca", "pipeline", "scale"}
    assert completion.students("fo") == ["forest"]
