"""Ledger: charges before data are touched, refuses what would overspend, forgets nothing.

>>> import tempfile, pathlib
>>> from tacit import events
>>> path = pathlib.Path(tempfile.mkdtemp()) / "study.db"
>>> ledger = Ledger.open(path, budget=Budget(epsilon=1.0))
>>> with ledger.charge(events.Laplace(2.0), label="age histogram") as entry:
...     release = "computed here, and nowhere else"
>>> ledger.spent().epsilon, ledger.remaining()
(0.5, 0.5)
>>> with ledger.charge(events.Laplace(1.0), label="income"):
...     raise AssertionError("never reached")
Traceback (most recent call last):
    ...
tacit.errors.BudgetExceeded: ...
>>> ledger.close()
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tacit import _validate, events
from tacit.errors import UnsupportedEvent
from tacit.guarantee import Guarantee
from tacit.ledger.budget import Budget
from tacit.ledger.entries import Charge, Entry, LabelTotal, Line
from tacit.ledger.scope import Scope
from tacit.relations import Relation, Unit

if TYPE_CHECKING:
    from tacit.ledger.allowance import Allowance
    from tacit.ledger.book import Book
    from tacit.ledger.work import Work

__all__ = ["Ledger"]


class Ledger:
    """The durable record of what was spent on a dataset, and the guard of its budget.

    Guarantees, on SQLite and PostgreSQL, for any number of processes and threads:

    - A charge is on disk before the body of ``with ledger.charge(...)`` runs. Whatever happens
      afterwards, exception or crash, it stands.
    - A charge that would overspend the budget raises :class:`tacit.errors.BudgetExceeded`, and
      nothing is written. Totals are enforced by a privacy filter, valid although later charges depend on
      earlier releases. Which one is decided when the ledger is made: ``filter="basic"`` adds up the ε's and
      δ's of the charges (Rogers et al. 2016); ``"renyi"`` adds up Rényi divergences (Feldman and Zrnic 2021),
      for many small releases; ``"gaussian"`` adds up μ² of Gaussian differential privacy (Smith and
      Thakurta 2022), which is tight for Gaussian noise and refuses most other events.
    - Entries are append-only and hash-chained; :meth:`verify` finds whatever was altered.

    The ledger counts what it is told: a release made outside a charge is not protected by it.
    """

    def __init__(self, book: Book, *, guest: bool = False) -> None:
        self._book, self._guest = book, guest
        if not guest:
            weakref.finalize(self, book.store.close)

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str],
        budget: Budget | None = None,
        *,
        relation: Relation | str | None = None,
        unit: Unit | None = None,
        dataset: str = "default",
        filter: str | None = None,
    ) -> Ledger:
        """Open the ledger at a path or database URL, or create it where a budget is given.

        ``budget``, ``relation`` (``add_remove`` unless told, ``replace_one`` for labels), ``unit`` (a row
        unless told; :data:`tacit.relations.LABEL` where only labels are secret) and ``filter``, the rule by
        which charges add up (``basic`` unless told, ``renyi`` or ``gaussian``), are fixed when a dataset is
        first opened, and may be left out from then on. Given again, they must be the same. A ledger holds any
        number of datasets, each with its own budget: open another by another ``dataset`` name. Datasets must
        not share people, or the budgets of those they share add up.
        """
        from tacit.ledger.book import Book

        if isinstance(budget, Budget):
            _validate.warn_if_weak(budget.epsilon)
        return cls(Book.open(location, budget, relation, unit, dataset, filter))

    @classmethod
    def datasets_in(cls, location: str | os.PathLike[str]) -> tuple[str, ...]:
        """The names of the datasets in the ledger at a path or database URL."""
        from tacit.ledger import book

        return book.datasets_in(location)

    @property
    def dataset(self) -> str:
        """The name of the dataset this ledger is open at."""
        return self._book.dataset

    @property
    def location(self) -> str:
        """Where the ledger is; the password of a URL is left out."""
        return self._book.store.location.name

    @property
    def budget(self) -> Budget:
        """The most that may be spent on this dataset."""
        return self._book.terms.budget

    @property
    def filter(self) -> str | None:
        """The rule by which charges add up: ``"basic"``, ``"renyi"`` or ``"gaussian"``.

        None for a ledger of an earlier version that was never charged: its first charge decides.
        """
        return self._book.terms.filter or self._book.standing().mode

    @property
    def allowance(self) -> Allowance | None:
        """The allowance that charges have to fit into, besides the budget; None for all of the budget."""
        return None if self._book.limit is None else self._book.limit.allowance

    @property
    def relation(self) -> Relation:
        """The neighbouring relation under which the budget is promised."""
        return self._book.terms.relation

    @property
    def unit(self) -> Unit:
        """Whom the budget protects."""
        return self._book.terms.unit

    def charge(
        self,
        event: events.Event,
        label: str,
        *,
        delta: float | None = None,
        noise: str = "float64",
        work: Work | None = None,
    ) -> Charge:
        """Charge for ``event``, at once and durably; enter the result and release inside it.

        Raises :class:`tacit.errors.BudgetExceeded` if the budget would be overspent, before
        anything is touched. ``delta`` is the δ of the release: the event is charged its ε at this δ, if it
        needs one. An event that needs one and is charged without is given half of the δ that is left, or all
        of it if it fits only so. ``noise`` is the kind the release is made with, as in
        :data:`tacit.guarantee.NOISE_KINDS`. ``work`` says which steps of a run the entry pays for or
        takes; :class:`tacit.errors.LedgerError`, and nothing charged, if an earlier entry has.
        """
        return Charge(self._book.charge(event, label, delta, noise, work=work), self.location)

    def preview(self, event: events.Event, *, delta: float | None = None) -> float | None:
        """ε spent in all if ``event`` were charged now, or None if it would be refused.

        Nothing is charged and nothing reserved: another charge may come first.

        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "study.db"
        >>> with Ledger.open(path, budget=Budget(epsilon=1.0)) as ledger:
        ...     ledger.preview(events.Laplace(2.0)), ledger.preview(events.Laplace(0.5))
        (0.5, None)
        """
        return self._book.preview(event, delta)

    def parallel(self, name: str, *, partitions: Iterable[str]) -> Scope:
        """Declare a scope of disjoint partitions, so that charges to different ones do not add up.

        The list is public and is written down as an entry of its own; the same scope can be
        opened again with the same list. That no unit has rows in two partitions is the caller's
        promise, and is stated among the assumptions of every guarantee. The scope costs what its
        worst partition costs (under ``replace_one``, its two worst together, since a replaced
        unit may move).

        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "study.db"
        >>> with Ledger.open(path, budget=Budget(epsilon=1.0)) as ledger:
        ...     with ledger.parallel("region", partitions=["north", "south"]) as scope:
        ...         for part in ("north", "south"):
        ...             with scope.charge(part, events.Laplace(2.0), label="count"):
        ...                 pass
        ...     ledger.spent().epsilon
        0.5
        """
        return Scope(self._book, name, self._book.declare(name, partitions))

    def spent(self) -> Guarantee:
        """What may be promised about all releases charged so far, together.

        ε is the filter's: valid although charges were chosen in view of earlier releases. δ is the sum of
        the charges' δ's where ``filter`` is ``"basic"``, and otherwise the budget's. The event lists what was
        charged, equal events once with their number.
        """
        standing = self._book.standing()
        return Guarantee(
            epsilon=self._book.epsilon(standing.total, standing.mode),
            delta=self._book.spent_delta(standing.total, standing.mode),
            event=standing.event,
            relation=self.relation,
            unit=self.unit,
            noise=standing.noise,
            assumptions=tuple(f"no {self.unit} is in two partitions of {name!r}" for name in standing.scopes),
        )

    def fixed_in_advance(self) -> Guarantee:
        """The tighter promise that holds if every charge had been fixed before the first release.

        Composition of mechanisms fixed in advance is cheaper than a filter. It must not be
        quoted for a study in which a result decided what was asked next. δ is the budget's.
        """
        from tacit import accounting

        spent = self.spent()
        try:
            epsilon = accounting.epsilon(spent.event, self.budget.delta, relation=spent.relation)
        except UnsupportedEvent:
            epsilon = spent.epsilon
        return Guarantee(
            epsilon=min(epsilon, spent.epsilon),
            delta=self.budget.delta,
            event=spent.event,
            relation=spent.relation,
            unit=spent.unit,
            noise=spent.noise,
            assumptions=(*spent.assumptions, "every charge was fixed before the first release"),
        )

    def remaining(self) -> float:
        """The budget's ε less what the filter counts as spent."""
        return max(0.0, self.budget.epsilon - self.spent().epsilon)

    def remaining_delta(self) -> float:
        """The most δ that further charges may take.

        Where ``filter`` is ``"basic"``, the budget's δ less those of the charges. The other rules need δ to
        state the total: ``"renyi"`` leaves a quarter of it to charges, ``"gaussian"`` nothing.
        """
        return self._book.delta_left()

    def entries(self) -> list[Entry]:
        """Every charge to this dataset, oldest first."""
        return self._book.charges()

    def history(self, last: int | None = None) -> list[Line]:
        """Every charge, or the ``last`` so many, oldest first, each with ε and δ spent in all after it.

        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "study.db"
        >>> with Ledger.open(path, budget=Budget(epsilon=1.0)) as ledger:
        ...     for label in ("age", "income"):
        ...         with ledger.charge(events.Laplace(4.0), label=label):
        ...             pass
        ...     [(line.entry.label, line.entry.cost.epsilon, line.epsilon) for line in ledger.history()]
        [('age', 0.25, 0.25), ('income', 0.25, 0.5)]
        """
        return self._book.history(last)

    def within(
        self, allowance: Allowance, *, check: Callable[[], None] | None = None, shared: bool = False
    ) -> Ledger:
        """The same ledger, where charges also have to fit into an :class:`~tacit.ledger.Allowance`.

        ``budget``, ``spent`` and ``remaining`` are still those of the dataset; :meth:`spent_within` is what
        was spent of the allowance. It has connections of its own, and is closed by itself; ``shared``
        lets it use those of this ledger instead, for as long as this one is open.

        ``check`` is called in the transaction of each charge, while nobody else can charge, and refuses it by
        raising. A charge that a resumed run has made before is not checked again. Whoever withdraws an
        allowance does so inside :meth:`exclusively`: every charge comes then before that, or is refused.
        """
        return Ledger(self._book.within(allowance, check, shared=shared), guest=shared)

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Nobody charges this ledger, in any process, while the body runs; it must not charge either.

        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "study.db"
        >>> with Ledger.open(path, budget=Budget(epsilon=1.0)) as ledger:
        ...     with ledger.exclusively():
        ...         withdrawn = True
        """
        store = self._book.store
        with store.write() as connection:
            store.lock(connection)
            yield

    def spent_within(self) -> tuple[float, float]:
        """ε and δ that were spent of the allowance; of the whole budget where there is none."""
        book = self._book
        total, mode = book.own(), self.filter
        if book.limit is None:
            return book.epsilon(total, mode), book.spent_delta(total, mode)
        return book.limit.spent(total, mode), total.delta

    @property
    def charged(self) -> tuple[int, ...]:
        """The numbers of the entries that were charged through this object, or that a resumed run had paid
        with."""
        return tuple(self._book.numbers)

    def work_of(self, run: str) -> list[Entry]:
        """The charges of one run, which say what it has paid for and taken, oldest first."""
        return self._book.work_of(run)

    def by_label(self) -> tuple[LabelTotal, ...]:
        """What was charged on what, the largest share first."""
        return self._book.label_totals()

    def datasets(self) -> tuple[str, ...]:
        """The names of all datasets in this ledger."""
        return self._book.names()

    def head(self) -> str:
        """How many entries the whole ledger has, and the hash of the last, in short.

        Written down elsewhere, it pins everything before it: see :meth:`verify`.
        """
        return self._book.head()

    def verify(self, head: str | None = None) -> str:
        """Recompute the whole ledger, every dataset in it; returns the head it verified.

        Raises :class:`tacit.errors.LedgerCorrupted`, naming the first fault, if any entry was
        edited, removed, added or moved, or if a budget or total disagrees with the entries.
        Someone who can write the database can also forge all of it, hashes included. To find
        that too, keep the result of :meth:`head` where they cannot write, and pass it here: an
        older head stays valid as the ledger grows.
        """
        return self._book.verify(head)

    def export(self) -> Iterator[str]:
        """Every entry of the whole ledger as lines of JSON, hashes included, oldest first."""
        return self._book.export()

    def close(self) -> None:
        """Close the database. Charges already made stand."""
        if not self._guest:
            self._book.store.close()

    def __sklearn_clone__(self) -> Ledger:
        """The same ledger: scikit-learn copies the parameters of an estimator, and a budget has one owner."""
        return self

    __copy__ = __sklearn_clone__

    def __deepcopy__(self, known: dict[int, Any]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its place, never its contents: whoever unpickles it opens and charges the same ledger.

        Raises :class:`tacit.errors.LedgerError` where the place is a URL with a password, which does not
        belong into a pickle.
        """
        return _reopened, self._book.pickled()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self.location!r}, dataset={self.dataset!r}, budget={self.budget!r})"


def _reopened(location: str, dataset: str, seen: tuple[int, str] | None) -> Ledger:
    """The ledger that was pickled. The next charge is refused if it lacks an entry that was there then."""
    ledger = Ledger.open(location, dataset=dataset)
    ledger._book.store.seen = seen
    return ledger
