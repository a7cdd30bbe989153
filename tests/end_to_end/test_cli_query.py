"""``tacit query`` as its users run it."""

from __future__ import annotations

import csv
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commands import HOURS_AND_SEX, Outcome, Run, commands
from tacit import Budget, Ledger
from tacit.data.source import PrivateSource

SCHEMA = f"""
population = 1200
[columns.age]
type = "integer"
bounds = [0, 100]
{HOURS_AND_SEX}
[columns."home-town"]
type = "category"
categories = ["Bonn", "Köln"]
[columns.job]
type = "text"
[columns.day]
type = "date"
bounds = [2020-01-01, 2020-12-31]
[columns.wealth]
type = "integer"
"""
PERSON = SCHEMA.replace("population = 1200", '[unit]\ncolumn = "person"\nrows = 2')
SURELY = ("--confidence", "0.9999999")
"""For intervals that must cover, around fresh noise: a count misses the truth once in ten million runs."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``tacit`` in a folder with data.csv, schema.toml and study.db, a ledger with ε = 1."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    lines = ["person,age,hours,sex,home-town,job,day,wealth"]
    for row in range(1200):
        sex, town = ("Female", "Bonn") if row % 3 else ("Male", "Köln")
        lines.append(
            f"{row // 3},{row % 80},{row % 40},{sex},{town},job {row % 4},2020-0{row % 9 + 1}-15,{row}"
        )
    Path("data.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path("schema.toml").write_text(SCHEMA, encoding="utf-8")
    Path("person.toml").write_text(PERSON, encoding="utf-8")
    Ledger.open("study.db", Budget(epsilon=1.0)).close()

    return commands(monkeypatch, capsys)


def ask(run: Run, *arguments: str, ledger: str = "study.db", epsilon: str = "0.2") -> Outcome:
    return run(
        "query", "data.csv", *arguments, "--schema", "schema.toml", "--ledger", ledger, "--epsilon", epsilon
    )


def spent(ledger: str = "study.db") -> float:
    with Ledger.open(ledger) as opened:
        return opened.spent().epsilon


def test_answers_come_with_interval_guarantee_and_balance(run: Run) -> None:
    shown = ask(run, "count()", "mean(hours) by sex where age >= 40")
    assert shown.code == 0, shown.err
    assert shown.err == ""
    assert "95 % interval" in shown.out
    assert "│ Female │" in shown.out
    text = " ".join(shown.out.split())
    assert "The 2 answers together: (ε = 0.2, δ = 0)-differentially private under add_remove" in text
    assert "Charged now: ε = 0.2. Spent in all: ε = 0.2 of 1 at δ = 0; remaining: ε = 0.8" in text
    assert max(map(len, shown.out.splitlines())) <= 80
    with Ledger.open("study.db") as ledger:
        (entry,) = ledger.entries()
        assert entry.label == "count(); mean(hours) by sex where age >= 40"
        assert entry.noise == "exact"


def test_json_has_plain_numbers(run: Run) -> None:
    result = ask(run, "count()", "count() by sex", "--format", "json", "--seed", "1").json
    single, groups = result["answers"]
    assert single["label"] == "count()"
    assert single["low"] <= single["value"] <= single["high"]
    assert single["low"] <= 1200 <= single["high"]
    assert type(single["value"]) is int
    assert [row["keys"] for row in groups["rows"]] == [{"sex": "Female"}, {"sex": "Male"}]
    assert all(row["low"] <= row["value"] <= row["high"] for row in groups["rows"])
    assert single["guarantee"]["epsilon"] == pytest.approx(0.1)
    assert result["guarantee"]["noise"] == "seeded"
    assert (result["spent"], result["remaining"], result["spent_in_all"]) == (0.2, 0.8, 0.2)


def test_weights_and_shares(run: Run) -> None:
    answers = ask(run, "count()", "count(weight=3)", "--format", "json").json["answers"]
    assert [answer["guarantee"]["epsilon"] for answer in answers] == pytest.approx([0.05, 0.15])


def test_every_statistic(run: Run) -> None:
    Ledger.open("large.db", Budget(epsilon=100.0, delta=1e-3)).close()
    questions = [
        "count() by \"home-town\" where sex in ('Female')",
        "sum(hours)",
        "variance(age)",
        "std(age) by sex",
        "median(day)",
        "quantile(age, [0.25, 0.75])",
        "quantile(age, 0.5, confidence=None)",
        "histogram(day, ['2020-01-01', '2020-06-01', '2020-12-31'])",
        "crosstab(sex, `home-town`, margins=True)",
        "covariance(age, hours)",
        "correlation(age, hours)",
        "keys(job)",
        "top(sex, 1)",
        "bounds(wealth)",
        "mean(wealth, bounds='dp')",
    ]
    for question in questions:
        arguments = (question, "--delta", "1e-5", "--seed", "7")
        table = ask(run, *arguments, ledger="large.db", epsilon="3")
        assert table.code == 0, table.err
        assert "SEEDED NOISE" in " ".join(table.out.split())
        result = ask(run, *arguments, "--format", "json", ledger="large.db", epsilon="3").json
        answer = result["answers"][0]
        assert answer["label"] == question
        rows = answer.get("rows", [answer])
        assert rows
        for row in rows:
            assert row["low"] is None or row["low"] <= row["value"] <= row["high"]
    found = ask(run, "median(day)", "--format", "json", ledger="large.db", epsilon="3").json["answers"][0]
    assert found["low"] <= "2020-05-15" <= found["high"]


def test_people_are_protected_and_counted(run: Run) -> None:
    made = run("ledger", "init", "people.db", "--epsilon", "9", "--unit", "person", "--rows-per-unit", "2")
    assert made.code == 0
    arguments = ["data.csv", "count_units()", "count()", "--schema", "person.toml", "--ledger", "people.db"]
    result = run("query", *arguments, "--epsilon", "9", *SURELY, "--format", "json").json
    people, rows = result["answers"]
    assert people["low"] <= 400 <= people["high"]
    assert rows["low"] <= 800 <= rows["high"]
    refused = ask(run, "count()", ledger="people.db")
    assert refused.code == 2
    assert "The ledger protects one person (at most 2 rows)" in refused.err


def test_csv_and_files(run: Run) -> None:
    shown = ask(run, "count()", "histogram(age, 2)", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(shown.out)))
    assert [row["question"] for row in rows] == ["count()", "histogram(age, 2)", "histogram(age, 2)"]
    assert [row["age"] for row in rows] == ["", "0–49", "50–100"]
    assert float(rows[0]["low"]) <= float(rows[0]["value"]) <= float(rows[0]["high"])
    assert "remaining: ε = 0.8" in " ".join(shown.err.split())
    for name in ("answers.csv", "answers.json", "answers.txt"):
        shown = ask(run, "count() by sex", "--out", name)
        assert shown.code == 0, shown.err
        assert f"Answers written to {name}" in shown.out
        assert "Female" in Path(name).read_text(encoding="utf-8")
        assert "Female" not in shown.out
    assert json.loads(Path("answers.json").read_text(encoding="utf-8"))["answers"]


@pytest.mark.parametrize("out", ["no/such/answers.csv", "."])
def test_a_file_that_cannot_be_written_costs_nothing(run: Run, out: str) -> None:
    shown = ask(run, "count()", "--out", out)
    assert shown.code == 2
    assert "cannot be written" in shown.err
    assert "Nothing was charged" in shown.err
    assert spent() == 0


def test_answers_that_were_paid_for_are_shown_if_the_file_fails_at_last(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    shown = ask(run, "count()", "--out", "answers.csv")
    assert shown.code == 2
    assert "count()," in shown.out
    assert "No space left on device. The answers are above." in shown.err


def test_a_seed_repeats_the_noise_and_says_so(run: Run) -> None:
    first, second = (ask(run, "count()", "--seed", "3", "--format", "csv") for _ in range(2))
    assert first.out == second.out
    assert "SEEDED NOISE, FOR TESTS ONLY" in " ".join(first.err.split())


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_a_dry_run_foretells_the_ledger_and_reads_nothing(
    run: Run, delta: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ledger.open("large.db", Budget(epsilon=10.0, delta=1e-5)).close()
    questions = ("count() by sex", "mean(age)", "median(age)")

    def never(*arguments: Any) -> Any:
        raise AssertionError("data were read")

    for _ in range(2):
        with monkeypatch.context() as context:
            context.setattr(PrivateSource, "run", never)
            plan = ask(
                run, *questions, "--delta", delta, "--dry-run", "--format", "json", ledger="large.db"
            ).json
            shown = ask(run, *questions, "--delta", delta, "--dry-run", ledger="large.db")
        assert shown.code == 0
        text = " ".join(shown.out.split())
        assert "for these 3 questions would fit. Nothing was charged, and no data were read." in text
        assert max(map(len, shown.out.splitlines())) <= 80
        assert plan["fits"] is True
        assert plan["spent_in_all"] == spent("large.db")
        assert [row["label"] for row in plan["questions"]] == list(questions)
        assert plan["questions"][0]["error"] > 0
        real = ask(run, *questions, "--delta", delta, "--format", "json", ledger="large.db").json
        assert plan["guarantee"] == real["guarantee"]
        assert plan["spent_in_all_after"] == pytest.approx(real["spent_in_all"])
        assert plan["remaining_after"] == pytest.approx(real["remaining"])


def test_the_error_of_a_dry_run_is_that_of_the_answer(run: Run) -> None:
    plan = ask(run, "count()", "--dry-run", "--format", "json").json["questions"][0]
    answer = ask(run, "count()", "--format", "json").json["answers"][0]
    assert plan["error"] == (answer["high"] - answer["low"]) / 2
    (row,) = csv.DictReader(io.StringIO(ask(run, "count()", "--dry-run", "--format", "csv").out))
    assert float(row["error"]) == plan["error"]


def test_a_dry_run_of_too_much_is_exit_code_2(run: Run) -> None:
    shown = ask(run, "count()", "--dry-run", epsilon="1.5")
    assert shown.code == 2
    assert "refused" in shown.out
    assert "ε = 1.5 for this question would not fit into the budget of 'default'" in shown.err
    assert "remaining: ε = 1." in shown.err
    assert shown.err.count("\n") == 1
    assert ask(run, "count()", "--dry-run", "--format", "json", epsilon="1.5").code == 2
    assert spent() == 0


def test_a_used_up_budget_says_what_it_went_on(run: Run) -> None:
    assert ask(run, "count() by sex", epsilon="0.9").code == 0
    shown = ask(run, "mean(age)", "--out", "answers.csv")
    assert shown.code == 2
    assert shown.out == ""
    first, *table = shown.err.splitlines()
    assert first.startswith("tacit: Charging 'mean(age)' would bring 'default' to ε = 1.1, over its budget")
    assert any("count() by sex" in line and "100.0%" in line for line in table)
    assert not Path("answers.csv").exists()
    assert spent() == 0.9


def test_a_missing_ledger_names_the_command_that_makes_one(run: Run) -> None:
    arguments = ["query", "data.csv", "count()", "--epsilon", "0.2", "--schema"]
    for schema, ledger in (("schema.toml", "my study.db"), ("person.toml", "people.db")):
        shown = run(*arguments, schema, "--ledger", ledger)
        assert shown.code == 2
        assert shown.err.count("\n") == 1
        command = shlex.split(shown.err[shown.err.index("tacit ledger init") :])
        assert run(*command[1:]).code == 0
        assert run(*arguments, schema, "--ledger", ledger).code == 0
    shown = ask(run, "count()", "--dataset", "second")
    assert "has no dataset 'second'" in shown.err
    assert "--dataset second" in shown.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mean(agge)"], "Did you mean 'age'?"),
        (["mean(sex)"], "must be numeric"),
        (["mean(wealth)"], "bounds='dp'"),
        (["count() by job"], "keys()"),
        (["maen(age)"], "Did you mean mean(column)?"),
        (["count() where sex = 'female'"], "Did you mean 'Female'?"),
        (["count() where age.x > 3"], "at character 18 ('.')"),
        (["count()", "mean(age"], "at its end with a comma or ')'"),
        ([""], "a statistic, such as mean(age)"),
        (["keys(job)"], "delta must be above 0"),
        (["top(sex, 3)"], "at most the number of keys, 2"),
        (["top(job, 1)"], "column must be a column whose keys are public"),
        (["count() where sex = Female"], "text goes in single quotes: 'Female'."),
        (["count_units()"], "unit must be"),
        (["count_units()"], "or declare the column: [unit] in the schema"),
        (["quantile(age, 2)"], "q must be"),
        (["quantile(age, 90)"], "Write 0.9 for 90 %."),
        (["count()", "--epsilon", "nan"], "epsilon must be a finite number above 0, got nan."),
        (["count()", "--epsilon", "-1"], "epsilon must be a finite number above 0"),
        (["count()", "--delta", "1"], "delta must be in [0, 1)"),
        (["count()", "--delta", "1e-6"], "more than the ledger allows in all, δ = 0"),
        (["count()", "--confidence", "95"], "confidence must be in (0, 1), got 95.0. Write 0.95 for 95 %."),
        (["count()", "--format", "xml"], "format must be one of 'table', 'json', 'csv'"),
        (["count()", "--schema", "no.toml"], "tacit schema init"),
        (["count()", "--schema", "data.csv"], "written in TOML"),
        (["count()", "--ledger", "data.csv"], "is not a ledger"),
        (["count()", "--delimiter", ";"], "name that delimiter"),
        (["count()", "--delimiter", ";;"], "delimiter must be one character"),
    ],
)
def test_mistakes_are_one_clear_line_and_cost_nothing(run: Run, arguments: list[str], message: str) -> None:
    for extra in ([], ["--dry-run"]):
        shown = run(
            *("query", "data.csv", "--schema", "schema.toml", "--ledger", "study.db", "--epsilon", "0.2"),
            *(*arguments, *extra),
        )
        assert shown.code == 2
        assert shown.out == ""
        assert message in shown.err
        assert shown.err.startswith("tacit: ")
        assert shown.err.count("\n") == 1
        assert spent() == 0


def test_sources_that_are_not_there_or_empty(run: Run) -> None:
    Path("empty.csv").write_text("")
    Path("header.csv").write_text(Path("data.csv").read_text(encoding="utf-8").splitlines()[0] + "\n")
    Path("other.csv").write_text("age,sex\n1,Male\n")
    options = ["--schema", "schema.toml", "--ledger", "study.db", "--epsilon", "0.1"]
    for source, message in (
        ("no.csv", "There is no file 'no.csv'"),
        ("empty.csv", "no first line of column names"),
        ("other.csv", "has no column 'hours'"),
    ):
        shown = run("query", source, "count()", *options)
        assert (shown.code, shown.err.count("\n")) == (2, 1)
        assert message in shown.err
    shown = run("query", "header.csv", "count()", "mean(age)", *options, *SURELY, "--format", "json")
    count, mean = shown.json["answers"]
    assert count["low"] <= 0 <= count["high"]
    assert 0 <= mean["value"] <= 100


def test_many_questions_fit_into_one_charge(run: Run) -> None:
    questions = [f"count() where age >= {age} and hours < {age} and sex = 'Female'" for age in range(12)]
    shown = ask(run, *questions, "--format", "json")
    assert len(shown.json["answers"]) == 12


def test_private_values_do_not_reach_the_terminal(run: Run) -> None:
    lines = Path("data.csv").read_text(encoding="utf-8").splitlines()
    lines[1] = "secret-person,secret-age,1e999,secret-sex,Bonn,secret-job,secret-day,secret-wealth"
    Path("data.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    shown = ask(run, "count()", "mean(age) by sex", "mean(hours)", "median(day)", "bounds(wealth)")
    assert shown.code == 0, shown.err
    assert "secret" not in shown.out + shown.err


def test_the_command_is_there_and_loads_little(run: Run) -> None:
    code = "import sys, tacit.cli; print(*{'ibis', 'pandas', 'duckdb', 'pyarrow'} & set(sys.modules))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == ""
    shown = run("query", "--help")
    assert shown.code == 0
    assert "QUESTION" in shown.out
    arguments = "query data.csv 'count()' --schema schema.toml --ledger study.db --epsilon 1"
    process = subprocess.run(
        [sys.executable, "-m", "tacit.cli", *shlex.split(arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")


def test_histograms_by_group_with_bins_as_people_write_them(run: Run) -> None:
    shown = ask(run, "histogram(age, [0, 18, 65, 100]) by sex", "--seed", "1")
    assert "│ Female │ 18–64  │" in shown.good().out
    (answer,) = ask(run, "histogram(age, [0, 18, 65, 100]) by sex", "--format", "json").json["answers"]
    assert answer["rows"][1]["keys"] == {"sex": "Female", "age": "18–64"}
    assert [row["edges"] for row in answer["rows"][:3]] == [[0, 18], [18, 65], [65, 100]]
    halves = "histogram(day, ['2020-01-01', '2020-07-01', '2020-12-31'])"
    (days,) = ask(run, halves, "--format", "json").json["answers"]
    assert days["rows"][0]["keys"] == {"day": "2020-01-01 to 2020-06-30"}
    assert days["rows"][0]["edges"] == ["2020-01-01", "2020-07-01"]


def test_answers_are_drawn_and_written_as_one_page(run: Run) -> None:
    asked = "count()", "histogram(age, 5) by sex", "crosstab(sex, `home-town`, margins=True)", "top(sex, 2)"
    shown = ask(run, *asked, "--plot", "a.svg", "--page", "a.html").good()
    text = " ".join(shown.out.split())
    assert "Plot written to a.svg" in text
    assert "Not drawn, for it has no numbers: top(sex, 2)" in text
    assert "Page written to a.html" in text
    drawn, page = (Path(name).read_text(encoding="utf-8") for name in ("a.svg", "a.html"))
    assert "histogram(age, 5) by sex" in drawn
    assert "ε = 0.05, under add_remove of one row." in drawn
    for part in ("Answers about data.csv", "With ε = 0.2, whoever reads these answers", "<td>0–19</td>",
                 "top(sex, 2)", "What it cost", "ε = 0.2 of 1 spent on the same people in all"):  # fmt: skip
        assert part in page, part
    assert page.count("<svg") == 4, "wide and narrow, of the two that are drawn"
    assert "http" not in page.replace("http://www.w3.org", "")


def test_a_plot_or_page_that_cannot_be_written_costs_nothing(run: Run) -> None:
    for bad, told in (
        (("--plot", "a.doc"), "Use .png, .svg or .pdf"),
        (("--plot", "no/such/a.png"), "cannot be written"),
        (("--page", "no/such/a.html"), "cannot be written"),
        (("--page", "data.csv", "--overwrite"), "used by the job itself"),
        (("--plot", "a.svg", "--page", "a.svg"), "name the same file"),
    ):
        refused = ask(run, "count()", *bad)
        assert refused.code == 2
        assert told in refused.err
    assert spent() == 0.0


def test_names_alone_leave_no_empty_plot(run: Run) -> None:
    assert "Not drawn" in ask(run, "top(sex, 2)", "--plot", "a.svg").good().out
    assert not Path("a.svg").exists()
