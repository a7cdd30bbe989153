"""Charging, refusing, scopes, datasets, reopening: what a user of one process sees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from tacit import events
from tacit.errors import BudgetExceeded, InvalidValue, LedgerError, LedgerExists, LedgerMissing
from tacit.ledger import Budget, Entry, Ledger
from tacit.relations import Relation, Unit

HALF = events.Laplace(2.0)
EIGHTH = events.Laplace(8.0)


def content(ledger: Ledger) -> object:
    """Everything stored, table by table."""
    from tacit.ledger import schema

    with ledger._book.store.read() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(sa.select(table))]
            for table in schema.metadata.sorted_tables
        }


def test_a_charge_is_kept_before_the_body_runs(location, open_ledger):
    ledger = open_ledger(location)
    with ledger.charge(HALF, label="age histogram", noise="exact") as entry:
        other = open_ledger(location, None)
        assert other.entries() == [entry]
    assert isinstance(entry, Entry)
    assert (entry.label, entry.event, entry.noise, entry.delta) == ("age histogram", HALF, "exact", None)
    assert ledger.spent().epsilon == 0.5
    assert ledger.remaining() == 0.5
    assert ledger.spent().noise == "exact"


def test_a_charge_stands_when_the_body_raises(location, open_ledger):
    ledger = open_ledger(location)
    with pytest.raises(ZeroDivisionError), ledger.charge(HALF, label="broken"):
        raise ZeroDivisionError
    assert [entry.label for entry in ledger.entries()] == ["broken"]
    assert ledger.spent().epsilon == 0.5
    ledger.verify()


def test_a_charge_is_made_at_the_call_and_pays_once(location, open_ledger):
    ledger = open_ledger(location)
    charge = ledger.charge(EIGHTH, label="count")
    assert len(ledger.entries()) == 1
    with charge:
        pass
    with pytest.raises(LedgerError, match="used already"), charge:
        pytest.fail("entered twice")


def test_a_refused_charge_changes_nothing(location, open_ledger):
    ledger = open_ledger(location)
    with ledger.charge(HALF, label="age histogram"):
        pass
    with ledger.charge(EIGHTH, label="count"):
        pass
    before = content(ledger)
    with pytest.raises(BudgetExceeded) as caught, ledger.charge(HALF, label="income"):
        pytest.fail("the body must not run")
    assert content(ledger) == before
    error = caught.value
    assert (error.label, error.budget, error.spent) == ("income", Budget(1.0), 0.625)
    assert error.would_be == pytest.approx(1.125)
    for words in ("'income'", "1.125", "0.625", "'age histogram' 80%", "'count' 20%", "remaining: ε = 0.375"):
        assert words in str(error)


def test_a_refused_charge_leaves_the_file_identical(path, open_ledger):
    ledger = open_ledger(path)
    ledger.charge(HALF, label="first")
    before = path.read_bytes()
    with pytest.raises(BudgetExceeded):
        ledger.charge(events.Laplace(1.0), label="second")
    assert path.read_bytes() == before


def test_the_whole_budget_can_be_spent_and_no_more(path, open_ledger):
    ledger = open_ledger(path)
    for number in range(10):
        ledger.charge(events.Pure(0.1), label=f"question {number}")
    assert ledger.remaining() == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(BudgetExceeded, match=r", …\)"):
        ledger.charge(events.Pure(1e-6), label="one too many")


@pytest.mark.parametrize("filter", ["renyi", "basic", "gaussian", None])
def test_the_rule_is_fixed_when_the_ledger_is_made(path, open_ledger, filter):
    ledger = open_ledger(path, Budget(3.0, 1e-6), filter=filter)
    assert ledger.filter == open_ledger(path, None).filter == (filter or "basic")
    for event in (events.Gaussian(20.0), events.Pure(0.1)):
        assert ledger.charge(event, label="count", delta=1e-8).entry.mode == ledger.filter
    assert 0 < ledger.spent().epsilon <= 3.0


def test_gaussian_charges_are_counted_by_the_renyi_filter(path, open_ledger):
    ledger = open_ledger(path, Budget(3.0, 1e-6), filter="renyi")
    for _ in range(3):
        ledger.charge(events.Gaussian(10.0), label="mean")
    spent, fixed = ledger.spent(), ledger.fixed_in_advance()
    assert ledger.entries()[0].mode == "renyi"
    assert 0 < fixed.epsilon <= spent.epsilon <= 3.0
    assert spent.delta == 1e-6
    assert spent.event == events.Compose((events.Repeat(events.Gaussian(10.0), 3),))
    assert "every charge was fixed before the first release" in fixed.assumptions
    with pytest.raises(BudgetExceeded) as caught:
        ledger.charge(events.Gaussian(0.2), label="sharp mean")
    assert caught.value.would_be > 3.0
    assert caught.value.spent == spent.epsilon


def test_a_declared_delta_is_kept(path, open_ledger):
    ledger = open_ledger(path, Budget(3.0, 1e-6))
    assert ledger.charge(events.Gaussian(10.0), label="mean", delta=1e-8).entry.delta == 1e-8


def test_the_weakest_noise_is_reported(path, open_ledger):
    ledger = open_ledger(path)
    seen = [ledger.spent().noise]
    for noise in ("exact", "float64", "exact", "seeded", "exact"):
        ledger.charge(EIGHTH, label="count", noise=noise)
        seen.append(ledger.spent().noise)
    assert seen == ["exact", "exact", "float64", "float64", "seeded", "seeded"]


def test_parallel_partitions_cost_the_worst(location, open_ledger):
    ledger = open_ledger(location)
    ledger.charge(EIGHTH, label="total")
    with ledger.parallel("region", partitions=["north", "south", "west"]) as scope:
        for partition, times in (("north", 3), ("south", 1), ("west", 2)):
            for _ in range(times):
                with scope.charge(partition, EIGHTH, label="count"):
                    pass
    spent = ledger.spent()
    assert spent.epsilon == 0.5
    assert spent.assumptions == ("no row is in two partitions of 'region'",)
    parts = (
        events.Compose((events.Repeat(EIGHTH, 3),)),
        events.Compose((EIGHTH,)),
        events.Compose((events.Repeat(EIGHTH, 2),)),
    )
    assert spent.event == events.Compose((EIGHTH, events.Parallel(parts)))
    ledger.verify()


def test_under_replace_one_the_two_worst_partitions_add_up(location, open_ledger):
    ledger = open_ledger(location, relation="replace_one", unit=Unit("patient", 4))
    scope = ledger.parallel("region", partitions=["north", "south", "west"])
    for partition in ("north", "north", "south", "west"):
        scope.charge(partition, EIGHTH, label="count")
    assert ledger.spent().epsilon == 0.375
    assert ledger.spent().relation is Relation.REPLACE_ONE
    assert ledger.spent().unit == Unit("patient", 4)
    ledger.verify()


def test_scopes_add_up_and_are_refused_as_one(path, open_ledger):
    ledger = open_ledger(path)
    for name in ("region", "year"):
        scope = ledger.parallel(name, partitions=["a", "b"])
        scope.charge("a", EIGHTH, label="count")
        scope.charge("b", events.Laplace(4.0), label="count")
    assert ledger.spent().epsilon == 0.5
    scope.charge("a", events.Laplace(8.0), label="free")
    assert ledger.spent().epsilon == 0.5
    before = content(ledger)
    with pytest.raises(BudgetExceeded):
        scope.charge("a", events.Laplace(1.0), label="too much")
    assert content(ledger) == before


def test_a_scope_is_declared_once(location, open_ledger):
    ledger = open_ledger(location)
    ledger.parallel("region", partitions=["north", "south"])
    ledger.parallel("region", partitions=["south", "north"])
    assert sum('"kind":"scope"' in line for line in ledger.export()) == 1
    with pytest.raises(LedgerExists, match="'north', 'south'"):
        ledger.parallel("region", partitions=["north", "east"])
    with pytest.raises(InvalidValue, match="'north', 'south'"):
        ledger.parallel("region", partitions=["north", "south"]).charge("east", HALF, label="count")


@pytest.mark.parametrize("partitions", ["north", [], ["a", "a"], [1], ["a", ""], None])
def test_partitions_are_names(path, open_ledger, partitions):
    with pytest.raises(InvalidValue):
        open_ledger(path).parallel("region", partitions=partitions)


def test_datasets_have_budgets_of_their_own(location, open_ledger):
    first = open_ledger(location)
    second = open_ledger(location, Budget(0.25), dataset="hospital", relation="replace_one")
    first.charge(HALF, label="count")
    with pytest.raises(BudgetExceeded, match="'hospital'"):
        second.charge(HALF, label="count")
    second.charge(EIGHTH, label="count")
    assert first.datasets() == second.datasets() == Ledger.datasets_in(location) == ("default", "hospital")
    assert (first.spent().epsilon, second.spent().epsilon) == (0.5, 0.125)
    assert first.verify() == second.head()
    with pytest.raises(LedgerMissing, match="'default', 'hospital'"):
        open_ledger(location, None, dataset="clinic")


def test_reopening_needs_no_budget(location, open_ledger):
    with open_ledger(location, Budget(2.0, 1e-6), relation="replace_one", unit=Unit("person", 3)) as ledger:
        ledger.charge(HALF, label="count")
    again = open_ledger(location, None)
    assert (again.budget, again.relation, again.unit) == (
        Budget(2.0, 1e-6), Relation.REPLACE_ONE, Unit("person", 3),
    )  # fmt: skip
    assert len(again.entries()) == 1
    open_ledger(location, Budget(2.0, 1e-6))
    with pytest.raises(LedgerExists, match=r"ε = 2, δ = 1e-06.*ε = 3, δ = 0"):
        open_ledger(location, Budget(3.0))
    with pytest.raises(LedgerExists, match="add_remove"):
        open_ledger(location, None, relation="add_remove")
    with pytest.raises(LedgerExists):
        open_ledger(location, None, unit=Unit())


def test_a_closed_ledger_says_so(path, open_ledger):
    ledger = open_ledger(path)
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="has been closed"):
        ledger.charge(HALF, label="count")


def test_repr_needs_no_database(path, open_ledger):
    ledger = open_ledger(path)
    ledger.close()
    path.unlink()
    assert repr(ledger).startswith(f"Ledger('{path}', dataset='default', budget=Budget(epsilon=1.0")


@pytest.mark.parametrize("label", ["", "  ", None, 3, b"x", "a\nb", "\ud800", "x" * 201, "a\0b"])
def test_a_label_is_printable_text(path, open_ledger, label):
    ledger = open_ledger(path)
    with pytest.raises(InvalidValue, match="label"):
        ledger.charge(HALF, label=label)
    assert ledger.entries() == []


def test_other_bad_charges(path, open_ledger):
    ledger = open_ledger(path)
    deep = HALF
    for _ in range(events.MAX_DEPTH - 2):
        deep = events.Repeat(deep, 1)
    for arguments in ({"event": 1.0}, {"event": deep}, {"delta": 1.5}, {"delta": "x"}, {"noise": "loud"}):
        with pytest.raises(InvalidValue):
            ledger.charge(**{"event": HALF, "label": "count", **arguments})
    assert ledger.entries() == []


@pytest.mark.parametrize(
    "arguments", [(0,), (-1,), (float("inf"),), (float("nan"),), ("3",), (1, 1), (1, -1)]
)
def test_budgets_are_checked(arguments):
    with pytest.raises(InvalidValue):
        Budget(*arguments)


def test_a_ledger_knows_its_filters(path):
    with pytest.raises(InvalidValue, match="'basic', 'renyi', 'gaussian'"):
        Ledger.open(path, Budget(1.0, 1e-6), filter="pld")


def test_export_is_lines_of_json(location, open_ledger):
    ledger = open_ledger(location)
    ledger.parallel("region", partitions=["north"]).charge("north", HALF, label="Zürich ☃")
    lines = [json.loads(line) for line in ledger.export()]
    assert [line["kind"] for line in lines] == ["dataset", "scope", "charge"]
    assert lines[2]["label"] == "Zürich ☃"
    assert lines[2]["previous"] == lines[1]["hash"]
    assert ledger.head() == f"3:{lines[2]['hash'][:32]}"


def test_a_charge_takes_the_same_statements_however_long_the_ledger(path, open_ledger):
    ledger = open_ledger(path, Budget(1e6))
    statements: list[str] = []
    engine = ledger._book.store._engine
    sa.event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    ledger.charge(HALF, label="first")
    statements.clear()
    ledger.charge(HALF, label="second")
    second = list(statements)
    for _ in range(50):
        ledger.charge(HALF, label="more")
    statements.clear()
    ledger.charge(HALF, label="last")
    assert statements == second
    reading = [statement for statement in statements if "FROM tacit_entries" in statement]
    assert len(reading) == 1, "the last entry, and the one that opened the dataset"
    assert "WHERE tacit_entries.number IN" in reading[0]


def test_entries_cannot_be_changed_through_the_database(location, open_ledger):
    ledger = open_ledger(location)
    ledger.charge(HALF, label="count")
    for statement in ("UPDATE tacit_entries SET label = 'x'", "DELETE FROM tacit_entries"):
        with pytest.raises(LedgerError, match="append-only"), ledger._book.store.write() as connection:
            connection.exec_driver_sql(statement)
    ledger.verify()


def test_importing_the_ledger_loads_no_database_toolkit():
    code = "import sys, tacit.ledger; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_path_may_be_a_path_or_a_url(path, open_ledger):
    open_ledger(Path(path)).charge(HALF, label="count")
    assert len(open_ledger(f"sqlite:///{path}", None).entries()) == 1


def test_the_order_outlives_a_change_in_how_orders_are_chosen(path, open_ledger, monkeypatch):
    from tacit.accounting import filters

    ledger = open_ledger(path, Budget(3.0, 1e-6), filter="renyi")
    ledger.charge(events.Gaussian(10.0), label="mean")
    spent = ledger.spent().epsilon
    monkeypatch.setattr(filters, "best_order", lambda epsilon, delta: 3.0)
    again = open_ledger(path, None)
    assert again.spent().epsilon == spent
    assert (
        again.charge(events.Gaussian(10.0), label="mean").entry.cost.renyi == ledger.entries()[0].cost.renyi
    )
