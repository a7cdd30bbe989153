"""Private statistics on tables: CSV and Parquet files, frames, and Ibis tables on DuckDB or Spark.

The road of an answer, from left to right, and where each step is written::

    question ──▶ statistic ──▶ noise ──▶ charge ──▶ measure ──▶ answer
    questions    statistics/   with_     batch,     cells/      release
    language/    asked         noise     ledger     measure

- A **question** is a value (:mod:`.questions`): ``Mean("age", by="sex", where="pay > 0")``. The methods of a
  table and of a batch make it (:mod:`.asking`), and so does its text (:mod:`.language`).
- Its **statistic** (:func:`.statistics.asked.statistic_of`) is made of the question and the schema: which
  whole numbers, its cells, the engine adds up, and how they are read.
- :meth:`~.statistics.statistic.Statistic.with_noise` buys the **noise** for its share of the budget, once.
  The :class:`~.statistics.statistic.NoisyStatistic` holds the mechanisms, and its event, its expected error
  and its answer come from them.
- The events of a batch are **charged** (:mod:`.batch`, :class:`tacit.ledger.payment.Payment`) before any row
  is read. A question that is asked of a table is a batch of one.
- The engine **measures** the exact cells, row by row bounded (:mod:`.cells.measure`).
- The noisy statistic makes the **answer** from them, and a :class:`Release` hands it out, with value,
  interval and guarantee.

>>> import tempfile, pathlib
>>> import pandas as pd
>>> import tacit
>>> people = pd.DataFrame({"age": [23, 35, 47, 61] * 250, "smoker": [True, False, False, False] * 250})
>>> schema = tacit.Schema({
...     "age": tacit.Column("integer", bounds=(0, 120)),
...     "smoker": tacit.Column("boolean"),
... })
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> ledger = tacit.Ledger.open(folder / "study.db", budget=tacit.Budget(epsilon=1.0))
>>> table = tacit.tables.open(people, schema=schema, ledger=ledger, random_state=1)
>>> smokers = table.count(by="smoker", epsilon=0.5)
>>> low, high = smokers.interval(confidence=0.95)
>>> bool(((low <= [750, 250]) & ([750, 250] <= high)).all())
True
>>> table.mean("age", where="smoker = True", epsilon=0.25).guarantee.epsilon, ledger.spent().epsilon
(0.25, 0.75)
>>> table.ask("mean(age) where smoker", epsilon=0.125).label
'mean(age) where smoker'
>>> table.close(); ledger.close()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.tables import questions
    from tacit.tables.batch import Batch, Quote
    from tacit.tables.release import Release
    from tacit.tables.table import Table, open

__all__ = ["Batch", "Quote", "Release", "Table", "open", "questions"]

_ON_FIRST_USE = {
    "Batch": "tacit.tables.batch",
    "Quote": "tacit.tables.batch",
    "Release": "tacit.tables.release",
    "Table": "tacit.tables.table",
    "open": "tacit.tables.table",
}


def __getattr__(name: str) -> Any:
    """The engine is imported when a table is opened; questions, which need none, can be read without it."""
    if name == "questions":
        return import_module("tacit.tables.questions")
    if name in _ON_FIRST_USE:
        return getattr(import_module(_ON_FIRST_USE[name]), name)
    raise AttributeError(f"module 'tacit.tables' has no attribute {name!r}")
