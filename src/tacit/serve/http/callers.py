"""Who calls: by a token in the header, or by the session of a browser."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from tacit.serve.access import Caller, identified
from tacit.serve.actions.people import SESSION_SECONDS
from tacit.serve.service import LOOPBACK, Service

__all__ = ["COOKIE", "SAFE", "bearer", "caller_of", "keep", "service_of", "serving"]

COOKIE = "tacit_session"
SAFE = ("GET", "HEAD", "OPTIONS")


def service_of(request: Request) -> Service:
    """The service that the application was made for."""
    found: Service = request.app.state.service
    return found


async def serving(request: Request) -> Service:
    """The same, for a route: what is async is called where it is, and not in another thread."""
    return service_of(request)


def bearer(request: Request) -> str | None:
    """The token of the header, if there is one."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def caller_of(request: Request) -> Caller:
    """Who calls: by a token in the header, or by a browser's session."""
    service, token = service_of(request), bearer(request)
    if token is not None:
        return identified(service, token)
    return identified(
        service, request.cookies.get(COOKIE), session=True, unsafe=request.method not in SAFE,
        csrf=request.headers.get("x-csrf-token"),
    )  # fmt: skip


def keep(request: Request, response: Response, name: str, text: str) -> None:
    """Have the browser keep a secret of its session, which no script and no other site can read."""
    response.set_cookie(
        name, text, max_age=int(SESSION_SECONDS), httponly=True, samesite="strict",
        secure=request.url.scheme == "https" or request.url.hostname not in LOOPBACK, path="/",
    )  # fmt: skip
