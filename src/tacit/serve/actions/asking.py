"""Questions and jobs of analysts: planned, asked, seen, cancelled, downloaded."""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import jobs
from tacit.errors import InvalidValue, TacitError
from tacit.serve import carrying
from tacit.serve.access import Caller
from tacit.serve.actions.holdings import usable
from tacit.serve.actions.people import when
from tacit.serve.grammar import question_of
from tacit.serve.keeping import MOST_SOURCES
from tacit.serve.planning import JOBS, named, planned
from tacit.serve.rates import Rate, Turns
from tacit.serve.service import NAME, Service, refused
from tacit.serve.store import holdings, log, requests
from tacit.serve.store.requests import ENDED, Request

if TYPE_CHECKING:
    from tacit.serve.store.holdings import Dataset, Grant

__all__ = [
    "ask",
    "cancel_request",
    "downloaded",
    "list_requests",
    "plan",
    "require_role",
    "see_request",
    "start",
]

MOST_QUESTIONS = 100
_turns = Turns(MOST_SOURCES // 2)
"""How many of one analyst are planned or answered at a time: half of what is open for all."""
_previews = Rate(10)
"""How many refused previews of one user are noted in a minute."""
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_ID = re.compile(r"[0-9a-f]{32}")


def plan(
    service: Service, caller: Caller, dataset: str, kind: str, body: Mapping[str, Any]
) -> dict[str, Any]:
    """What a request would cost, how accurate its answers would be, and what would be left.

    Nothing is charged and no row is read. A refusal is a line of the log, up to so many in a minute.
    """
    with _noted(service, caller, dataset, kind, preview=True):
        caller.must("plan" if kind == "questions" else "plan jobs")
        return _plan(service, caller, dataset, kind, body)


def _plan(
    service: Service, caller: Caller, dataset: str, kind: str, body: Mapping[str, Any]
) -> dict[str, Any]:
    with service.database.read() as connection:
        held, grant = usable(service, connection, caller, dataset, body.get("grant"))
    _require_allowed(grant, kind, body)
    try:
        with (
            _turns.of((service.place.home, caller.name)),
            service.ledger(dataset) as ledger,
            service.purse(ledger, grant) as purse,
            planned(
                service, held, purse, kind, body, model=carrying.model_of(service, caller.name, body)
            ) as job,
        ):  # fmt: skip
            due, (balance,) = job.dues[0], job.balances()
            own = purse.spent_within()
            left = max(0.0, grant.budget.epsilon - own[0])
            shown: dict[str, Any] = {
                "label": due.label[:2000],
                "cost": {name: sum(getattr(one, name) for one in job.dues) for name in ("epsilon", "delta")},
                "event": json.loads(due.event.to_json()),
                "fits": balance.after is not None,
                "grant": {"id": grant.id, "remaining": left},
                "dataset": {"remaining": balance.remaining, "remaining_after": balance.left},
            }
            if isinstance(job, jobs.QueryJob):
                shown["questions"] = [
                    {"label": quote.label, "epsilon": quote.epsilon, "delta": quote.delta, "note": quote.note,
                     "error": quote.error if quote.error is None or math.isfinite(quote.error) else None}
                    for quote in job.plan(body.get("population"))
                ]  # fmt: skip
            return shown
    except Exception as error:
        raise _told(error, service, held, grant) from None


def _told(error: Exception, service: Service, dataset: Dataset, grant: Grant) -> TacitError:
    return carrying.told(error, service, dataset, grant)


def _require_allowed(grant: Grant, kind: str, body: Mapping[str, Any]) -> None:
    """Refuse what the grant does not list, before anything else is looked at."""
    if kind == "questions":
        asked = body["questions"]
        if not 1 <= len(asked) <= MOST_QUESTIONS:
            raise InvalidValue("questions", len(asked), f"a list of 1 to {MOST_QUESTIONS}")
        for one in asked:
            name = question_of(one, body.get("confidence", 0.95)).name
            if grant.statistics is not None and name not in grant.statistics:
                raise refused(403, f"The grant does not allow {name}.", "Ask the curator for it.")
        return
    name = named(kind, body)
    if name not in grant.models:
        raise refused(403, f"The grant does not allow the model {name!r:.80}.", "Ask the curator for it.")


def require_role(service: Service, caller: Caller, dataset: str, kind: str) -> None:
    """Refuse whoever has a role that does not ask, with a line in the log."""
    with _noted(service, caller, dataset, kind):
        caller.must("ask" if kind == "questions" else "start jobs")


@contextmanager
def _noted(
    service: Service, caller: Caller, dataset: str, kind: str, *, preview: bool = False
) -> Iterator[None]:
    """Write a line in the log about a refusal in the body: who asked for what, and what it was refused as.

    Pages ask for a preview with every few letters that are typed. Of those not all refusals are noted.
    """
    try:
        yield
    except TacitError as error:
        if not preview:
            _note(service, caller.name, dataset, error, kind=kind)
        elif _previews.take(f"{service.place.home} {caller.name}"):
            _note(service, caller.name, dataset, error, kind=kind, preview=True)
        raise


def _note(service: Service, analyst: str, dataset: str, error: TacitError, **details: Any) -> None:
    known = dataset if NAME.fullmatch(dataset) else "no name of a dataset"
    told = {**details, "why": type(error).__name__, "status": carrying.status_of(error)}
    with service.database.write() as connection:
        log.append(connection, analyst, "refused", known, **told)


def ask(
    service: Service, caller: Caller, dataset: str, body: Mapping[str, Any], key: str | None = None
) -> dict[str, Any]:
    """Charge for questions, answer them, and store the answer under ``key``.

    The same request with the same key is answered from what is stored, and charged once. Another request
    with the same key is refused.
    """
    require_role(service, caller, dataset, "questions")
    with _turns.of((service.place.home, caller.name)), ExitStack() as stack:
        ended, fresh, prepared = _begun(service, caller, dataset, "questions", body, key, stack)
        if fresh:
            ended = carrying.carry_out(service, ended, prepared=prepared) or _found(service, ended.id)
    if fresh:
        _wait(service, ended)
    elif ended.shown_state(service.now()) not in ENDED:
        return _shown(service, ended)
    if ended.state in ("refused", "failed") and ended.result is not None:
        raise carrying.error_from(ended.result["error"])
    return _shown(service, ended)


def start(
    service: Service, caller: Caller, dataset: str, kind: str, body: Mapping[str, Any], key: str | None = None
) -> dict[str, Any]:
    """Put a fit, a training run, a synthesis or a measurement into the queue; a worker carries it out."""
    if kind not in JOBS:
        raise InvalidValue("kind", kind, f"one of {', '.join(JOBS)}")
    require_role(service, caller, dataset, kind)
    with ExitStack() as stack:
        held, _, _ = _begun(service, caller, dataset, kind, body, key, stack)
    return _shown(service, held)


def _begun(
    service: Service,
    caller: Caller,
    dataset: str,
    kind: str,
    body: Mapping[str, Any],
    key: str | None,
    stack: ExitStack,
) -> tuple[Request, bool, carrying.Ready | None]:
    """The stored request of this key, or a new one; whether this call has to carry it out; and if it is new,
    the request as it was planned, until the stack is closed."""
    if key is not None and not _KEY.fullmatch(key):
        raise InvalidValue("Idempotency-Key", key, "1 to 200 visible characters of ASCII")
    try:
        digest = hashlib.sha256(json.dumps([dataset, kind, body], sort_keys=True).encode()).hexdigest()
    except RecursionError:
        raise InvalidValue("request", "…", "flat: its values are not that deep") from None
    inline = kind == "questions"
    with _noted(service, caller, dataset, kind):
        with service.database.read() as connection:
            found = None if key is None else requests.find(connection, analyst=caller.name, key=key)
            if found is None:
                held, grant = usable(service, connection, caller, dataset, body.get("grant"))
        if found is None:
            _require_allowed(grant, kind, body)
    if found is None:
        number, now = secrets.token_hex(16), service.now()
        prepared = _tried(service, held, grant, kind, body, number, stack)
        made = Request(
            id=number, analyst=caller.name, dataset=dataset, grant=grant.id, key=key or f"own {number}",
            digest=digest, kind=kind, body=dict(body), state="running" if inline else "waiting",
            attempt=1 if inline else 0, lease=now + requests.LEASE if inline else None, cancelled=False,
            progress="", result=None, entry=None, created=now, visible=None,
        )  # fmt: skip
        with _noted(service, caller, dataset, kind), service.database.write() as connection:
            found = None if key is None else requests.find(connection, analyst=caller.name, key=key)
            if found is None:
                if not inline:
                    _require_room(service, requests.under_way(connection, caller.name, now))
                requests.add(connection, made)
                log.append(
                    connection, caller.name, "asked", number, dataset=dataset, grant=grant.id, kind=kind,
                    epsilon=body["epsilon"], delta=body.get("delta", 0.0),
                )  # fmt: skip
        if found is None:
            return made, inline, prepared
    if found.digest != digest:
        raise refused(
            409, "This Idempotency-Key was used for another request.", "Nothing was charged. Use a new one."
        )
    if inline and found.state == "running" and (found.lease or 0.0) < service.now():
        with service.database.write() as connection:
            again = requests.find(connection, found.id)
            if again is not None and again.state == "running" and (again.lease or 0.0) < service.now():
                log.append(connection, caller.name, "resumed", found.id, attempt=again.attempt + 1)
                return requests.claim(connection, again, service.now()), True, None
    return found, False, None


def _require_room(service: Service, under_way: int) -> None:
    """Refuse a job where the analyst has many that wait or run: one may not fill the queue for all."""
    if 0 < service.place.queue <= under_way:
        said = f"You have {service.place.queue} jobs that wait or run, as many as one may have."
        raise refused(429, said, "Nothing was charged. Wait for one of them, or cancel one.")


def _tried(
    service: Service,
    dataset: Dataset,
    grant: Grant,
    kind: str,
    body: Mapping[str, Any],
    number: str,
    stack: ExitStack,
) -> carrying.Ready:
    """The request planned, so that what is wrong with it is found before it is written down."""
    try:
        made = stack.enter_context(carrying.ready(service, dataset, grant, kind, body, number))
        made.job.afford()
        return made
    except Exception as error:
        said = _told(error, service, dataset, grant)
        _note(service, grant.analyst, dataset.name, said, grant=grant.id, kind=kind)
        raise said from None


def _wait(service: Service, held: Request) -> None:
    """Wait until it may be told how the request ended, if it has."""
    if held.state in ENDED and held.visible is not None:
        time.sleep(min(max(0.0, held.visible - service.now()), service.place.tick))


def _found(service: Service, number: str, analyst: str | None = None) -> Request:
    with service.database.read() as connection:
        found = requests.find(connection, number, analyst=analyst) if _ID.fullmatch(number) else None
    if found is None:
        raise refused(404, "There is no such request of yours.", "List the requests.")
    return found


def _shown(service: Service, request: Request, *, result: bool = True) -> dict[str, Any]:
    state = request.shown_state(service.now())
    told = state in ENDED
    return {
        "id": request.id,
        "analyst": request.analyst,
        "dataset": request.dataset,
        "grant": request.grant,
        "kind": request.kind,
        "asked": request.body,
        "state": state,
        "progress": "" if told or service.place.tick else request.progress,
        "entry": request.entry if told else None,
        "created": when(request.created),
        "result": request.result if told and result else None,
    }


def list_requests(service: Service, caller: Caller, most: int = 100) -> list[dict[str, Any]]:
    """The newest requests, without their results; for an analyst, own ones."""
    caller.must("list requests")
    with service.database.read() as connection:
        found = requests.listed(connection, caller.own, min(max(most, 1), 1000))
    return [_shown(service, one, result=False) for one in found]


def see_request(service: Service, caller: Caller, number: str) -> dict[str, Any]:
    """A request with its result, for whoever has made it."""
    caller.must("see requests")
    return _shown(service, _found(service, number, caller.name))


def cancel_request(service: Service, caller: Caller, number: str) -> dict[str, Any]:
    """Cancel a request: nothing of it is released, and whoever carries it out stops. A charge that was made
    stands, and none is made from now on.

    One that has ended, and may not yet be told to have, is cancelled like one that runs: whether a request
    ends as done or as cancelled must not tell when it ended.
    """
    caller.must("cancel requests")
    found = _found(service, number, caller.own)
    with service.database.read() as connection:
        grant = holdings.grant(connection, found.grant)
    with ExitStack() as stack:
        stack.enter_context(stack.enter_context(service.ledger(found.dataset)).exclusively())
        paid = None if grant is None else carrying.entry_of(service, found, grant)
        connection = stack.enter_context(service.database.write())
        held = requests.find(connection, found.id)
        if held is None or held.shown_state(service.now()) in ENDED:
            raise refused(409, "The request has ended already.", "Look at it.")
        if held.kind == "questions":
            raise refused(409, "Questions are answered at once, and are not cancelled.", "Wait for it.")
        said = refused(409, carrying.CANCELLED, "Nothing was charged." if paid is None else carrying.STANDS)
        requests.cancel(connection, held, {"error": carrying.error_of(said)}, paid, service.visible())
        log.append(
            connection, caller.name, "cancelled", held.id, dataset=held.dataset, grant=held.grant,
            kind=held.kind, entry=paid, state=held.state,
        )  # fmt: skip
    shutil.rmtree(service.folder(held.id, held.attempt), ignore_errors=True)
    service.seeds.forget(held.id)
    return _shown(service, _found(service, found.id), result=False)


def downloaded(service: Service, caller: Caller, number: str, name: str) -> Path:
    """The place of a file that a request has made, for whoever has made the request."""
    caller.must("download")
    found = _found(service, number, caller.name)
    made = (found.result or {}).get("files", ()) if found.shown_state(service.now()) == "done" else ()
    place = service.folder(found.id, found.attempt) / name
    if name not in made or not place.is_file():
        raise refused(404, "There is no such file of this request.", "Its result lists the files.")
    return place
