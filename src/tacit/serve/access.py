"""Who may do what: three roles, and a table of what each of them may do.

The **curator** holds the data: registers datasets, knows users, grants, and sees everything but answers. The
**analyst** asks within grants, and sees own requests and their releases. The **auditor** reads the ledger and
the log, verifies both, and asks nothing. Whoever needs two roles has two users.
"""

from __future__ import annotations

from dataclasses import dataclass

from tacit.errors import ServiceRefused
from tacit.serve.service import Service, refused
from tacit.serve.store import people

__all__ = ["MAY", "ROLES", "Caller", "identified", "unknown"]

ROLES = ("curator", "analyst", "auditor")

MAY: dict[str, frozenset[str]] = {
    action: frozenset(roles.split())
    for action, roles in {
        "know oneself": "curator analyst auditor",
        "end a session": "curator analyst auditor",
        "add users": "curator",
        "list users": "curator auditor",
        "issue tokens": "curator",
        "list tokens": "curator",
        "revoke tokens": "curator",
        "register datasets": "curator",
        "confirm datasets": "curator",
        "list datasets": "curator analyst auditor",
        "see datasets": "curator analyst auditor",
        "grant": "curator",
        "list grants": "curator analyst auditor",
        "revoke grants": "curator",
        "plan": "analyst",
        "ask": "analyst",
        "plan jobs": "analyst",
        "start jobs": "analyst",
        "list requests": "curator analyst auditor",
        "see requests": "analyst",
        "cancel requests": "curator analyst",
        "download": "analyst",
        "read the ledger": "curator auditor",
        "verify": "curator auditor",
        "report": "curator auditor",
        "read the log": "curator auditor",
    }.items()
}
"""The roles that may do each action."""


@dataclass(frozen=True)
class Caller:
    """Somebody who was recognised."""

    name: str
    role: str
    token: str
    session: bool = False

    def must(self, action: str) -> None:
        """Refuse an action that the role does not allow."""
        if self.role not in MAY[action]:
            allowed = " or ".join(sorted(MAY[action]))
            raise refused(403, f"A user with the role {self.role} may not {action}.", f"Ask an {allowed}.")

    @property
    def own(self) -> str | None:
        """The analyst whose things alone may be seen; None where all may be."""
        return self.name if self.role == "analyst" else None


def unknown() -> ServiceRefused:
    """The error for a token that opens nothing; it does not say why."""
    return refused(401, "The token is missing, unknown, expired or revoked.", "Ask the curator for one.")


def identified(
    service: Service,
    token: str | None,
    *,
    session: bool = False,
    unsafe: bool = False,
    csrf: str | None = None,
) -> Caller:
    """The caller with this token.

    Where the token is that of a browser's ``session``, which a browser also sends with requests that another
    site has made it send, a request that changes something (``unsafe``) has to tell the second secret too.
    """
    found = None
    if token:
        with service.database.read() as connection:
            found = people.find(connection, token, service.now())
    if found is None or (found.csrf is not None) != session:
        raise unknown()
    if session and unsafe and not people.agrees(found, csrf):
        advice = "Send X-CSRF-Token, as the page does."
        raise refused(403, "The request does not come from a page of this service.", advice)
    if not service.rate.take(found.token):
        asked = f"This token was used more than {service.place.rate} times in a minute."
        raise refused(429, asked, "Nothing was done. Wait a while.")
    return Caller(found.user, found.role, found.token, session)
