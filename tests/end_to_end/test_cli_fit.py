"""``tacit fit``, ``predict``, ``inspect`` and ``report`` as their users run them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import HOURS_AND_SEX, Outcome, Run, commands
from tacit import Budget, Ledger, Unit, load
from tacit.data.source import PrivateSource
from tacit.evaluation import evaluations_of

SCHEMA = f"""
[columns.age]
type = "integer"
bounds = [18, 90]
{HOURS_AND_SEX}
[columns.income]
type = "category"
categories = ["low", "high"]
[columns.wage]
type = "number"
bounds = [0, 100]
"""
PERSON = '[unit]\ncolumn = "person"\nrows = 2\n' + SCHEMA
WITH_TEXT = SCHEMA + '[columns.job]\ntype = "text"\n'
OPEN = SCHEMA.replace('categories = ["low", "high"]\n', "").replace("bounds = [0, 100]\n", "")


def write_rows(path: str, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with Path(path).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["person", "age", "hours", "sex", "income", "wage", "job"])
        for row in range(rows):
            age, hours, male = rng.integers(18, 91), rng.uniform(0, 80), rng.integers(2)
            wage = 0.5 * age + 0.6 * hours + 5 * male
            label = "high" if wage + rng.normal(0, 8) > 55 else "low"
            sex = "?" if row % 50 == 0 else ("Female", "Male")[male]
            writer.writerow([row // 3, age, round(hours, 1), sex, label, round(wage, 2), f"job {row % 7}"])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``tacit`` in a folder with data.csv, test.csv, schema.toml and study.db (ε = 3, δ = 1e-5)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    write_rows("data.csv", 1500, 1)
    write_rows("test.csv", 1500, 2)
    for name, text in (("schema", SCHEMA), ("person", PERSON), ("text", WITH_TEXT), ("open", OPEN)):
        Path(f"{name}.toml").write_text(text, encoding="utf-8")
    Ledger.open("study.db", Budget(epsilon=3.0, delta=1e-5)).close()
    Ledger.open("person.db", Budget(epsilon=3.0, delta=1e-5), unit=Unit("person", 2)).close()

    return commands(monkeypatch, capsys)


def fit(run: Run, *more: str, **changed: str) -> Outcome:
    options = {
        "schema": "schema.toml", "target": "income", "model": "logistic", "epsilon": "1", "delta": "1e-6",
        "ledger": "study.db", "out": "model.tacit",
    } | changed  # fmt: skip
    data = options.pop("data", "data.csv")
    given = [word for name, value in options.items() for word in (f"--{name}", value)]
    excluded = ["--exclude", "wage"] if options["target"] == "income" else ["--exclude", "income"]
    return run("fit", data, *given, *excluded, *more)


def charges(ledger: str = "study.db") -> int:
    with Ledger.open(ledger) as book:
        return len(book.entries())


def unreadable(self: PrivateSource, expression: Any) -> Any:
    raise AssertionError("rows were read")


def test_from_a_file_to_a_report(run: Run) -> None:
    fitted = fit(run, "--test", "test.csv", "--test-epsilon", "0.5", "--groups-by", "sex").good()
    assert "(ε = 1, δ = 1e-06)-differentially private under add_remove of one row" in fitted.out
    assert "and ε = 0.5 for the test" in fitted.out
    assert "remaining: ε = 1.5" in fitted.out
    assert "sex=Female: accuracy" in fitted.out
    with Ledger.open("study.db") as ledger:
        labels = [entry.label for entry in ledger.entries()]
        assert labels == ["logistic model of income", "test of the logistic model of income"]
        assert ledger.entries()[1].noise == "exact"
        assert 1.49 < ledger.spent().epsilon <= 1.5

    predicted = run("predict", "model.tacit", "test.csv", "--out", "predictions.csv", "--proba").good()
    assert "Nothing was charged" in predicted.out
    assert "does not cover the people in these rows" in predicted.out
    with Path("predictions.csv").open(encoding="utf-8") as stream:
        predictions = list(csv.DictReader(stream))
    with Path("test.csv").open(encoding="utf-8") as stream:
        truth = [row["income"] for row in csv.DictReader(stream)]
    assert len(predictions) == len(truth) == 1500
    right = sum(row["income"] == label for row, label in zip(predictions, truth, strict=True))
    assert right > 1200
    assert all(abs(float(row["p(low)"]) + float(row["p(high)"]) - 1) < 1e-5 for row in predictions)
    assert charges() == 2

    shown = run("inspect", "model.tacit").good()
    assert "logistic regression of income" in shown.out
    assert "ε = 1, δ = 1e-06" in shown.out
    assert "by a factor of at most e^ε = 2.72" in shown.out
    assert "hours" in shown.out
    facts = json.loads(run("inspect", "model.tacit", "--format", "json").good().out)
    assert facts["guarantee"]["epsilon"] == 1.0
    assert {row["feature"] for row in facts["coefficients"]} == {"age", "hours", "sex=Female", "sex=Male"}
    found = facts["evaluations"][0]["figures"]["accuracy"]
    assert abs(found - right / 1500) < 0.18  # noise of scale 4 on 100 cells: beyond 5e-8 of the time
    assert 0.01 < facts["attack"]["0.01"] < 0.0272

    run("report", "model.tacit", "--out", "report.html", "--ledger", "study.db").good()
    page = Path("report.html").read_text(encoding="utf-8")
    assert "(ε = 1, δ = 1e-06)-differentially private" in page
    assert "By sex" in page
    assert "test of the logistic model of income" in page
    assert "<script" not in page
    assert "http" not in page
    assert run("report", "model.tacit", "--out", "report.html").code == 2  # not overwritten


def test_dry_run_reads_charges_and_writes_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivateSource, "run", unreadable)
    monkeypatch.setattr(PrivateSource, "blocks", unreadable)
    before = sorted(path.name for path in Path().iterdir())
    shown = fit(run, "--dry-run").good()
    assert "Nothing was charged, and no rows were read." in shown.out
    assert "noise" in shown.out
    assert "remaining" in shown.out
    assert charges() == 0
    assert sorted(path.name for path in Path().iterdir()) == before
    refused = fit(run, "--dry-run", epsilon="4")
    assert (refused.code, charges()) == (2, 0)
    assert "would not fit" in refused.err


def test_spent_budget_is_refused_before_the_rows_are_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(run, "--label", "first try", epsilon="2.5").good()
    monkeypatch.setattr(PrivateSource, "run", unreadable)
    monkeypatch.setattr(PrivateSource, "blocks", unreadable)
    again = fit(run, out="second.tacit")
    assert again.code == 2
    assert "remaining: ε = 0.5" in again.err
    assert "first try" in again.err
    assert "100.0%" in again.err
    assert charges() == 1
    assert not Path("second.tacit").exists()


def test_a_test_that_cannot_be_paid_is_refused_before_the_fit(run: Run) -> None:
    refused = fit(run, "--test", "test.csv", "--test-epsilon", "1", epsilon="2.5")
    assert (refused.code, charges()) == (2, 0)
    assert "and ε = 1 for the test" in refused.err


def test_other_people_have_a_budget_of_their_own(run: Run) -> None:
    Ledger.open("study.db", Budget(epsilon=0.4), dataset="others").close()
    tested = ("--test", "test.csv", "--test-dataset", "others", "--test-epsilon")
    refused = fit(run, *tested, "0.5", epsilon="3")
    assert (refused.code, charges()) == (2, 0)
    assert "ε = 0.5 for the test would not fit into the budget of 'others'" in refused.err
    shown = fit(run, *tested, "0.25", "--dry-run", epsilon="3").good()
    assert "others" in shown.out
    done = fit(run, *tested, "0.25", epsilon="3").good()
    assert "remaining: ε = 0.15 (study.db, others)" in done.out
    assert charges() == 1
    absent = fit(
        run, "--test", "test.csv", "--test-dataset", "nobody", "--test-epsilon", "0.1", out="b.tacit"
    )
    assert absent.code == 2
    assert "nobody" in absent.err


def test_the_charge_comes_before_the_rows(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    def count(self: PrivateSource, expression: Any) -> Any:
        counted.append(charges())
        return original(self, expression)

    original = PrivateSource.run
    monkeypatch.setattr(PrivateSource, "run", count)
    fit(run, "--test", "test.csv", "--test-epsilon", "0.5").good()
    assert counted == [1, 2]


def test_what_is_printed_does_not_depend_on_the_rows(run: Run) -> None:
    write_rows("other.csv", 7, 3)
    first = fit(run, ledger="study.db").good()
    Path("model.tacit").unlink()
    Path("study.db").unlink()
    Ledger.open("study.db", Budget(epsilon=3.0, delta=1e-5)).close()
    second = fit(run, data="other.csv").good()
    assert first.out == second.out


@pytest.mark.parametrize(
    ("words", "changed", "told"),
    [
        ((), {"target": "incme"}, "Did you mean 'income'?"),
        ((), {"model": "forest"}, "one of 'logistic', 'svc', 'linear', 'ridge'"),
        ((), {"target": "wage"}, "categories"),
        ((), {"model": "ridge"}, "a number with declared bounds"),
        ((), {"schema": "open.toml"}, "declared with categories"),
        ((), {"schema": "open.toml", "target": "wage", "model": "linear"}, "declared bounds"),
        ((), {"schema": "text.toml"}, "job"),
        ((), {"schema": "absent.toml"}, "absent.toml"),
        ((), {"data": "absent.csv"}, "absent.csv"),
        ((), {"data": "empty.csv"}, "no first line of column names"),
        ((), {"data": "narrow.csv"}, "no column 'hours'"),
        ((), {"ledger": "absent.db"}, "tacit ledger init"),
        ((), {"ledger": "person.db"}, "The ledger protects one person"),
        ((), {"out": "absent/model.tacit"}, "cannot be written"),
        ((), {"out": "data.csv"}, "exists"),
        ((), {"delta": "1e-3"}, "more than the ledger allows"),
        ((), {"epsilon": "0"}, "epsilon"),
        (("--noise", "nowhere"), {}, "noise"),
        (("--transform", "hours"), {}, "capital_gain=log1p"),
        (("--transform", "hors=log1p"), {}, "hours"),
        (("--transform", "hours=exp"), {}, "log1p"),
        (("--exclude", "hors"), {}, "hours"),
        (("--test", "test.csv"), {}, "--test-epsilon"),
        (("--test", "test.csv", "--test-epsilon", "1", "--test-public"), {}, "--test-public"),
        (("--test-epsilon", "1"), {}, "--test"),
        (("--test", "test.csv", "--test-public", "--test-dataset", "others"), {}, "--test-dataset"),
        (("--test", "narrow.csv", "--test-public"), {}, "no column"),
        (("--test", "test.csv", "--test-public", "--groups-by", "age"), {}, "declared categories"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_anything_is_charged(
    run: Run, words: tuple[str, ...], changed: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrivateSource, "run", unreadable)
    monkeypatch.setattr(PrivateSource, "blocks", unreadable)
    Path("empty.csv").touch()
    Path("narrow.csv").write_text("age,sex,income\n20,Male,low\n", encoding="utf-8")
    before = Path("data.csv").read_bytes()
    outcome = fit(run, *words, **changed)
    assert outcome.code == 2
    assert outcome.err.startswith("tacit: ")
    assert told in outcome.err
    assert outcome.err.count("\n") == 1
    assert charges() == charges("person.db") == 0
    assert not Path("model.tacit").exists()
    assert Path("data.csv").read_bytes() == before


@pytest.mark.parametrize("model", ["linear", "ridge"])
def test_regression_and_a_public_test(run: Run, model: str) -> None:
    fitted = fit(run, "--test", "test.csv", "--test-public", "--seed", "1", target="wage", model=model).good()
    assert "public rows, free" in fitted.out
    assert charges() == 1
    assert evaluations_of(load("model.tacit"))[0].figures["r2"] > 0.5
    run("predict", "model.tacit", "test.csv", "--out", "wages.csv").good()
    values = np.loadtxt("wages.csv", skiprows=1)
    assert len(values) == 1500
    assert run("predict", "model.tacit", "test.csv", "--proba").code == 2
    page = run("report", "model.tacit", "--out", "report.html").good()
    assert "Report written" in page.out


def test_boosting_takes_its_task_from_the_target(run: Run) -> None:
    boosted, test = {"model": "gradient-boosting", "epsilon": "1.4"}, ("--test", "test.csv", "--test-public")
    fit(run, *test, **boosted).good()
    assert load("model.tacit")[-1].task == "classification"
    measured = fit(run, *test, **boosted, target="wage", out="wage.tacit")
    assert "r2" in measured.good().out
    run("report", "model.tacit", "--out", "page.html").good()
    assert "What each column adds" in Path("page.html").read_text(encoding="utf-8")


def test_a_group_is_protected_with_its_rows(run: Run) -> None:
    fitted = fit(
        run, "--test", "test.csv", "--test-epsilon", "0.5", schema="person.toml", ledger="person.db"
    ).good()
    assert "add_remove of one person (at most 2 rows)" in fitted.out
    model = load("model.tacit")
    assert model.steps[-1][1].guarantee_.unit == Unit("person", 2)
    assert evaluations_of(model)[0].guarantee.unit == Unit("person", 2)
    assert "one person (at most 2 rows)" in run("inspect", "model.tacit").good().out
    lines = ["age,hours,sex", "30,40,Male"]  # neither target nor person
    Path("new.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert run("predict", "model.tacit", "new.csv").good().out.splitlines()[0] == "income"


def test_no_rows_and_few_rows_are_ordinary(run: Run) -> None:
    header = Path("data.csv").read_text(encoding="utf-8").splitlines()[0]
    Path("none.csv").write_text(header + "\n", encoding="utf-8")
    fit(run, "--test", "none.csv", "--test-epsilon", "0.5", data="none.csv").good()
    assert run("predict", "model.tacit", "none.csv").good().out == "income\n"
    run("report", "model.tacit", "--out", "report.html").good()


def test_a_seed_repeats_and_says_so(run: Run) -> None:
    first = fit(run, "--seed", "5").good()
    fit(run, "--seed", "5", "--overwrite", out="again.tacit").good()
    assert "SEEDED" in first.out
    one, two = (load(name).steps[-1][1].coef_ for name in ("model.tacit", "again.tacit"))
    np.testing.assert_array_equal(one, two)
    assert "SEEDED" in run("inspect", "model.tacit").good().out
    with Ledger.open("study.db") as ledger:
        assert [entry.noise for entry in ledger.entries()] == ["seeded", "seeded"]


def test_svc_with_pure_noise_and_without_words(run: Run) -> None:
    outcome = fit(run, "-q", model="svc", delta="0").good()
    assert (outcome.out, outcome.err) == ("", "")
    assert load("model.tacit").steps[-1][1].guarantee_.delta == 0
    assert run("predict", "model.tacit", "test.csv", "--proba").code == 2
    run("report", "model.tacit", "--out", "report.html").good()
    page = Path("report.html").read_text(encoding="utf-8")
    assert "Measured: nothing" in page


def test_intervals_and_the_number_of_rows_are_bought_with_a_part_of_epsilon(run: Run) -> None:
    shown = fit(run, "--interval-share", "0.2", epsilon="2").good()
    assert "intervals    ε = 0.4" in shown.out
    facts = json.loads(run("inspect", "model.tacit", "--format", "json").good().out)
    assert all(row["low"] < row["value"] < row["high"] for row in facts["coefficients"])
    lacking = fit(run, "--noise", "gradient", out="other.tacit")
    assert lacking.code == 2
    assert "--buy-population" in lacking.err
    bought = fit(run, "--noise", "gradient", "--buy-population", out="other.tacit", epsilon="0.9").good()
    assert "population   ε = " in bought.out
    refused = fit(
        run, "--interval-share", "0.2", model="ridge", target="wage", out="third.tacit", epsilon="0.1"
    )
    assert refused.code == 2
    assert "interval_share" in refused.err


def test_an_altered_model_is_refused(run: Run) -> None:
    fit(run).good()
    content = bytearray(Path("model.tacit").read_bytes())
    content[len(content) // 2] ^= 1
    Path("bad.tacit").write_bytes(bytes(content))
    for words in (("inspect",), ("predict", "test.csv"), ("report", "--out", "r.html")):
        outcome = run(words[0], "bad.tacit", *words[1:])
        assert outcome.code == 2
        assert "altered" in outcome.err
    assert not Path("r.html").exists()


def test_what_was_paid_for_is_kept_somewhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import tacit
    from tacit.errors import TacitError

    original = tacit.save

    def full(model: Any, path: Any, **options: Any) -> None:
        if Path(path).name == Path(path).as_posix():
            raise TacitError(f"{path} cannot be written: no space left.")
        original(model, path, **options)

    monkeypatch.setattr(tacit, "save", full)
    outcome = fit(run)
    assert outcome.code == 2
    place = outcome.err.split("The model was written to ")[1].split(" instead")[0]
    assert load(place).steps[-1][1].guarantee_.epsilon == 1


def test_models_are_compared_in_one_report(run: Run) -> None:
    for epsilon in ("0.5", "1"):
        fit(
            run, "--test", "test.csv", "--test-epsilon", "0.3", epsilon=epsilon, out=f"m{epsilon}.tacit"
        ).good()
    run("report", "m1.tacit", "--out", "report.html", "--compare", "m0.5.tacit").good()
    page = Path("report.html").read_text(encoding="utf-8")
    assert "Each point is a model of its own" in page
    assert "m0.5.tacit" in page


class TestShare:
    """Rows of the same file that are set aside by hash, and measured on."""

    def test_both_parts_are_charged_and_disjoint(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        read: list[Any] = []
        original = PrivateSource.run

        def noted(self: PrivateSource, expression: Any) -> Any:
            with Ledger.open("study.db") as book:
                charged = len(book.entries())
            frame = original(self, expression)
            read.append((charged, len(frame)))
            return frame

        monkeypatch.setattr(PrivateSource, "run", noted)
        fitted = fit(run, "--test-share", "0.2", "--test-epsilon", "0.5").good()
        assert "accuracy" in fitted.out
        (first, rest), (second, aside) = read
        assert (first, second) == (1, 2)
        assert rest + aside == 1500
        assert 220 < aside < 380
        with Ledger.open("study.db") as book:
            assert [entry.label for entry in book.entries()][1].endswith("on a share of 0.2 set aside")
        (found,) = evaluations_of(load("model.tacit"))
        assert found.guarantee.epsilon == 0.5
        assert any("keyed hash" in each for each in load("model.tacit").steps[-1][1].guarantee_.assumptions)

    def test_a_person_is_on_one_side(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        read: list[set[Any]] = []
        original = PrivateSource.run

        def noted(self: PrivateSource, expression: Any) -> Any:
            frame = original(self, expression)
            read.append(set(frame["__unit__"]))
            return frame

        monkeypatch.setattr(PrivateSource, "run", noted)
        asked = ("--test-share", "0.3", "--test-epsilon", "0.5")
        fit(run, *asked, schema="person.toml", ledger="person.db").good()
        assert len(read) == 2
        assert not read[0] & read[1]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--test-share", "0.2"), "--test-epsilon"),
            (("--test-share", "1.2", "--test-epsilon", "0.5"), "above 0 and below 1"),
            (("--test-share", "0.2", "--test-epsilon", "0.5", "--test", "test.csv"), "--test"),
            (("--test-share", "0.2", "--test-epsilon", "0.5", "--test-public"), "--test-public"),
            (("--test-share", "0.2", "--test-epsilon", "0.5", "--test-dataset", "others"), "--test-dataset"),
            (("--test-share", "0.2", "--test-epsilon", "2.5"), "would not fit"),
        ],
    )
    def test_refused_before_anything_is_charged(self, run: Run, options: Any, said: str) -> None:
        refused = fit(run, *options)
        assert refused.code != 0
        assert said in refused.err
        with Ledger.open("study.db") as book:
            assert not book.entries()

    def test_a_replaced_row_could_change_sides(self, run: Run) -> None:
        Ledger.open("swap.db", Budget(3.0, 1e-5), relation="replace_one").close()
        refused = fit(run, "--test-share", "0.2", "--test-epsilon", "0.5", ledger="swap.db")
        assert "change sides" in refused.err


class TestOutlook:
    def test_a_dry_run_says_what_to_expect(self, run: Run) -> None:
        Path("few.toml").write_text("population = 10\n" + SCHEMA, encoding="utf-8")
        Path("many.toml").write_text("population = 1500\n" + SCHEMA, encoding="utf-8")
        assert "rows or more to learn from" in fit(run, "--dry-run").good().out
        many = fit(run, "--dry-run", schema="many.toml").good()
        assert "mean loss expected at most" in many.out
        assert "cannot be expected" not in many.err
        few = fit(run, "--dry-run", schema="few.toml").good()
        assert "cannot be expected to learn anything" in few.err

    def test_a_fit_warns_before_it_charges(self, run: Run) -> None:
        Path("few.toml").write_text("population = 10\n" + SCHEMA, encoding="utf-8")
        warned = fit(run, schema="few.toml").good()
        assert warned.err.count("cannot be expected to learn anything") == 1
