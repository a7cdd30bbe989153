"""Payment: the one way in which a release is paid for.

Every release of the library is charged here, whoever makes it. Before any row is read, :meth:`Payment.agreed`
settles who is protected from what: the relation and the unit of the ledger, or those that were declared where
there is no ledger. Then :meth:`Payment.charge` charges the event, durably, and the rows are read inside it.

>>> import tempfile, pathlib
>>> from tacit import events
>>> from tacit.ledger import Budget, Ledger
>>> ledger = Ledger.open(pathlib.Path(tempfile.mkdtemp()) / "study.db", budget=Budget(epsilon=1.0))
>>> payment = Payment.agreed(ledger, relation="add_remove")
>>> with payment.charge(events.Laplace(2.0), "age histogram", noise="exact"):
...     release = "rows are read here, and nowhere else"
>>> ledger.spent().epsilon
0.5
>>> with Payment.agreed(None).charge(events.Laplace(2.0), "not charged anywhere", noise="exact"):
...     pass
>>> Payment.agreed(ledger, relation="replace_one")
Traceback (most recent call last):
    ...
tacit.errors.TacitError: The ledger promises privacy under add_remove, not replace_one. ...
>>> ledger.close()
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tacit import events
from tacit.errors import InvalidValue, TacitError
from tacit.ledger.entries import Entry
from tacit.ledger.ledger import Ledger
from tacit.relations import Relation, Unit, relation_for

if TYPE_CHECKING:
    from tacit.ledger.work import Work

__all__ = ["Payment"]


@dataclass(frozen=True)
class Payment:
    """A ledger, or none, together with the relation and the unit that were agreed with it."""

    ledger: Ledger | None
    relation: Relation
    unit: Unit

    @classmethod
    def agreed(
        cls,
        ledger: Any,
        *,
        relation: Relation | str | None = None,
        unit: Unit | None = None,
        named: bool = True,
        rows_alone: bool = False,
        required: bool = False,
    ) -> Payment:
        """Agree with ``ledger``, or with nobody if it is None; refuse what contradicts the ledger.

        ``relation`` and ``unit`` may be left out, and are the ledger's then. ``named`` is False where units
        are told apart by an array that has no name: then the ledger's name for the unit is taken over.
        ``rows_alone`` says that the caller can protect nothing but rows. ``required`` refuses to go on
        without a ledger.
        """
        if ledger is None and not required:
            protected = unit or Unit()
            return cls(None, relation_for(protected, relation), protected)
        if not isinstance(ledger, Ledger):
            advice = "Open one: tacit.Ledger.open('study.db', budget=tacit.Budget(1.0))."
            raise InvalidValue("ledger", ledger, "a tacit.Ledger", advice)
        if unit is not None and unit.part != ledger.unit.part:
            raise _other_part(ledger.unit, unit)
        wanted = ledger.relation if relation is None else Relation.of(relation)
        if wanted is not ledger.relation:
            raise TacitError(
                f"The ledger promises privacy under {ledger.relation}, not {wanted}.",
                f"Set relation={str(ledger.relation)!r}, or open a ledger for the other relation.",
            )
        protected = ledger.unit
        same = unit is None or unit == protected
        if unit is not None and not named:
            same = (unit.column is None) == (protected.column is None) and unit.rows == protected.rows
        if not same:
            advice = (
                "Name the unit that the ledger protects, with as many rows: in the schema ([unit] column, "
                "rows), or with units= and rows_per_unit= for arrays. Or open a ledger for the other unit."
            )
            if rows_alone:
                advice = "Rows are all that can be protected here: open a ledger whose unit is one row."
            raise TacitError(f"The ledger protects one {protected}, not one {unit}.", advice)
        name = protected.name or (None if unit is None else unit.name)
        return cls(ledger, wanted, replace(protected, name=name))

    def charge(
        self, event: events.Event, label: str, *, noise: str, delta: float = 0.0, work: Work | None = None
    ) -> AbstractContextManager[Entry | None]:
        """Charge for ``event``, at once and durably; enter the result and read rows inside it.

        Without a ledger nothing is charged. ``delta`` is how much of the budget's δ the event is converted
        at, 0 for an event that needs none; ``noise`` is the kind of noise, ``"seeded"`` where a seed was
        given; ``work`` says which steps of a run are paid for. Raises
        :class:`tacit.errors.BudgetExceeded`, and charges nothing, where the budget does not suffice.
        """
        if self.ledger is None:
            return nullcontext()
        if event == events.WITHOUT_PRIVACY:
            raise InvalidValue("epsilon", math.inf, "finite where a ledger is charged")
        return self.ledger.charge(event, label, delta=delta or None, noise=noise, work=work)

    def preview(self, event: events.Event, *, delta: float = 0.0) -> float | None:
        """ε spent in all if ``event`` were charged now; None if it would be refused.

        Without a ledger the answer is 0: nothing is ever refused.
        """
        return 0.0 if self.ledger is None else self.ledger.preview(event, delta=delta or None)


def _other_part(protected: Unit, unit: Unit) -> TacitError:
    """Labels are charged to a ledger of labels, and rows to a ledger of rows."""
    if protected.part is None:
        advice = (
            "Open a ledger of its own for the labels: tacit.Ledger.open(..., unit=tacit.Unit(part='label')), "
            "or tacit ledger init --protect label."
        )
    else:
        advice = (
            "This reads whole rows, whose features a ledger of labels does not protect: open one for rows."
        )
    return TacitError(f"The ledger protects one {protected}, not one {unit}.", advice)
