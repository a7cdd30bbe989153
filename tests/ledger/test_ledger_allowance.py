"""Parts of a budget that several parties may spend: both limits hold at once, on both databases."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tacit import events
from tacit.errors import BudgetExceeded, InvalidValue, LedgerCorrupted, LedgerError
from tacit.ledger import Allowance, Budget, Ledger
from tacit.ledger.work import Work

Open = Callable[..., Ledger]


def half(name: str, run: str | None = None, **options: bool) -> Allowance:
    return Allowance(name, Budget(0.5), run, **options)


def test_both_limits_hold(location: str, open_ledger: Open) -> None:
    ledger = open_ledger(location, Budget(0.75))
    with ledger.within(half("ada")) as hers, ledger.within(half("bob")) as his:
        hers.charge(events.Pure(0.5), "a")
        with pytest.raises(BudgetExceeded, match="allowance 'ada'") as refused:
            hers.charge(events.Pure(0.01), "b")
        assert refused.value.allowance == "ada"  # type: ignore[attr-defined]
        assert hers.spent_within() == (0.5, 0.0)
        assert his.preview(events.Pure(0.25)) == 0.75
        assert his.preview(events.Pure(0.3)) is None
        assert hers.preview(events.Pure(0.01)) is None
        with pytest.raises(BudgetExceeded, match="over its budget") as refused:
            his.charge(events.Pure(0.3), "c")
        assert not hasattr(refused.value, "allowance")
        his.charge(events.Pure(0.25), "d")
        assert (his.spent_within()[0], ledger.spent().epsilon) == (0.25, 0.75)
    ledger.verify()
    assert [entry.work.run.split("/")[0] for entry in ledger.entries() if entry.work] == ["ada", "bob"]


def test_a_name_that_begins_like_another_is_another(location: str, open_ledger: Open) -> None:
    ledger = open_ledger(location, Budget(2.0))
    for name in ("grant-1", "grant-11", "grant-1-1", "grant"):
        with ledger.within(half(name)) as own:
            assert own.spent_within() == (0.0, 0.0)
            own.charge(events.Pure(0.5), name)
    assert ledger.spent().epsilon == 2.0


@pytest.mark.parametrize("name", ["", "Ada", "a/b", "a%", "a_b", 'a"', "-a", "a" * 65, None, 3])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(InvalidValue):
        Allowance(name, Budget(1.0))


def test_a_run_is_paid_for_once_and_resumed_as_it_was(location: str, open_ledger: Open) -> None:
    ledger = open_ledger(location, Budget(1.0))
    with ledger.within(half("ada", "run-1")) as first:
        paid = first.charge(events.Pure(0.25), "count", noise="exact").entry
    with ledger.within(half("ada", "run-1")) as again, pytest.raises(LedgerError, match="paid for already"):
        again.charge(events.Pure(0.25), "count", noise="exact")
    with ledger.within(half("ada", "run-1", resumed=True)) as later:
        assert later.charge(events.Pure(0.25), "count", noise="exact").entry == paid
        assert [entry.number for entry in later.work_of("run-1")] == [paid.number]
        # The second charge of the run was never paid for: it is now.
        assert later.charge(events.Pure(0.125), "test", noise="exact").entry.number == paid.number + 1
    for event, noise in ((events.Pure(0.2), "exact"), (events.Pure(0.25), "float64")):
        with ledger.within(half("ada", "run-1", resumed=True)) as other, pytest.raises(LedgerError):
            other.charge(event, "count", noise=noise)
    assert ledger.spent().epsilon == 0.375
    ledger.verify()


def test_steps_that_are_paid_for_and_taken_at_once_are_one_step_of_the_run(
    location: str, open_ledger: Open
) -> None:
    """A training run names a run of its own; the allowance's is what the entry names."""
    ledger = open_ledger(location, Budget(1.0))
    work = Work("7f3a", paid=(0, 100), taken=(0, 100))
    with ledger.within(half("ada", "run-1")) as first:
        paid = first.charge(events.Pure(0.25), "network", noise="float32", work=work).entry
    assert paid.work == Work("ada/run-1", paid=(0, 1), taken=(0, 1))
    with ledger.within(half("ada", "run-1", resumed=True)) as later:
        other = Work("11aa", paid=(0, 100), taken=(0, 100))
        assert later.charge(events.Pure(0.25), "network", noise="float32", work=other).entry == paid
    with ledger.within(half("ada")) as loose:
        made = loose.charge(events.Pure(0.125), "network", work=work).entry
    assert made.work == Work("ada/7f3a", paid=(0, 100), taken=(0, 100))


def test_a_check_is_made_in_the_transaction(location: str, open_ledger: Open) -> None:
    """It refuses a charge, and not one that was made before; nobody charges meanwhile."""
    ledger, refused = open_ledger(location, Budget(1.0)), InvalidValue("grant", "ada", "in force")
    asked: list[bool] = []

    def check() -> None:
        asked.append(True)
        if len(asked) > 1:
            raise refused

    with ledger.within(half("ada", "run-1"), check=check, shared=True) as first:
        first.charge(events.Pure(0.25), "count", noise="exact")
        with pytest.raises(InvalidValue, match="in force"):
            first.charge(events.Pure(0.25), "count", noise="exact")
    with ledger.within(half("ada", "run-1", resumed=True), check=check) as later:
        later.charge(events.Pure(0.25), "count", noise="exact")
    assert (len(asked), ledger.spent().epsilon, first.allowance) == (2, 0.25, half("ada", "run-1"))
    order: list[str] = []

    def charge() -> None:
        with open_ledger(location) as other:
            other.charge(events.Pure(0.25), "sum")
        order.append("charged")

    with ledger.exclusively():
        thread = threading.Thread(target=charge)
        thread.start()
        thread.join(0.3)
        order.append("withdrawn")
    thread.join(60)
    assert order == ["withdrawn", "charged"]


@pytest.mark.parametrize("rule", ["basic", "renyi", "gaussian"])
def test_every_rule_counts_allowances(location: str, open_ledger: Open, rule: str) -> None:
    ledger = open_ledger(location, Budget(2.0, 1e-6), filter=rule)
    with ledger.within(Allowance("ada", Budget(1.0, 5e-7))) as hers:
        delta = None if rule != "basic" else 1e-8
        charged = 0
        while hers.preview(events.Gaussian(30.0), delta=delta) is not None:
            hers.charge(events.Gaussian(30.0), "mean", delta=delta)
            charged += 1
        assert 2 < charged < 1000
        with pytest.raises(BudgetExceeded, match="ada"):
            hers.charge(events.Gaussian(30.0), "mean", delta=delta)
        assert hers.spent_within()[0] <= 1.0
        assert ledger.spent().epsilon < 2.0
    ledger.verify()
    with pytest.raises(InvalidValue, match="delta"):
        ledger.within(Allowance("eve", Budget(1.0, 1e-5)))


def test_two_race_for_the_last_of_a_budget(location: str, open_ledger: Open) -> None:
    """Eight threads of two analysts: never one charge too many, by either limit."""
    ledger = open_ledger(location, Budget(1.0))
    refused, barrier = [], threading.Barrier(8)

    def spend(number: int) -> None:
        with ledger.within(Allowance(f"analyst-{number % 2}", Budget(0.625))) as own:
            barrier.wait()
            for _ in range(4):
                try:
                    own.charge(events.Pure(0.125), "count")
                except BudgetExceeded:
                    refused.append(number)

    threads = [threading.Thread(target=spend, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.spent().epsilon == 1.0
    assert len(ledger.entries()) == 8
    assert len(refused) == 24
    for number in range(2):
        with ledger.within(Allowance(f"analyst-{number}", Budget(0.625))) as own:
            assert own.spent_within()[0] <= 0.625
    ledger.verify()


def _copied(source: Path, target: Path) -> None:
    """As ``.backup`` and ``.restore`` of SQLite do: the file stays the same one."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def test_a_sum_does_not_outlive_the_entries_that_it_was_made_of(path: Path, open_ledger: Open) -> None:
    """A backup is restored under a process that had looked at an allowance, and others charge it again."""
    ledger, other = open_ledger(path), path.with_name("backup.db")
    with ledger.within(half("ada"), shared=True) as hers:
        assert hers.spent_within() == (0.0, 0.0)
        _copied(path, other)
        with open_ledger(path) as elsewhere, elsewhere.within(half("ada")) as there:
            there.charge(events.Pure(0.125), "lost")
        assert hers.preview(events.Pure(0.375)) == 0.5
        _copied(other, path)
        with open_ledger(path) as elsewhere, elsewhere.within(half("ada")) as there:
            there.charge(events.Pure(0.5), "count")
        assert hers.spent_within() == (0.5, 0.0)
        assert hers.preview(events.Pure(0.25)) is None
        with pytest.raises(LedgerCorrupted, match="not the one that had 2 entries"):
            hers.charge(events.Pure(0.25), "sum")
    assert ledger.spent().epsilon == 0.5
