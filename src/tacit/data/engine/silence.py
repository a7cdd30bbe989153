"""What engines print and log while they run a query: it may quote the data, and is withheld."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

__all__ = ["silent"]

_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j", "pyspark", "ibis", "duckdb")


@contextmanager
def silent(connection: Any) -> Iterator[None]:
    """Withhold warnings and logs; those of a cluster's other machines stay where they are."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        if connection.name == "pyspark":
            with suppress(Exception):
                _silence_spark(connection, stack)
        for name, logger in list(logging.root.manager.loggerDict.items()):
            theirs = name.partition(".")[0] in _LOGGERS
            if theirs and isinstance(logger, logging.Logger) and not logger.disabled:
                logger.disabled = True
                stack.callback(setattr, logger, "disabled", False)
        yield


def _silence_spark(connection: Any, stack: ExitStack) -> None:
    """Spark logs the rows on which it fails, from Python and from the JVM beside it."""
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS[:2]:
        PySparkLogger.getLogger(name)
    context = connection._session.sparkContext
    level = context._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString()
    context.setLogLevel("OFF")
    stack.callback(context.setLogLevel, level)
