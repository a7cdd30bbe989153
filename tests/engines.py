"""The engines that the tests of tables run on: DuckDB always, Spark where Java and pyspark are."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir
import pandas as pd
import pyarrow as pa
import pytest

from tacit.data.cleaning import storage

Maker = Callable[[Any], ir.Table]

HERE = Path(__file__).parent
FOLDERS = (HERE / "data", HERE / "tables", HERE / "serve")
THEIR_WARNINGS = (
    "ignore:fetch_arrow_table:DeprecationWarning",
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
    "ignore:The 'future.infer_string' option is deprecated",
)
"""Ibis 12 calls DuckDB 2 and pandas 3 by old names; pyspark 4 doubts pandas 3."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files = {item.path for item in items}
    theirs = {path for path in files if any(folder in path.parents for folder in FOLDERS)}
    for item in items:
        if item.path in theirs:
            for line in THEIR_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(line))


def arrow(frame: Any) -> pa.Table:
    """A frame in Arrow: NaN stays NaN among floats, whatever else is missing is NULL."""
    if isinstance(frame, pa.Table):
        return frame
    columns = {}
    for name in frame.columns:
        values = frame[name]
        if values.dtype.kind == "f":
            columns[name] = pa.array(values.to_numpy(), from_pandas=False)
        else:
            columns[name] = pa.array([None if pd.isna(value) else value for value in values])
    return pa.table(columns)


def _duckdb(stored: bool) -> Iterator[Maker]:
    connection = ibis.duckdb.connect()
    number = itertools.count()

    def make(frame: Any) -> ir.Table:
        name = f"frame{next(number)}"
        if stored:
            connection.con.register("incoming", arrow(frame))
            connection.con.execute(f"CREATE TABLE {name} AS SELECT * FROM incoming")
        else:
            connection.con.register(name, arrow(frame))
        return connection.table(name)

    yield make
    connection.disconnect()


@pytest.fixture(scope="session")
def duckdb_maker() -> Iterator[Maker]:
    """A table that DuckDB stores."""
    yield from _duckdb(stored=True)


@pytest.fixture(scope="session")
def registered_maker() -> Iterator[Maker]:
    """An Arrow table that DuckDB knows by name."""
    yield from _duckdb(stored=False)


@pytest.fixture(scope="session")
def spark_maker() -> Iterator[Maker]:
    sql = pytest.importorskip("pyspark.sql", reason="needs pyspark")
    if shutil.which("java") is None:
        pytest.skip("needs Java")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = (
            sql.SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .getOrCreate()
        )
        connection = ibis.pyspark.connect(session)
    number = itertools.count()

    def make(frame: Any) -> ir.Table:
        name = f"frame{next(number)}"
        session.createDataFrame(arrow(frame)).createOrReplaceTempView(name)
        return connection.table(name)

    yield make
    session.stop()


@pytest.fixture
def untyped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stored type is read as every declared one, as text of a CSV file and objects in a frame are."""
    monkeypatch.setattr(storage, "require", lambda *given: None)


@pytest.fixture(params=["duckdb", "registered", "spark"])
def backends(request: pytest.FixtureRequest) -> Maker:
    """A frame as a table of each engine in turn."""
    maker: Maker = request.getfixturevalue(f"{request.param}_maker")
    return maker


@pytest.fixture(params=["duckdb", "spark"])
def storing(request: pytest.FixtureRequest) -> Maker:
    """A frame as a table that each engine stores."""
    maker: Maker = request.getfixturevalue(f"{request.param}_maker")
    return maker
