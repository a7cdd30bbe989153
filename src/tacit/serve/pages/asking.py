"""Questions and jobs, each with a form and a preview; requests, with their progress, answers and files."""

from __future__ import annotations

import json
import secrets
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response
from pydantic import BaseModel

from tacit import events
from tacit.errors import TacitError
from tacit.evaluation import Evaluation
from tacit.guarantee import Guarantee
from tacit.relations import Unit
from tacit.report.answers import cost_section
from tacit.report.numbers import number
from tacit.report.page import Branch, Section
from tacit.report.wording import tree_of
from tacit.schema import Schema
from tacit.serve.actions import asking
from tacit.serve.http.bodies import Fit, Measurement, Questions, Synthesis, Training, body_of
from tacit.serve.pages import charts
from tacit.serve.pages.budgets import held, in_force, offered
from tacit.serve.pages.forms import Form, Unfit
from tacit.serve.pages.rendering import rendered
from tacit.serve.pages.visits import Visit, Visiting, redirected
from tacit.serve.planning import ARCHITECTURES

__all__ = ["router"]

router = APIRouter()
Name = Annotated[str, Path(max_length=64)]
What = Literal["ask", "fit", "train", "synthesize", "evaluate"]
Told = Annotated[str, Query(max_length=40)]
BODIES: dict[str, type[BaseModel]] = {
    "ask": Questions,
    "fit": Fit,
    "train": Training,
    "synthesize": Synthesis,
    "evaluate": Measurement,
}
MOST_MODELS = 1000
"""So many of the newest requests are searched for models."""
DEFAULTS = {"epsilon": "0.1", "delta": "0", "confidence": "0.95", "questions": ""}
SMALL_DELTA = "1e-6"
"""What a form for a training run proposes: the noise of DP-SGD is Gaussian, and takes a δ above 0."""
LACKING = {"fit": "model", "train": "training run", "synthesize": "synthesis", "evaluate": "measurement"}
LONGEST = 300
"""Characters of a preview after which no further step is told."""
LEVELS = {"0.8": "80 %", "0.9": "90 %", "0.95": "95 %", "0.99": "99 %"}


@router.get("/datasets/{name}/{what}")
def asking_page(visit: Visiting, name: Name, what: What) -> Response:
    """The form for questions or for a job."""
    _must(visit, what)
    proposed = {**DEFAULTS, "delta": SMALL_DELTA} if what == "train" else DEFAULTS
    return _form(visit, name, what, Form().with_defaults(**proposed))


@router.post("/datasets/{name}/{what}/preview")
def preview(visit: Visiting, name: Name, what: What) -> Response:
    """What a request would cost, how accurate its answers would be, what would be left."""
    _must(visit, what)
    form, planned = visit.form, None
    try:
        kind, body = _body(form, what)
        planned = _planned(visit, name, asking.plan(visit.service, visit.caller, name, kind, body))
    except Unfit as unfit:
        form = unfit.form
    except TacitError as error:
        form = form.wrong(error)
    if visit.fragment:
        return rendered("preview.html", visit, status=form.status, planned=planned, form=form)
    return _form(visit, name, what, form, planned)


@router.post("/datasets/{name}/{what}")
def ask(visit: Visiting, name: Name, what: What) -> Response:
    """Charge for questions and answer them, or put a job into the queue; then show the request.

    The key of the form is that of the request, so that a form that is sent twice is charged once. A form that
    is shown again with its faults gets a new one, unless the request may have been charged.
    """
    asking.require_role(visit.service, visit.caller, name, "questions" if what == "ask" else what)
    try:
        kind, body = _body(visit.form, what)
        key = visit.form["key"] or None
        if kind == "questions":
            body.pop("population", None)  # a guess, for the preview alone
            made = asking.ask(visit.service, visit.caller, name, body, key)
        else:
            made = asking.start(visit.service, visit.caller, name, kind, body, key)
    except Unfit as unfit:
        return _form(visit, name, what, unfit.form)
    except TacitError as error:
        return _form(visit, name, what, visit.form.wrong(error))
    return redirected(f"/requests/{made['id']}")


def _must(visit: Visit, what: str) -> None:
    """Refuse roles that do not ask, before the form is read."""
    visit.caller.must("plan" if what == "ask" else "plan jobs")


def _body(form: Form, what: str) -> tuple[str, dict[str, Any]]:
    """The kind of a request and its body, as the API has them."""
    if what == "ask":
        return "questions", body_of(form.body(BODIES[what]))
    return what, body_of(form.body(BODIES[what], kind=what), "kind")


def _planned(visit: Visit, name: str, plan: dict[str, Any]) -> dict[str, Any]:
    """A plan, with what there is to draw."""
    about = held(visit, name)
    (grant,) = [one for one in about["grants"] if one["id"] == plan["grant"]["id"]]
    done = _sentence(tree_of(events.from_json(json.dumps(plan["event"])), Unit(**about["unit"])))
    left = {"grant": grant["remaining"], "dataset": about["remaining"]}
    return {**plan, "budget": grant["budget"], "spent": grant["spent"], "left": left, "done": done}


def _sentence(tree: Branch) -> str:
    """What would be done to the data: the first steps of it, down to the noise, in one sentence."""
    told, rest = tree.text, list(tree.below)
    while rest and len(told) < LONGEST:
        first = rest.pop(0)
        told += (" " if told.endswith(":") else "; ") + first.text
        rest = [*first.below, *rest]
    return f"{told[:1].upper()}{told[1:].rstrip(':')}{' …' if rest else '.'}"


def _form(visit: Visit, name: str, what: str, form: Form, planned: dict[str, Any] | None = None) -> Response:
    about = held(visit, name)
    grants = in_force(about)
    schema = Schema.from_toml(about["schema"])
    made = _models_of(visit) if what == "evaluate" else []
    key = form["key"] if form.status == 503 and form["key"] else secrets.token_hex(16)
    return rendered(
        f"{what}.html", visit, status=form.status, what=what, about=about, grants=grants, form=form,
        planned=planned, key=key, columns=list(schema.columns), population=schema.population, levels=LEVELS,
        made=made, lacking=_lacking(what, grants, made), architectures=list(ARCHITECTURES),
        **(_questions(schema, grants) if what == "ask" else _models(grants)),
    )  # fmt: skip


def _lacking(what: str, grants: list[dict[str, Any]], made: list[tuple[str, str]]) -> str:
    """Why there is no form; nothing where there is one."""
    if what not in offered(grants):
        return f"Your grants allow no {LACKING[what]}. Ask the curator for one."
    if what == "evaluate" and not made:
        return "You have no model that predicts a column. Fit or train one first."
    return ""


def _models_of(visit: Visit) -> list[tuple[str, str]]:
    """The visitor's models that predict something, the newest first: the request that made each, and a name.

    Models that were made from another dataset are among them: their columns may be those of this one.
    """
    found = asking.list_requests(visit.service, visit.caller, MOST_MODELS)
    models = []
    for one in found:
        asked = one["asked"]
        if one["kind"] in ("fit", "train") and one["state"] == "done" and asked.get("target"):
            called = asked["model" if one["kind"] == "fit" else "architecture"]
            place = f"{one['dataset']}, request {one['id'][:8]}"
            models.append((one["id"], f"{called} of {asked['target']} ({place})"))
    return models


def _questions(schema: Schema, grants: list[dict[str, Any]]) -> dict[str, Any]:
    """The statistics that may be asked for, each with what it says, and examples on these columns."""
    from tacit.tables.questions import CATALOGUE

    lists = [grant["statistics"] for grant in grants]
    allowed = [name for name in CATALOGUE if any(one is None or name in one for one in lists)]
    sentences = {name: (CATALOGUE[name].__doc__ or "").partition("\n\n")[0] for name in allowed}
    return {
        "statistics": {name: " ".join(text.replace("`", "").split()) for name, text in sentences.items()},
        "examples": [text for name, text in _examples(schema) if name in allowed],
    }


def _examples(schema: Schema) -> list[tuple[str, str]]:
    """Questions that make sense for these columns, from the schema alone."""
    from tacit.tables.questions import Count, Crosstab, Histogram, Mean, Median, Question

    bounded = [
        name for name, column in schema.columns.items()
        if column.bounds is not None and column.type in ("integer", "number")
    ]  # fmt: skip
    keyed = [name for name, column in schema.columns.items() if column.categories is not None]
    found: list[Question] = [Count()]
    if keyed:
        found.append(Count(by=keyed[0]))
    if bounded:
        column = bounded[0]
        found += [Mean(column=column), Histogram(column=column, edges=10), Median(column=column)]
    if bounded and keyed:
        found.append(Mean(column=bounded[0], by=keyed[0]))
    if len(keyed) > 1:
        found.append(Crosstab(columns=tuple(keyed[:2])))
    return [(one.name, str(one)) for one in found]


def _models(grants: list[dict[str, Any]]) -> dict[str, Any]:
    from tacit.estimators.registry import ESTIMATORS, SYNTHESIZERS

    allowed = {model for grant in grants for model in grant["models"]}
    return {
        "models": {name: kind.title for name, kind in ESTIMATORS.items() if name in allowed},
        "methods": [name for name in SYNTHESIZERS if name in allowed],
    }


@router.get("/requests")
def requests_page(visit: Visiting, told: Told = "") -> Response:
    """The newest requests, of all analysts or the visitor's own."""
    found = asking.list_requests(visit.service, visit.caller, 200)
    return rendered("requests.html", visit, told=told, requests=found)


@router.get("/requests/{number}")
def request_page(visit: Visiting, number: Name) -> Response:
    """A request: its progress, its answers with plots, its files."""
    found = asking.see_request(visit.service, visit.caller, number)
    shown = _result(found)
    template = "progress.html" if visit.fragment else "request.html"
    return rendered(template, visit, request=found, problem="", **shown)


@router.post("/requests/{number}/cancel")
def cancel(visit: Visiting, number: Name) -> Response:
    """Cancel a request. A charge that was made stands."""
    visit.caller.must("cancel requests")
    try:
        asking.cancel_request(visit.service, visit.caller, number)
    except TacitError as error:
        if visit.caller.own is None:
            raise
        found = asking.see_request(visit.service, visit.caller, number)
        told = f"{error.problem} {error.next_step}"
        return rendered("request.html", visit, status=409, request=found, problem=told, **_result(found))
    return redirected("/requests?told=cancelled")


def _result(found: dict[str, Any]) -> dict[str, Any]:
    """The answers of a request, drawn, and what they cost; or why there are none."""
    result = found["result"] or {}
    shown: dict[str, Any] = {"sections": (), "error": result.get("error"), "promise": None, "tree": None}
    shown["measured"] = None
    if found["state"] != "done":
        return shown
    guarantee = Guarantee.from_json(json.dumps(result["guarantee"]))
    shown |= {"promise": guarantee.statement(), "tree": tree_of(guarantee.event, guarantee.unit)}
    if result.get("evaluation") is not None:
        shown["measured"] = _measured(Evaluation.from_dict(result["evaluation"]))
    if found["kind"] == "questions":
        from tacit.tables.wire import release_from

        answers = tuple(json.dumps(one["release"]) for one in result["answers"])
        drawn = charts.sections(found["id"], answers, result["confidence"])
        releases = [release_from(one["release"]) for one in result["answers"]]
        shown["sections"] = (*drawn, cost_section(releases, guarantee))
    return shown


def _measured(found: Evaluation) -> Section:
    """How good a model is: each figure with its interval."""
    rows = [[name, number(value), found.between(name)] for name, value in found.figures.items()]
    about = (
        f"Each interval contains, with {found.confidence:.0%} confidence, the value of the figure on the "
        "population that the rows are a sample of; the privacy noise is included."
    )
    return Section(
        "How good it is", [about], table=(("figure", "value", f"{found.confidence:.0%} interval"), rows)
    )
