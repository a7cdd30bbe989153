"""Private rows for estimators: parsed by the schema, the unit beside them, nothing else read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tacit import Column, Schema, Unit
from tacit.data.preprocessor import Preprocessor
from tacit.data.reading import UNIT, prepare, private_rows
from tacit.data.source import PrivateSource
from tacit.errors import SourceMissing

COLUMNS = {
    "age": Column("integer", bounds=(18, 90)),
    "sex": Column("category", categories=("Female", "Male"), missing="Male"),
    "town": Column("category", categories=("Bonn", "Köln"), other="elsewhere"),
    "smokes": Column("boolean"),
    "since": Column("date", bounds=("2020-01-01", "2020-12-31")),
    "pay": Column("number", bounds=(0, 100)),
}
LINES = """\
person,age,sex,town,smokes,since,pay
1,30,Female,Bonn,true,2020-02-29,10.5
1, 200 ,?,Paris,0,1999-01-01,inf
2,,,,,,
3,x,Male,Köln,TRUE,2020-13-01,nan
,40,Male,Bonn,false,2020-05-05,1e1
"""


def test_a_file_and_a_frame_make_the_same_features(tmp_path: Path) -> None:
    """An undeclared category is not a missing one, which has a constant here."""
    (tmp_path / "data.csv").write_text(LINES, encoding="utf-8")
    schema = Schema(COLUMNS)
    found = private_rows(tmp_path / "data.csv", schema, list(schema))
    direct = pd.read_csv(tmp_path / "data.csv", dtype=object, keep_default_na=False)
    maker = Preprocessor(schema)
    np.testing.assert_array_equal(maker.transform(found), maker.transform(direct))
    names = maker.features.names
    made = dict(zip(names, np.asarray(maker.transform(found)).T, strict=True))
    assert made["sex=Male"].tolist() == [0, 0, 1, 1, 1]
    assert made["town=elsewhere"].tolist() == [0, 1, 0, 0, 0]


def test_the_unit_comes_along_and_rows_without_one_do_not(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(LINES, encoding="utf-8")
    schema = Schema(COLUMNS, unit=Unit("person", 2))
    found = private_rows(tmp_path / "data.csv", schema, ["age"])
    assert list(found.columns) == ["age", UNIT]
    assert found[UNIT].tolist() == ["1", "1", "2", "3"]


def test_preparing_reads_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: PrivateSource, expression: Any) -> Any:
        raise AssertionError("rows were read")

    monkeypatch.setattr(PrivateSource, "run", refuse)
    (tmp_path / "data.csv").write_text(LINES, encoding="utf-8")
    schema = Schema(COLUMNS)
    prepared = prepare(tmp_path / "data.csv", schema, ["age", "sex"])
    prepared.close()
    with pytest.raises(SourceMissing, match="no column 'height'"):
        prepare(tmp_path / "data.csv", Schema({"height": Column("number")}), ["height"])
    with pytest.raises(AssertionError, match="rows were read"):
        private_rows(tmp_path / "data.csv", schema, ["age"])


def test_columns_that_are_not_asked_for_need_not_be_there(tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("age\n30\n", encoding="utf-8")
    assert private_rows(tmp_path / "few.csv", Schema(COLUMNS), ["age"])["age"].tolist() == [30]
