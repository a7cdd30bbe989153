"""Sources: files, frames and Ibis tables behind a schema, opened by their metadata alone."""

from __future__ import annotations

import datetime
import gzip
import logging
import os
import random
import tempfile
import warnings
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from people import AGE, DAY, PEOPLE, column, rows
from tacit.data.cleaning.expressions import clean, total
from tacit.data.cleaning.rule import coded
from tacit.data.cleaning.values import category
from tacit.data.engine.silence import silent
from tacit.data.source import UNIT, connect
from tacit.errors import EngineFailed, InvalidValue, SourceMissing
from tacit.relations import Unit
from tacit.schema import Column, Schema


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


class TestCsv:
    def test_values(self, tmp_path):
        text = 'age,sex,seen\n30,F,2020-01-02\n 7 ," M",2020-01-02 10:00\nx,?,0\n,,\n'
        path = write(tmp_path / "a.csv", text)
        assert rows(path) == [(30, "F", DAY), (7, "M", DAY), (None, "o", None), (None, None, None)]
        assert rows(str(path)) == rows(path)

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    def test_line_ends(self, tmp_path, end):
        path = write(tmp_path / "a.csv", end.join(["\ufeffage,sex,seen", "1,F,2020-01-02", "2,M,2020-01-02"]))
        assert rows(path) == [(1, "F", DAY), (2, "M", DAY)]

    def test_header_only(self, tmp_path):
        for text in ("age,sex,seen", "age,sex,seen\n"):
            assert rows(write(tmp_path / "a.csv", text)) == []

    def test_gz_tsv_and_delimiter(self, tmp_path):
        packed = write(tmp_path / "a.csv.gz", gzip.compress(b"age,sex,seen\n1,F,2020-01-02\n"))
        tabs = write(tmp_path / "a.tsv", "age\tsex\tseen\n1\tF\t2020-01-02\n")
        dots = write(tmp_path / "a.CSV", "age;sex;seen\n1;F;2020-01-02\n")
        assert rows(packed) == rows(tabs) == rows(dots, delimiter=";") == [(1, "F", DAY)]

    def test_several_files_with_columns_in_any_order(self, tmp_path):
        write(tmp_path / "a.csv", "age,sex,seen\n1,F,2020-01-02\n")
        write(tmp_path / "b.csv", "seen, sex ,surplus,age\n2020-01-02,M,!,2\n")
        both = [(1, "F", DAY), (2, "M", DAY)]
        assert sorted(rows(tmp_path / "*.csv")) == both
        assert sorted(rows([tmp_path / "b.csv", str(tmp_path / "a.csv")])) == both
        pq.write_table(pa.table({"age": [3.5], "seen": [DAY], "sex": ["X"]}), tmp_path / "c.parquet")
        assert sorted(rows([tmp_path / "*.csv", tmp_path / "c.parquet"])) == [*both, (3, "o", DAY)]
        write(tmp_path / "d.csv", "age,sex\n1,F\n")
        with pytest.raises(SourceMissing, match="no column 'seen'"):
            rows(tmp_path / "*.csv")

    def test_odd_names_of_files(self, tmp_path):
        for name in ("it's [one]*.csv", "a?b.csv", "año.csv"):
            assert rows(write(tmp_path / name, "age,sex,seen\n1,F,2020-01-02\n")) == [(1, "F", DAY)]

    def test_types_do_not_depend_on_the_rows(self, tmp_path):
        schema = Schema({"x": Column("text"), "y": Column("number")})
        path = write(tmp_path / "a.csv", "x,y\n007,1\n1e3,2\n2020-01-01,3\ntrue,x\nNULL,\n")
        texts, numbers = zip(*rows(path, schema), strict=True)
        assert texts == ("007", "1e3", "2020-01-01", "true", "NULL")
        assert numbers == (1, 2, 3, None, None)

    def test_rejected_lines(self, tmp_path):
        lines = b'1,\xff,\n2,F\n3,"a\nb",\n4,F,,more\n5,F"M,\n\n6,M,\n'
        path = write(tmp_path / "a.csv", b"age,sex,seen\n" + lines)
        assert rows(path) == [(3, "o", None), (4, "F", None), (5, "o", None), (6, "M", None)]

    def test_no_bytes_at_all_make_it_fail(self, tmp_path):
        generator = random.Random(7)
        pieces = [b",", b'"', b"\n", b"\r\n", b"\r", b"1", b" ", b"\xff", b"\xc3\xa9", b"\x00", b'""', b"\\"]
        pieces += [b"4,5,6\n", b'"a\nb"', b"x" * 50, b"\xed\xa0\x80", b"2020-01-02", b"\t", b"'"]
        for size in [3, 10, 30, 100, 1000] * 4:
            body = b"".join(generator.choices(pieces, k=size))
            rows(write(tmp_path / "a.csv", b"age,sex,seen\n" + body))

    @pytest.mark.parametrize(
        ("name", "content", "told"),
        [
            ("a.csv", b"", "no first line"),
            ("a.csv", b"\n1,2,3\n", "no first line"),
            ("a.csv", b"age,sex,age\n", "no column 'age'"),
            ("a.csv", b"age,sex,\xff\n", "no column 'seen'"),
            ("a.csv", b"Age,sexe,seen\n", "no column 'age'"),
            ("a.csv", b"one,two,three\n", "no column 'age'"),
            ("a.csv", b"age;sex;seen\n", "name that delimiter"),
            ("a.csv.gz", b"age,sex,seen\n", "cannot be read"),
            ("a.csv", b'"' + b"x" * 200_000, "no column 'age'"),
            ("a.parquet", b"nonsense", "cannot be read"),
            ("a.xlsx", b"", "known by its ending"),
        ],
    )
    def test_what_is_no_table(self, tmp_path, name, content, told):
        with pytest.raises(SourceMissing, match=told):
            connect(write(tmp_path / name, content), PEOPLE)

    def test_what_is_not_there(self, tmp_path):
        for path, told in (
            (tmp_path / "a.csv", "no file"),
            (tmp_path / "no" / "a.csv", "no folder"),
            (tmp_path / "*.csv", "No file matches"),
            (tmp_path, "is a folder"),
        ):
            with pytest.raises(SourceMissing, match=told):
                connect(path, PEOPLE)

    def test_delimiter(self, tmp_path):
        path = write(tmp_path / "a.csv", "age,sex,seen\n")
        for delimiter in ("", ";;", '"', "\n"):
            with pytest.raises(InvalidValue, match="delimiter"):
                connect(path, PEOPLE, delimiter=delimiter)


class TestParquet:
    def test_files_of_different_types(self, tmp_path):
        stored = {"age": [1, 2**62], "sex": ["F", None], "seen": [DAY, None]}
        pq.write_table(pa.table(stored), tmp_path / "1.parquet")
        sex = pa.array(["M"]).dictionary_encode()
        stored = {"sex": sex, "age": [Decimal("3.7")], "seen": [pd.Timestamp(DAY)]}
        pq.write_table(pa.table(stored), tmp_path / "2.parquet")
        nothing = pa.nulls(1)
        pq.write_table(pa.table({"age": nothing, "sex": nothing, "seen": nothing}), tmp_path / "3.parquet")
        found = rows(tmp_path / "*.parquet")
        assert set(found) == {(1, "F", DAY), (120, None, None), (3, "M", DAY), (None, None, None)}

    def test_types_that_cannot_be_what_is_declared(self, tmp_path):
        for stored in ([[1]], [{"a": 1}], [b"1"], [datetime.time(1)]):
            pq.write_table(pa.table({"age": stored}), tmp_path / "a.parquet")
            with pytest.raises(SourceMissing, match=r"'age' is stored as .* cannot be a column of integer"):
                connect(tmp_path / "a.parquet", AGE)
        pq.write_table(pa.table({"age": [1]}), tmp_path / "a.parquet")
        with pytest.raises(SourceMissing, match="stored as int64, which cannot be a column of date"):
            connect(tmp_path / "a.parquet", Schema({"age": Column("date")}))

    def test_names_that_differ_in_case_only(self, tmp_path):
        pq.write_table(pa.table({"age": [1], "Age": [500]}), tmp_path / "a.parquet")
        with pytest.raises(SourceMissing, match="more than one column 'age'"):
            connect(tmp_path / "a.parquet", AGE)


class TestNothingIsReadBeforeRun:
    def test_frames(self):
        frame = pd.DataFrame({"age": np.array([1, 2])})
        source = connect(frame, AGE)
        frame.loc[0, "age"] = 99
        assert source.run(source.table)["age"].tolist() == [99, 2]

    def test_values_are_not_touched(self):
        class Trap:
            def __getattribute__(self, name: str) -> Any:
                raise AssertionError("touched")

        source = connect(pd.DataFrame({"age": pd.Series([Trap()], dtype=object)}), AGE)
        assert source.table.columns == ("age", "__state__age")
        assert source.run(source.table)["age"].isna().tolist() == [True]

    def test_files(self, tmp_path):
        path = write(tmp_path / "a.csv", "age\n")
        source = connect(path, AGE)
        write(path, "age\n1\n\xff\n")
        assert source.run(source.table)["age"].isna().tolist() == [False, True]


class TestSource:
    def test_canonical_types(self):
        schema = Schema(
            {
                "i": Column("integer"),
                "n": Column("number"),
                "b": Column("boolean"),
                "c": Column("category", categories=("a",)),
                "k": Column("category", categories=(1,)),
                "d": Column("date"),
                "t": Column("text"),
            },
            unit=Unit("t", rows=1),
        )
        expected = {
            "i": "int64", "n": "float64", "b": "boolean", "c": "string", "k": "int64", "d": "date",
            "t": "string", UNIT: "string", "__raw__c": "string", "__raw__k": "int64",
        }  # fmt: skip
        source = connect(pd.DataFrame({name: pd.Series([], dtype=object) for name in schema}), schema)
        states = {f"__state__{name}": "int8" for name in schema}
        assert {name: str(kind) for name, kind in source.table.schema().items()} == {**expected, **states}
        assert source.backend == "duckdb"

    def test_whole_numbers_stay_exact_beside_null(self):
        source = connect(pd.DataFrame({"age": [1]}), AGE)
        huge = ibis.literal(2**62 + 1, "int64")
        nulls = ibis.union(source.table.select(x=huge), source.table.select(x=ibis.null("int64")))
        assert set(source.run(nulls)["x"].astype(object)) == {2**62 + 1, pd.NA}

    def test_keys_are_looked_up_after_grouping(self):
        source = connect(pd.DataFrame({"age": 1, "sex": ["F", " F", "f", None], "seen": None}), PEOPLE)
        query = source.table.group_by(k=source.key(source.table, "sex")).aggregate(n=source.table.count())
        found = source.run(query)
        assert sorted(str(source.category("sex", key)) for key in found["k"]) == ["F", "F", "None", "o"]
        plan = source._connection.con.execute(f"EXPLAIN {ibis.to_sql(query, dialect='duckdb')}").fetchall()
        assert "'F'" not in str(plan)
        flag = source.table.mutate(old=source.table.age > 60)
        assert source.key(flag, "old").get_name() == "old"
        assert source.category("old", np.bool_(True)) is True
        assert source.category("old", pd.NA) is None

    def test_category_agrees_with_the_engine(self):
        keys = ["a", " a", "a\t\v", "", " \n", "b", None, "\u00a0a", "a\x00", "~", " ~ "]
        for declared in (
            Column("category", categories=("a", " a", "~")),
            Column("category", categories=("a", ""), other="!", missing="a"),
            Column("category", categories=("a",), other="!", missing="!"),
        ):
            assert coded(declared)
            assert column(keys, declared) == [category(declared, key) for key in keys]

    def test_clean_of_a_derived_expression(self):
        source = connect(pd.DataFrame({"age": [10, 50, None]}), AGE)
        old = clean(source.table.age / 10, Column("number", bounds=(2, 4), missing=3))
        assert source.run(source.table.select(old=old))["old"].tolist() == [2.0, 4.0, 3.0]
        with pytest.raises(InvalidValue, match="can be date"):
            clean(source.table.age, Column("date"))

    def test_ibis_tables_keep_their_connection(self, duckdb_maker):
        table = duckdb_maker(pd.DataFrame({"age": [1, 300], "other": [1, 2]}))
        source = connect(table.filter(table.other == 2), AGE)
        assert source.run(source.table)["age"].tolist() == [120]
        source.close()
        assert table.count().execute() == 2
        with pytest.raises(SourceMissing, match="closed"):
            source.run(source.table)

    def test_tables_in_memory(self):
        assert rows(ibis.memtable({"age": [1, 300]}), AGE) == [(1,), (120,)]

    def test_names_engines_cannot_tell_apart(self):
        kinds = {"x": Column("integer", bounds=(0, 1)), "X": Column("integer", bounds=(0, 9))}
        with pytest.raises(InvalidValue, match="upper and lower case"):
            connect(pd.DataFrame({"x": [1], "X": [9]}), Schema(kinds))
        for name in (UNIT, "__raw__sex"):
            with pytest.raises(InvalidValue, match="named neither"):
                connect(pd.DataFrame({name: [1]}), Schema({name: Column("integer")}))

    def test_folder_for_spilling_is_private_and_removed(self, tmp_path, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        source = connect(pd.DataFrame({"age": [1]}), AGE)
        (folder,) = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        source.close()
        source.close()
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(SourceMissing):
            connect(pd.DataFrame({"x": [1]}), AGE)
        forgotten = connect(pd.DataFrame({"age": [1]}), AGE)
        assert len(list(tmp_path.iterdir())) == 1
        del forgotten
        assert list(tmp_path.iterdir()) == []

    def test_nothing_is_left_in_the_working_directory(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert rows(pd.DataFrame({"age": [1]}), AGE) == [(1,)]
        assert os.listdir(tmp_path) == []

    def test_failures_are_withheld(self, tmp_path):
        packed = gzip.compress(b"age\n" + b"17\n" * 100_000)
        path = write(tmp_path / "a.csv.gz", packed[: len(packed) // 2])
        source = connect(path, AGE)
        with pytest.raises(EngineFailed) as caught:
            source.run(source.table)
        assert caught.value.engine == "duckdb"
        assert "withheld" in str(caught.value)
        assert caught.value.__cause__ is caught.value.__context__ is None
        with pytest.raises(EngineFailed) as shown:
            connect(path, AGE, show_engine_errors=True).run(source.table)
        assert shown.value.__cause__ is not None

    def test_logs_and_warnings_are_withheld_and_come_back(self, monkeypatch):
        source = connect(pd.DataFrame({"age": [1]}), AGE)
        heard: list[str] = []
        logger = logging.getLogger("duckdb.secret")
        monkeypatch.setattr(logger, "handle", lambda record: heard.append(record.getMessage()))
        inner = source._connection.to_pyarrow

        def noisy(expression: Any) -> Any:
            logger.error("SECRET")
            warnings.warn("SECRET", UserWarning, stacklevel=1)
            return inner(expression)

        monkeypatch.setattr(source._connection, "to_pyarrow", noisy)
        assert source.run(source.table)["age"].tolist() == [1]
        assert heard == []
        logger.error("again")
        assert heard == ["again"]

    def test_total(self):
        source = connect(pd.DataFrame({"age": [1, None, 3]}), AGE)
        none = source.table.filter(source.table.age > 9)
        assert source.run(source.table.aggregate(s=total(source.table.age)))["s"].tolist() == [4]
        assert source.run(none.aggregate(s=total(none.age)))["s"].tolist() == [0]


def test_logs_stay_off_until_the_last_of_overlapping_queries_ends() -> None:
    """The first to end switched them on again while the other still ran."""
    logger = logging.getLogger("duckdb.overlapping")
    first, second = (silent(SimpleNamespace(name="duckdb")) for _ in range(2))
    with second:
        first.__enter__()
        assert logger.disabled
    assert logger.disabled
    first.__exit__(None, None, None)
    assert not logger.disabled
