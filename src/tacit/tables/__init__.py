"""Private statistics on tables: CSV and Parquet files, frames, or any table Ibis can reach.

The road of an answer: a :class:`tacit.Schema` says what is public; :func:`open` joins it with data and
a ledger; a question names its event and is charged; the engine adds up whole numbers, row by
row bounded; noise goes on them; a :class:`Release` comes out, with value, interval and guarantee.

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
>>> table.mean("age", epsilon=0.25).guarantee.epsilon, ledger.spent().epsilon
(0.25, 0.75)
>>> table.close(); ledger.close()
"""

from tacit.tables.batch import Batch, Plan
from tacit.tables.release import Release
from tacit.tables.table import Table, open

__all__ = ["Batch", "Plan", "Release", "Table", "open"]
