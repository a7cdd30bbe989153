"""Who visits: the session of a browser, and its form if it sends one.

A session is a cookie that scripts cannot read. Another site can make a browser send it along, so a request
that changes something needs a second secret, which stands in every form of a page. The service keeps only its
hash; the browser brings it in a second cookie, from which pages write it into their forms. A form is compared
with the session by its own field and never by the cookie. Besides, a browser tells where a request comes from
(``Sec-Fetch-Site``): other sites, and other services of the same machine, are refused.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response

from tacit.errors import ServiceRefused
from tacit.serve.access import Caller, identified, unknown
from tacit.serve.actions import people
from tacit.serve.http.callers import COOKIE, SAFE, keep, service_of
from tacit.serve.pages.forms import Form
from tacit.serve.service import Service, refused

__all__ = [
    "Posted",
    "Visit",
    "Visiting",
    "destination",
    "entered",
    "first_time",
    "for_reading",
    "left",
    "redirected",
    "sign_in_address",
]

FORM_COOKIE = "tacit_form"
_PLACE = re.compile(r"/(?:[a-z0-9_-]+(?:/[a-z0-9_-]+)*)?")
"""Addresses of pages: neither another host nor anything that a browser could take for one."""


@dataclass(frozen=True)
class Visit:
    """A known visitor, with the secret for forms and the form that was sent."""

    service: Service
    caller: Caller
    csrf: str
    form: Form
    fragment: bool = False
    """Whether the script asks for a part of the page."""


async def form_of(request: Request) -> Form:
    """The form of a request; an empty one where nothing is sent."""
    if request.method in SAFE:
        return Form()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise refused(415, "Only forms are read here.", "Use the API for anything else.")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise refused(403, "The request does not come from a page of this service.", "Open the page itself.")
    return Form.parsed(await request.body())


Posted = Annotated[Form, Depends(form_of)]


def for_reading(request: Request, form: Form) -> Visit:
    """The visitor of a page; ServiceRefused with 401 where nobody is signed in."""
    service, csrf = service_of(request), request.cookies.get(FORM_COOKIE, "")
    try:
        caller = identified(service, request.cookies.get(COOKIE), session=True, unsafe=True, csrf=csrf)
    except ServiceRefused:
        raise unknown() from None
    return Visit(service, caller, csrf, form, request.headers.get("x-fragment") == "1")


def visit_of(request: Request, form: Posted) -> Visit:
    """The visitor; for a form that was sent, if it is one of the visitor's own session."""
    visit = for_reading(request, form)
    if request.method not in SAFE:
        try:
            identified(
                visit.service, request.cookies.get(COOKIE), session=True, unsafe=True, csrf=form["csrf"]
            )
        except ServiceRefused as error:
            advice = "Nothing was done. Open the page again: somebody has signed in since it was opened."
            raise refused(error.status, "This form belongs to another session.", advice) from None
    return visit


Visiting = Annotated[Visit, Depends(visit_of)]


def redirected(place: str) -> RedirectResponse:
    """To another page of the service, by GET."""
    return RedirectResponse(place, status_code=303)


def destination(wanted: str) -> str:
    """Where to go after signing in: a page of the service, or the first one.

    >>> [destination(one) for one in ("/datasets/people", "//evil.example", "/\\\\evil", "https://evil", "")]
    ['/datasets/people', '/', '/', '/', '/']
    """
    return wanted if _PLACE.fullmatch(wanted) and wanted != "/sign-in" else "/"


def sign_in_address(path: str) -> str:
    """The address of the sign-in, which leads back to this page."""
    place = destination(path)
    return "/sign-in" if place == "/" else f"/sign-in?next={quote(place, safe='')}"


def entered(request: Request, token: str, place: str) -> Response:
    """Start a session for a token, and go on to a page."""
    _, secret = people.start_session(service_of(request), token)
    answer = redirected(place)
    keep(request, answer, COOKIE, secret.text)
    keep(request, answer, FORM_COOKIE, secret.csrf or "")
    return answer


def left(visit: Visit) -> Response:
    """End the session."""
    people.end_session(visit.service, visit.caller)
    answer = redirected("/sign-in")
    for cookie in (COOKIE, FORM_COOKIE):
        answer.delete_cookie(cookie, path="/", httponly=True, samesite="strict")
    answer.headers["Clear-Site-Data"] = '"cache"'
    return answer


class _Used:
    """The last forms that were used up, in this process."""

    def __init__(self, most: int = 4096) -> None:
        self._lock, self._seen, self._most = threading.Lock(), OrderedDict[tuple[str, str], None](), most

    def first(self, session: str, key: str) -> bool:
        """Whether this form of this session is seen for the first time."""
        with self._lock:
            if (session, key) in self._seen:
                return False
            self._seen[session, key] = None
            while len(self._seen) > self._most:
                self._seen.popitem(last=False)
            return True


_used = _Used()


def first_time(visit: Visit) -> bool:
    """Whether a form is sent for the first time; a second click on its button sends it again.

    For what is not charged, such as grants. What is charged has its key in the store.
    """
    key = visit.form["once"][:64]
    return not key or _used.first(visit.caller.token, key)
