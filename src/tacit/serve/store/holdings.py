"""Datasets that the curator holds, and grants: who may ask what of them, for how much."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa

from tacit.ledger import Budget
from tacit.serve.store import tables

__all__ = [
    "Dataset",
    "Grant",
    "add_dataset",
    "add_grant",
    "dataset",
    "datasets",
    "grant",
    "grants",
    "restamp",
    "revoke_grant",
]

# Made once: every question executes them.
_DATASET = sa.select(tables.datasets).where(tables.datasets.c.name == sa.bindparam("dataset"))
_GRANT = sa.select(tables.grants).where(tables.grants.c.id == sa.bindparam("grant"))


@dataclass(frozen=True)
class Dataset:
    """A registered dataset. ``source`` and ``stamp`` are for the curator alone."""

    name: str
    source: str
    schema: str
    stamp: str
    created: float


@dataclass(frozen=True)
class Grant:
    """What an analyst may spend on a dataset, which statistics may be asked for and which models fitted.

    ``statistics`` None allows all of them; ``models`` lists the names of models and synthesizers.
    """

    id: str
    analyst: str
    dataset: str
    budget: Budget
    statistics: tuple[str, ...] | None
    models: tuple[str, ...]
    created: float
    expires: float | None = None
    revoked: float | None = None

    def valid(self, now: float) -> bool:
        """Whether it may be used now."""
        return self.revoked is None and (self.expires is None or now < self.expires)


def add_dataset(connection: sa.Connection, made: Dataset) -> bool:
    """Add a dataset; False if there is one of this name."""
    if dataset(connection, made.name) is not None:
        return False
    connection.execute(tables.datasets.insert(), vars(made))
    return True


def dataset(connection: sa.Connection, name: str) -> Dataset | None:
    """The dataset of this name, if there is one."""
    row = connection.execute(_DATASET, {"dataset": name}).one_or_none()
    return None if row is None else Dataset(**row._asdict())


def datasets(connection: sa.Connection) -> list[Dataset]:
    """All datasets, in the order of their names."""
    rows = connection.execute(sa.select(tables.datasets).order_by("name"))
    return [Dataset(**row._asdict()) for row in rows]


def restamp(connection: sa.Connection, name: str, stamp: str) -> None:
    """Take the files of a dataset for what they are now."""
    table = tables.datasets
    connection.execute(table.update().where(table.c.name == name).values(stamp=stamp))


def add_grant(connection: sa.Connection, made: Grant) -> None:
    """Add a grant."""
    content: dict[str, Any] = {**vars(made), "epsilon": made.budget.epsilon, "delta": made.budget.delta}
    del content["budget"]
    content["statistics"] = json.dumps(made.statistics)
    content["models"] = json.dumps(made.models)
    connection.execute(tables.grants.insert(), content)


def grant(connection: sa.Connection, number: str) -> Grant | None:
    """The grant with this id, if there is one."""
    row = connection.execute(_GRANT, {"grant": number}).one_or_none()
    return None if row is None else _grant(row)


def grants(connection: sa.Connection, analyst: str | None = None, dataset: str | None = None) -> list[Grant]:
    """The grants of an analyst, for a dataset, or all of them; the oldest first."""
    wanted = {name: one for name, one in (("analyst", analyst), ("dataset", dataset)) if one is not None}
    return [_grant(row) for row in connection.execute(_grants(*wanted), wanted)]


@cache
def _grants(*columns: str) -> sa.Select[Any]:
    """The grants of which these columns are given."""
    table = tables.grants
    given = (table.c[name] == sa.bindparam(name) for name in columns)
    return sa.select(table).where(*given).order_by(table.c.created, table.c.id)


def revoke_grant(connection: sa.Connection, number: str, now: float) -> None:
    """End a grant. What was charged for it stands."""
    table = tables.grants
    connection.execute(table.update().where(table.c.id == number).values(revoked=now))


def _grant(row: Any) -> Grant:
    content = row._asdict()
    budget = Budget(content.pop("epsilon"), content.pop("delta"))
    listed = json.loads(content["statistics"])
    content["statistics"] = None if listed is None else tuple(listed)
    content["models"] = tuple(json.loads(content["models"]))
    return Grant(**content, budget=budget)
