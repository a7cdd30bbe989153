"""``tacit attack`` and ``tacit audit``, as a curator would run them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tacit
from commands import commands
from tacit import datasets, jobs

run_command = pytest.fixture(commands)


@pytest.fixture
def run(run_command: Any) -> Any:
    """Runs a command that must end with ``code``, and returns all that it printed."""

    def told(*words: Any, code: int = 0) -> str:
        outcome = run_command(*map(str, words))
        assert outcome.code == code, outcome.err
        return outcome.out + outcome.err

    return told


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private model of 400 rows of Adult, those rows, and 400 others."""
    folder = tmp_path_factory.mktemp("attack")
    files = datasets.adult()
    rows = pd.read_csv(files.train, nrows=800)
    rows[:400].to_csv(folder / "in.csv", index=False)
    rows[400:].to_csv(folder / "out.csv", index=False)
    budget = tacit.Budget(epsilon=9.0)
    with tacit.Ledger.open(folder / "study.db", budget=budget) as ledger:
        jobs.fit(folder / "in.csv", schema=files.schema, target="income", model="logistic", epsilon=1.0,
                 ledger=ledger, out=folder / "income.tacit")  # fmt: skip
    return folder


def test_a_page_for_the_privacy_officer(study: Path, run: Any) -> None:
    out = study / "attack.html"
    told = run("attack", study / "income.tacit", "--members", study / "in.csv", "--others", study / "out.csv",
               "--out", out)  # fmt: skip
    assert "the AUROC is 0." in " ".join(told.split())
    assert "most allowed by ε" in told
    page = out.read_text()
    assert "for the curator alone" in page
    assert "400 rows that the model was fitted to" in page
    again = run("attack", study / "income.tacit", "--members", study / "in.csv", "--others",
                study / "out.csv", "--out", out, code=2)  # fmt: skip
    assert "overwrite" in again


def test_numbers_for_a_program(study: Path, run: Any) -> None:
    told = json.loads(run("attack", study / "income.tacit", "--members", study / "in.csv", "--others",
                          study / "out.csv", "--format", "json"))  # fmt: skip
    assert 0 <= told["auroc"] <= 1
    assert [each["allowed"] for each in told["found"]] == [0.001, 0.01, 0.1]
    assert all(each["allowed_by_guarantee"] >= each["allowed"] for each in told["found"])


@pytest.mark.parametrize("labelled", [True, False])
def test_saved_predictions_of_any_model(tmp_path: Path, run: Any, labelled: bool) -> None:
    generator = np.random.default_rng(1)
    for name, sure in (("in", 0.95), ("out", 0.6)):
        rows = ["yes,no,label" if labelled else "yes,no"]
        for chance in np.clip(generator.normal(sure, 0.1, 200), 0.01, 0.99):
            rows.append(f"{chance:.4f},{1 - chance:.4f}" + (",yes" if labelled else ""))
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n")
    told = json.loads(run("attack", "--members", tmp_path / "in.csv", "--others", tmp_path / "out.csv",
                          "--format", "json"))  # fmt: skip
    assert told["auroc"] > 0.9
    assert told["found"][0]["allowed_by_guarantee"] is None


def test_files_that_hold_no_predictions(tmp_path: Path, run: Any) -> None:
    (tmp_path / "words.csv").write_text("yes,no\nhigh,low\n")
    (tmp_path / "empty.csv").write_text("yes,no\n")
    (tmp_path / "odd.csv").write_text("yes,no,label\n0.5,0.5,perhaps\n")
    expected = {"words": "numbers", "empty": "no row", "odd": "columns", "absent": "cannot be read"}
    for name, word in expected.items():
        file = tmp_path / f"{name}.csv"
        assert word in run("attack", "--members", file, "--others", file, code=2)
    nothing, good = tmp_path / "nothing.csv", tmp_path / "empty.csv"
    nothing.touch()
    for sides in ((nothing, good), (good, nothing)):
        assert f"{nothing} is empty" in run("attack", "--members", sides[0], "--others", sides[1], code=2)


def written(path: Path, header: str, rows: Any) -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_columns_that_are_no_classes_are_refused(tmp_path: Path, run: Any) -> None:
    """An attack that took an identifier, or logits, for probabilities would find nothing."""
    generator = np.random.default_rng(5)
    kinds = {
        "number,yes,no": ("adds up to 1", lambda p: (0.5, p, 1 - p)),
        "id,yes,no": ("[0, 1]", lambda p: (int(1e6 * p), p, 1 - p)),
        "yes,no": ("[0, 1]", lambda p: (np.log(p) + 3, np.log(1 - p))),
        "confidence": ("two classes", lambda p: (p,)),
    }
    for header, (word, row) in kinds.items():
        files = [
            written(tmp_path / f"{name}.csv", header, [row(p) for p in generator.uniform(low, 0.99, 50)])
            for name, low in (("in", 0.9), ("out", 0.1))
        ]
        assert word in run("attack", "--members", files[0], "--others", files[1], code=2), header


def test_files_that_do_not_go_together_are_refused(tmp_path: Path, run: Any) -> None:
    rows = [(0.9, 0.1, "yes"), (0.4, 0.6, "no")]
    labelled = written(tmp_path / "a.csv", "yes,no,label", rows)
    bare = written(tmp_path / "b.csv", "yes,no", [row[:2] for row in rows])
    same = written(tmp_path / "c.csv", "yes,no,label", rows[::-1])
    ragged = written(tmp_path / "d.csv", "yes,no,label", [*rows, (0.9, 0.1, "yes", 7)])
    latin = tmp_path / "e.csv"
    latin.write_bytes("yes,no,label\n0.9,0.1,\xe9\n".encode("latin-1"))
    expected = {bare: "columns of --members", same: "other rows", ragged: "shape", latin: "UTF-8"}
    for other, word in expected.items():
        told = " ".join(run("attack", "--members", labelled, "--others", other, code=2).split())
        assert word in told


def test_predictions_without_probabilities(tmp_path: Path, run: Any) -> None:
    """Squared errors of numbers, agreement of words; another delimiter and a mark of byte order are read."""
    generator = np.random.default_rng(6)
    expected = {"numbers": "the squared error", "words": "whether the prediction is right"}
    for kind in expected:
        for name, error in (("in", 0.1), ("out", 1.0)):
            truth = generator.normal(size=200)
            told = truth + error * generator.normal(size=200)
            if kind == "words":
                truth, told = (np.where(each > 0, "yes", "no") for each in (truth, told))
            lines = [f"{a};{b}" for a, b in zip(told, truth, strict=True)]
            (tmp_path / f"{name}.csv").write_text("\ufeffprediction;label\n" + "\n".join(lines))
        found = json.loads(run("attack", "--members", tmp_path / "in.csv", "--others", tmp_path / "out.csv",
                               "--delimiter", ";", "--format", "json"))  # fmt: skip
        assert found["auroc"] > 0.55
        assert found["signal"] == expected[kind]


def test_members_in_both_files(study: Path, run: Any, tmp_path: Path) -> None:
    """The same rows in another order are refused; some rows in both files are counted."""
    rows = pd.read_csv(study / "in.csv")
    rows[::-1].to_csv(tmp_path / "again.csv", index=False)
    rows[:300].to_csv(tmp_path / "some.csv", index=False)
    model = study / "income.tacit"
    told = run("attack", model, "--members", study / "in.csv", "--others", tmp_path / "again.csv", code=2)
    assert "--others" in told
    found = json.loads(run("attack", model, "--members", study / "in.csv", "--others", tmp_path / "some.csv",
                           "--format", "json"))  # fmt: skip
    assert found["shared"] == 300


def test_an_audit_of_scores(tmp_path: Path, run: Any) -> None:
    generator = np.random.default_rng(2)
    np.save(tmp_path / "in.npy", generator.normal(3, 1, 2000))
    (tmp_path / "out.csv").write_text("score\n" + "".join(f"{x}\n" for x in generator.normal(0, 1, 2000)))
    words = ["audit", "scores", tmp_path / "in.npy", tmp_path / "out.csv", "--method", "clopper_pearson"]
    told = run(*words, "--threshold", "split", "--claimed", "1", code=3)
    assert "is refuted" in told
    found = json.loads(run(*words, "--threshold", "1,1.5,2", "--claimed", "5", "--format", "json"))
    assert found["hypotheses"] == 3
    assert "consistent" in found["verdict"]
    assert "cannot judge" in run(*words, "--threshold", "1,1.5,2", "--claimed", "50")
    assert "Missing option" in run(*words, code=2)
    assert "split" in run(*words, "--threshold", "best", code=2)
    (tmp_path / "empty.csv").write_text("score\n")
    np.save(tmp_path / "alone.npy", 1.0)
    for name in ("empty.csv", "alone.npy"):
        run("audit", "scores", tmp_path / name, tmp_path / "out.csv", "--method", "gaussian",
            "--threshold", "split", "--delta", "1e-5", code=2)  # fmt: skip


def test_an_audit_of_canaries(tmp_path: Path, run: Any) -> None:
    generator = np.random.default_rng(3)
    included = generator.random(1000) < 0.5
    scores = generator.normal(size=1000) + 3 * included
    lines = "".join(f"{score},{int(coin)}\n" for score, coin in zip(scores, included, strict=True))
    (tmp_path / "canaries.csv").write_text("score,included\n" + lines)
    words = ["audit", "canaries", tmp_path / "canaries.csv", "--highest", "200", "--lowest", "200"]
    assert "refuted" in run(*words, "--method", "one_run", "--claimed", "1", code=3)
    assert json.loads(run(*words, "--method", "one_run_fdp", "--format", "json"))["epsilon"] > 3
    (tmp_path / "bad.csv").write_text("1.0,2\n")
    assert "1 for a canary" in run("audit", "canaries", tmp_path / "bad.csv", "--highest", "1",
                                   "--lowest", "0", "--method", "one_run", code=2)  # fmt: skip


def test_an_audit_stands_on_the_page_of_a_model(study: Path, tmp_path: Path, run: Any) -> None:
    generator = np.random.default_rng(4)
    for name, middle in (("in", 3), ("out", 0)):
        np.save(tmp_path / f"{name}.npy", generator.normal(middle, 1, 1000))
    words = ["audit", "scores", tmp_path / "in.npy", tmp_path / "out.npy", "--method", "clopper_pearson",
             "--threshold", "1.5", "--format", "json", "--relation"]  # fmt: skip
    for relation, said in (("add_remove", "the claim of ε = 1 is refuted"), ("replace_one", "with no claim")):
        (tmp_path / "audit.json").write_text(run(*words, relation, "--unit", "row"))
        out = tmp_path / f"{relation}.html"
        run("report", study / "income.tacit", "--audit", tmp_path / "audit.json", "--out", out)
        assert said in out.read_text()
    assert "add_remove" in run(*words, "both", code=2)
    (tmp_path / "odd.json").write_text("[1]")
    (tmp_path / "short.json").write_text('{"epsilon": 1}')
    for file in ("odd.json", "short.json"):
        words = ["report", study / "income.tacit", "--audit", tmp_path / file]
        assert "audit" in run(*words, "--out", tmp_path / "other.html", code=2)
