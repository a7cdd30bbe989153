"""Whatever the sequence of charges, running totals are what the entries make them."""

from __future__ import annotations

import math
import os
import tempfile
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import events
from tacit.accounting import filters
from tacit.errors import BudgetExceeded, UnsupportedEvent
from tacit.ledger import Budget, Ledger
from tacit.ledger.chain import Record
from tacit.ledger.totals import Total

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
COMPONENTS = ("epsilon", "delta", "renyi", "renyi_delta")
PARTITIONS = ("north", "south", "west")

amounts = st.one_of(
    st.floats(min_value=0.0, allow_nan=False, allow_infinity=False, max_value=1e300),
    st.sampled_from([0.1, 1e-6, 5e-324, -0.0]),
)
costs = st.builds(filters.Cost, amounts, amounts, amounts, amounts)
some_events = st.one_of(
    st.builds(events.Laplace, st.floats(2.0, 50.0)),
    st.builds(events.Pure, st.sampled_from([0.1, 0.3, 1 / 3])),
    st.builds(events.Gaussian, st.floats(3.0, 50.0)),
    st.builds(events.Approximate, st.floats(0.0, 0.2), st.sampled_from([1e-9, 1e-8])),
)
steps = st.tuples(some_events, st.sampled_from([None, "region", "year"]), st.sampled_from(PARTITIONS))


@settings(max_examples=25, deadline=None)
@given(
    sequence=st.lists(steps, max_size=8),
    relation=st.sampled_from(["add_remove", "replace_one"]),
    promised=st.sampled_from(
        [
            (Budget(1.0), None),
            (Budget(2.0, 1e-6), None),
            (Budget(2.0, 1e-6), "renyi"),
            (Budget(2.0, 1e-6), "gaussian"),
        ]
    ),
)
def test_totals_are_what_the_entries_make_them(sequence, relation, promised):
    budget, rule = promised
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "study.db"
        with Ledger.open(path, budget, relation=relation, filter=rule) as ledger:
            scopes = {name: ledger.parallel(name, partitions=PARTITIONS) for name in ("region", "year")}
            admitted, refused = 0, []
            for event, scope, partition in sequence:
                try:
                    if scope is None:
                        ledger.charge(event, label="question")
                    else:
                        scopes[scope].charge(partition, event, label="question")
                    admitted += 1
                except BudgetExceeded as error:
                    refused.append(error.would_be)
                except UnsupportedEvent:
                    assert rule == "gaussian"
                    assert isinstance(event, events.Approximate)
            assert all(would_be > budget.epsilon for would_be in refused)
            ledger.verify()
            entries = ledger.entries()
            assert len(entries) == admitted
            assert ledger.spent().epsilon <= budget.epsilon * (1 + 1e-9)
            stored = ledger._book.standing().total
            for name in COMPONENTS:
                recomputed = recompute(entries, relation, name)
                assert getattr(stored, name) == pytest.approx(float(recomputed), rel=1e-14, abs=0)


def recompute(entries, relation, name):
    """Sequential sum, and for each scope the largest (or two largest) of its partitions."""
    parts = defaultdict(lambda: defaultdict(Fraction))
    for entry in entries:
        cost = getattr(entry.cost, name)
        if math.isinf(cost):
            return math.inf
        parts[entry.scope][entry.partition] += Fraction(cost)
    largest = 1 if relation == "add_remove" else 2
    return sum(
        (sum(sorted(totals.values())[-largest:]) if scope else sum(totals.values()))
        for scope, totals in parts.items()
    )


@given(st.lists(costs, max_size=20))
def test_totals_are_exact(summands):
    total = Total()
    for cost in summands:
        total += cost
    assert Total.from_json(total.to_json()) == total
    for name in COMPONENTS:
        exact = sum(Fraction(getattr(cost, name)) for cost in summands)
        assert Fraction(getattr(total, name)) == exact
        rounded = getattr(total.cost(), name)
        assert rounded == math.inf or exact <= Fraction(rounded) <= exact * (
            1 + Fraction(1, 2**52)
        ) + Fraction(5e-324)


@given(st.lists(costs, min_size=1, max_size=5), costs)
def test_replacing_a_summand_is_exact(others, grown):
    total = Total()
    for cost in others:
        total += cost
    old = others[0]
    expected = Total()
    for cost in (*others[1:], grown):
        expected += cost
    assert total.replace(old, grown).to_json() == expected.to_json()


def test_infinity_once_added_stays():
    endless = filters.Cost(epsilon=math.inf)
    total = Total() + filters.Cost(epsilon=1.0) + endless
    assert total.replace(endless, endless).epsilon == Decimal("inf")
    assert Total.from_json(total.to_json()) == total
    assert total.cost().epsilon == math.inf


@pytest.mark.parametrize(
    "text", ["", "[]", "{}x", '{"epsilon": "-1"}', '{"epsilon": "nan"}', '{"cheap": "1"}']
)
def test_texts_that_are_no_total(text):
    with pytest.raises((TypeError, ValueError, ArithmeticError, AttributeError)):
        Total.from_json(text)


def test_minus_zero_and_zero_hash_alike():
    record = {"number": 1, "kind": "charge", "dataset": "d", "time": "", "version": "", "previous": ""}
    assert Record(**record, epsilon=0.0).hash() == Record(**record, epsilon=-0.0).hash()
    assert Record(**record, epsilon=math.inf).hash() != Record(**record, epsilon=1e308).hash()


def test_a_price_that_is_not_a_number_is_stored_as_infinite(folder, monkeypatch):
    odd = filters.Cost(epsilon=0.5, delta=-0.0, renyi=math.nan, renyi_delta=-1e-30)
    monkeypatch.setattr(
        filters.BudgetFilter, "accept", lambda *args, **options: filters.Admission("basic", odd, 0.5)
    )
    with Ledger.open(folder / "study.db", Budget(1.0)) as ledger:
        entry = ledger.charge(events.Pure(0.5), label="odd").entry
        assert repr(entry.cost) == repr(filters.Cost(0.5, 0.0, math.inf, 0.0))
        ledger.verify()
