"""``tacit compare``: models at several ε on public rows."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import commands
from tacit import jobs
from tacit.errors import TacitError

run = pytest.fixture(commands)

SCHEMA = """
[columns.x]
type = "number"
bounds = [-3, 3]
[columns.group]
type = "category"
categories = ["a", "b"]
[columns.y]
type = "category"
categories = ["no", "yes"]
[columns.z]
type = "number"
bounds = [-4, 4]
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of 600 rows; y is harder to tell in group b."""
    folder = tmp_path_factory.mktemp("compare")
    generator = np.random.default_rng(1)
    (folder / "schema.toml").write_text(SCHEMA)
    for name in ("train", "test"):
        x = generator.normal(size=600)
        group = np.where(generator.random(600) < 0.3, "b", "a")
        noise = generator.normal(size=600) * np.where(group == "b", 2.0, 0.2)
        y = np.where(x + noise > 0, "yes", "no")
        frame = pd.DataFrame({"x": x, "group": group, "y": y, "z": x + noise / 9})
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder


def test_one_page_with_utility_attacks_and_gaps(study: Path, run: Any) -> None:
    outcome = run(
        "compare", str(study / "train.csv"), str(study / "test.csv"), "--schema", str(study / "schema.toml"),
        "--target", "y", "--model", "logistic", "--model", "naive-bayes", "--epsilon", "0.1,8",
        "--seeds", "2", "--groups-by", "group", "--public", "--out", str(study / "page.html"),
        "--format", "json",
    )  # fmt: skip
    told = outcome.json
    assert told["figure"] == "auroc"
    rows = {(row["model"], row["epsilon"]): row for row in told["rows"]}
    assert ("naive-bayes", "inf") in rows
    strong, weak = rows["naive-bayes", 0.1], rows["naive-bayes", 8.0]
    assert weak["utility"] > 0.8
    assert strong["fits"] == 2
    assert 0.01 <= strong["allowed"] <= 0.012 < weak["allowed"]
    assert weak["gaps"]["group"] > 0.1
    page = (study / "page.html").read_text()
    assert "public: all figures are exact" in page
    assert "Groups of group" in page
    assert page.count("<svg") == 6


def test_regression_and_the_table(study: Path, run: Any) -> None:
    outcome = run(
        "compare", str(study / "train.csv"), str(study / "test.csv"), "--schema", str(study / "schema.toml"),
        "--target", "z", "--model", "linear", "--epsilon", "1", "--seeds", "1", "--public",
    )  # fmt: skip
    assert "r2" in outcome.good().out
    assert "most allowed" in outcome.out


def test_a_target_that_is_missing_is_not_attacked(study: Path, run: Any) -> None:
    rows = pd.read_csv(study / "train.csv")
    rows.loc[[0, 5], "z"] = math.nan
    rows.to_csv(study / "holes.csv", index=False)
    outcome = run(
        "compare", str(study / "holes.csv"), str(study / "test.csv"), "--schema", str(study / "schema.toml"),
        "--target", "z", "--model", "linear", "--epsilon", "1", "--seeds", "1", "--public",
    )  # fmt: skip
    assert "r2" in outcome.good().out


def test_private_rows_are_refused(study: Path, run: Any) -> None:
    words = ["compare", str(study / "train.csv"), str(study / "test.csv"), "--schema",
             str(study / "schema.toml"), "--target", "y", "--model", "logistic"]  # fmt: skip
    refused = run(*words, "--epsilon", "1")
    assert refused.code == 2
    assert "public" in refused.err
    assert "numbers" in run(*words, "--epsilon", "much", "--public").err
    words[2] = words[1]
    assert "other rows" in run(*words, "--epsilon", "1", "--public").err
    with pytest.raises(TacitError):
        jobs.compare(study / "absent.csv", study / "test.csv", schema=study / "schema.toml", target="y",
                     models=["logistic"], epsilons=[1.0], public=True)  # fmt: skip


def test_summary_of_one_fit_has_no_deviation() -> None:
    fit = jobs.Measured("logistic", math.inf, 0, 0.9, 0.5, 0.01, 1.0)
    (row,) = jobs.Compared("auroc", (fit,), 0.0, None).summary()
    assert row["deviation"] is None
    assert json.dumps(row["gaps"]) == "{}"
