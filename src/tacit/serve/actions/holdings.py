"""Datasets and grants: the curator registers and grants, others see what they may."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.ledger import Budget, Ledger
from tacit.schema import Schema
from tacit.serve import sources
from tacit.serve.access import Caller
from tacit.serve.actions.people import DAY, named, when
from tacit.serve.planning import allowed
from tacit.serve.service import NAME, Service, refused
from tacit.serve.store import holdings, log, people
from tacit.serve.store.holdings import Dataset, Grant

__all__ = [
    "confirm_dataset",
    "granted",
    "known_dataset",
    "list_datasets",
    "list_grants",
    "make_grant",
    "register",
    "revoke_grant",
    "see_dataset",
    "usable",
]


def register(
    service: Service,
    caller: Caller,
    name: str,
    *,
    source: str,
    schema: str,
    epsilon: float,
    delta: float = 0.0,
    relation: str | None = None,
    filter: str | None = None,
) -> dict[str, Any]:
    """Register a dataset: where its rows are, what is public about them, whom it protects, and its budget.

    ``schema`` is TOML, with the unit in it. Only names and types of columns are looked at.
    """
    caller.must("register datasets")
    named("name", name)
    place = sources.found(service, source)
    known, budget = Schema.from_toml(schema), Budget(epsilon, delta)
    place.open(known).close()
    made = Dataset(name, source, known.to_toml(), place.stamp(), service.now())
    with service.database.read() as connection:
        if holdings.dataset(connection, name) is not None:
            raise refused(409, f"There is a dataset {name!r} already.", "Choose another name.")
    terms = {"relation": relation, "unit": known.unit, "filter": filter}
    Ledger.open(service.place.ledger, budget, dataset=name, **terms).close()  # type: ignore[arg-type]
    with service.database.write() as connection:
        if not holdings.add_dataset(connection, made):
            raise refused(409, f"There is a dataset {name!r} already.", "Choose another name.")
        log.append(
            connection, caller.name, "registered dataset", name, epsilon=budget.epsilon, delta=budget.delta
        )
    return _seen(service, caller, made)


def confirm_dataset(service: Service, caller: Caller, name: str) -> dict[str, Any]:
    """Take the rows of a dataset for what they are now: the curator answers that they hold the same people.

    The budget goes on as it was. For other people, register another dataset.
    """
    caller.must("confirm datasets")
    dataset = known_dataset(service, caller, name)
    stamp = sources.found(service, dataset.source).stamp()
    with service.database.write() as connection:
        holdings.restamp(connection, name, stamp)
        log.append(connection, caller.name, "confirmed dataset", name, changed=stamp != dataset.stamp)
    return _seen(service, caller, dataset)


def known_dataset(service: Service, caller: Caller, name: str) -> Dataset:
    """The dataset of this name; for an analyst, one that there is a grant for."""
    with service.database.read() as connection:
        own = [] if caller.own is None else holdings.grants(connection, caller.own, name)
        return _known(service, connection, caller, name, own)


def _known(service: Service, connection: Any, caller: Caller, name: str, own: Sequence[Grant]) -> Dataset:
    found = holdings.dataset(connection, name) if NAME.fullmatch(name) else None
    hidden = caller.own is not None and not any(grant.valid(service.now()) for grant in own)
    if found is None or hidden:
        raise refused(404, "There is no such dataset for you.", "List the datasets.")
    return found


def list_datasets(service: Service, caller: Caller) -> list[dict[str, Any]]:
    """The datasets; for an analyst, those that there is a grant for."""
    caller.must("list datasets")
    with service.database.read() as connection:
        found = holdings.datasets(connection)
        own = None
        if caller.own is not None:
            grants = holdings.grants(connection, caller.own)
            own = {grant.dataset for grant in grants if grant.valid(service.now())}
    return [{"name": one.name} for one in found if own is None or one.name in own]


def see_dataset(service: Service, caller: Caller, name: str) -> dict[str, Any]:
    """What is public about a dataset: its schema, its budget, what is spent; for the curator, its source."""
    caller.must("see datasets")
    return _seen(service, caller, known_dataset(service, caller, name))


def _seen(service: Service, caller: Caller, dataset: Dataset) -> dict[str, Any]:
    with service.ledger(dataset.name) as ledger:
        spent = ledger.spent()
        seen: dict[str, Any] = {
            "name": dataset.name,
            "schema": dataset.schema,
            "relation": str(ledger.relation),
            "unit": ledger.unit.to_dict(),
            "filter": ledger.filter,
            "budget": {"epsilon": ledger.budget.epsilon, "delta": ledger.budget.delta},
            "spent": {"epsilon": spent.epsilon, "delta": spent.delta},
            "remaining": {"epsilon": ledger.remaining(), "delta": ledger.remaining_delta()},
        }
    if caller.role == "curator":
        seen["source"] = dataset.source
    if caller.own is not None:
        seen["grants"] = list_grants(service, caller, dataset.name)
    return seen


def make_grant(
    service: Service,
    caller: Caller,
    *,
    analyst: str,
    dataset: str,
    epsilon: float,
    delta: float = 0.0,
    statistics: Sequence[str] | None = None,
    models: Sequence[str] = (),
    days: float | None = None,
) -> dict[str, Any]:
    """Let an analyst spend a part of a dataset's budget, on these statistics and these models.

    All statistics unless they are listed, and no model unless it is; ``"network"`` allows training runs and
    ``"evaluation"`` the measurement of models on the rows. Grants may add up to more than the
    budget, which is enforced all the same.
    """
    caller.must("grant")
    from tacit.tables.questions import CATALOGUE

    for given, known, what in (
        (statistics or (), CATALOGUE, "statistics"),
        (models, allowed(), "models"),
    ):
        for one in given:
            if one not in known:
                raise InvalidValue(what, one, f"among {', '.join(known)}")
    budget, held = Budget(epsilon, delta), known_dataset(service, caller, dataset)
    expires = None if days is None else service.now() + _validate.positive("days", days) * DAY
    if expires is not None and expires > service.now() + 3660 * DAY:
        raise InvalidValue("days", days, "at most 3660")
    made = Grant(
        f"g-{secrets.token_hex(8)}", analyst, held.name, budget,
        None if statistics is None else tuple(statistics), tuple(models), service.now(), expires,
    )  # fmt: skip
    with service.ledger(held.name) as ledger:
        if ledger.filter != "basic" and budget.delta == 0:
            raise InvalidValue("delta", delta, f"above 0, where the ledger counts by {ledger.filter!r}")
        service.purse(ledger, made).close()
    with service.database.write() as connection:
        if not NAME.fullmatch(analyst) or people.role_of(connection, analyst) != "analyst":
            raise refused(404, "There is no such analyst.", "Add a user with the role analyst first.")
        holdings.add_grant(connection, made)
        log.append(
            connection, caller.name, "granted", made.id, analyst=analyst, dataset=dataset,
            epsilon=budget.epsilon, delta=budget.delta,
            statistics=None if statistics is None else list(statistics), models=list(models),
        )  # fmt: skip
    return _grant(service, made)


def granted(service: Service, caller: Caller, dataset: str, number: str | None = None) -> Grant:
    """The grant that a request is charged to: the one that is named, or the newest that is valid."""
    with service.database.read() as connection:
        return _valid(service, holdings.grants(connection, caller.name, dataset), number)


def usable(
    service: Service, connection: Any, caller: Caller, dataset: str, number: str | None = None
) -> tuple[Dataset, Grant]:
    """The dataset of this name and the grant that a request is charged to, in one transaction."""
    own = holdings.grants(connection, caller.name, dataset)
    return _known(service, connection, caller, dataset, own), _valid(service, own, number)


def _valid(service: Service, own: Sequence[Grant], number: str | None) -> Grant:
    valid = [one for one in own if one.valid(service.now()) and number in (None, one.id)]
    if not valid:
        raise refused(403, "No grant in force allows this.", "Ask the curator for one.")
    return valid[-1]


def list_grants(service: Service, caller: Caller, dataset: str | None = None) -> list[dict[str, Any]]:
    """Grants with what is left of them; for an analyst, own ones."""
    caller.must("list grants")
    with service.database.read() as connection:
        found = holdings.grants(connection, caller.own, dataset)
    return [_grant(service, one) for one in found]


def revoke_grant(service: Service, caller: Caller, number: str) -> dict[str, Any]:
    """End a grant. What was charged for it stands, and a request that was paid for is still answered.

    Nobody charges the ledger meanwhile, and a charge looks the grant up in its own transaction: what is not
    charged before this is refused.
    """
    caller.must("revoke grants")
    with service.database.read() as connection:
        known = holdings.grant(connection, number) if number.isascii() and number.isprintable() else None
    if known is None:
        raise refused(404, "There is no such grant in force.", "List the grants.")
    with (
        service.ledger(known.dataset) as ledger,
        ledger.exclusively(),
        service.database.write() as connection,
    ):
        found = holdings.grant(connection, number)
        if found is None or found.revoked is not None:
            raise refused(404, "There is no such grant in force.", "List the grants.")
        holdings.revoke_grant(connection, number, service.now())
        log.append(connection, caller.name, "revoked grant", number, analyst=found.analyst)
    return {"id": number}


def _grant(service: Service, grant: Grant) -> dict[str, Any]:
    with service.ledger(grant.dataset) as ledger, service.purse(ledger, grant) as purse:
        epsilon, delta = purse.spent_within()
    return {
        "id": grant.id,
        "analyst": grant.analyst,
        "dataset": grant.dataset,
        "budget": {"epsilon": grant.budget.epsilon, "delta": grant.budget.delta},
        "spent": {"epsilon": epsilon, "delta": delta},
        "remaining": {
            "epsilon": max(0.0, grant.budget.epsilon - epsilon),
            "delta": max(0.0, grant.budget.delta - delta),
        },
        "statistics": None if grant.statistics is None else list(grant.statistics),
        "models": list(grant.models),
        "expires": when(grant.expires),
        "revoked": when(grant.revoked),
        "in_force": grant.valid(service.now()),
    }
