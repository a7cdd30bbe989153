"""The routes: each finds out who calls, and calls one action."""

from __future__ import annotations

from email.utils import formatdate
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import FileResponse, HTMLResponse

from tacit.serve.access import Caller
from tacit.serve.actions import asking, auditing, holdings, people
from tacit.serve.http.bodies import (
    Fit,
    Measurement,
    NewDataset,
    NewGrant,
    NewToken,
    NewUser,
    Questions,
    Synthesis,
    Training,
    body_of,
)
from tacit.serve.http.callers import COOKIE, bearer, caller_of, keep, serving
from tacit.serve.service import Service

__all__ = ["COOKIE", "PREFIX", "router"]

PREFIX = "/api/v1"
router = APIRouter(prefix=PREFIX)

Body = dict[str, Any]
Name = Annotated[str, Path(max_length=64)]
Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", max_length=200, description="The same key, the same answer, one charge."),
]

Work = Fit | Training | Synthesis | Measurement
Head = Annotated[str | None, Query(max_length=100)]


Serving = Annotated[Service, Depends(serving)]
Calling = Annotated[Caller, Depends(caller_of)]


@router.get("/health")
def health() -> Body:
    """Whether the service answers."""
    return {"status": "ok"}


@router.get("/me")
def me(service: Serving, caller: Calling) -> Body:
    """Who the caller is."""
    return people.oneself(service, caller)


@router.post("/session")
def start_session(service: Serving, request: Request, response: Response) -> Body:
    """Exchange a token for a browser's session, a cookie, and the secret that pages send along."""
    caller, secret = people.start_session(service, bearer(request))
    keep(request, response, COOKIE, secret.text)
    return {"name": caller.name, "role": caller.role, "csrf": secret.csrf}


@router.delete("/session")
def end_session(service: Serving, caller: Calling, response: Response) -> Body:
    """End the session, or the token, of this request."""
    response.delete_cookie(COOKIE, path="/")
    return people.end_session(service, caller)


@router.post("/users", status_code=201)
def add_user(service: Serving, caller: Calling, body: NewUser) -> Body:
    """Add a user."""
    return people.add_user(service, caller, body.name, body.role)


@router.get("/users")
def list_users(service: Serving, caller: Calling) -> list[Body]:
    """All users."""
    return people.list_users(service, caller)


@router.post("/users/{name}/tokens", status_code=201)
def issue_token(service: Serving, caller: Calling, name: Name, body: NewToken) -> Body:
    """Make a token. Its text is in this answer and nowhere else."""
    return people.issue_token(service, caller, name, body.days)


@router.get("/tokens")
def list_tokens(service: Serving, caller: Calling) -> list[Body]:
    """All tokens, without their secrets."""
    return people.list_tokens(service, caller)


@router.delete("/tokens/{token}")
def revoke_token(service: Serving, caller: Calling, token: Name) -> Body:
    """End a token."""
    return people.revoke_token(service, caller, token)


@router.post("/datasets", status_code=201)
def register(service: Serving, caller: Calling, body: NewDataset) -> Body:
    """Register a dataset."""
    said = body_of(body)
    return holdings.register(service, caller, said.pop("name"), **said)


@router.get("/datasets")
def list_datasets(service: Serving, caller: Calling) -> list[Body]:
    """The datasets that the caller may know of."""
    return holdings.list_datasets(service, caller)


@router.get("/datasets/{name}")
def see_dataset(service: Serving, caller: Calling, name: Name) -> Body:
    """What is public about a dataset, and what is left of its budget."""
    return holdings.see_dataset(service, caller, name)


@router.post("/datasets/{name}/confirm")
def confirm_dataset(service: Serving, caller: Calling, name: Name) -> Body:
    """Confirm that files that have changed hold the rows of the same people."""
    return holdings.confirm_dataset(service, caller, name)


@router.post("/datasets/{name}/plan")
def plan(service: Serving, caller: Calling, name: Name, body: Questions) -> Body:
    """What questions would cost, how accurate their answers would be, and what would be left."""
    return asking.plan(service, caller, name, "questions", body_of(body))


@router.post("/datasets/{name}/questions")
def ask(service: Serving, caller: Calling, name: Name, body: Questions, key: Key = None) -> Body:
    """Charge for questions and answer them."""
    return asking.ask(service, caller, name, body_of(body, "population"), key)


@router.post("/datasets/{name}/jobs/plan")
def plan_job(service: Serving, caller: Calling, name: Name, body: Work) -> Body:
    """What a job would cost, and what would be left."""
    return asking.plan(service, caller, name, body.kind, body_of(body, "kind"))


@router.post("/datasets/{name}/jobs", status_code=202)
def start_job(service: Serving, caller: Calling, name: Name, body: Work, key: Key = None) -> Body:
    """Put a fit, a training run, a synthesis or a measurement into the queue."""
    return asking.start(service, caller, name, body.kind, body_of(body, "kind"), key)


@router.get("/requests")
def list_requests(
    service: Serving, caller: Calling, most: Annotated[int, Query(ge=1, le=1000)] = 100
) -> list[Body]:
    """The newest requests, without their results."""
    return asking.list_requests(service, caller, most)


@router.get("/requests/{number}")
def see_request(service: Serving, caller: Calling, number: Name) -> Body:
    """A request with its result."""
    return asking.see_request(service, caller, number)


@router.delete("/requests/{number}")
def cancel_request(service: Serving, caller: Calling, number: Name) -> Body:
    """Cancel a request. A charge that was made stands."""
    return asking.cancel_request(service, caller, number)


@router.get("/requests/{number}/files/{file}")
def download(
    service: Serving, caller: Calling, number: Name, file: Annotated[str, Path(max_length=100)]
) -> FileResponse:
    """A file that a request has made: a model with its guarantee, or a synthetic table."""
    place = asking.downloaded(service, caller, number, file)
    # Otherwise these tell when the file was written, which may depend on the rows.
    headers = {"etag": f'"{number}"', "last-modified": formatdate(0, usegmt=True)}
    return FileResponse(
        place, media_type="application/octet-stream", filename=place.name, headers=headers
    )  # fmt: skip


@router.post("/grants", status_code=201)
def make_grant(service: Serving, caller: Calling, body: NewGrant) -> Body:
    """Let an analyst spend a part of a budget."""
    return holdings.make_grant(service, caller, **body_of(body))


@router.get("/grants")
def list_grants(service: Serving, caller: Calling) -> list[Body]:
    """Grants, and what is left of them."""
    return holdings.list_grants(service, caller)


@router.delete("/grants/{number}")
def revoke_grant(service: Serving, caller: Calling, number: Name) -> Body:
    """End a grant. What was charged stands."""
    return holdings.revoke_grant(service, caller, number)


@router.get("/ledger/{name}")
def read_ledger(service: Serving, caller: Calling, name: Name) -> Body:
    """The charges to a dataset."""
    return auditing.read_ledger(service, caller, name)


@router.get("/ledger/{name}/verification")
def verify(service: Serving, caller: Calling, name: Name, head: Head = None, log_head: Head = None) -> Body:
    """Verify the whole ledger and the log; ``head`` and ``log_head`` were written down earlier."""
    return auditing.verify(service, caller, name, head, log_head)


@router.get("/ledger/{name}/page", response_class=HTMLResponse)
def ledger_page(service: Serving, caller: Calling, name: Name) -> HTMLResponse:
    """The page about a dataset's ledger."""
    return HTMLResponse(auditing.ledger_page(service, caller, name))


@router.get("/log")
def read_log(
    service: Serving,
    caller: Calling,
    after: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    most: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> list[Body]:
    """Lines of the log."""
    return auditing.read_log(service, caller, after, most)
