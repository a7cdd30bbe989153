"""Users and tokens."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.serve.access import ROLES, Caller, unknown
from tacit.serve.service import NAME, Service, refused
from tacit.serve.store import log, people

__all__ = [
    "add_user",
    "end_session",
    "first_curator",
    "further_curator",
    "issue_token",
    "list_tokens",
    "list_users",
    "named",
    "oneself",
    "revoke_token",
    "start_session",
    "when",
]

DAY = 86400.0
LONGEST_DAYS = 366.0
SESSION_SECONDS = 8 * 3600.0


def named(parameter: str, value: str) -> str:
    """A name of a user or a dataset; InvalidValue if it is none."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        wanted = "of small letters, digits, hyphens and underscores, at most 64 of them"
        raise InvalidValue(parameter, value, wanted)
    return value


def when(seconds: float | None) -> str | None:
    """A time as it is shown."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def first_curator(service: Service, name: str = "curator", days: float = 30.0) -> people.Secret | None:
    """The token of a first curator, where there is no user yet; None where there is one."""
    with service.database.write() as connection:
        if people.users(connection):
            return None
        people.add_user(connection, named("name", name), "curator", service.now())
        log.append(connection, name, "added user", name, role="curator")
        made = people.add_token(connection, name, service.now(), service.now() + days * DAY)
        log.append(connection, name, "issued token", made.id, user=name)
        return made


def further_curator(service: Service, name: str = "curator", days: float = 30.0) -> people.Secret:
    """A further token of the first curator, for whoever can start commands in the service's home."""
    with service.database.write() as connection:
        if people.role_of(connection, name) != "curator":
            raise refused(404, f"There is no curator {name!r}.", "Start the service first.")
        made = people.add_token(connection, name, service.now(), service.now() + days * DAY)
        log.append(connection, name, "issued token", made.id, user=name, days=days)
        return made


def oneself(service: Service, caller: Caller) -> dict[str, Any]:
    """Who the caller is."""
    caller.must("know oneself")
    return {"name": caller.name, "role": caller.role}


def add_user(service: Service, caller: Caller, name: str, role: str) -> dict[str, Any]:
    """Add a user with one of the three roles."""
    caller.must("add users")
    named("name", name)
    _validate.choice("role", role, ROLES)
    with service.database.write() as connection:
        if not people.add_user(connection, name, role, service.now()):
            raise refused(409, f"There is a user {name!r} already.", "Choose another name.")
        log.append(connection, caller.name, "added user", name, role=role)
    return {"name": name, "role": role}


def list_users(service: Service, caller: Caller) -> list[dict[str, Any]]:
    """All users."""
    caller.must("list users")
    with service.database.read() as connection:
        found = people.users(connection)
    return [{**user, "created": when(user["created"])} for user in found]


def issue_token(service: Service, caller: Caller, user: str, days: float = 30.0) -> dict[str, Any]:
    """Make a token for a user. Its text is told here and never again."""
    caller.must("issue tokens")
    if _validate.positive("days", days) > LONGEST_DAYS:
        raise InvalidValue("days", days, f"at most {LONGEST_DAYS:g}")
    with service.database.write() as connection:
        if not NAME.fullmatch(user) or people.role_of(connection, user) is None:
            raise refused(404, "There is no such user.", "Add the user first.")
        now = service.now()
        made = people.add_token(connection, user, now, now + days * DAY)
        log.append(connection, caller.name, "issued token", made.id, user=user, days=days)
    return {"id": made.id, "user": user, "token": made.text, "expires": when(now + days * DAY)}


def list_tokens(service: Service, caller: Caller) -> list[dict[str, Any]]:
    """All tokens, without their secrets."""
    caller.must("list tokens")
    with service.database.read() as connection:
        found = people.tokens(connection)
    times = ("created", "expires", "revoked")
    return [{**token, **{name: when(token[name]) for name in times}} for token in found]


def revoke_token(service: Service, caller: Caller, token: str) -> dict[str, Any]:
    """End a token at once, and with it the sessions of its owner."""
    caller.must("revoke tokens")
    return _ended(service, caller, token)


def start_session(service: Service, token: str | None) -> tuple[Caller, people.Secret]:
    """A session of a browser, in exchange for a token, which it does not outlive."""
    with service.database.write() as connection:
        now = service.now()
        found = people.find(connection, token or "", now)
        if found is None or found.csrf is not None:
            raise unknown()
        made = people.add_token(
            connection, found.user, now, min(now + SESSION_SECONDS, found.expires), session=True
        )
        log.append(connection, found.user, "started session", made.id)
    return Caller(found.user, found.role, made.id, True), made


def end_session(service: Service, caller: Caller) -> dict[str, Any]:
    """End the session, or the token, that the caller uses now."""
    caller.must("end a session")
    return _ended(service, caller, caller.token)


def _ended(service: Service, caller: Caller, token: str) -> dict[str, Any]:
    with service.database.write() as connection:
        known = token.isascii() and token.isalnum()
        owner = people.revoke(connection, token, service.now()) if known else None
        if owner is None:
            raise refused(404, "There is no such token in force.", "List the tokens.")
        log.append(connection, caller.name, "revoked token", token, user=owner)
    return {"id": token, "user": owner}
