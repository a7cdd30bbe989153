"""The tables of a ledger, and the triggers that keep its entries append-only.

``tacit_entries`` is the record; the other tables are running state derived from it, there so
that a charge costs the same however long the ledger is. ``Ledger.verify`` recomputes them.
The triggers stop accidents and honest mistakes; verification does not rely on them.
"""

from __future__ import annotations

import sqlalchemy as sa

__all__ = [
    "VERSION",
    "create",
    "datasets",
    "entries",
    "left_over",
    "metadata",
    "of_a_run",
    "partitions",
    "scopes",
    "state",
]

VERSION = 1
"""Version of this layout. A ledger with a higher one was written by a later tacit."""

metadata = sa.MetaData()

state = sa.Table(
    "tacit_state",
    metadata,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
    sa.Column("schema_version", sa.Integer, nullable=False),
    sa.Column("entries", sa.Integer, nullable=False),
    sa.Column("head", sa.Text, nullable=False),
)

datasets = sa.Table(
    "tacit_datasets",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("terms", sa.Text, nullable=False),
    sa.Column("mode", sa.Text),
    sa.Column("noise", sa.Text, nullable=False),
    sa.Column("charges", sa.Integer, nullable=False),
    sa.Column("total", sa.Text, nullable=False),
)

scopes = sa.Table(
    "tacit_scopes",
    metadata,
    sa.Column("dataset", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("partitions", sa.Text, nullable=False),
)

partitions = sa.Table(
    "tacit_partitions",
    metadata,
    sa.Column("dataset", sa.Text, primary_key=True),
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("total", sa.Text, nullable=False),
)

entries = sa.Table(
    "tacit_entries",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("label", sa.Text),
    sa.Column("scope", sa.Text),
    sa.Column("partition", sa.Text),
    sa.Column("event", sa.Text),
    sa.Column("epsilon", sa.Double),
    sa.Column("delta", sa.Double),
    sa.Column("renyi", sa.Double),
    sa.Column("renyi_delta", sa.Double),
    sa.Column("mode", sa.Text),
    sa.Column("declared_delta", sa.Double),
    sa.Column("noise", sa.Text),
    sa.Column("details", sa.Text),
    sa.Column("hash", sa.Text, nullable=False),
)

of_a_run = sa.func.substr(
    entries.c.details, sa.literal_column("2"), sa.literal_column("5")
) == sa.literal_column("'\"run\"'")
"""Whether an entry says something about the steps of a run."""
sa.Index("tacit_entries_of_runs", entries.c.dataset, sqlite_where=of_a_run, postgresql_where=of_a_run)

_SQLITE_TRIGGERS = [
    f"CREATE TRIGGER tacit_no_{verb} BEFORE {verb} ON tacit_entries "
    "BEGIN SELECT RAISE(ABORT, 'the entries of a ledger are append-only'); END"
    for verb in ("update", "delete")
]

_POSTGRES_TRIGGERS = [
    "CREATE OR REPLACE FUNCTION tacit_append_only() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the entries of a ledger are append-only'; END $$",
    "CREATE TRIGGER tacit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON tacit_entries "
    "FOR EACH STATEMENT EXECUTE FUNCTION tacit_append_only()",
]


def left_over(connection: sa.Connection) -> bool:
    """Whether a ledger was here whose tables are gone: in PostgreSQL, the function of its triggers stays."""
    if connection.dialect.name != "postgresql":
        return False
    return bool(connection.scalar(sa.text("SELECT to_regproc('tacit_append_only') IS NOT NULL")))


def create(connection: sa.Connection) -> None:
    """Create the tables and triggers, in the transaction at hand."""
    metadata.create_all(connection, checkfirst=False)
    postgres = connection.dialect.name == "postgresql"
    for statement in _POSTGRES_TRIGGERS if postgres else _SQLITE_TRIGGERS:
        connection.exec_driver_sql(statement)
