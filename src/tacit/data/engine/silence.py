"""What engines print and log while they run a query: it may quote the data, and is withheld."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

__all__ = ["silent"]

_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j", "pyspark", "ibis", "duckdb")


_LOCK = threading.Lock()
_PUT_BACK = ExitStack()
"""What the last query that ends puts back; loggers and levels belong to the process, not to a thread."""
_running = 0


@contextmanager
def silent(connection: Any) -> Iterator[None]:
    """Withhold warnings and logs; those of a cluster's other machines stay where they are.

    Of queries that overlap, the last one to end switches logs on again.
    """
    global _running
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _LOCK:
            _running += 1
            if connection.name == "pyspark":
                with suppress(Exception):
                    _silence_spark(connection)
            _silence_loggers()
        try:
            yield
        finally:
            with _LOCK:
                _running -= 1
                if not _running:
                    _PUT_BACK.close()


def _silence_loggers() -> None:
    for name, logger in list(logging.root.manager.loggerDict.items()):
        theirs = name.partition(".")[0] in _LOGGERS
        if theirs and isinstance(logger, logging.Logger) and not logger.disabled:
            logger.disabled = True
            _PUT_BACK.callback(setattr, logger, "disabled", False)


def _silence_spark(connection: Any) -> None:
    """Spark logs the rows on which it fails, from Python and from the JVM beside it."""
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS[:2]:
        PySparkLogger.getLogger(name)
    context = connection._session.sparkContext
    level = context._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString()
    if level != "OFF":
        context.setLogLevel("OFF")
        _PUT_BACK.callback(context.setLogLevel, level)
