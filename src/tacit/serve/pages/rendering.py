"""Templates as answers: escaped, with headers that let nothing in from elsewhere."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import ChoiceLoader, DictLoader, Environment, PackageLoader, StrictUndefined

from tacit._version import __version__
from tacit.guarantee import floor
from tacit.report.numbers import counted, small, up
from tacit.report.page import PARTS, STYLE, breakable
from tacit.serve.access import MAY
from tacit.serve.pages import charts
from tacit.serve.pages.budgets import asked_epsilon, offered
from tacit.serve.pages.visits import Visit

__all__ = ["POLICY", "STATIC", "failed", "rendered"]

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
KINDS = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
TOLD = {
    "added": "The user was added.",
    "granted": "The grant was made.",
    "grant-revoked": "The grant was revoked. What was charged for it stands.",
    "token-revoked": "The token was revoked, and the sessions of its owner have ended.",
    "registered": "The dataset was registered. Nobody can ask it before there is a grant.",
    "confirmed": "The files were confirmed. The budget goes on as it was.",
    "cancelled": "The request is being cancelled. A charge that was made stands.",
}
"""What a page says after a form was sent, by a word of its address."""


def _read(name: str) -> bytes:
    return resources.files("tacit.serve.pages").joinpath("static", name).read_bytes()


STATIC: dict[str, tuple[str, bytes]] = {
    name: (kind, STYLE.encode() + _read(name) if name == "page.css" else _read(name))
    for name, kind in KINDS.items()
}
"""What pages are made with: the style of all pages of tacit, what is added here, the script, the icon."""
_VERSION = hashlib.sha256(b"".join(content for _, content in STATIC.values())).hexdigest()[:12]


def rendered(
    template: str, visit: Visit | None, *, status: int = 200, told: str = "", **values: Any
) -> HTMLResponse:
    """A page. Everything that is put into it is escaped, but for drawings."""
    caller = None if visit is None else visit.caller
    text = _environment().get_template(template).render(
        **values,
        caller=caller,
        may=_may(visit),
        csrf="" if visit is None else visit.csrf,
        once=secrets.token_hex(16),
        told=TOLD.get(told, ""),
        version=__version__,
        files=_VERSION,
        tick=0.0 if visit is None else visit.service.place.tick,
    )  # fmt: skip
    return HTMLResponse(text, status, headers={"Content-Security-Policy": POLICY})


def failed(visit: Visit | None, status: int, problem: str, advice: str) -> HTMLResponse:
    """The page about an error."""
    titles = {401: "Sign in first", 403: "Not for you", 404: "Not found", 500: "The service failed"}
    title = titles.get(status, "This did not work")
    return rendered("problem.html", visit, status=status, title=title, problem=problem, advice=advice)


def _may(visit: Visit | None) -> Any:
    """Whether the visitor's role allows an action: pages show only what does."""
    return lambda action: visit is not None and visit.caller.role in MAY[action]


def _moment(text: str | None) -> str:
    """A time as people write it."""
    if text is None:
        return "–"
    moment = datetime.fromisoformat(text).astimezone(UTC)
    return f"{moment.day} {moment:%b %Y, %H:%M}"


def _down(value: float) -> str:
    """What is left, never more than that."""
    return small(float(floor(value, 4)))


def _pairs(names: list[Any]) -> list[tuple[str, str]]:
    """Choices that are sent as they are shown; grants are sent by their numbers."""
    return [
        (one, one) if isinstance(one, str)
        else (one["id"], f"{one['id'][:8]}: ε {_down(one['remaining']['epsilon'])} left")
        for one in names
    ]  # fmt: skip


@cache
def _environment() -> Environment:
    made = Environment(
        loader=ChoiceLoader([DictLoader({"parts.html": PARTS}), PackageLoader("tacit.serve.pages")]),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters.update(asked_epsilon=asked_epsilon, offered=offered)
    made.filters.update(up=up, down=_down, small=small, moment=_moment, breakable=breakable, pairs=_pairs)
    made.globals.update(bar=charts.bar, steps=charts.course, counted=counted)
    return made
