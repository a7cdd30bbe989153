"""Carrying a request out: charge, read, release, store; once.

The order is that of every job: what is public is checked, the ledger is charged in the name of the request,
rows are read, and the release is stored in the transaction that ends the request. The charge names the
request as the run that it pays for, so a second charge for it is refused by the ledger. If whoever carried it
out is killed,

- before the charge, the next attempt charges;
- after the charge and before the end, the next attempt finds the request paid, computes the same release
  from the same secret seed (:mod:`tacit.serve.seeds`), and stores it. Nothing was shown before, and the first
  attempt can no longer end the request;
- after the end, nothing is left to do.

So it does not matter whether that a process is killed depends on the rows or on the noise: no attempt draws
noise anew. After an error that follows the charge the request has failed for good, and is not tried again.
How many attempts are made before a request is given up is public: whoever is told that it has failed for this
reason learns that its processes were killed, which may depend on the rows as every failure may. Therefore
nothing whose size is drawn at random is made here: a synthetic table has a number of rows that is public.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import jobs
from tacit.errors import (
    BudgetExceeded,
    EngineFailed,
    InvalidValue,
    LedgerCorrupted,
    LedgerError,
    ServiceRefused,
    SourceMissing,
    TacitError,
)
from tacit.ledger import Ledger
from tacit.randomness import drawn_from
from tacit.serve import seeds
from tacit.serve.planning import planned
from tacit.serve.service import Service, grant_has_ended, refused
from tacit.serve.store import holdings, log, requests
from tacit.serve.store.requests import Request

if TYPE_CHECKING:
    from tacit.jobs.job import Job
    from tacit.serve.store.holdings import Dataset, Grant

__all__ = [
    "Ready",
    "carry_out",
    "entry_of",
    "error_from",
    "error_of",
    "forget_seeds",
    "ready",
    "status_of",
    "told",
]

MOST_ATTEMPTS = 5
"""How often a request is begun; each time but the last somebody killed its process."""
FAILED = "The answer could not be computed. What was charged stays charged."
"""What is told of every failure after the charge: its cause might depend on the rows."""
CANCELLED, STANDS = "The request was cancelled.", "A charge that was made stands."


@dataclass(frozen=True)
class Ready:
    """A request that is planned, with what it is charged to and the seed of its noise."""

    dataset: Dataset
    grant: Grant
    purse: Ledger
    job: Job
    seed: bytes = field(repr=False)


@contextmanager
def ready(
    service: Service,
    dataset: Dataset,
    grant: Grant,
    kind: str,
    body: Mapping[str, Any],
    run: str | None = None,
    *,
    resumed: bool = False,
    folder: Path | None = None,
    seed: bytes | None = None,
) -> Iterator[Ready]:
    """A request planned, for the run that its charge will name; its noise, all of it, comes from the seed."""
    known = seeds.new() if seed is None else seed
    with (
        drawn_from(seeds.streams(known)),
        service.ledger(dataset.name) as ledger,
        service.purse(ledger, grant, run, resumed=resumed) as purse,
        planned(
            service, dataset, purse, kind, body, folder, model_of(service, grant.analyst, body)
        ) as job,
    ):  # fmt: skip
        yield Ready(dataset, grant, purse, job, known)


def carry_out(
    service: Service,
    held: Request,
    stopped: Callable[[], None] | None = None,
    *,
    prepared: Ready | None = None,
) -> Request | None:
    """Carry a claimed request out, and end it: the request as it has ended, or None if another attempt has
    taken it over.

    ``stopped`` is called, in another thread, when the request was cancelled or taken over; it ends this
    process. Without it the request is carried out to the end. ``prepared`` is the request as it was planned
    already, for the first attempt.
    """
    if prepared is not None:
        dataset, grant = prepared.dataset, prepared.grant
    else:
        with service.database.read() as connection:
            stored, given = holdings.dataset(connection, held.dataset), holdings.grant(connection, held.grant)
        if stored is None or given is None:
            raise refused(503, "The service has lost a dataset or a grant.", "Restore a backup.")
        dataset, grant = stored, given
        paid = entry_of(service, held, grant) if held.attempt > 1 else None
        if (stopping := _no_longer_wanted(service, held, grant, paid)) is not None:
            state, said = stopping
            return _end(service, held, state, {"error": error_of(said)}, paid)
    folder = service.folder(held.id, held.attempt)
    with _renewed(service, held, stopped):
        failure: Exception | None = None
        try:
            result, entry = _released(service, held, dataset, grant, folder, prepared)
        except Exception as error:
            failure = error  # which may quote rows: what fails from here on must not be chained to it
        if failure is not None:
            paid = entry_of(service, held, grant)
            shutil.rmtree(folder, ignore_errors=True)
            if paid is None:
                result = {"error": error_of(told(failure, service, dataset, grant))}
                return _end(service, held, "refused", result, None)
            return _end(service, held, "failed", {"error": error_of(refused(503, FAILED))}, paid)
        ended = _end(service, held, "done", result, entry)
        if ended is not None:
            _tidy(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
        return ended


def _no_longer_wanted(
    service: Service, held: Request, grant: Grant, paid: int | None
) -> tuple[str, ServiceRefused] | None:
    """How a request ends that is not carried out again: it was begun too often, or its grant has ended before
    it was paid for, or it was paid for and its seed is lost."""
    if held.attempt > MOST_ATTEMPTS:
        return "failed", refused(503, FAILED)
    if paid is None:
        return None if grant.valid(service.now()) else ("refused", grant_has_ended())
    return None if service.seeds.find(held.id) else ("failed", refused(503, FAILED))


def _tidy(folder: Path) -> None:
    """Remove what earlier attempts have left: only this one's files were released."""
    if folder.parent.is_dir():
        for other in folder.parent.iterdir():
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)


def _released(
    service: Service, held: Request, dataset: Dataset, grant: Grant, folder: Path, prepared: Ready | None
) -> tuple[dict[str, Any], int]:
    """Charge, read, release: the result as JSON, and the number of the entry that paid for it."""
    seed = service.seeds.keep(held.id, seeds.new() if prepared is None else prepared.seed)
    if prepared is not None and prepared.seed != seed:
        raise refused(409, "Another attempt has taken this request over.", "Ask for the request again.")
    if held.kind != "questions":
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        if prepared is None:
            options: dict[str, Any] = {"resumed": held.attempt > 1, "folder": folder, "seed": seed}
            again = ready(service, dataset, grant, held.kind, held.body, held.id, **options)
            prepared = stack.enter_context(again)
        purse, job = prepared.purse, prepared.job
        if isinstance(job, jobs.QueryJob):
            answered = job.run()
            result = _answers(answered, held.body.get("confidence", 0.95))
        else:
            result = _made(job, held, folder, _saying(service, held, len(job.dues) > 1))
        entries = list(purse.charged)
    whole = {**result, "entry": entries[0], "entries": entries}
    # A release that cannot be stored fails here, and is not tried again.
    stored: dict[str, Any] = json.loads(json.dumps(whole, allow_nan=False))
    return stored, entries[0]


def _made(job: Any, held: Request, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """What a job has made: its files, its guarantee, and how good it is where that was measured.

    A test is charged after the model. If others have taken what was left of the budget in between, the model
    is released without: the files hold it already, and that a budget does not suffice is public.
    """
    notes: list[str] = []
    if held.kind == "evaluate":
        found = job.run(say)
        return {"files": [], "guarantee": json.loads(found.guarantee.to_json()),
                "evaluation": found.to_dict(), "notes": notes}  # fmt: skip
    guarantee, found = None, None
    try:
        if held.kind == "train":
            job.check()
        made = job.run(say, notes.append)
        guarantee, found = made.guarantee, getattr(made, "evaluation", None)
    except BudgetExceeded:
        guarantee = getattr(getattr(job, "estimator", None), "guarantee_", None)
        if guarantee is None:
            raise
        notes = ["What is left of the budget did not suffice for the test, which was not made."]
    files = [path.name for path in sorted(folder.iterdir())]
    wanted = {"train": ["model.safetensors"], "synthesize": ["model.tacit", "table.csv"]}
    if guarantee is None or files != wanted.get(held.kind, ["model.tacit"]):
        raise refused(503, FAILED)  # it was written elsewhere, and the note about it names the place
    told = {"files": files, "guarantee": json.loads(guarantee.to_json()), "notes": notes}
    return told if found is None else {**told, "evaluation": found.to_dict()}


def model_of(service: Service, analyst: str, body: Mapping[str, Any]) -> Path | None:
    """The file of the model that a measurement names by its request, which must be the analyst's own."""
    if "request" not in body:
        return None
    with service.database.read() as connection:
        found = requests.find(connection, str(body["request"]), analyst=analyst)
    if found is None or found.shown_state(service.now()) != "done" or found.result is None:
        return None
    models = [name for name in found.result.get("files", ()) if name.startswith("model.")]
    return service.folder(found.id, found.attempt) / models[0] if models else None


def _answers(answered: jobs.Answered, confidence: float) -> dict[str, Any]:
    from tacit.tables.lines import answer_of
    from tacit.tables.wire import release_to

    answers = []
    for release in answered.releases:
        sent = release_to(release, confidence)
        lines = answer_of(release, confidence)
        rows = [
            {"keys": dict(zip(lines.names, line.keys, strict=True)), "value": line.value, "low": line.low,
             "high": line.high}
            for line in lines.lines
        ]  # fmt: skip
        answers.append({"rows": rows, "release": sent})
    whole = json.loads(answered.guarantee.to_json())
    return {"answers": answers, "guarantee": whole, "confidence": confidence}


def _saying(service: Service, held: Request, charged_again: bool) -> Callable[[str], None]:
    """What notes how far a job is. A second charge follows a message, and comes on the tick: what is left of
    a budget tells when it was made, and so how long the rows before it took."""

    def say(text: str) -> None:
        if charged_again:
            service.wait_for_tick()
        if os.sep in text:
            text = text.split(os.sep)[0].rstrip() + " the rows"  # a path is the curator's
        with service.database.write() as connection:
            requests.progress(connection, held, text)

    return say


def entry_of(service: Service, held: Request, grant: Grant) -> int | None:
    """The number of the entry that paid for a request, if it was paid for."""
    with service.ledger(held.dataset) as ledger, service.purse(ledger, grant) as purse:
        found = purse.work_of(held.id)
    return found[0].number if found else None


def _end(
    service: Service, held: Request, state: str, result: dict[str, Any], entry: int | None
) -> Request | None:
    """End the request, with a line in the log; None if another attempt holds it."""
    with service.database.write() as connection:
        ended = requests.end(connection, held, state, result, entry, service.visible())
        if ended is not None:
            action = {"done": "released"}.get(state, state)
            log.append(
                connection, held.analyst, action, held.id, dataset=held.dataset, grant=held.grant,
                kind=held.kind, entry=entry, epsilon=held.body.get("epsilon"), attempt=held.attempt,
            )  # fmt: skip
    if ended is not None:
        service.seeds.forget(held.id)
    return ended


def forget_seeds(service: Service) -> None:
    """Remove the seeds of requests that have ended, whose processes were killed before they could."""
    for number in service.seeds.kept():
        with service.database.read() as connection:
            found = requests.find(connection, number)
        if found is None or found.state in requests.ENDED:
            service.seeds.forget(number)


@contextmanager
def _renewed(service: Service, held: Request, stopped: Callable[[], None] | None) -> Iterator[None]:
    """Renew the lease while the body runs."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(requests.LEASE / 6 if stopped is None else 1.0):
            try:
                with service.database.write() as connection:
                    ours = requests.renew(connection, held, service.now())
            except LedgerError:
                continue  # the database is busy: the lease holds a while longer
            if stopped is not None and not ours and not over.is_set():
                stopped()

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def told(error: Exception, service: Service, dataset: Dataset, grant: Grant) -> TacitError:
    """An error before the charge, in the words that the caller may read.

    What was wrong with the request is told as it is: it comes from public facts. What is wrong with files,
    tables and ledgers names the curator's paths and tables, and is not told. What is left of a budget is
    told without the labels of others.
    """
    if isinstance(error, ServiceRefused):
        return error
    if isinstance(error, BudgetExceeded):
        with service.ledger(dataset.name) as ledger, service.purse(ledger, grant) as purse:
            own, whole = purse.spent_within(), ledger.remaining()
        left = max(0.0, grant.budget.epsilon - own[0])
        return BudgetExceeded(
            f"This does not fit. Of the grant, ε = {_down(left)} of {grant.budget} is left; of "
            f"{dataset.name!r}, ε = {_down(whole)} of {ledger.budget}.",
            "Nothing was charged. Ask for less, or ask the curator for a larger grant.",
            label=getattr(error, "label", None), budget=grant.budget, spent=own[0], would_be=None,
            remaining=min(left, whole),
        )  # fmt: skip
    hidden = isinstance(error, LedgerError | SourceMissing | EngineFailed) or hasattr(error, "path")
    if isinstance(error, InvalidValue) and getattr(error, "name", None) == "source":
        hidden = True  # no analyst names a source: it is the curator's
    if isinstance(error, TacitError) and not hidden:
        return error
    logging.getLogger("tacit.serve").warning("%s while %r was planned", type(error).__name__, dataset.name)
    return refused(
        503, f"{dataset.name!r} cannot be asked at the moment.", "Nothing was charged. Tell its curator."
    )


def _down(value: float) -> str:
    from tacit.guarantee import floor

    return f"{float(floor(value, 6)):.6g}" if math.isfinite(value) else "0"


def error_of(error: TacitError) -> dict[str, Any]:
    """An error as JSON: its kind, its words, and its status where it has one."""
    kind = type(error).__name__
    return {"kind": kind, "problem": error.problem, "next": error.next_step, "status": status_of(error)}


def error_from(told: Mapping[str, Any]) -> TacitError:
    """The error that was written as JSON, as its kind if that is one of budgets or values."""
    if told["status"] == 402:
        nothing = dict.fromkeys(("label", "budget", "spent", "would_be"))
        return BudgetExceeded(told["problem"], told["next"], **nothing)
    return refused(told["status"], told["problem"], told["next"])


def status_of(error: TacitError) -> int:
    """The code that HTTP has for an error: 402 for a budget that does not suffice, 409 for a broken chain."""
    if isinstance(error, ServiceRefused):
        return error.status
    if isinstance(error, BudgetExceeded):
        return 402
    if isinstance(error, LedgerCorrupted):
        return 409
    return 503 if isinstance(error, LedgerError | EngineFailed) else 422
