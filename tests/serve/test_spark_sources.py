"""Tables of Spark as sources: named, asked, noticed when they change, and silent when they fail."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ibis
import pandas as pd
import pytest

from engines import Maker
from serve.conftest import SCHEMA, Study
from serve.test_cli_serve import command, free_port
from tacit.data import spark
from tacit.data.engine.silence import silent
from tacit.data.spark import SparkTables
from tacit.errors import EngineFailed, InvalidValue, MissingExtra, ServiceRefused
from tacit.serve import carrying
from tacit.serve.actions import asking, holdings
from tacit.serve.service import Place

ROWS = 400
COUNT = {"questions": ["count()"], "epsilon": 20.0}
LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j", "pyspark")


@pytest.fixture(scope="module")
def session(spark_maker: Maker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A database of Spark, ``clinic``; what the service sets for the whole process is set back."""
    made = spark_maker(pd.DataFrame({"age": [1]})).op().source._session
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    root = made.sparkContext._jvm.org.apache.logging.log4j.LogManager.getRootLogger()
    level = root.getLevel().toString()
    made.sql(f"CREATE DATABASE clinic LOCATION '{tmp_path_factory.mktemp('clinic')}'")
    yield made
    made.sql("DROP DATABASE clinic CASCADE")
    made.sparkContext.setLogLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


@pytest.fixture
def people(session: Any) -> Iterator[Any]:
    """The session, with a table ``clinic.people``."""
    _rows(session, ROWS).write.mode("overwrite").saveAsTable("clinic.people")
    yield session
    session.sql("DROP TABLE IF EXISTS clinic.people")


def _rows(session: Any, number: int) -> Any:
    sexes, incomes = ("F", "M"), ("high", "low")
    rows = [(18 + place % 70, sexes[place % 2], incomes[place % 3 // 2]) for place in range(number)]
    return session.createDataFrame(rows, "age int, sex string, income string").coalesce(1)


@pytest.fixture
def clinic(people: Any, make_study: Callable[..., Study]) -> Study:
    """A study with Spark and a dataset ``clinic`` on its table, of which ada may ask everything."""
    study = make_study(spark="local[2]")
    _register(study)
    models = ["naive-bayes", "network", "marginals", "evaluation"]
    terms = {"analyst": "ada", "dataset": "clinic", "epsilon": 100.0, "delta": 1e-6, "models": models}
    holdings.make_grant(study.service, study.curator, **terms)
    return study


def _register(study: Study, source: str = "spark:clinic.people", name: str = "clinic") -> dict[str, Any]:
    terms = {"schema": SCHEMA, "epsilon": 100.0, "delta": 1e-6}
    return holdings.register(study.service, study.curator, name, source=source, **terms)


def _entries(study: Study) -> int:
    with study.service.ledger("clinic") as ledger:
        return len(ledger.entries())


def _counted(study: Study) -> float:
    told = asking.ask(study.service, study.ada, "clinic", COUNT)["result"]["answers"]
    return float(told[0]["rows"][0]["value"])


def test_questions_are_answered_where_the_table_is(clinic: Study) -> None:
    """At ε = 20 a count is off by 3 or more once in e⁶⁰ times."""
    plan = asking.plan(clinic.service, clinic.ada, "clinic", "questions", COUNT)
    assert (plan["fits"], _entries(clinic)) == (True, 0)
    assert abs(_counted(clinic) - ROWS) < 3
    (kept,) = clinic.service.keeping._idle
    assert kept.backend == "pyspark"
    grouped = {"questions": ["mean(age) by sex where age >= 30"], "epsilon": 20.0}
    answer = asking.ask(clinic.service, clinic.ada, "clinic", grouped)["result"]["answers"][0]
    assert [row["keys"] for row in answer["rows"]] == [{"sex": "F"}, {"sex": "M"}]
    assert list(clinic.service.keeping._idle) == [kept]
    assert _entries(clinic) == 2
    assert holdings.see_dataset(clinic.service, clinic.curator, "clinic")["source"] == "spark:clinic.people"
    assert "source" not in holdings.see_dataset(clinic.service, clinic.ada, "clinic")


def test_rows_that_were_written_are_noticed_before_the_charge(clinic: Study, people: Any) -> None:
    _counted(clinic)
    _rows(people, 100).write.mode("append").saveAsTable("clinic.people")
    with pytest.raises(ServiceRefused, match="curator has to confirm") as told:
        _counted(clinic)
    assert (told.value.status, _entries(clinic)) == (503, 1)
    assert "clinic.people" not in str(told.value)
    holdings.confirm_dataset(clinic.service, clinic.curator, "clinic")
    assert abs(_counted(clinic) - ROWS - 100) < 3
    people.sql("DROP TABLE clinic.people")
    with pytest.raises(ServiceRefused, match="curator has to confirm"):
        _counted(clinic)
    with pytest.raises(InvalidValue, match="that Spark's catalog has"):
        holdings.confirm_dataset(clinic.service, clinic.curator, "clinic")
    assert _entries(clinic) == 2


def test_the_stamp_of_a_partitioned_table(session: Any) -> None:
    tables = SparkTables("local[2]")
    session.sql("CREATE TABLE clinic.parts (age INT, sex STRING) USING parquet PARTITIONED BY (sex)")
    session.sql("INSERT INTO clinic.parts VALUES (40, 'F'), (50, 'M')")
    stamps = [tables.stamp("clinic.parts"), tables.stamp("spark_catalog.clinic.parts")]
    assert stamps[0] == stamps[1]
    session.sql("INSERT INTO clinic.parts VALUES (41, 'F')")
    assert tables.stamp("clinic.parts") != stamps[0]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("fit", {"model": "naive-bayes", "target": "income", "epsilon": 0.3}),
        ("train", {"architecture": "linear", "target": "income", "epsilon": 0.3, "delta": 1e-7}),
        ("synthesize", {"rows": 10, "epsilon": 0.3}),
        ("evaluate", {"request": "0" * 32, "epsilon": 0.3}),
    ],
)
def test_jobs_are_refused_before_the_charge(clinic: Study, kind: str, body: dict[str, Any]) -> None:
    for action in (asking.plan, asking.start):
        with pytest.raises(ServiceRefused, match="export it to Parquet files in the folder of data") as told:
            action(clinic.service, clinic.ada, "clinic", kind, body)
        assert (told.value.status, _entries(clinic)) == (422, 0)


@pytest.mark.parametrize(
    "source",
    [
        "spark:", "spark:a b", "spark:people;", "spark:a.b.c.d", "spark:a..b", "spark:.people",
        "spark:`people`", "spark:parquet.`/etc`", "spark:/etc/passwd", "spark:../people", "spark:people\n",
        "spark:pëople", "spark:range(3)", "spark:people VERSION AS OF 1", "spark:s3://bucket/people",
        "spark:" + "a" * 129,
    ],
)  # fmt: skip
def test_a_source_is_a_name_and_nothing_else(
    source: str, make_study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before Spark is asked, or even started."""
    monkeypatch.setattr(spark, "_session", lambda master: pytest.fail("Spark was started"))
    with pytest.raises(InvalidValue, match="letters, digits and underscores"):
        _register(make_study(spark="local[2]"), source)


def test_only_tables_that_the_catalog_keeps(people: Any, make_study: Callable[..., Study]) -> None:
    study = make_study(spark="local[2]")
    rows = people.table("clinic.people")
    rows.createOrReplaceTempView("passing")
    rows.createOrReplaceGlobalTempView("passing")
    people.sql("CREATE VIEW clinic.seen AS SELECT * FROM clinic.people")
    rows.write.format("csv").saveAsTable("clinic.texts")
    unknown = ("passing", "clinic.nobody", "parquet.people", "a.clinic.people")
    told = {f"spark:{name}": "that Spark's catalog has" for name in unknown}
    told |= {"spark:global_temp.passing": "not a view", "spark:clinic.seen": "not a view"}
    told |= {"spark:clinic.texts": "a table that stores its rows"}
    for source, why in told.items():
        with pytest.raises(InvalidValue, match=why):
            _register(study, source)
    people.catalog.dropTempView("passing")
    people.catalog.dropGlobalTempView("passing")
    people.sql("DROP VIEW clinic.seen")


def test_no_path_is_taken_for_a_table(people: Any) -> None:
    """Spark reads ``parquet.people`` as the folder ``people`` where no such table is."""
    place = people.table("clinic.people").inputFiles()[0].removeprefix("file://")
    assert people.table(f"parquet.`{place}`").columns == ["age", "sex", "income"]
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark._another(people).table(f"parquet.`{place}`")


def test_without_spark_its_tables_are_refused(study: Study) -> None:
    with pytest.raises(InvalidValue, match=r"started without Spark.*--spark"):
        _register(study)


def test_a_service_that_is_started_again_without_spark(clinic: Study) -> None:
    place = replace(clinic.service.place, spark=None)
    with place.open() as service, pytest.raises(ServiceRefused, match="without Spark") as told:
        asking.ask(service, clinic.ada, "clinic", COUNT)
    assert (told.value.status, _entries(clinic)) == (503, 0)


def test_a_query_that_fails_quotes_nothing(
    clinic: Study, people: Any, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A file whose bytes were exchanged at the same size and time: Spark fails on it after the charge."""
    file = Path(people.table("clinic.people").inputFiles()[0].removeprefix("file://"))
    facts = file.stat()
    file.write_bytes(b"41,F,high;" * facts.st_size)
    os.truncate(file, facts.st_size)
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    with pytest.raises(ServiceRefused) as told:
        _counted(clinic)
    assert told.value.problem == carrying.FAILED
    assert _entries(clinic) == 1
    assert not clinic.service.keeping._idle
    shown = "".join(capfd.readouterr()) + caplog.text
    assert not any(word in shown for word in (file.name, "41,F", "clinic.people", "Exception"))


def test_spark_stays_silent_while_several_ask(clinic: Study, people: Any) -> None:
    """Of two questions that overlap, the first one to end must not let Spark log for the other."""
    people.sparkContext.setLogLevel("WARN")
    SparkTables("local[2]").start()
    connection = ibis.pyspark.connect(people.newSession())
    first, second = silent(connection), silent(connection)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    root = people.sparkContext._jvm.org.apache.logging.log4j.LogManager.getRootLogger()
    level = root.getLevel().toString()
    loud = [name for name in LOGGERS if logging.getLogger(name).isEnabledFor(logging.CRITICAL)]
    second.__exit__(None, None, None)
    assert (level, loud) == ("OFF", [])


def test_what_spark_says_is_withheld(clinic: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> Any:
        raise RuntimeError("41,F,high")

    monkeypatch.setattr(spark, "_looked_up", broken)
    for action in (lambda: _register(clinic, name="other"), lambda: SparkTables("local[2]").stamp("people")):
        with pytest.raises(EngineFailed, match="withheld") as told:
            action()
        assert told.value.__context__ is None
    with pytest.raises(ServiceRefused, match="cannot be asked at the moment"):
        _counted(clinic)
    assert _entries(clinic) == 0


def test_an_analyst_is_not_told_the_name_of_the_table(clinic: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*given: Any) -> Any:
        raise InvalidValue("source", "clinic.people", "another one")

    monkeypatch.setattr(spark, "connect", refusing)
    with pytest.raises(ServiceRefused, match="cannot be asked at the moment") as told:
        _counted(clinic)
    assert "clinic.people" not in str(told.value)


def test_where_pyspark_is_absent_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingExtra, match=r"tacit\[spark\]"):
        SparkTables("local[2]").start()


@pytest.mark.parametrize("master", ["", "sc://cluster:15002", "local[2] --conf x", "local\n"])
def test_a_master_is_one_word_and_no_spark_connect(folder: Path, master: str) -> None:
    with pytest.raises(InvalidValue, match="spark must be"):
        Place(folder / "home", spark=master)


def test_what_is_wrong_with_spark_is_told_before_a_token_is_made(folder: Path) -> None:
    pytest.importorskip("pyspark", reason="needs pyspark")
    home = str(folder / "study")
    for master, told in (("local[1]", "Spark could not be started."), ("sc://cluster", "Spark Connect")):
        words = command("--home", home, "--port", str(free_port()), "--spark", master)
        nowhere = {**os.environ, "JAVA_HOME": str(folder / "nowhere")}
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, env=nowhere)
        assert (done.returncode, told in done.stderr, "Token" in done.stdout) == (2, True, False)
        assert "Traceback" not in done.stderr
    assert not (folder / "study").exists()
