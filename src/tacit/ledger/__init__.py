"""The ledger: the one place a budget lives, charged before data are touched.

From the top down: ``payment`` is how every release of the library is charged; ``ledger`` and ``scope``
are what users hold; ``book`` is one dataset of an open ledger; ``posting`` writes and ``reading``
reads; ``chain`` hashes and replays records, ``totals`` adds costs up exactly, ``work`` keeps the
steps of a run apart, ``allowance`` and ``limit`` give parts of a budget to several parties,
``refusal`` says what ran out; ``store``, ``schema`` and ``location`` are the database.
"""

from tacit.ledger.allowance import Allowance
from tacit.ledger.budget import Budget
from tacit.ledger.entries import Charge, Entry, LabelTotal, Line
from tacit.ledger.ledger import Ledger
from tacit.ledger.payment import Payment
from tacit.ledger.scope import Scope
from tacit.ledger.work import Work

__all__ = [
    "Allowance",
    "Budget",
    "Charge",
    "Entry",
    "LabelTotal",
    "Ledger",
    "Line",
    "Payment",
    "Scope",
    "Work",
]
