"""Where the rows of a dataset are: files inside the folder of data, or a table of Spark; nothing else.

A curator names a file, or a pattern of several, relative to that folder. URLs, absolute paths, ways out by
``..`` and links that lead out are refused, when a dataset is registered and again whenever it is read. Files
are known by their identity, size and time: if one was replaced or written to, questions are refused until the
curator confirms that the rows are still of those people whom the budget protects.

If the service was started with Spark, ``spark:database.table`` names a table of its catalog; see
:mod:`tacit.data.spark`. It is known by its columns and by the path, size and time of its files, which are
looked up before every charge: rows that were added, removed or rewritten are noticed as those of a file
are, and questions are refused in the same way. Two changes are not noticed: a file whose content was
exchanged while its size and time stayed the same, and one between that look and the last row that is read.
Then answers are about other rows. The budget still bounds what is told of everybody who is in them; that they
are the people for whom the budget was registered is the curator's word.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tacit.errors import EngineFailed, InvalidValue
from tacit.serve.service import Service, refused
from tacit.serve.store.holdings import Dataset

if TYPE_CHECKING:
    from tacit.data.source import PrivateSource
    from tacit.data.spark import SparkTables
    from tacit.schema import Schema

__all__ = ["SPARK", "Files", "SparkTable", "checked", "for_job", "found", "opened"]

SPARK = "spark:"
"""What the name of a table of Spark begins with."""


@dataclass(frozen=True)
class Files:
    """Files in the folder of data."""

    paths: Sequence[str]
    place: str
    """The one file, or the pattern of all of them."""

    def open(self, schema: Schema) -> PrivateSource:
        """The rows behind a schema; only names and types of columns are looked at."""
        from tacit.data.source import connect

        return connect(self.place, schema)

    def stamp(self) -> str:
        """What changes when a file is replaced or written to. It tells sizes: it is for the curator alone."""
        seen = {}
        for file in self.paths:
            facts = os.stat(file)
            seen[file] = [facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns]
        return json.dumps(seen, sort_keys=True)


@dataclass(frozen=True)
class SparkTable:
    """A table of Spark, by its name."""

    tables: SparkTables
    name: str

    def open(self, schema: Schema) -> PrivateSource:
        """The rows behind a schema; only names and types of columns are looked at."""
        return self.tables.open(self.name, schema)

    def stamp(self) -> str:
        """What changes when rows are written, as :meth:`tacit.data.spark.SparkTables.stamp` says."""
        return self.tables.stamp(self.name)


def found(service: Service, source: str) -> Files | SparkTable:
    """What a source means: files, all of them inside the folder of data, or a table of Spark by its name."""
    if source.startswith(SPARK):
        return _on_spark(service, source)
    path = PurePosixPath(source)
    odd = not source.isprintable() or "://" in source or "\\" in source or source.startswith("~")
    if odd or not source.strip() or len(source) > 500 or path.is_absolute() or ".." in path.parts:
        advice = "Put the file into the folder of data, and name it relative to that."
        raise InvalidValue("source", source, "the name of a file in the folder of data", advice)
    root = os.path.realpath(service.data)
    place, pattern = os.path.join(root, source), os.path.join(glob.escape(root), source)
    files = [place] if os.path.isfile(place) else sorted(glob.glob(pattern, recursive=True))
    files = [file for file in files if os.path.isfile(file)]
    if not files:
        raise InvalidValue("source", source, "a file that is there", "Look into the folder of data.")
    for file in files:
        if os.path.commonpath([root, os.path.realpath(file)]) != root:
            raise InvalidValue("source", source, "inside the folder of data, and no link out of it")
    return Files(files, files[0] if len(files) == 1 else pattern)


def _on_spark(service: Service, source: str) -> SparkTable:
    if service.place.spark is None:
        advice = "Start the service with --spark local[2], say, or export the table to Parquet files."
        raise InvalidValue("source", source, "a file, for the service was started without Spark", advice)
    table = SparkTable(service.keeping.spark(service.place.spark), source.removeprefix(SPARK))
    table.tables.check(table.name)
    return table


def checked(service: Service, dataset: Dataset) -> Files | SparkTable:
    """Where the rows of a dataset are, if they are still those that the curator registered or confirmed."""
    on_spark = dataset.source.startswith(SPARK)
    if on_spark and service.place.spark is None:
        said = f"{dataset.name!r} is a table of Spark, and the service was started without Spark."
        raise refused(503, said, "Nothing was charged. Tell its curator.")
    try:
        known = found(service, dataset.source)
        same = known.stamp() == dataset.stamp
    except (InvalidValue, OSError):
        same = False
    except EngineFailed:
        if not service.keeping.spark_ended():
            raise
        advice = "Nothing was charged. Tell its curator to start the service again."
        raise refused(503, f"{dataset.name!r} cannot be asked: Spark has ended.", advice) from None
    if not same and on_spark:
        raise refused(
            503, f"The table of {dataset.name!r} is not as it was when it was registered.",
            "Nothing was charged. The curator has to confirm it.",
        )  # fmt: skip
    if not same:
        raise refused(
            503, f"The files of {dataset.name!r} are not those that were registered.",
            "Nothing was charged. The curator has to confirm them.",
        )  # fmt: skip
    return known


def opened(known: Files | SparkTable, dataset: Dataset, schema: Schema) -> PrivateSource:
    """The rows of a dataset, for an analyst, who is not told what is wrong with the source of the curator."""
    try:
        return known.open(schema)
    except InvalidValue:
        said = f"{dataset.name!r} cannot be asked at the moment."
        raise refused(503, said, "Nothing was charged. Tell its curator.") from None


def for_job(known: Files | SparkTable, dataset: Dataset, kind: str) -> Any:
    """What a job reads: the file, the pattern of files, or the table where it is.

    The rows of a table of Spark stay there. What would read all of them into memory is refused.
    """
    if isinstance(known, Files):
        return known.place
    if kind in ("fit", "synthesize"):
        return known.tables.table(known.name)
    raise refused(
        422, f"{dataset.name!r} is a table of Spark; training runs and measurements read files alone.",
        "Nothing was charged. Its curator can export it to Parquet files in the folder of data, and register "
        "those; what is spent on both adds up for the people in them.",
    )  # fmt: skip
