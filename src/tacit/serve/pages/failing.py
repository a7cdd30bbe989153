"""Errors as pages: to the sign-in where nobody is signed in, and else one sentence, with no path in it."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import Response

from tacit.errors import TacitError
from tacit.serve.http.callers import SAFE
from tacit.serve.pages.forms import Form
from tacit.serve.pages.rendering import failed
from tacit.serve.pages.visits import Visit, for_reading, redirected, sign_in_address

__all__ = ["failure"]


def failure(request: Request, told: dict[str, Any]) -> Response:
    """The page about an error that a view has raised."""
    fragment = request.headers.get("x-fragment") == "1"
    if told["status"] == 401 and request.method in SAFE and not fragment:
        return redirected(sign_in_address(request.url.path))
    return failed(_visitor(request), told["status"], told["problem"], told["next"])


def _visitor(request: Request) -> Visit | None:
    """Who is signed in, if anybody is: the page about an error has the way back to the others."""
    try:
        return for_reading(request, Form())
    except TacitError:
        return None
