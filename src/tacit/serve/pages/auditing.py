"""The ledger with its verification, the report for the data protection officer, and the log."""

from __future__ import annotations

import base64
import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import HTMLResponse, Response

from tacit.errors import InvalidValue, LedgerCorrupted
from tacit.report.page import STYLE
from tacit.serve.actions import auditing
from tacit.serve.carrying import status_of
from tacit.serve.pages.budgets import held, spending
from tacit.serve.pages.rendering import rendered
from tacit.serve.pages.visits import Visiting

__all__ = ["router"]

router = APIRouter()
Name = Annotated[str, Path(max_length=64)]
Head = Annotated[str, Query(max_length=100)]
Number = Annotated[int, Query(ge=1, le=2**31 - 1)]
MOST = 100
"""Entries, or lines of the log, on one page."""
_STYLE = base64.b64encode(hashlib.sha256(f"\n{STYLE}".encode()).digest()).decode()
REPORT = f"default-src 'none'; style-src 'sha256-{_STYLE}'; frame-ancestors 'none'; base-uri 'none'"
"""The report has its own style in it, and nothing else that a browser would load or do."""


@router.get("/ledger/{name}")
def ledger_page(visit: Visiting, name: Name, before: Number = 2**31 - 1) -> Response:
    """The charges to a dataset, the newest first."""
    return rendered("ledger.html", visit, **_ledger(visit, name, before), verified=None, heads=("", ""))


@router.get("/ledger/{name}/verification")
def verification_page(visit: Visiting, name: Name, head: Head = "", log_head: Head = "") -> Response:
    """Verify the whole ledger and the log, and compare them with what was written down earlier."""
    visit.caller.must("verify")
    status = 200
    try:
        heads = (head.strip() or None, log_head.strip() or None)
        told = auditing.verify(visit.service, visit.caller, name, *heads)
        verified: dict[str, Any] = {"problem": "", "advice": "", **told}
    except (LedgerCorrupted, InvalidValue) as error:
        status = status_of(error)
        title = "It does not verify" if isinstance(error, LedgerCorrupted) else "This cannot be verified"
        verified = {"title": title, "problem": error.problem, "advice": error.next_step}
    shown = _ledger(visit, name, 2**31 - 1)
    return rendered(
        "ledger.html", visit, status=status, **shown, verified=verified, heads=(head, log_head)
    )  # fmt: skip


def _ledger(visit: Visiting, name: str, before: int) -> dict[str, Any]:
    book = auditing.read_ledger(visit.service, visit.caller, name)
    about = held(visit, name)
    whose = {grant["id"]: grant["analyst"] for grant in about["grants"]}
    entries = [
        {**one, "who": whose.get((one["run"] or "").partition("/")[0], "–")} for one in book["entries"]
    ]
    earlier = [one for one in reversed(entries) if one["number"] < before]
    return {
        "about": about,
        "head": book["head"],
        "count": len(entries),
        "entries": earlier[:MOST],
        "older": earlier[MOST - 1]["number"] if len(earlier) > MOST else None,
        "course": spending(visit, about, []),
    }


@router.get("/ledger/{name}/report")
def report(visit: Visiting, name: Name, save: bool = False) -> Response:
    """The report for the data protection officer, to read, print or keep."""
    text = auditing.ledger_page(visit.service, visit.caller, name)
    headers = {"Content-Security-Policy": REPORT}
    if save:
        headers["Content-Disposition"] = f'attachment; filename="privacy-ledger-{name}.html"'
    return HTMLResponse(text, headers=headers)


@router.get("/log")
def log_page(visit: Visiting, before: Number = 2**31 - 1) -> Response:
    """The log, the newest lines first."""
    last = min(before, auditing.log_length(visit.service, visit.caller) + 1)
    first = max(0, last - 1 - MOST)
    lines = auditing.read_log(visit.service, visit.caller, first, last - 1 - first) if last > 1 else []
    older = first + 1 if first > 0 else None
    return rendered("log.html", visit, lines=lines[::-1], older=older)
