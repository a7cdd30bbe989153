"""Users and tokens, for curators; auditors see who there is."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from tacit.errors import TacitError
from tacit.serve.actions import people
from tacit.serve.http.bodies import NewToken, NewUser
from tacit.serve.pages.forms import Form, Unfit
from tacit.serve.pages.rendering import rendered
from tacit.serve.pages.visits import Visit, Visiting, first_time, redirected

__all__ = ["router"]

router = APIRouter()
Name = Annotated[str, Path(max_length=64)]
Told = Annotated[str, Query(max_length=40)]


@router.get("/people")
def people_page(visit: Visiting, told: Told = "") -> Response:
    """Who there is, and which tokens are in force."""
    return _people(visit, Form(), told)


@router.post("/people")
def add(visit: Visiting) -> Response:
    """Add a user."""
    visit.caller.must("add users")
    try:
        body = visit.form.body(NewUser)
        people.add_user(visit.service, visit.caller, body.name, body.role)
    except Unfit as unfit:
        return _people(visit, unfit.form)
    except TacitError as error:
        return _people(visit, visit.form.wrong(error))
    return redirected("/people?told=added")


@router.post("/people/{name}/tokens")
def issue(visit: Visiting, name: Name) -> Response:
    """Make a token. Its text is in this page and nowhere else, so that no redirection follows."""
    visit.caller.must("issue tokens")
    try:
        body = visit.form.body(NewToken)
        if not first_time(visit):
            return redirected("/people")
        made = people.issue_token(visit.service, visit.caller, name, body.days)
    except Unfit as unfit:
        return _people(visit, unfit.form)
    except TacitError as error:
        return _people(visit, visit.form.wrong(error))
    return _people(visit, Form(), made=made)


@router.post("/tokens/{token}/revoke")
def revoke(visit: Visiting, token: Name) -> Response:
    """End a token at once."""
    visit.caller.must("revoke tokens")
    try:
        people.revoke_token(visit.service, visit.caller, token)
    except TacitError as error:
        return _people(visit, visit.form.wrong(error))
    return redirected("/people?told=token-revoked")


def _people(visit: Visit, form: Form, told: str = "", made: dict[str, Any] | None = None) -> Response:
    users = people.list_users(visit.service, visit.caller)
    tokens = people.list_tokens(visit.service, visit.caller) if visit.caller.role == "curator" else []
    now = people.when(visit.service.now()) or ""
    live = [one for one in tokens if one["revoked"] is None and one["expires"] > now]
    return rendered(
        "people.html", visit, status=form.status, told=told, users=users, tokens=live,
        form=form.with_defaults(days="30"), made=made,
    )  # fmt: skip
