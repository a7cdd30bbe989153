"""The tables of the service. They stand in a file of their own, or beside the ledger in PostgreSQL."""

from __future__ import annotations

import sqlalchemy as sa

__all__ = [
    "VERSION",
    "create",
    "datasets",
    "grants",
    "log",
    "metadata",
    "requests",
    "state",
    "tokens",
    "users",
]

VERSION = 1
"""Version of this layout."""

metadata = sa.MetaData()

state = sa.Table(
    "tacit_service",
    metadata,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("entries", sa.Integer, nullable=False),
    sa.Column("head", sa.Text, nullable=False),
)

users = sa.Table(
    "tacit_service_users",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
)

tokens = sa.Table(
    "tacit_service_tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("user", sa.Text, sa.ForeignKey(users.c.name), nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("csrf", sa.Text),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("expires", sa.Double, nullable=False),
    sa.Column("revoked", sa.Double),
)
"""Hashes of tokens; a session of a browser is a token that has the hash of a second secret, ``csrf``."""

datasets = sa.Table(
    "tacit_service_datasets",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("schema", sa.Text, nullable=False),
    sa.Column("stamp", sa.Text, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
)

grants = sa.Table(
    "tacit_service_grants",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("analyst", sa.Text, sa.ForeignKey(users.c.name), nullable=False),
    sa.Column("dataset", sa.Text, sa.ForeignKey(datasets.c.name), nullable=False),
    sa.Column("epsilon", sa.Double, nullable=False),
    sa.Column("delta", sa.Double, nullable=False),
    sa.Column("statistics", sa.Text, nullable=False),
    sa.Column("models", sa.Text, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("expires", sa.Double),
    sa.Column("revoked", sa.Double),
)

requests = sa.Table(
    "tacit_service_requests",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("analyst", sa.Text, sa.ForeignKey(users.c.name), nullable=False),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("grant", sa.Text, sa.ForeignKey(grants.c.id), nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("lease", sa.Double),
    sa.Column("cancelled", sa.Boolean, nullable=False),
    sa.Column("progress", sa.Text, nullable=False),
    sa.Column("result", sa.Text),
    sa.Column("entry", sa.Integer),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("visible", sa.Double),
    sa.UniqueConstraint("analyst", "key"),
)
"""What was asked for. ``result`` is the release, or why there is none; it is shown from ``visible`` on."""
sa.Index("tacit_service_requests_open", requests.c.state, requests.c.created)

log = sa.Table(
    "tacit_service_log",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("details", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)

_SQLITE_TRIGGERS = [
    f"CREATE TRIGGER tacit_service_no_{verb} BEFORE {verb} ON tacit_service_log "
    "BEGIN SELECT RAISE(ABORT, 'the log of the service is append-only'); END"
    for verb in ("update", "delete")
]

_POSTGRES_TRIGGERS = [
    "CREATE OR REPLACE FUNCTION tacit_service_append_only() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the log of the service is append-only'; END $$",
    "CREATE TRIGGER tacit_service_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON tacit_service_log "
    "FOR EACH STATEMENT EXECUTE FUNCTION tacit_service_append_only()",
]


def create(connection: sa.Connection) -> None:
    """Create the tables and triggers, in the transaction at hand."""
    metadata.create_all(connection, checkfirst=False)
    postgres = connection.dialect.name == "postgresql"
    for statement in _POSTGRES_TRIGGERS if postgres else _SQLITE_TRIGGERS:
        connection.exec_driver_sql(statement)
