"""Frames of pandas, polars and pyarrow behind a schema, whatever their columns hold."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from people import AGE, DAY, column, rows
from tacit.data.cleaning import storage
from tacit.data.engine.results import as_frame
from tacit.data.source import UNIT, connect
from tacit.errors import InvalidValue, SourceMissing
from tacit.relations import Unit
from tacit.schema import Column, Schema


class TestFrames:
    FRAME = pd.DataFrame({"age": [1, 200], "sex": ["F", None], "seen": [DAY, None]})

    def test_kinds(self):
        expected = [(1, "F", DAY), (120, None, None)]
        assert rows(self.FRAME) == expected
        polars, arrow = pl.from_pandas(self.FRAME), pa.Table.from_pandas(self.FRAME)
        for frame in (polars, polars.lazy(), arrow, arrow.to_batches()[0]):
            assert rows(frame) == expected

    @pytest.mark.parametrize(
        ("values", "number", "text"),
        [
            (pd.array([1, 0], "int8"), [1, 0], ["1", "0"]),
            (pd.array([1, None], "Int64"), [1, None], ["1", None]),
            (np.array([1, np.nan]), [1, None], ["1", None]),
            (np.array([1.5, np.inf]), [1.5, np.inf], [None, None]),
            (np.array([1, 2], "float16"), [1, 2], ["1", "2"]),
            (np.array([1, 2**64 - 1], "uint64"), [1, 2.0**64], ["1", None]),
            (np.array([True, False]), [1, 0], ["true", "false"]),
            (pd.array(["1", "a\ud800"], "string[python]"), [1, None], ["1", "a?"]),
            (pd.array(["1 ", None], "str"), [1, None], ["1", None]),
            (pd.Categorical(["1", "x"]), [1, None], ["1", "x"]),
            (pd.Categorical([1, "x"]), [1, None], ["1", "x"]),
            (pd.array([Decimal(1), None], pd.ArrowDtype(pa.decimal256(50, 0))), [1, None], ["1", None]),
            (pd.arrays.SparseArray([1, 0]), [1, 0], ["1", "0"]),
        ],
        ids=str,
    )
    def test_pandas_types(self, values, number, text, monkeypatch):
        numeric = storage.family_of(pd.Series(values).dtype) in ("integer", "float", "boolean", "wide")
        if numeric and not isinstance(values, pd.arrays.SparseArray):
            with pytest.raises(SourceMissing, match="cannot be a column of date"):
                column(values, Column("date"))
        else:
            assert column(values, Column("date")) == [None, None]
        monkeypatch.setattr(storage, "require", lambda *given: None)
        assert column(values, Column("number")) == number
        assert column(values, Column("text")) == text

    def test_objects(self):
        values = [1, 10**400, "2.5", Decimal("NaN"), np.float32(3), np.bool_(True)]
        values = pd.Series([*values, object(), pd.NaT, b"1", [1], 1j, "a\ud800"], dtype=object)
        nothing = [None] * 6
        assert column(values, Column("number")) == [1, np.inf, 2.5, None, 3, 1, *nothing]
        assert column(values, Column("boolean")) == [True, None, None, None, None, True, *nothing]
        assert column(values, Column("text")) == ["1", None, "2.5", None, "3", "true", *nothing[:5], "a?"]
        assert column(values, Column("category", categories=(1, 3))) == [1, None, None, None, 3, 1, *nothing]

    def test_objects_that_are_dates(self):
        zone = datetime.timezone(datetime.timedelta(hours=-5))
        late = datetime.datetime(2020, 1, 1, 23, tzinfo=zone)
        values = [DAY, late, np.datetime64("2020-01-02T05", "ns"), pd.Timestamp(DAY)]
        lost = [pd.NaT, np.datetime64("NaT"), 20200102, "2020-02-30"]
        far = [np.datetime64("20200-01-01", "D"), np.datetime64("-20200-01-01", "D")]
        found = column(pd.Series([*values, " 2020-01-02T09 ", *far, *lost], dtype=object), Column("date"))
        assert found == [DAY] * 5 + [datetime.date.max, datetime.date.min] + [None] * 4

    @pytest.mark.usefixtures("untyped")
    def test_one_value_does_not_change_how_others_are_read(self):
        """Mixed values take a slower road; it must lead to the same place."""
        category = Column("category", categories=("1",), other="?")
        for declared in (Column("text"), Column("number"), Column("date"), Column("boolean"), category):
            for values in (["1", " x", ""], [1, 2, None], [1.0, 2.5, np.nan], [True, False], [DAY, None]):
                if declared.type == "date" and type(values[0]) in (int, float, bool):
                    continue
                mixed = column(pd.Series([*values, object()], dtype=object), declared)
                assert mixed[:-1] == column(pd.Series(values), declared), (declared, values)

    def test_types_of_polars(self):
        frame = pl.DataFrame(
            {
                "a": pl.Series([1, None], dtype=pl.Int128),
                "b": pl.Series(["x", None], dtype=pl.Categorical),
                "c": pl.Series([object(), "7"], dtype=pl.Object),
                "d": pl.Series([None, None]),
                "e": pl.Series([Decimal("1.5"), None]),
                "f": pl.Series([datetime.datetime(2020, 1, 2, 3), None]),
            }
        )
        kinds = ("number", "text", "integer", "date", "number", "date")
        schema = Schema({name: Column(kind) for name, kind in zip("abcdef", kinds, strict=True)})
        assert rows(frame, schema) == [(1, "x", None, None, 1.5, DAY), (None, None, 7, None, None, None)]

    def test_text_that_is_not_utf8(self):
        buffers = [None, pa.py_buffer(np.array([0, 2], "int32")), pa.py_buffer(b"\xffF")]
        table = pa.table({"age": [1], "sex": pa.Array.from_buffers(pa.string(), 1, buffers), "seen": [DAY]})
        assert rows(table) == [(1, "o", DAY)]
        assert as_frame(table)["sex"].tolist() == ["\ufffdF"]

    def test_what_cannot_be_read(self):
        for values in (pd.period_range("2020", "2021", freq="Y"), np.array([1j]), pd.to_timedelta(["1D"])):
            with pytest.raises(SourceMissing, match="is stored as"):
                connect(pd.DataFrame({"age": values}), AGE)
        with pytest.raises(SourceMissing, match="two columns 'age'"):
            connect(pd.DataFrame([[1, 2]], columns=["age", "age"]), AGE)
        with pytest.raises(SourceMissing, match=r"no column 'age'. Did you mean 'ages'"):
            connect(pd.DataFrame({"ages": [1], 5: [2]}), AGE)
        for nothing in (None, 3, [], [1], {"age": [1]}, pd.Series([1]), pl.Series([1])):
            with pytest.raises(InvalidValue, match="source must be"):
                connect(nothing, AGE)


class TestUnits:
    def test_the_unit_is_kept_apart_from_the_column(self):
        schema = Schema({"who": Column("integer", bounds=(0, 2))}, unit=Unit("who", rows=2))
        source = connect(pd.DataFrame({"who": [1.0, 7.0, np.nan]}), schema)
        assert source.run(source.table).to_dict("list") == {
            "who": [1, 2], UNIT: [1.0, 7.0], "__state__who": [0, 2],
        }  # fmt: skip

    def test_objects(self):
        who = [1, 1.0, "1", 2**60, 2**60 + 1, 1.5, datetime.datetime(2020, 1, 1)]
        who += [pd.NaT, np.nan, None, object()]
        schema = Schema({"x": Column("integer")}, unit=Unit("who", rows=2))
        source = connect(pd.DataFrame({"x": 1, "who": pd.Series(who, dtype=object)}), schema)
        found = source.run(source.table)[UNIT].tolist()
        assert found == ["1", "1", "1", str(2**60), str(2**60 + 1), "1.5", "2020-01-01T00:00:00"]

    def test_it_must_be_there_and_be_a_key(self):
        schema = Schema({"x": Column("integer")}, unit=Unit("who", rows=2))
        with pytest.raises(SourceMissing, match="no column 'who'"):
            connect(pd.DataFrame({"x": [1]}), schema)
        with pytest.raises(SourceMissing, match=r"'who' is stored as .* cannot be the unit"):
            connect(pa.table({"x": [1], "who": [[1]]}), schema)
