"""Book: one dataset of an open ledger, and all that touches the database on its behalf.

:class:`tacit.Ledger` is the public face of a book. They are apart so that ``import tacit`` need
not load a database toolkit.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from tacit import _validate, events
from tacit.accounting import filters
from tacit.errors import InvalidValue, LedgerError, LedgerExists, LedgerMissing
from tacit.guarantee import NOISE_KINDS
from tacit.ledger import posting, reading
from tacit.ledger.allowance import Allowance
from tacit.ledger.budget import FILTERS, Budget, Terms
from tacit.ledger.chain import DatasetState
from tacit.ledger.entries import Entry, LabelTotal, Line
from tacit.ledger.guarding import Opening, find_opening
from tacit.ledger.limit import Limit, overdrawn
from tacit.ledger.location import Location
from tacit.ledger.refusal import exceeded
from tacit.ledger.store import Store
from tacit.ledger.work import Work
from tacit.relations import Relation, Unit, relation_for

__all__ = ["Book", "check_name", "datasets_in"]

_NAME_LENGTH = 200
# Compose(Parallel(Compose(Repeat(event)))): what a guarantee may wrap around a charged event.
_WRAPPING = 4


class Book:
    """A dataset's terms, the filter that enforces them, and the store that holds its entries."""

    def __init__(
        self, store: Store, dataset: str, terms: Terms, opening: Opening, allowance: Allowance | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.store = store
        self.dataset = dataset
        self.terms = terms
        self.opening = opening
        self._known: posting.Standing | None = None
        self._filter = _filter(terms.budget, terms.relation, terms.order)
        self.limit = None if allowance is None else Limit(allowance, terms)
        """What may be charged here of the budget, if not all of it."""
        self._check = check
        self._charges = itertools.count()
        self.numbers: list[int] = []
        """The entries of the charges that were made here."""

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str],
        budget: Budget | None,
        relation: Relation | str | None,
        unit: Unit | None,
        dataset: str,
        filter: str | None,
    ) -> Book:
        """Find the dataset, or create it where a budget is given."""
        _check_terms(budget, unit, filter)
        check_name("dataset", dataset)
        asked = None if relation is None else Relation.of(relation)
        place = Location.of(location)
        if budget is None:
            place.require()
        else:
            place.require_room()
        told = relation_for(unit or Unit(), asked)
        wanted = None
        if budget is not None:
            rule = filter or "basic"
            order = _filter(budget, told).order if rule == "renyi" else None
            wanted = Terms(budget, told, unit or Unit(), order, rule)
            _create_file(place, dataset, wanted)
        store = Store(place)
        try:
            terms = _find(store, dataset)
            if terms is None and wanted is not None:
                terms = posting.create_dataset(store, dataset, wanted)
            if terms is None:
                raise _unknown(store, dataset)
            with store.read() as connection:
                mode = reading.read_dataset(store, connection, dataset).mode
            _require_same(place.name, dataset, terms, budget, asked, unit, filter, mode)
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
            work=work if self.limit is None else self.limit.allowance.work(work, next(self._charges)),
            limit=self.limit,
            check=self._check,
        )
        outcome = posting.post_charge(
            self.store, self.dataset, self.terms, self.opening, self._filter, request, self._known
        )
        if isinstance(outcome, posting.Refused):
            if self.limit is not None and outcome.own is not None:
                raise overdrawn(request.label, self.limit, outcome.own, outcome.mode)
            shares = reading.label_totals(self.store, self.dataset, outcome.mode)
            raise exceeded(
                request.label, self.dataset, self.terms.budget, self._filter, outcome, shares, request.delta
            )
        self._known = outcome.standing
        self.numbers.append(outcome.record.number)
        return reading.to_entry(self.store, outcome.record, outcome.hash)

    def preview(self, event: events.Event, delta: float | None) -> float | None:
        """ε spent in all after a charge for ``event``, or None if it would be refused."""
        request = posting.Request(event, "preview", delta, NOISE_KINDS[0], limit=self.limit)
        with self.store.read() as connection:
            row = reading.read_dataset(self.store, connection, self.dataset)
            now = self._known = posting.Standing.of(self.store, connection, row, self.terms, request)
        admission = self._filter.admit(
            event, partial(now.total_with, request=request), mode=now.mode, delta=delta
        )
        if admission is None:
            return None
        quote = filters.Quote(admission.mode, admission.cost)
        return admission.epsilon if now.accepted(self._filter, [quote], request) else None

    def within(
        self, allowance: Allowance, check: Callable[[], None] | None = None, *, shared: bool = False
    ) -> Book:
        """The same dataset, where charges also have to fit into an allowance, and to pass a check."""
        budget = allowance.budget
        if budget.delta > self.terms.budget.delta:
            most = f"at most that of the budget, {self.terms.budget.delta}"
            raise InvalidValue("delta", budget.delta, most)
        store = self.store
        if not shared:
            store = Store(self.store.location)
            store.seen = self.store.seen
        return Book(store, self.dataset, self.terms, self.opening, allowance, check)

    def own(self) -> filters.Cost:
        """What is spent of the allowance, or of the budget where there is none."""
        if self.limit is None:
            return self.standing().total
        with self.store.read() as connection:
            return reading.allowance_total(
                self.store, connection, self.dataset, self.limit.allowance.prefix
            ).cost()

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

    def spent_delta(self, total: filters.Cost, mode: str | None) -> float:
        """δ spent by ``total``: the sum, or the whole δ of the budget where it states the total."""
        if mode in ("renyi", "gaussian"):
            return self.terms.budget.delta if total != filters.Cost() else 0.0
        return min(total.delta, self.terms.budget.delta)

    def delta_left(self) -> float:
        """The most δ that further charges may take."""
        standing = self.standing()
        return max(0.0, self._filter.delta_for_charges(standing.mode) - standing.total.delta)

    def history(self, last: int | None) -> list[Line]:
        """The last charges, each with what was spent by then."""
        entries = self.charges()
        first = 0 if last is None else max(0, len(entries) - last)
        state, lines = DatasetState(self.terms), []
        for number, entry in enumerate(entries):
            state.add(entry.cost, entry.scope, entry.partition)
            if number >= first:
                total = state.total().cost()
                epsilon, delta = self.epsilon(total, entry.mode), self.spent_delta(total, entry.mode)
                lines.append(Line(entry, epsilon, delta))
        return lines

    def standing(self) -> reading.Standing:
        """Where the dataset stands."""
        return reading.standing(self.store, self.dataset, self.terms.filter)

    def charges(self) -> list[Entry]:
        """Every charge, oldest first."""
        return reading.charges(self.store, self.dataset)

    def work_of(self, run: str) -> list[Entry]:
        """The charges of one run, oldest first."""
        known = run if self.limit is None else self.limit.allowance.named(run)
        return reading.work_of(self.store, self.dataset, known)

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
        if place.secret:
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


def _check_terms(budget: Any, unit: Any, filter: Any) -> None:
    if budget is not None and not isinstance(budget, Budget):
        raise InvalidValue("budget", budget, "a tacit.Budget", "Write tacit.Budget(epsilon=..., delta=...).")
    if unit is not None and not isinstance(unit, Unit):
        raise InvalidValue("unit", unit, "a tacit.Unit")
    if filter is not None:
        _validate.choice("filter", filter, FILTERS)
    if filter in ("renyi", "gaussian") and budget is not None and budget.delta == 0:
        raise InvalidValue(
            "filter", filter, "'basic' where the budget's δ is 0",
            "Give the budget a δ, such as 1e-6; or leave filter= out: the ε's then add up.",
        )  # fmt: skip


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
    filter: str | None,
    mode: str | None,
) -> None:
    rule = terms.filter or mode
    if filter not in (None, rule):
        told = (
            f"counts by filter={rule!r}" if rule else "leaves the rule to the first charge, as it was made to"
        )
        raise LedgerExists(
            f"{dataset!r} in the ledger {location} {told}; now filter={filter!r} is asked for.",
            "The rule is fixed when a ledger is made: open it without filter= to go on, or make another "
            "ledger for other people's data.",
            location=location,
            found=rule,
            asked=filter,
        )
    asked = replace(
        terms, budget=budget or terms.budget, relation=relation or terms.relation, unit=unit or terms.unit
    )
    if asked != terms:
        raise LedgerExists(
            f"{dataset!r} in the ledger {location} was opened with {terms}; now {asked} is asked for.",
            "A budget cannot be changed once promised: open it without one to go on.",
            location=location,
            found=terms,
            asked=asked,
        )
