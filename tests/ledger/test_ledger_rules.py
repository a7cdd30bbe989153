"""Which rule adds up: fixed when the ledger is made, kept in the chain, and checked by hand."""

from __future__ import annotations

import math
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tacit import accounting, events
from tacit.errors import (
    BudgetExceeded,
    InvalidValue,
    LedgerCorrupted,
    LedgerExists,
    UnsupportedEvent,
    WeakPrivacy,
)
from tacit.ledger import Budget, Ledger
from tacit.ledger.budget import FILTERS
from tacit.ledger.chain import Record
from tampering import tamper

BUDGET = Budget(3.0, 1e-6)


def test_by_default_the_epsilons_and_deltas_add_up(location, open_ledger):
    """The first charge is Gaussian and declares no δ, which earlier decided for the Rényi rule."""
    ledger = open_ledger(location, BUDGET)
    ledger.charge(events.Gaussian(30.0), label="mean")
    for noise, delta in ((12.0, 1e-7), (15.0, 2e-7)):
        entry = ledger.charge(events.Gaussian(noise), label="mean", delta=delta).entry
        assert entry.cost.epsilon == accounting.epsilon(events.Gaussian(noise), delta)
        assert entry.cost.delta == delta
    ledger.charge(events.Laplace(4.0), label="count")
    entries, spent = ledger.entries(), ledger.spent()
    assert ledger.filter == "basic"
    assert {entry.mode for entry in entries} == {"basic"}
    assert spent.epsilon == pytest.approx(math.fsum(entry.cost.epsilon for entry in entries), rel=1e-15)
    assert spent.delta == pytest.approx(math.fsum(entry.cost.delta for entry in entries), rel=1e-15)
    assert ledger.remaining() == pytest.approx(3.0 - spent.epsilon, rel=1e-12)
    assert ledger.remaining_delta() == pytest.approx(1e-6 - spent.delta, rel=1e-12)


def test_a_release_that_needs_no_delta_costs_none(path, open_ledger):
    ledger = open_ledger(path, BUDGET)
    entry = ledger.charge(events.Laplace(4.0), label="count", delta=9e-7).entry
    assert (entry.cost.epsilon, entry.cost.delta, entry.delta) == (0.25, 0.0, 9e-7)
    assert ledger.spent().delta == 0.0
    many = ledger.charge(events.Repeat(events.Laplace(300.0), 900), label="counts", delta=5e-7).entry
    assert many.cost.delta == 5e-7, "here a δ lowers ε a lot"
    assert many.cost.epsilon < 1.0


def test_a_delta_is_taken_where_the_event_fits_only_so(path, open_ledger):
    event, delta = events.Pure(1.0), 1e-4
    less = accounting.epsilon(event, delta)
    assert 0.99 < less < 1.0
    entry = open_ledger(path, Budget(less, 1e-3)).charge(event, label="count", delta=delta).entry
    assert (entry.cost.epsilon, entry.cost.delta) == (pytest.approx(less), delta)


def test_the_first_release_without_a_delta_leaves_half_of_it(path, open_ledger):
    ledger = open_ledger(path, BUDGET)
    for left in (5e-7, 2.5e-7):
        ledger.charge(events.Gaussian(20.0), label="mean")
        assert ledger.remaining_delta() == pytest.approx(left)


@pytest.mark.parametrize("rule", FILTERS)
def test_history_agrees_with_what_is_spent(path, open_ledger, rule):
    ledger = open_ledger(path, BUDGET, filter=rule)
    scope = ledger.parallel("region", partitions=["north", "south"])
    after = []
    for number in range(4):
        ledger.charge(events.Gaussian(20.0 + number), label="mean", delta=2e-8)
        after.append(ledger.spent())
        scope.charge("north" if number % 2 else "south", events.Laplace(30.0), label="count")
        after.append(ledger.spent())
    lines = ledger.history()
    assert [line.entry for line in lines] == ledger.entries()
    assert [(line.epsilon, line.delta) for line in lines] == [(each.epsilon, each.delta) for each in after]
    assert ledger.history(3) == lines[-3:]
    assert ledger.history(0) == []


def test_a_refusal_names_delta_if_that_ran_out(path, open_ledger):
    ledger = open_ledger(path, BUDGET)
    ledger.charge(events.Gaussian(20.0), label="mean", delta=9e-7)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.charge(events.Gaussian(20.0), label="another", delta=2e-7)
    error = caught.value
    assert (error.remaining_delta, error.remaining) == (pytest.approx(1e-7), ledger.remaining())
    assert "would bring 'default' to δ = 1.1e-06, over its budget of ε = 3, δ = 1e-06" in error.problem
    assert "δ ran out" in error.next_step
    assert f"At most ε = {error.remaining:.4g}"[:-1] in error.next_step
    assert "with δ = 1e-07 still fits" in error.next_step
    ledger.charge(events.Gaussian(20.0), label="the rest", delta=1e-7)
    gone = r"needs a δ, and 'default' has none left.*with δ = 0 still fits.*Laplace"
    with pytest.raises(BudgetExceeded, match=gone):
        ledger.charge(events.Gaussian(20.0), label="one more")
    ledger.charge(events.Laplace(20.0), label="without")


def test_a_refusal_names_epsilon_if_that_ran_out(path, open_ledger):
    ledger = open_ledger(path, BUDGET)
    out = r"to ε = 4, over its budget.*ε ran out.*At most ε = 3 with δ = 1e-06"
    with pytest.raises(BudgetExceeded, match=out):
        ledger.charge(events.Laplace(0.25), label="income")
    with pytest.raises(BudgetExceeded, match="has no finite ε at the δ = 1e-09 declared"):
        ledger.charge(events.Approximate(0.1, 1e-8), label="income", delta=1e-9)


def test_a_gaussian_ledger_says_how_much_noise_still_fits(path, open_ledger):
    ledger = open_ledger(path, BUDGET, filter="gaussian")
    ledger.charge(events.Gaussian(2.0), label="mean")
    with pytest.raises(BudgetExceeded) as caught:
        ledger.charge(events.Gaussian(2.0), label="mean")
    noise = float(caught.value.next_step.split("multiplier of ")[1].split()[0])
    with pytest.raises(BudgetExceeded):
        ledger.charge(events.Gaussian(noise * 0.9999), label="mean")
    ledger.charge(events.Gaussian(noise), label="mean")
    assert ledger.spent().epsilon == pytest.approx(3.0, rel=1e-4)


def test_what_a_gaussian_ledger_refuses_leaves_the_file_identical(path, open_ledger):
    ledger = open_ledger(path, BUDGET, filter="gaussian")
    before = path.read_bytes()
    sampled = events.PoissonSampled(0.01, events.Gaussian(1.0))
    for event in (sampled, events.ZeroConcentrated(1e-3)):
        with pytest.raises(UnsupportedEvent, match="Nothing was charged"):
            ledger.charge(event, label="run", delta=1e-7)
    assert path.read_bytes() == before


def test_gaussian_parts_that_share_nobody_cost_the_worst(path, open_ledger):
    for relation, counted in (("add_remove", 1), ("replace_one", 2)):
        ledger = open_ledger(path, BUDGET, dataset=relation, relation=relation, filter="gaussian")
        scope = ledger.parallel("region", partitions=["a", "b", "c"])
        for part in ("a", "b", "c"):
            scope.charge(part, events.Gaussian(5.0), label="mean")
        total = ledger._book.standing().total.renyi
        assert total == pytest.approx(counted / 25)
        ledger.verify()


def test_threads_cannot_overspend_a_gaussian_budget(path, open_ledger):
    ledger = open_ledger(path, BUDGET, filter="gaussian")
    noise = 5 / math.sqrt(ledger._book._filter.largest_squared)
    done: list[bool] = []

    def spend() -> None:
        with Ledger.open(path) as mine:
            for _ in range(8):
                try:
                    mine.charge(events.Gaussian(noise), label="mean")
                    done.append(True)
                except BudgetExceeded:
                    done.append(False)

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(done) == 25
    assert ledger.spent().epsilon <= 3.0
    ledger.verify()


@pytest.mark.parametrize("rule", FILTERS)
def test_another_rule_is_refused_when_reopened(location, open_ledger, rule):
    open_ledger(location, BUDGET, filter=rule)
    assert open_ledger(location, None).filter == rule
    assert open_ledger(location, BUDGET, filter=rule).filter == rule
    for other in FILTERS:
        if other != rule:
            with pytest.raises(LedgerExists, match=f"counts by filter='{rule}'.*without filter= to go on"):
                open_ledger(location, None, filter=other)


@pytest.mark.parametrize("rule", ["renyi", "gaussian"])
def test_these_rules_need_a_delta(path, rule):
    with pytest.raises(InvalidValue, match=r"'basic' where the budget's δ is 0.*leave filter= out"):
        Ledger.open(path, Budget(1.0), filter=rule)
    assert not path.exists()


@pytest.fixture
def earlier(path: Path) -> Path:
    """A ledger as it was written before the rule was fixed at the start."""
    script = Path(__file__).with_name("earlier.sql").read_text(encoding="utf-8")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(script)
    return path


def test_ledgers_of_earlier_versions_are_read_and_charged_on(earlier, open_ledger):
    rules = {"undecided": None, "gaussian first": "renyi", "declared first": "basic", "forced": "renyi"}
    spent = {
        "gaussian first": 0.5424252955898283,
        "declared first": 0.7428503653554799,
        "forced": 0.4928503653554799,
    }
    for dataset, rule in rules.items():
        ledger = open_ledger(earlier, None, dataset=dataset)
        assert ledger.filter == rule
        assert ledger.spent().epsilon == spent.get(dataset, 0.0)
        open_ledger(earlier, BUDGET, dataset=dataset)
        with pytest.raises(LedgerExists, match=rule or "leaves the rule to the first charge"):
            open_ledger(earlier, None, dataset=dataset, filter="gaussian")
        entry = ledger.charge(events.Gaussian(50.0), label="another").entry
        assert entry.mode == (rule or "renyi")
        assert ledger.history()[-1].epsilon == ledger.spent().epsilon > spent.get(dataset, 0.0)
        ledger.verify()


def test_a_rule_that_was_exchanged_with_its_hash_is_found(path, open_ledger):
    """Whoever edits the first entry and computes its hash anew leaves a next entry that does not follow it."""
    with Ledger.open(path, BUDGET) as ledger:
        ledger.charge(events.Laplace(1.0), label="count")
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        row = dict(connection.execute("SELECT * FROM tacit_entries WHERE number = 1").fetchone())
    terms = row["details"].replace('"filter":"basic"', '"filter":"gaussian"')
    content = {name: value for name, value in row.items() if name != "hash"} | {"details": terms}
    forged = Record(**content).hash()
    tamper(
        path,
        f"UPDATE tacit_entries SET details = '{terms}', hash = '{forged}' WHERE number = 1",
        f"UPDATE tacit_datasets SET terms = '{terms}'",
    )
    with Ledger.open(path) as ledger:
        assert ledger.filter == "gaussian"
        with pytest.raises(LedgerCorrupted, match="edited entry 1"):
            ledger.charge(events.Gaussian(20.0), label="mean")
        with pytest.raises(LedgerCorrupted, match="does not follow"):
            ledger.verify()


def test_a_budget_that_promises_little_is_warned_of(path, open_ledger):
    with pytest.warns(WeakPrivacy, match="ε = 20 promises little"):
        open_ledger(path, Budget(20.0))
