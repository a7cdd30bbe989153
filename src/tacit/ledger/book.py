"""Book: one dataset of an open ledger, and all that touches the database on its behalf.

:class:`tacit.Ledger` is the public face of a book. They are apart so that ``import tacit`` need
not load a database toolkit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from tacit import _validate, events
from tacit.accounting import filters
from tacit.errors import BudgetExceeded, InvalidValue, LedgerError, LedgerExists, LedgerMissing
from tacit.guarantee import NOISE_KINDS
from tacit.ledger import posting, reading
from tacit.ledger.budget import Budget, Terms
from tacit.ledger.entries import Entry, LabelTotal
from tacit.ledger.guarding import Opening, find_opening
from tacit.ledger.location import Location
from tacit.ledger.store import Store
from tacit.ledger.work import Work
from tacit.relations import Relation, Unit

__all__ = ["Book", "check_name", "datasets_in"]

_NAME_LENGTH = 200
# Compose(Parallel(Compose(Repeat(event)))): what a guarantee may wrap around a charged event.
_WRAPPING = 4


class Book:
    """A dataset's terms, the filter that enforces them, and the store that holds its entries."""

    def __init__(self, store: Store, dataset: str, terms: Terms, opening: Opening) -> None:
        self.store = store
        self.dataset = dataset
        self.terms = terms
        self.opening = opening
        self._known: posting.Standing | None = None
        self._filter = _filter(terms.budget, terms.relation, terms.order)

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str],
        budget: Budget | None,
        relation: Relation | str | None,
        unit: Unit | None,
        dataset: str,
    ) -> Book:
        """Find the dataset, or create it where a budget is given."""
        _check_terms(budget, unit)
        check_name("dataset", dataset)
        asked = None if relation is None else Relation.of(relation)
        place = Location.of(location)
        if budget is None:
            place.require()
        else:
            place.require_room()
        told = asked or Relation.ADD_REMOVE
        wanted = None
        if budget is not None:
            wanted = Terms(budget, told, unit or Unit(), _filter(budget, told).order)
            _create_file(place, dataset, wanted)
        store = Store(place)
        try:
            terms = _find(store, dataset)
            if terms is None and wanted is not None:
                terms = posting.create_dataset(store, dataset, wanted)
            if terms is None:
                raise _unknown(store, dataset)
            _require_same(place.name, dataset, terms, budget, asked, unit)
            with store.read() as connection:
                opening = find_opening(store, connection, dataset)
                store.seen = reading.last_seen(store, connection)
                if Terms.from_json(opening.terms) != terms:
                    raise store.corrupted(f"has another budget for {dataset!r} than it was opened with")
            return cls(store, dataset, terms, opening)
        except BaseException:
            store.close()
            raise

    def charge(
        self,
        event: events.Event,
        label: str,
        delta: float | None,
        noise: str,
        scope: str | None = None,
        partition: str | None = None,
        work: Work | None = None,
    ) -> Entry:
        """Charge, durably, or raise BudgetExceeded with nothing written."""
        if not isinstance(event, events.Event):
            raise InvalidValue("event", event, "an event", "See tacit.events for the kinds.")
        if event.depth > events.MAX_DEPTH - _WRAPPING:
            raise InvalidValue("event", event.depth, f"at most {events.MAX_DEPTH - _WRAPPING} events deep")
        request = posting.Request(
            event=event,
            label=check_name("label", label),
            delta=None if delta is None else _validate.delta(delta),
            noise=_validate.choice("noise", noise, NOISE_KINDS),
            scope=scope,
            partition=partition,
            work=work,
        )
        outcome = posting.post_charge(
            self.store, self.dataset, self.terms, self.opening, self._filter, request, self._known
        )
        if isinstance(outcome, posting.Refused):
            raise self._exceeded(request, outcome)
        self._known = outcome.standing
        return reading.to_entry(self.store, outcome.record, outcome.hash)

    def preview(self, event: events.Event, delta: float | None) -> float | None:
        """ε spent in all after a charge for ``event``, or None if it would be refused."""
        standing = self.standing()
        mode = standing.mode or self.terms.budget.filter
        admission = self._filter.admit(event, lambda cost: standing.total + cost, mode=mode, delta=delta)
        return None if admission is None else admission.epsilon

    def _exceeded(self, request: posting.Request, refused: posting.Refused) -> BudgetExceeded:
        budget = self.terms.budget
        shares = reading.label_totals(self.store, self.dataset, refused.mode)
        on = ", ".join(f"{part.label!r} {part.share:.0%}" for part in shares[:5])
        return BudgetExceeded(
            f"Charging {request.label!r} would bring {self.dataset!r} to ε = {refused.would_be:.6g}, "
            f"over its budget of {budget}. Spent so far: ε = {refused.spent:.6g}"
            + (f" (on {on}{', …' if len(shares) > 5 else ''})" if on else "")
            + f"; remaining: ε = {max(0.0, budget.epsilon - refused.spent):.6g}.",
            "Nothing was charged. Ask for less: more noise, fewer steps, fewer questions.",
            label=request.label,
            budget=budget,
            spent=refused.spent,
            would_be=refused.would_be,
        )

    def declare(self, scope: str, partitions: Iterable[str]) -> tuple[str, ...]:
        """Declare a scope of disjoint partitions, durably."""
        check_name("name", scope)
        if isinstance(partitions, str) or not isinstance(partitions, Iterable):
            raise InvalidValue("partitions", partitions, "a list of names")
        declared = tuple(check_name("partitions", partition) for partition in partitions)
        if not declared or len(set(declared)) < len(declared):
            raise InvalidValue("partitions", declared, "one or more names, each given once")
        posting.declare_scope(self.store, self.dataset, scope, declared)
        return declared

    def epsilon(self, total: filters.Cost, mode: str | None) -> float:
        """ε spent by ``total``, at the budget's δ."""
        return self._filter.spent(total, mode)

    def standing(self) -> reading.Standing:
        """Where the dataset stands."""
        return reading.standing(self.store, self.dataset)

    def charges(self) -> list[Entry]:
        """Every charge, oldest first."""
        return reading.charges(self.store, self.dataset)

    def work_of(self, run: str) -> list[Entry]:
        """The charges of one run, oldest first."""
        return reading.work_of(self.store, self.dataset, run)

    def label_totals(self) -> tuple[LabelTotal, ...]:
        """What was charged on what."""
        return reading.label_totals(self.store, self.dataset, self.standing().mode)

    def names(self) -> tuple[str, ...]:
        """The datasets of the whole ledger."""
        return reading.names(self.store)

    def head(self) -> str:
        """The head of the whole ledger."""
        return reading.head(self.store)

    def verify(self, head: str | None) -> str:
        """Verify the whole ledger."""
        return reading.verify(self.store, head)

    def export(self) -> Iterator[str]:
        """The whole ledger as lines of JSON."""
        return reading.export(self.store)

    def pickled(self) -> tuple[str, str, tuple[int, str] | None]:
        """Where the ledger is, its dataset, and the last entry seen: all that a worker process needs."""
        place = self.store.location
        if place.url.password is not None or "password" in place.url.query:
            raise LedgerError(
                f"The URL of the ledger {place.name} has a password, which does not go into a pickle.",
                "Leave it out of the URL: PostgreSQL reads PGPASSWORD and ~/.pgpass. Or use n_jobs=1.",
                location=place.name,
            )
        plain = place.path is not None and not place.url.query
        where = str(place.path.absolute()) if plain and place.path else place.url.render_as_string()
        return where, self.dataset, self.store.seen


def datasets_in(location: str | os.PathLike[str]) -> tuple[str, ...]:
    """The names of the datasets in the ledger at ``location``."""
    place = Location.of(location)
    place.require()
    store = Store(place)
    try:
        return reading.names(store)
    finally:
        store.close()


def check_name(parameter: str, value: Any) -> str:
    """A label, or the name of a dataset, scope or partition."""
    printable = isinstance(value, str) and value.isprintable() and bool(value.strip())
    if not printable or len(value) > _NAME_LENGTH:
        raise InvalidValue(parameter, value, f"printable text of 1 to {_NAME_LENGTH} characters")
    return str(value)


def _check_terms(budget: Any, unit: Any) -> None:
    if budget is not None and not isinstance(budget, Budget):
        raise InvalidValue("budget", budget, "a tacit.Budget", "Write tacit.Budget(epsilon=..., delta=...).")
    if unit is not None and not isinstance(unit, Unit):
        raise InvalidValue("unit", unit, "a tacit.Unit")


def _filter(budget: Budget, relation: Relation, order: float | None = None) -> filters.BudgetFilter:
    return filters.BudgetFilter(budget.epsilon, budget.delta, relation, order=order)


def _find(store: Store, dataset: str) -> Terms | None:
    with store.read() as connection:
        return reading.read_terms(store, connection, dataset) if store.exists(connection) else None


def _create_file(place: Location, dataset: str, terms: Terms) -> None:
    """Make the file of a new ledger, whole or not at all, unless there is one.

    A file appears under its name with its first entry in it. So one that is there and empty has been emptied,
    and is not taken for a ledger that begins.
    """
    if place.path is None or place.url.query.get("mode", "rwc") != "rwc":
        return
    if place.path.exists():
        if not place.path.stat().st_size:
            raise place.emptied()
        return
    fresh = place.beside()
    store = Store(fresh)
    try:
        posting.create_dataset(store, dataset, terms, new_file=True)
        store.close()
        fresh.take_place_of(place)
    finally:
        store.close()
        fresh.remove()


def _unknown(store: Store, dataset: str) -> LedgerMissing:
    others = ", ".join(map(repr, reading.names(store)))
    return LedgerMissing(
        f"The ledger {store.location.name} has no dataset {dataset!r}; it has {others}.",
        "Open one of those, or give a budget to add this one.",
        location=store.location.name,
    )


def _require_same(
    location: str,
    dataset: str,
    terms: Terms,
    budget: Budget | None,
    relation: Relation | None,
    unit: Unit | None,
) -> None:
    asked = Terms(budget or terms.budget, relation or terms.relation, unit or terms.unit, terms.order)
    if asked != terms:
        raise LedgerExists(
            f"{dataset!r} in the ledger {location} was opened with {terms}; now {asked} is asked for.",
            "A budget cannot be changed once promised: open it without one to go on.",
            location=location,
            found=terms,
            asked=asked,
        )
