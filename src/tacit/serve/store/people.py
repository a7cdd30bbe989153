"""Users and their tokens. A token is shown once, when it is made; only its hash is kept."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tacit.serve.store import tables

__all__ = [
    "Found",
    "Secret",
    "add_token",
    "add_user",
    "agrees",
    "find",
    "revoke",
    "role_of",
    "tokens",
    "users",
]

_PREFIX = "tacit"

# To make a statement takes longer than to execute it: those that every question executes are made once.
_TOKEN = (
    sa.select(tables.tokens, tables.users.c.role)
    .join(tables.users)
    .where(tables.tokens.c.id == sa.bindparam("token"))
)


@dataclass(frozen=True)
class Secret:
    """A token as its holder has it. Its text is shown once and never written down here, nor is it logged."""

    id: str
    text: str
    csrf: str | None = None

    def __repr__(self) -> str:
        return f"Secret({self.id!r})"


@dataclass(frozen=True)
class Found:
    """Whom a token belongs to."""

    user: str
    role: str
    token: str
    csrf: str | None
    """The hash of the second secret of a browser's session."""
    expires: float


def add_user(connection: sa.Connection, name: str, role: str, now: float) -> bool:
    """Add a user; False if there is one of this name."""
    if role_of(connection, name) is not None:
        return False
    connection.execute(tables.users.insert().values(name=name, role=role, created=now))
    return True


def role_of(connection: sa.Connection, name: str) -> str | None:
    """The role of a user, or None if there is none of this name."""
    found: str | None = connection.scalar(sa.select(tables.users.c.role).where(tables.users.c.name == name))
    return found


def users(connection: sa.Connection) -> list[dict[str, Any]]:
    """All users, in the order of their names."""
    return [row._asdict() for row in connection.execute(sa.select(tables.users).order_by("name"))]


def add_token(
    connection: sa.Connection, user: str, now: float, expires: float, *, session: bool = False
) -> Secret:
    """Make a token of 256 random bits: it cannot be guessed, so that a plain hash of it is safe to keep."""
    csrf = secrets.token_urlsafe(32) if session else None
    made = Secret(secrets.token_hex(8), secrets.token_urlsafe(32), csrf)
    content = {
        "id": made.id, "user": user, "hash": _hash(made.text), "created": now, "expires": expires,
        "csrf": None if csrf is None else _hash(csrf),
    }  # fmt: skip
    connection.execute(tables.tokens.insert(), content)
    return Secret(made.id, f"{_PREFIX}_{made.id}_{made.text}", made.csrf)


def find(connection: sa.Connection, text: str, now: float) -> Found | None:
    """Whom a token belongs to; None if it is no token, has expired or was revoked."""
    prefix, _, rest = text.partition("_")
    number, _, secret = rest.partition("_")
    if prefix != _PREFIX or not (number.isascii() and number.isalnum()) or not secret:
        return None
    row = connection.execute(_TOKEN, {"token": number}).one_or_none()
    kept = "" if row is None else row.hash
    right = hmac.compare_digest(kept, _hash(secret))
    if row is None or not right or row.revoked is not None or row.expires <= now:
        return None
    return Found(row.user, row.role, row.id, row.csrf, row.expires)


def agrees(found: Found, csrf: str | None) -> bool:
    """Whether the second secret of a session was told."""
    return found.csrf is not None and hmac.compare_digest(found.csrf, _hash(csrf or ""))


def revoke(connection: sa.Connection, token: str, now: float) -> str | None:
    """End a token, and the sessions of its owner, which may have been started with it.

    Returns whose it was, or None if there is none that can be ended. The end of a session ends no other.
    """
    table = tables.tokens
    found = connection.execute(
        sa.select(table.c.user, table.c.csrf).where(table.c.id == token, table.c.revoked.is_(None))
    ).one_or_none()
    if found is None:
        return None
    ended = table.c.id == token
    if found.csrf is None:
        sessions = sa.and_(table.c.user == found.user, table.c.csrf.is_not(None), table.c.revoked.is_(None))
        ended = sa.or_(ended, sessions)
    connection.execute(table.update().where(ended).values(revoked=now))
    owner: str = found.user
    return owner


def tokens(connection: sa.Connection) -> list[dict[str, Any]]:
    """All tokens without their hashes, the oldest first."""
    table = tables.tokens
    shown = (table.c.id, table.c.user, table.c.created, table.c.expires, table.c.revoked)
    session = table.c.csrf.is_not(None).label("session")
    query = sa.select(*shown, session).order_by(table.c.created, table.c.id)
    return [row._asdict() for row in connection.execute(query)]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
