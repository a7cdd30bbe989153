"""Signing in and out, the first page, and the files that pages are made with."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from tacit.errors import ServiceRefused
from tacit.serve.actions import asking, holdings
from tacit.serve.pages.budgets import held, spending
from tacit.serve.pages.forms import Form
from tacit.serve.pages.rendering import STATIC, failed, rendered
from tacit.serve.pages.visits import (
    Posted,
    Visit,
    Visiting,
    destination,
    entered,
    for_reading,
    left,
    redirected,
)

__all__ = ["router"]

router = APIRouter()
Next = Annotated[str, Query(max_length=200)]


@router.get("/static/{name}")
def static(name: str) -> Response:
    """The stylesheet, the script and the icon: the same for everybody."""
    if name not in STATIC:
        return failed(None, 404, "There is no such file.", "")
    kind, content = STATIC[name]
    return Response(content, media_type=kind, headers={"Cache-Control": "public, max-age=86400"})


@router.get("/sign-in")
def sign_in_page(request: Request, next: Next = "/") -> Response:
    """The form for a token."""
    place = destination(next)
    try:
        for_reading(request, Form())
    except ServiceRefused:
        return rendered("sign_in.html", None, form=Form(), place=place)
    return redirected(place)


@router.post("/sign-in")
def sign_in(request: Request, form: Posted) -> Response:
    """Start a session."""
    place = destination(form["next"])
    try:
        return entered(request, form["token"].strip(), place)
    except ServiceRefused:
        told = "This token opens nothing: it is unknown, expired or revoked. Ask the curator for another."
        wrong = Form({}, {"token": told}, status=401)
        return rendered("sign_in.html", None, status=401, form=wrong, place=place)


@router.post("/sign-out")
def sign_out(visit: Visiting) -> Response:
    """End the session."""
    return left(visit)


@router.get("/")
def overview(visit: Visiting) -> Response:
    """Budgets at a glance: spent, remaining, by whom, over time."""
    requests = asking.list_requests(visit.service, visit.caller, 1000 if visit.caller.own else 5)
    return rendered(
        "overview.html", visit, cards=[_card(visit, one["name"], requests) for one in _datasets(visit)],
        requests=requests[:5],
    )  # fmt: skip


def _datasets(visit: Visit) -> list[dict[str, Any]]:
    return holdings.list_datasets(visit.service, visit.caller)


def _card(visit: Visit, name: str, requests: list[dict[str, Any]]) -> dict[str, Any]:
    """What the first page says of a dataset."""
    about = held(visit, name)
    return {**about, "course": spending(visit, about, requests)}
