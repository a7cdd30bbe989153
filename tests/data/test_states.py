"""How far stored values are what is declared: exactly for the curator, with noise for everybody else."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from commands import Run, commands
from engines import Maker
from tacit import Budget, Column, Dialect, Ledger, Schema, Unit, jobs, tables
from tacit.data.source import connect
from tacit.data.states import counted

COLUMNS = {
    "age": Column("integer", bounds=(0, 120), missing=40),
    "sex": Column("category", categories=("F", "M"), other="rest", missing="F"),
    "code": Column("category", categories=(1, 2)),
    "smokes": Column("boolean", missing=False),
    "seen": Column("date", bounds=("2020-01-01", "2020-12-31")),
    "pay": Column("number"),
    "note": Column("text"),
}
SCHEMA = Schema(COLUMNS)
LINES = [
    ["41", "F", "1", "yes", "2020-05-05", "1.5", "a"],
    ["120.9", " M ", "2.0", "N", "2020-12-31 10:00", "inf", "b"],
    ["121", "X", "3", "1", "2021-01-01", "-1e400", "NA"],
    ["-0.5", "f", "-1", "0", "2019-12-31", "0", "c"],
    ["", " ", "", "", "", "", ""],
    ["NA", "NA", "1.5", "maybe", "2020-02-30", "1,5", "?"],
]
EXPECTED = [[2, 1, 2, 1], [2, 1, 3, 0], [2, 1, 2, 1], [4, 1, 0, 1], [2, 1, 2, 1], [4, 1, 0, 1], [5, 1, 0, 0]]
"""Of each column, how many are fine, missing, outside, not of the type."""


def csv(folder: Path) -> Path:
    path = folder / "rows.csv"
    path.write_text("\n".join(";".join(line) for line in [list(COLUMNS), *LINES]) + "\n")
    return path


def exact(source: Any, schema: Schema = SCHEMA) -> list[list[int]]:
    opened = connect(source, schema)
    found = counted(opened, list(schema)).tolist()
    opened.close()
    return found


def test_a_file_and_objects_in_a_frame_are_counted_alike(tmp_path: Path) -> None:
    schema = Schema(COLUMNS, csv=Dialect(";"))
    assert exact(csv(tmp_path), schema) == EXPECTED
    objects = pd.DataFrame(LINES, columns=list(COLUMNS), dtype=object)
    assert exact(objects, schema) == EXPECTED
    odd = [None, np.nan, pd.NA, pd.NaT, object(), b"1", [1], 7.0]
    frame = pd.DataFrame({"x": pd.Series(odd, dtype=object)})
    assert exact(frame, Schema({"x": Column("integer", bounds=(0, 5))})) == [[0, 4, 1, 3]]


def test_stored_types_on_every_engine(backends: Maker) -> None:
    day = datetime.date(2020, 1, 2)
    table = pa.table(
        {
            "age": pa.array([5, 121, None, -1], pa.int64()),
            "pay": pa.array([0.5, float("nan"), None, float("inf")], pa.float64(), from_pandas=False),
            "sex": ["F", " M", "x", None],
            "seen": pa.array([day, datetime.date(1999, 1, 1), None, day]),
            "smokes": [True, None, False, None],
            "code": pa.array([1, 2, 3, None], pa.int8()),
        }
    )
    schema = Schema({name: COLUMNS[name] for name in table.column_names})
    expected = [[1, 1, 2, 0], [2, 2, 0, 0], [2, 1, 1, 0], [2, 1, 1, 0], [2, 2, 0, 0], [2, 1, 1, 0]]
    assert exact(backends(table), schema) == expected


@pytest.mark.parametrize("unit", [Unit(), Unit("who", 2)])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_private_twin_is_near_the_truth_and_pays_once(tmp_path: Path, unit: Unit, delta: float) -> None:
    frame = pd.DataFrame(LINES * 50, columns=list(COLUMNS), dtype=object)
    frame["who"] = [f"p{i // 3}" for i in range(len(frame))]
    truth = np.array(EXPECTED)[:, 1:] / len(LINES)
    with Ledger.open(tmp_path / "study.db", Budget(1e6, 1e-3), unit=unit) as ledger:  # noqa: SIM117
        with tables.open(frame, schema=SCHEMA, ledger=ledger, unit=unit, random_state=1) as table:
            release = table.check(epsilon=1e4, delta=delta)
            near = release.value
            assert near.to_numpy() == pytest.approx(truth, abs=0.01)
            assert (list(near.index), list(near.columns)) == (
                list(COLUMNS), ["missing", "outside", "not of the type"])  # fmt: skip
            assert len(ledger.entries()) == 1
            few = table.check(["age", "sex"], epsilon=0.5, where="smokes is not None")
            assert list(few.value.index) == ["age", "sex"]
            low, high = few.interval()
            assert ((low <= few.value) & (few.value <= high)).all(axis=None)
            assert few.value.at["sex", "not of the type"] >= 0


def test_intervals_hold_at_least_as_often_as_they_say(tmp_path: Path) -> None:
    """ε = 0.5 on 300 rows; 40 answers with 9 shares each. Fewer than 92 % would be a fault."""
    frame = pd.DataFrame(LINES * 50, columns=list(COLUMNS), dtype=object)[["age", "sex", "code"]]
    schema = Schema({name: COLUMNS[name] for name in frame.columns})
    truth = np.array(EXPECTED)[:3, 1:] / len(LINES)
    with Ledger.open(tmp_path / "study.db", Budget(1e6)) as ledger:
        table = tables.open(frame, schema=schema, ledger=ledger, random_state=3)
        with table, table.batch(epsilon=0.5 * 40) as batch:
            asked = [batch.check() for _ in range(40)]
        inside = []
        for release in asked:
            low, high = (ends.to_numpy() for ends in release.interval())
            inside.append((low <= truth + 1e-9) & (truth - 1e-9 <= high))
    assert np.mean(inside) >= 0.94


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    Schema(COLUMNS, csv=Dialect(";"), unit=Unit("who", 2)).save("schema.toml")
    lines = [";".join([*line, f"p{i % 7}" if i else ""]) for i, line in enumerate(LINES * 20)]
    text = ";".join([*COLUMNS, "who"]) + "\n" + "\n".join(lines)
    Path("rows.csv").write_bytes(text.encode() + b"\n41;F\n1;\xe4;1;yes;2020-05-05;1;x;p1\n")
    Ledger.open("study.db", Budget(1.0), unit=Unit("who", 2)).close()
    return commands(monkeypatch, capsys)


CHECK = ("schema", "check", "schema.toml", "--source", "rows.csv")


def test_the_curator_sees_exact_counts_marked_as_such(run: Run) -> None:
    shown = run(*CHECK, "--curator").good().out
    assert shown.count("NOT PRIVATE") == 2
    assert "Do not publish them" in shown
    rows = {line.split("│")[1].strip(): line for line in shown.splitlines() if line.startswith("│")}
    assert rows["age"].split("│")[2:5] == [" 20 (16.7%) ", " 40 (33.3%) ", " 20 (16.7%)      "]
    assert "1 (0.8%)" in rows["who"]
    assert "not text in the declared encoding: 1 line" in shown
    assert "fewer values than there are names: 1 line" in shown
    with Ledger.open("study.db") as ledger:
        assert not ledger.entries()
    assert sorted(path.name for path in Path().iterdir()) == ["rows.csv", "schema.toml", "study.db"]
    found = jobs.curator_check("rows.csv", "schema.toml")
    assert found.columns["sex"] == (20, 60, 0)


def test_everybody_else_buys_the_shares(run: Run) -> None:
    shown = run(*CHECK, "--ledger", "study.db", "--epsilon", "0.5").good().out
    assert "NOT PRIVATE" not in shown
    assert "95 % intervals" in shown
    assert "Charged now: ε = 0.5" in shown
    with Ledger.open("study.db") as ledger:
        assert [entry.label for entry in ledger.entries()] == ["check()"]
    assert run(*CHECK, "--ledger", "study.db", "--epsilon", "5").code == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--curator", "--ledger", "study.db", "--epsilon", "1"), "left out where a ledger pays"),
        (("--ledger", "study.db"), "epsilon must be given with --ledger"),
        (("--epsilon", "1"), "epsilon must be given with --ledger"),
    ],
)
def test_options_that_do_not_go_together(run: Run, options: tuple[str, ...], told: str) -> None:
    shown = run(*CHECK, *options)
    assert shown.code == 2
    assert told in shown.err
    assert run("schema", "check", "schema.toml", "--curator").code == 2
