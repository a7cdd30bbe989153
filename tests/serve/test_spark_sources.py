"""Tables of Spark as sources: named, asked, noticed when they change, and silent when they fail."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ibis
import numpy as np
import pandas as pd
import pytest

from engines import Maker
from serve.conftest import SCHEMA, Study
from serve.test_cli_serve import command, free_port
from tacit import jobs, load
from tacit.data import spark
from tacit.data.engine.silence import silent
from tacit.data.spark import SparkTables
from tacit.errors import EngineFailed, InvalidValue, MissingExtra, ServiceRefused
from tacit.estimators import noise
from tacit.ledger import Budget, Ledger
from tacit.schema import Schema
from tacit.serve import carrying, sources, worker
from tacit.serve.actions import asking, holdings
from tacit.serve.keeping import Keeping
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
    models = ["naive-bayes", "logistic", "network", "marginals", "evaluation"]
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


def _made(study: Study, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """The result of a job that a worker has carried out."""
    number = asking.start(study.service, study.ada, "clinic", kind, body)["id"]
    assert _entries(study) == 0
    assert worker.once(study.service)
    held = asking.see_request(study.service, study.ada, number)
    assert (held["state"], held["entry"], _entries(study)) == ("done", 3, 1)
    return {**held["result"], "place": asking.downloaded(study.service, study.ada, number, "model.tacit")}


def test_a_worker_counts_and_fits_where_the_table_is(clinic: Study) -> None:
    """At ε = 60 the noise of a count of naive Bayes is below one: the model is that of the rows in memory."""
    made = _made(clinic, "fit", {"model": "naive-bayes", "target": "income", "epsilon": 60.0})
    ages = pd.DataFrame({"age": [20, 40, 60, 80] * 2, "sex": ["F", "M"] * 4})
    rows = [(18 + place % 70, "FM"[place % 2], ("high", "low")[place % 3 // 2]) for place in range(ROWS)]
    frame = pd.DataFrame(rows, columns=["age", "sex", "income"])
    with Ledger.open(clinic.service.place.home / "own.db", Budget(100.0)) as ledger:
        options = {"schema": Schema.from_toml(SCHEMA), "ledger": ledger, "target": "income"}
        place = clinic.service.place.home / "people.parquet"
        frame.to_parquet(place)
        other = jobs.fit(place, model="naive-bayes", epsilon=60.0, **options).model
    model = load(made["place"])
    assert made["guarantee"]["epsilon"] == model[-1].guarantee_.epsilon <= 60.0
    assert np.allclose(model.predict_proba(ages), other.predict_proba(ages), atol=0.02)


def test_a_worker_fits_a_linear_model_where_the_table_is(clinic: Study) -> None:
    body = {"model": "logistic", "target": "income", "epsilon": 50.0, "buy_population": True}
    made = _made(clinic, "fit", body)
    shares = load(made["place"]).predict_proba(pd.DataFrame({"age": [40, 60], "sex": ["F", "M"]}))
    assert np.abs(shares[:, 0] - 2 / 3).max() < 0.2


def test_a_synthetic_table_is_made_where_the_table_is(clinic: Study) -> None:
    made = _made(clinic, "synthesize", {"rows": 300, "epsilon": 60.0})
    table = pd.read_csv(made["place"].with_name("table.csv"))
    assert (len(table), set(table["sex"])) == (300, {"F", "M"})
    assert abs((table["income"] == "high").mean() - 2 / 3) < 0.15


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("train", {"architecture": "linear", "target": "income", "epsilon": 0.3, "delta": 1e-7}),
        ("evaluate", {"request": "0" * 32, "epsilon": 0.3}),
    ],
)
def test_what_reads_all_rows_into_memory_is_refused_before_the_charge(
    clinic: Study, kind: str, body: dict[str, Any]
) -> None:
    for action in (asking.plan, asking.start):
        with pytest.raises(ServiceRefused, match="export it to Parquet files in the folder of data") as told:
            action(clinic.service, clinic.ada, "clinic", kind, body)
        assert (told.value.status, _entries(clinic)) == (422, 0)


def test_a_fit_with_a_test_is_refused_before_the_charge(clinic: Study) -> None:
    body = {
        "model": "naive-bayes",
        "target": "income",
        "epsilon": 1.0,
        "test_share": 0.2,
        "test_epsilon": 1.0,
    }
    for action in (asking.plan, asking.start):
        with pytest.raises(InvalidValue, match=r"test must be left out.*Parquet files"):
            action(clinic.service, clinic.ada, "clinic", "fit", body)
    assert _entries(clinic) == 0


def test_a_model_that_sums_do_not_suffice_for_is_refused_before_the_charge(
    clinic: Study, people: Any
) -> None:
    table = clinic.service.keeping.spark("local[2]").table("clinic.people")
    with clinic.service.ledger("clinic") as ledger:
        options = {"schema": Schema.from_toml(SCHEMA), "ledger": ledger, "epsilon": 1.0, "delta": 1e-6}
        by_row: Any = noise.Gradient(participations=5)
        with pytest.raises(InvalidValue, match=r"sums and counts.*private_rows"):
            jobs.plan_fit(table, model="logistic", target="income", noise=by_row, **options)
    assert _entries(clinic) == 0


def test_a_fit_whose_rows_cannot_be_read_fails_and_quotes_nothing(clinic: Study, people: Any) -> None:
    """A file whose bytes were exchanged at the same size and time."""
    _spoil(people)
    body = {"model": "naive-bayes", "target": "income", "epsilon": 1.0}
    number = asking.start(clinic.service, clinic.ada, "clinic", "fit", body)["id"]
    assert worker.once(clinic.service)
    held = asking.see_request(clinic.service, clinic.ada, number)
    assert (held["state"], held["result"]["error"]["problem"]) == ("failed", carrying.FAILED)
    assert _entries(clinic) == 1


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("fit", {"model": "naive-bayes", "target": "income", "epsilon": 60.0}),
        ("synthesize", {"rows": 30, "epsilon": 60.0}),
    ],
)
def test_text_that_is_not_utf8_makes_nothing_fail(
    clinic: Study, people: Any, kind: str, body: dict[str, Any]
) -> None:
    """Spark stores it; that a fit fails would tell that somebody with such a text is among the rows."""
    people.sql("INSERT INTO clinic.people VALUES (40, CAST(X'FF46' AS STRING), CAST(X'C3' AS STRING))")
    holdings.confirm_dataset(clinic.service, clinic.curator, "clinic")
    _made(clinic, kind, body)


def test_that_java_has_ended_is_told(clinic: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service cannot start Spark again; a worker ends, and whoever has started it starts another."""

    def gone(*given: Any) -> Any:
        raise ConnectionRefusedError("41,F,high")

    _counted(clinic)
    monkeypatch.setattr(spark, "_stamp", gone)
    monkeypatch.setattr(SparkTables, "ended", True)
    with pytest.raises(ServiceRefused, match=r"Spark has ended.*start the service again") as told:
        _counted(clinic)
    assert (told.value.status, _entries(clinic)) == (503, 1)
    with pytest.raises(EngineFailed, match="Java machine of Spark has ended") as failed:
        holdings.confirm_dataset(clinic.service, clinic.curator, "clinic")
    assert carrying.status_of(failed.value) == 503
    assert "41,F" not in str(failed.value)
    monkeypatch.setattr(Keeping, "spark_ended", lambda keeping: True)
    worker.work(clinic.service.place, os.getppid())


def test_whether_java_has_ended_is_asked_of_its_process(people: Any) -> None:
    tables = SparkTables("local[2]")
    assert not tables.ended
    tables.start()
    assert not tables.ended
    gateway = SimpleNamespace(proc=subprocess.Popen([sys.executable, "-c", ""]))
    gateway.proc.wait()
    tables._started = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway))
    assert tables.ended


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
    told |= {"spark:clinic.texts": "stored as Parquet or ORC files.*USING parquet"}
    for source, why in told.items():
        with pytest.raises(InvalidValue, match=why):
            _register(study, source)
    people.catalog.dropTempView("passing")
    people.catalog.dropGlobalTempView("passing")
    people.sql("DROP VIEW clinic.seen")


def test_a_catalog_that_cannot_be_asked_has_not_lost_the_table() -> None:
    """Otherwise the curator would be asked to confirm a table that has not changed."""
    errors = pytest.importorskip("pyspark.errors", reason="needs pyspark")

    def failing(name: str) -> Any:
        raise errors.AnalysisException("Unable to instantiate the client of the metastore.")

    session = SimpleNamespace(catalog=SimpleNamespace(getTable=failing))
    with pytest.raises(errors.AnalysisException):
        spark._looked_up(session, "clinic.people")


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


def _spoil(people: Any) -> Path:
    """Exchange the bytes of the file of the table."""
    file = Path(people.table("clinic.people").inputFiles()[0].removeprefix("file://"))
    facts = file.stat()
    file.write_bytes(b"41,F,high;" * facts.st_size)
    os.truncate(file, facts.st_size)
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    return file


def test_a_query_that_fails_quotes_nothing(
    clinic: Study, people: Any, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A file whose bytes were exchanged at the same size and time: Spark fails on it after the charge."""
    file = _spoil(people)
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


def test_an_analyst_who_starts_a_job_is_not_told_the_name_of_the_table(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table may go after it was looked up, and a setting of Spark may change."""

    def refusing(*given: Any) -> Any:
        raise InvalidValue("source", "clinic.people", "a table that Spark's catalog has")

    study.grant(models=["naive-bayes"])
    monkeypatch.setattr(sources, "for_job", refusing)
    body = {"model": "naive-bayes", "target": "income", "epsilon": 0.1}
    for action in (asking.plan, asking.start):
        with pytest.raises(ServiceRefused, match="cannot be asked at the moment") as told:
            action(study.service, study.ada, "people", "fit", body)
        assert (told.value.status, study.entries()) == (503, 0)
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
