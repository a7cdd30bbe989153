"""Clusters and components on the command line: no target, centres in the units of the table, no test."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit import Budget, Ledger
from tacit.errors import InvalidValue
from tacit.jobs import fit, predict, report

SCHEMA = """
[columns.age]
type = "integer"
bounds = [0, 100]
[columns.sex]
type = "category"
categories = ["F", "M"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("clusters")
    random = np.random.default_rng(1)
    kind = random.integers(0, 2, size=3000)
    ages = (np.array([20, 80])[kind] + random.normal(size=3000)).round().astype(int)
    with open(place / "people.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "sex"])
        writer.writerows(zip(ages, np.array(["F", "M"])[kind], strict=True))
    (place / "people.toml").write_text(SCHEMA)
    Ledger.open(place / "ledger.db", Budget(10.0, delta=1e-5)).close()
    return place


def fitted(folder: Path, model: str, **options: object) -> Path:
    out = folder / f"{model}.tacit"
    fit(
        folder / "people.csv", schema=folder / "people.toml", model=model, epsilon=1.0, delta=1e-6,
        ledger=folder / "ledger.db", out=out, overwrite=True, random_state=1, **options,
    )  # type: ignore[arg-type]  # fmt: skip
    return out


def test_clusters_from_a_file(folder: Path) -> None:
    from tacit import load
    from tacit.models import description_of

    out = fitted(folder, "kmeans", n_clusters=2)
    described = description_of(load(out))
    assert described.profiles is not None
    ages = dict(described.profiles.rows)["age"]
    assert sorted(round(float(age), -1) for age in ages) == [20, 80]
    found = predict(out, folder / "people.csv")
    assert found.target == "cluster"
    assert set(found.values) == {0, 1}
    report(out, out=folder / "clusters.html", overwrite=True)
    page = (folder / "clusters.html").read_text(encoding="utf-8")
    assert "Centres" in page
    assert "no target to measure it by" in page


def test_components_from_a_file(folder: Path) -> None:
    from tacit.cli import app

    out = fitted(folder, "pca", n_components=2)
    told = CliRunner().invoke(app, ["predict", str(out), str(folder / "people.csv")])
    assert told.exit_code == 0
    lines = told.stdout.splitlines()
    assert lines[0] == "component 0,component 1"
    assert len(lines) == 3001
    shown = CliRunner().invoke(app, ["inspect", str(out)])
    assert "component 1" in shown.stdout


def test_what_does_not_fit_together_is_refused(folder: Path) -> None:
    for options in (
        {"model": "kmeans", "target": "sex"}, {"model": "logistic"}, {"model": "pca", "n_clusters": 2},
        {"model": "logistic", "target": "sex", "n_components": 2},
        {"model": "pca", "test_share": 0.2, "test_epsilon": 0.1},
    ):  # fmt: skip
        with pytest.raises(InvalidValue):
            fitted(folder, **options)  # type: ignore[arg-type]
