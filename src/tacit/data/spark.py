"""Tables of Spark by name: opened where they are stored, and known by the files that store their rows.

A name is ``table``, ``database.table`` or ``catalog.database.table``, of letters, digits and underscores: no
SQL and no path can be written in it, and a name that Spark would take for a format and a path, such as
``parquet.people``, is looked up in the catalog like any other. Only tables that the catalog keeps are
opened, and of these only what :func:`tacit.data.source.connect` reads: tables of Parquet or ORC files. Views
and temporary views are refused, for a view is a plan, and may be another plan tomorrow.

Spark runs in this process and in a Java machine beside it. There it reads rows, writes what does not fit
into memory to temporary files, and counts rows for its pages and its log of events; all of these are as
private as the rows. Here Spark is started without those pages and that log of events, and nothing that it
logs is shown. On the machines of a cluster, its logs and files are in the care of whoever runs the cluster.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import ibis
import ibis.expr.types as ir

from tacit._extras import needed
from tacit.data.engine.stored import FORMATS
from tacit.data.source import PrivateSource, connect
from tacit.errors import EngineFailed, InvalidValue, TacitError
from tacit.schema import Schema

__all__ = ["SparkTables"]

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9_]{1,128}(\.[A-Za-z0-9_]{1,128}){0,2}")
_ABSENT = re.compile("NOT_FOUND|REQUIRES_SINGLE_PART_NAMESPACE")
"""What Spark calls it that there is no such table, no such database, or no such catalog."""
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_SETTINGS = {
    "spark.ui.enabled": "false",  # its pages show how many rows each step has read
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.log.level": "OFF",
}
_ON_THIS_MACHINE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_STORED = "Store its rows as a table of Parquet files (CREATE TABLE people USING parquet AS SELECT …)."


class SparkTables:
    """The tables of the Spark that this process runs, or starts when it is first used; threads share it.

    ``master`` says where Spark computes: ``local[2]`` for two threads of this machine, or the URL of a
    cluster. If a session runs in this process already, that one is used. The catalog is the one that Spark's
    own configuration names (``spark-defaults.conf`` and ``hive-site.xml`` in ``SPARK_CONF_DIR``).

    >>> SparkTables("local[2]").check("study.people; DROP TABLE people")
    Traceback (most recent call last):
    tacit.errors.InvalidValue: source must be a table's name, ... of letters, digits and underscores, got ...
    """

    def __init__(self, master: str) -> None:
        self.master = master
        self._lock = threading.Lock()
        self._started: Any = None
        self._catalog: Any = None

    def start(self) -> None:
        """Start Spark, unless it runs; :class:`~tacit.errors.MissingExtra` where it is not installed."""
        with self._lock:
            if self._started is not None:
                return
            with needed("Tables of Spark"):
                import pyspark  # noqa: F401
            started = _withheld(lambda: _session(self.master), "Spark could not be started.", _NOT_STARTED)
            self._catalog = _withheld(lambda: _another(started))
            self._started = started

    def check(self, name: str) -> None:
        """Refuse what is not the name of a table; nothing is looked up."""
        if not _NAME.fullmatch(name):
            needs = "a table's name, or that with its database, or with catalog and database before it, "
            advice = "Name the table as Spark's catalog does; no path and no SQL is taken."
            raise InvalidValue("source", name, needs + "of letters, digits and underscores", advice)

    @property
    def ended(self) -> bool:
        """Whether the Java machine that this process has started is gone: nothing can be asked any more."""
        started = self._started
        machine = None if started is None else getattr(started.sparkContext._gateway, "proc", None)
        return machine is not None and machine.poll() is not None

    def table(self, name: str) -> ir.Table:
        """The table behind a name, as it is stored, in a session of its own; only its metadata are read."""
        self.check(name)
        self.start()

        def found() -> ir.Table:
            session = _another(self._started)
            known = _looked_up(session, name)
            _relation(name, session.table(_full(known)))
            connection = ibis.pyspark.connect(session)
            return connection.table(known.name, database=(known.catalog, known.namespace[0]))

        return self._asked(found)

    def open(self, name: str, schema: Schema) -> PrivateSource:
        """The cleaned table behind a name, in a session of its own; only its metadata are read."""
        table = self.table(name)
        return self._asked(lambda: connect(table, schema))

    def stamp(self, name: str) -> str:
        """What changes when rows are written to the table, or when it is replaced, as a digest.

        It is made of the table's full name, its columns with their types, and the path, the size and the time
        of each file that stores its rows, all of them as the catalog and the file system tell them: no
        file is opened. A file whose content was exchanged while path, size and time stayed the same is not
        noticed.
        """
        self.check(name)
        self.start()
        return self._asked(lambda: _stamp(self._catalog, name))

    def _asked(self, action: Callable[[], T]) -> T:
        """What Spark answers; what it says where it fails is withheld, and that it has ended is told."""
        try:
            return _withheld(action)
        except EngineFailed:
            if not self.ended:
                raise
        raise EngineFailed("The Java machine of Spark has ended.", _AGAIN, engine="pyspark")


_WITHHELD = "Spark could not look the table up; what it said is withheld, for it may quote the data."
_CHECK = "Check that Spark and its catalog run, and that the files of the table can be read."
_AGAIN = "Nothing was charged. Start the process again; Java may have run out of memory."
_NOT_STARTED = "Check that Java is installed, and that the master of Spark can be reached."


def _withheld(action: Callable[[], T], problem: str = _WITHHELD, advice: str = _CHECK) -> T:
    """What the action returns. If Spark fails, its error is not passed on, and no other is chained to it."""
    try:
        return action()
    except TacitError:
        raise
    except Exception:
        pass
    raise EngineFailed(problem, advice, engine="pyspark")


def _session(master: str) -> Any:
    """The session of this process. Nothing that it says is shown from here on, whichever thread asks it."""
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    warnings.filterwarnings("ignore", module=r"pyspark\b")
    settings = dict(_SETTINGS)
    if master.startswith("local"):
        settings |= _ON_THIS_MACHINE
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("tacit")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    for logger in (*map(PySparkLogger.getLogger, _LOGGERS), *map(logging.getLogger, ("py4j", "pyspark"))):
        logger.setLevel(logging.CRITICAL + 1)
    return session


def _another(session: Any) -> Any:
    """A session beside this one, with the same catalog and no temporary view; no path names a table in it."""
    made = session.newSession()
    made.conf.set("spark.sql.runSQLOnFiles", "false")
    return made


def _quoted(name: str) -> str:
    return ".".join(f"`{part}`" for part in name.split("."))


def _looked_up(session: Any, name: str) -> Any:
    """The table as the catalog describes it."""
    from pyspark.errors import AnalysisException

    found = None
    try:
        found = session.catalog.getTable(_quoted(name))
    except AnalysisException as error:
        if not _ABSENT.search(error.getCondition() or ""):
            raise  # the catalog itself cannot be asked
    if found is None:
        advice = "Check its name, its database and which catalog Spark's configuration names."
        raise InvalidValue("source", name, "a table that Spark's catalog has", advice)
    if found.isTemporary or found.tableType == "VIEW" or len(found.namespace or ()) != 1:
        raise InvalidValue("source", name, "a table that stores its rows, and not a view", _STORED)
    return found


def _stamp(session: Any, name: str) -> str:
    full = _full(_looked_up(session, name))
    session.catalog.refreshTable(full)
    table = session.table(full)
    facts = [full, table.schema.json(), sorted(_files(session, _relation(name, table)))]
    return "spark:" + hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _full(found: Any) -> str:
    """The full name of a table that was looked up."""
    return _quoted(".".join((found.catalog, *found.namespace, found.name)))


def _relation(name: str, table: Any) -> Any:
    """What Spark reads for a table, if that is files in a format whose values it cannot stumble over."""
    node = table._jdf.queryExecution().analyzed()
    while _class(node) == "SubqueryAlias":
        node = node.child()
    read = node.relation() if _class(node) == "LogicalRelation" else None
    if read is None or _class(read) != "HadoopFsRelation" or _class(read.fileFormat()) not in FORMATS:
        raise InvalidValue("source", name, "a table that is stored as Parquet or ORC files", _STORED)
    return read


def _files(session: Any, relation: Any) -> list[tuple[str, int, int]]:
    """Path, size and time of the files of a table."""
    none = session.sparkContext._jvm.PythonUtils.toSeq([])
    folders = relation.location().listFiles(none, none)
    listed = [folders.apply(place).files() for place in range(folders.size())]
    files = [each.apply(place) for each in listed for place in range(each.size())]
    return [(file.getPath().toString(), file.getLen(), file.getModificationTime()) for file in files]


def _class(thing: Any) -> str:
    name: str = thing.getClass().getSimpleName()
    return name
