"""The ledger and the log, for curators and auditors."""

from __future__ import annotations

from typing import Any

from tacit.schema import Schema
from tacit.serve.access import Caller
from tacit.serve.actions.holdings import known_dataset
from tacit.serve.service import Service
from tacit.serve.store import log

__all__ = ["ledger_page", "log_length", "read_ledger", "read_log", "verify"]

NOBODY = "not named; [about] of the schema names somebody when a dataset is registered"


def read_ledger(service: Service, caller: Caller, dataset: str) -> dict[str, Any]:
    """The charges to a dataset, each with what was spent by then."""
    caller.must("read the ledger")
    known_dataset(service, caller, dataset)
    with service.ledger(dataset) as ledger:
        lines, head = ledger.history(), ledger.head()
        budget = {"epsilon": ledger.budget.epsilon, "delta": ledger.budget.delta}
    return {
        "dataset": dataset,
        "budget": budget,
        "head": head,
        "entries": [
            {
                "number": line.entry.number,
                "time": line.entry.time,
                "label": line.entry.label,
                "run": None if line.entry.work is None else line.entry.work.run,
                "epsilon": line.entry.cost.epsilon,
                "delta": line.entry.cost.delta,
                "noise": line.entry.noise,
                "hash": line.entry.hash,
                "spent": {"epsilon": line.epsilon, "delta": line.delta},
            }
            for line in lines
        ],
    }


def verify(
    service: Service, caller: Caller, dataset: str, head: str | None = None, log_head: str | None = None
) -> dict[str, Any]:
    """Verify the whole ledger and the log; LedgerCorrupted names the first fault.

    ``head`` and ``log_head`` are those that an earlier verification told, kept where nobody here can write.
    """
    caller.must("verify")
    known_dataset(service, caller, dataset)
    with service.ledger(dataset) as ledger:
        verified = ledger.verify(head)
    with service.database.read() as connection:
        lines, last = log.verify(connection, log_head)
    return {"head": verified, "log_lines": lines, "log_head": last}


def read_log(service: Service, caller: Caller, after: int = 0, most: int = 1000) -> list[dict[str, Any]]:
    """Lines of the log, oldest first."""
    caller.must("read the log")
    with service.database.read() as connection:
        return log.lines(connection, max(0, min(after, 2**31 - 1)), min(max(most, 1), 1000))


def log_length(service: Service, caller: Caller) -> int:
    """How many lines the log has."""
    caller.must("read the log")
    with service.database.read() as connection:
        return log.length(connection)


def ledger_page(service: Service, caller: Caller, dataset: str) -> str:
    """The page about a dataset's ledger: who is protected, what was released when, what remains.

    Whoever is responsible is named by the schema with which the dataset was registered.
    """
    caller.must("report")
    about = Schema.from_toml(known_dataset(service, caller, dataset).schema).about
    from tacit.report.ledger import Verification
    from tacit.report.ledger import ledger_page as page

    with service.ledger(dataset) as ledger:
        checked, named = Verification.of(ledger), about.responsible or NOBODY
        return page([ledger], checked, responsible=named, place="of the service")
