"""Datasets: what is public about them, their grants, registering and confirming."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from tacit.errors import TacitError
from tacit.schema import Schema
from tacit.serve.actions import holdings, people
from tacit.serve.http.bodies import NewDataset, NewGrant, body_of
from tacit.serve.pages.budgets import held
from tacit.serve.pages.forms import Form, Unfit
from tacit.serve.pages.rendering import rendered
from tacit.serve.pages.visits import Visit, Visiting, first_time, redirected
from tacit.serve.planning import allowed

__all__ = ["router"]

router = APIRouter()
Name = Annotated[str, Path(max_length=64)]
Told = Annotated[str, Query(max_length=40)]
EXAMPLE = """\
[unit]
name = "person"        # one row is one person

[columns.age]
type = "integer"
bounds = [0, 120]

[columns.sex]
type = "category"
categories = ["female", "male"]
"""


@router.get("/register")
def register_page(visit: Visiting) -> Response:
    """The form to register a dataset."""
    visit.caller.must("register datasets")
    return _registering(visit, Form().with_defaults(schema=EXAMPLE, delta="0"))


@router.post("/register")
def register(visit: Visiting) -> Response:
    """Register a dataset."""
    visit.caller.must("register datasets")
    try:
        said = body_of(visit.form.body(NewDataset))
        made = holdings.register(visit.service, visit.caller, said.pop("name"), **said)
    except Unfit as unfit:
        return _registering(visit, unfit.form)
    except TacitError as error:
        return _registering(visit, visit.form.wrong(error))
    return redirected(f"/datasets/{made['name']}?told=registered")


def _registering(visit: Visit, form: Form) -> Response:
    return rendered("register.html", visit, status=form.status, form=form)


@router.get("/datasets/{name}")
def dataset_page(visit: Visiting, name: Name, told: Told = "") -> Response:
    """What is public about a dataset, and its grants."""
    return _dataset(visit, name, Form(), told)


@router.post("/datasets/{name}/confirm")
def confirm(visit: Visiting, name: Name) -> Response:
    """Confirm that files that have changed hold the rows of the same people."""
    visit.caller.must("confirm datasets")
    try:
        holdings.confirm_dataset(visit.service, visit.caller, name)
    except TacitError as error:
        return _dataset(visit, name, visit.form.wrong(error))
    return redirected(f"/datasets/{name}?told=confirmed")


@router.post("/datasets/{name}/grants")
def grant(visit: Visiting, name: Name) -> Response:
    """Let an analyst spend a part of the budget."""
    visit.caller.must("grant")
    try:
        body = body_of(visit.form.body(NewGrant, dataset=name))
        if not visit.form.texts.get("statistics") and visit.form["all_statistics"] != "yes":
            body["statistics"] = []
        if first_time(visit):
            holdings.make_grant(visit.service, visit.caller, **body)
    except Unfit as unfit:
        return _dataset(visit, name, unfit.form)
    except TacitError as error:
        return _dataset(visit, name, visit.form.wrong(error))
    return redirected(f"/datasets/{name}?told=granted#grants")


@router.post("/datasets/{name}/grants/{number}/revoke")
def revoke(visit: Visiting, name: Name, number: Name) -> Response:
    """End a grant."""
    visit.caller.must("revoke grants")
    try:
        holdings.revoke_grant(visit.service, visit.caller, number)
    except TacitError as error:
        return _dataset(visit, name, visit.form.wrong(error))
    return redirected(f"/datasets/{name}?told=grant-revoked#grants")


def _dataset(visit: Visit, name: str, form: Form, told: str = "") -> Response:
    about = held(visit, name)
    shown: dict[str, Any] = {"analysts": [], "statistics": [], "models": []}
    if visit.caller.role == "curator":
        shown = _choices(visit)
        if "analyst" not in form.texts:
            form = form.with_defaults(delta="0", all_statistics="yes")
    return rendered(
        "dataset.html", visit, status=form.status, told=told, about=about, form=form,
        columns=columns_of(about["schema"]), **shown,
    )  # fmt: skip


def _choices(visit: Visit) -> dict[str, Any]:
    """What a grant can be made for."""
    from tacit.tables.questions import CATALOGUE

    users = people.list_users(visit.service, visit.caller)
    return {
        "analysts": [user["name"] for user in users if user["role"] == "analyst"],
        "statistics": list(CATALOGUE),
        "models": list(allowed()),
    }


def columns_of(schema: str) -> list[tuple[str, str, str, str]]:
    """Name, type, what values there may be, and what stands in for missing ones, of each column."""
    found = []
    for name, column in Schema.from_toml(schema).columns.items():
        if column.categories is not None:
            values = ", ".join(map(str, column.categories[:12]))
            more = len(column.categories) - 12
            values += f", and {more} more" if more > 0 else ""
            values += f"; all others count as {column.other}" if column.other is not None else ""
        elif column.bounds is not None:
            values = f"{column.bounds[0]} to {column.bounds[1]}"
        else:
            values = "not declared"
        missing = "left out" if column.missing is None else f"count as {column.missing}"
        found.append((name, column.type, values, missing))
    return found
