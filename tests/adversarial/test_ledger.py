"""Attacks on a ledger's file: cut, emptied, exchanged, edited; and a lock held while an event is priced."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from contract.mends import Scene, mend, replacing
from tacit import events
from tacit.accounting import filters
from tacit.errors import BudgetExceeded, LedgerCorrupted, LedgerError, TacitError
from tacit.ledger import Budget, Ledger, Work, book, posting, store
from tacit.ledger.chain import Record
from tacit.ledger.guarding import digest
from tampering import tamper

BUDGET = Budget(3.0)
EVENT = events.Laplace(4.0)


def study(folder: Path) -> Path:
    """A ledger that has spent 1 of 3."""
    place = folder / "study.db"
    with Ledger.open(place, BUDGET) as ledger:
        for number in range(4):
            ledger.charge(EVENT, label=f"count {number}")
    return place


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return study(tmp_path)


LAST = "(SELECT max(number) FROM tacit_entries)"
NOTHING = '{"delta": "0", "epsilon": "0", "renyi": "0", "renyi_delta": "0"}'
EDITS: dict[str, list[str]] = {
    "budget": ["UPDATE tacit_datasets SET terms = replace(terms, '3.0', '30.0')"],
    "budget in both": [
        "UPDATE tacit_datasets SET terms = replace(terms, '3.0', '30.0')",
        "UPDATE tacit_entries SET details = replace(details, '3.0', '30.0') WHERE number = 1",
    ],
    "relation": ["UPDATE tacit_datasets SET terms = replace(terms, 'add_remove', 'replace_one')"],
    "unit": ["""UPDATE tacit_datasets SET terms = replace(terms, '"rows":1', '"rows":2')"""],
    "filter": ["UPDATE tacit_datasets SET terms = replace(terms, '\"basic\"', '\"renyi\"')"],
    "total": [f"UPDATE tacit_datasets SET total = '{NOTHING}'"],
    "mode": ["UPDATE tacit_datasets SET mode = NULL"],
    "charges": ["UPDATE tacit_datasets SET charges = 0"],
    "name": ["UPDATE tacit_datasets SET name = 'another'"],
    "last entry deleted": [f"DELETE FROM tacit_entries WHERE number = {LAST}"],
    "last entry deleted, and the head": [
        f"DELETE FROM tacit_entries WHERE number = {LAST}",
        f"UPDATE tacit_state SET entries = {LAST}, "
        f"head = (SELECT hash FROM tacit_entries WHERE number = {LAST})",
    ],
    "all entries deleted": ["DELETE FROM tacit_entries"],
    "as if nothing had happened": [
        "DELETE FROM tacit_entries WHERE number > 1",
        "UPDATE tacit_state SET entries = 1, head = (SELECT hash FROM tacit_entries)",
        f"UPDATE tacit_datasets SET mode = NULL, noise = 'exact', charges = 0, total = '{NOTHING}'",
    ],
    "emptied tables": [
        "DELETE FROM tacit_entries", "DELETE FROM tacit_datasets",
        f"UPDATE tacit_state SET entries = 0, head = '{'0' * 64}'",
    ],
    "last entry edited": [f"UPDATE tacit_entries SET label = 'innocent' WHERE number = {LAST}"],
}  # fmt: skip
UNSEEN = {"as if nothing had happened"}
"""What only a process that had the ledger open can tell: the file is in order."""


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_ledger_is_not_charged(name: str, path: Path) -> None:
    with Ledger.open(path) as ledger:
        tamper(path, *EDITS[name])
        with pytest.raises(LedgerCorrupted):
            ledger.charge(EVENT, label="more")


@pytest.mark.parametrize("name", [name for name in EDITS if name not in UNSEEN])
@pytest.mark.parametrize("budget", [None, BUDGET, Budget(30.0)])
def test_an_edited_ledger_is_not_charged_when_opened_again(
    name: str, budget: Budget | None, path: Path
) -> None:
    tamper(path, *EDITS[name])
    with pytest.raises(LedgerError), Ledger.open(path, budget) as ledger:
        ledger.charge(EVENT, label="more")


@mend(16, "an edited total", twin=replacing(posting, "check_dataset", lambda *known: None))
def edited_total(scene: Scene) -> None:
    """With the total set back to nothing, the whole budget of 3 can be spent once more."""
    path = study(scene.path)
    tamper(path, *EDITS["total"])
    charges = 4
    with suppress(LedgerCorrupted, BudgetExceeded), Ledger.open(path) as ledger:
        for _ in range(20):
            ledger.charge(EVENT, label="for the second time")
            charges += 1
    assert charges * 0.25 <= BUDGET.epsilon, f"{charges} charges of 0.25"


EMPTIED = {
    "cut to nothing": lambda path: path.write_bytes(b""),
    "cut in place": lambda path: os.truncate(path, 0),
    "all tables dropped": lambda path: tamper(
        path,
        *(f"DROP TABLE tacit_{name}" for name in ("state", "datasets", "scopes", "partitions", "entries")),
    ),
    "another database": lambda path: (path.unlink(), sqlite3.connect(path).executescript("VACUUM").close()),
}


@pytest.mark.parametrize("name", EMPTIED)
def test_an_emptied_file_is_no_fresh_budget(name: str, path: Path) -> None:
    with Ledger.open(path) as ledger:
        EMPTIED[name](path)
        with pytest.raises(LedgerCorrupted):
            ledger.charge(EVENT, label="more")
    for budget in (BUDGET, Budget(30.0)):
        with pytest.raises(LedgerCorrupted):
            Ledger.open(path, budget)


PARTITIONS = ("north", "south")
SCOPE_EDITS: dict[str, list[str]] = {
    "total up": ["UPDATE tacit_partitions SET total = replace(total, '0.5', '50.0') WHERE name = 'south'"],
    "total down": ["UPDATE tacit_partitions SET total = replace(total, '0.5', '0.0') WHERE name = 'south'"],
    "totals gone": ["DELETE FROM tacit_partitions"],
    "another partition": ["""UPDATE tacit_scopes SET partitions = '["north", "south", "east"]'"""],
}


def partitioned(folder: Path) -> Path:
    """A ledger that has spent 0.5 of 1 on each of two partitions, and a little on another dataset since."""
    place = folder / "study.db"
    with Ledger.open(place, Budget(1.0)) as ledger, ledger.parallel("region", partitions=PARTITIONS) as scope:
        for name in PARTITIONS:
            scope.charge(name, events.Laplace(2.0), label="count")
    with Ledger.open(place, Budget(1.0), dataset="other") as ledger:
        ledger.charge(EVENT, label="count")
    return place


@mend(16, "an edited partition", twin=replacing(posting, "check_scope", lambda *given: None))
def edited_partition(scene: Scene) -> None:
    """With one partition said to have cost much, charges to the other never cost more than that."""
    path, charges = partitioned(scene.path), 1
    tamper(path, *SCOPE_EDITS["total up"])
    with suppress(LedgerCorrupted, BudgetExceeded), Ledger.open(path) as ledger:
        scope = ledger.parallel("region", partitions=PARTITIONS)
        for _ in range(9):
            scope.charge("north", events.Laplace(2.0), label="more")
            charges += 1
    assert charges * 0.5 <= 1.0, f"{charges} charges of 0.5 to one partition, and a budget of 1"


@pytest.mark.parametrize("name", [*SCOPE_EDITS, "nothing"])
def test_an_edited_scope_is_not_charged(name: str, tmp_path: Path) -> None:
    path = partitioned(tmp_path)
    tamper(path, *SCOPE_EDITS.get(name, []))
    names = (*PARTITIONS, "east") if name == "another partition" else PARTITIONS
    with Ledger.open(path) as ledger:
        scope = ledger.parallel("region", partitions=names)
        with nullcontext() if name == "nothing" else pytest.raises(LedgerCorrupted):
            scope.charge("north", events.Laplace(2.0), label="more")
            ledger.verify()


def test_the_last_entry_of_a_dataset_is_not_edited_behind_that_of_another(tmp_path: Path) -> None:
    """Its state and what it says it left behind are set back together; its hash is computed anew."""
    path = partitioned(tmp_path)
    with Ledger.open(path) as ledger:
        ledger.charge(EVENT, label="sum")
    with Ledger.open(path, dataset="other") as ledger:
        ledger.charge(EVENT, label="sum")
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        query = "SELECT * FROM {} WHERE {}"
        row = dict(connection.execute(query.format("tacit_datasets", "name = 'default'")).fetchone())
        last = dict(connection.execute(query.format("tacit_entries", "number = 7")).fetchone())
    assert (last["dataset"], last["label"]) == ("default", "sum")
    state = digest(row["terms"], row["mode"], row["noise"], row["charges"], NOTHING)
    last["details"] = json.dumps({"state": state}, separators=(",", ":"))
    content = {name: value for name, value in last.items() if name != "hash"}
    for forged in (last["hash"], Record(**content).hash()):
        tamper(
            path,
            f"UPDATE tacit_datasets SET total = '{NOTHING}' WHERE name = 'default'",
            f"UPDATE tacit_entries SET details = '{last['details']}', hash = '{forged}' WHERE number = 7",
        )
        with Ledger.open(path) as ledger, pytest.raises(LedgerCorrupted, match="edited entry 7"):
            ledger.charge(EVENT, label="more")


def believes_empty_files(patch: pytest.MonkeyPatch) -> None:
    """The twin: a file that is there and empty is a ledger that begins."""
    create = posting.create_dataset
    patch.setattr(book, "_create_file", lambda *given: None)
    patch.setattr(
        posting, "create_dataset", lambda store, name, terms: create(store, name, terms, new_file=True)
    )


@mend(16, "an emptied file", twin=believes_empty_files)
def emptied_file(scene: Scene) -> None:
    path = study(scene.path)
    os.truncate(path, 0)
    with suppress(LedgerCorrupted), Ledger.open(path, BUDGET) as ledger:
        assert ledger.remaining() <= 2, f"{ledger.remaining()} of 3 is left after 1 was spent"


@mend(16, "an exchanged file", twin=replacing(store.Store, "_check_file", lambda self: None))
def exchanged_file(scene: Scene) -> None:
    """Connections that are open would go on with the file that has no name any more.

    SQLite itself refuses to write to such a file, and reads it.
    """
    path, other = study(scene.path), scene.path / "other.db"
    Ledger.open(other, BUDGET).close()
    with Ledger.open(path) as ledger:
        os.replace(other, path)
        with pytest.raises(LedgerCorrupted, match="replaced"):
            ledger.spent()


def test_an_exchanged_file_is_found(path: Path, tmp_path: Path) -> None:
    """Connections would go on with the file that has no name any more."""
    other, early = tmp_path / "other.db", tmp_path / "early.db"
    Ledger.open(other, BUDGET).close()
    with Ledger.open(path) as ledger:
        shutil.copy(path, early)
        ledger.charge(EVENT, label="later")
        os.replace(other, path)
        with pytest.raises(LedgerCorrupted, match="replaced"):
            ledger.charge(EVENT, label="more")
        path.unlink()
        with pytest.raises(LedgerCorrupted, match="removed"):
            ledger.charge(EVENT, label="more")
        with pytest.raises(LedgerCorrupted, match="removed"):
            ledger.spent()


def test_an_earlier_copy_written_over_the_file_is_found(path: Path) -> None:
    with Ledger.open(path) as ledger:
        early = path.read_bytes()
        ledger.charge(EVENT, label="later")
        path.write_bytes(early)
        with pytest.raises(LedgerCorrupted, match="had 6 entries"):
            ledger.charge(EVENT, label="more")


def test_entries_of_earlier_versions_are_charged_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their charges do not say which state they leave behind."""
    real = posting._dumped
    with monkeypatch.context() as patch, Ledger.open(path) as ledger:
        patch.setattr(posting, "_dumped", lambda details: None)
        ledger.charge(EVENT, label="as before")
    assert posting._dumped is real
    with Ledger.open(path) as ledger:
        ledger.charge(EVENT, label="as now")
        ledger.charge(EVENT, label="as now")
        ledger.verify()


def test_a_new_ledger_appears_whole(tmp_path: Path) -> None:
    """While one process makes the file, another must not find it empty and refuse."""
    found: list[Any] = []

    def open_it() -> None:
        try:
            with Ledger.open(tmp_path / "study.db", BUDGET) as ledger:
                ledger.charge(events.Laplace(100.0), label="one each")
            found.append("opened")
        except TacitError as error:
            found.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["opened"] * 8
    with Ledger.open(tmp_path / "study.db") as ledger:
        assert len(ledger.entries()) == 8
        ledger.verify()
    assert [each.name for each in tmp_path.iterdir()] == ["study.db"]


# ---------------------------------------------------------------------------------------------- the lock


class Pricing(NamedTuple):
    """One event is being priced once ``begun`` is set, and until ``done`` is."""

    begun: threading.Event
    done: threading.Event


@contextmanager
def slowly(patch: pytest.MonkeyPatch) -> Iterator[Pricing]:
    """Pricing of one event takes until it is told to be done."""
    begun, done = threading.Event(), threading.Event()
    real = filters.BudgetFilter._prices

    def prices(self: Any, terms: Any, *args: Any, **more: Any) -> Any:
        if any(term == events.Laplace(77.0) for term, _ in terms):
            begun.set()
            assert done.wait(300)
        return real(self, terms, *args, **more)

    patch.setattr(filters.BudgetFilter, "_prices", prices)
    yield Pricing(begun, done)
    done.set()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pricing]:
    with slowly(monkeypatch) as pricing:
        yield pricing


def test_others_charge_while_an_event_is_priced(path: Path, slow: Pricing) -> None:
    """10⁵ distinct events held the lock for 13.6 seconds."""
    with Ledger.open(path) as ledger:
        large = threading.Thread(target=lambda: ledger.charge(events.Laplace(77.0), label="large"))
        large.start()
        assert slow.begun.wait(120)
        context = multiprocessing.get_context("fork")
        other = context.Process(target=_charge_once, args=(path,))
        other.start()
        other.join(120)
        assert other.exitcode == 0
        assert large.is_alive()
        slow.done.set()
        large.join(120)
        assert [entry.label for entry in ledger.entries()][-2:] == ["small", "large"]
        ledger.verify()


def _charge_once(path: Path) -> None:
    with Ledger.open(path) as ledger:
        ledger.charge(EVENT, label="small")


@mend(17, "pricing that holds the lock", twin=replacing(posting, "_ATTEMPTS", 0))
def pricing_outside(scene: Scene) -> None:
    """While one event is priced, which may take long, others charge."""
    path = study(scene.path)
    scene.patch.setattr(store, "PATIENCE", 0.3)
    with slowly(scene.patch) as slow, Ledger.open(path) as ledger, Ledger.open(path) as other:
        large = threading.Thread(target=lambda: ledger.charge(events.Laplace(77.0), label="large"))
        large.start()
        assert slow.begun.wait(120)
        try:
            other.charge(EVENT, label="small")
        except LedgerError as error:
            raise AssertionError("the ledger was held while an event was priced") from error
        finally:
            slow.done.set()
            large.join(120)


def test_many_distinct_events(path: Path) -> None:
    """An event with many distinct parts is priced before the ledger is taken, and not again inside."""
    large = events.Compose(tuple(events.Laplace(1e6 + number) for number in range(3_000)))
    order: list[str] = []
    prices, last_entry = filters.BudgetFilter._prices, posting.last_entry

    def pricing(self: Any, *args: Any, **more: Any) -> Any:
        order.append("priced")
        return prices(self, *args, **more)

    def taking(*args: Any) -> Any:
        order.append("taken")
        return last_entry(*args)

    with Ledger.open(path) as ledger, pytest.MonkeyPatch.context() as patch:
        patch.setattr(filters.BudgetFilter, "_prices", pricing)
        patch.setattr(posting, "last_entry", taking)
        ledger.charge(large, label="large")
        assert order[0] == "priced"
        assert order[-1] == "taken"
        assert order.count("taken") == 1

        order.clear()
        patch.setattr(posting, "_ATTEMPTS", 0)
        ledger.charge(large, label="priced inside, as the broken twin does")
        assert order[0] == "taken"
        assert "priced" in order


def admits_what_was_quoted(patch: pytest.MonkeyPatch) -> None:
    """The twin: a price that fitted when it was made is charged, whatever was charged since."""
    accept, quotes = filters.BudgetFilter.accept, filters.BudgetFilter.quotes
    first: list[Any] = []

    def quoted(self: Any, event: Any, total_with: Any, *given: Any, **more: Any) -> Any:
        first[:] = [total_with]
        return quotes(self, event, total_with, *given, **more)

    patch.setattr(filters.BudgetFilter, "quotes", quoted)
    patch.setattr(
        filters.BudgetFilter, "accept", lambda self, made, total, mode: accept(self, made, first[0], mode)
    )


@mend(17, "a charge between price and payment", twin=admits_what_was_quoted)
def overtaken(scene: Scene) -> None:
    """Two charges of 0.6 are priced against a budget of 1 before either is paid."""
    place, half = scene.path / "study.db", events.Laplace(1 / 0.6)
    with Ledger.open(place, Budget(1.0)) as ledger, Ledger.open(place) as other:
        between(scene.patch, lambda: other.charge(half, label="between"))
        with suppress(BudgetExceeded):
            ledger.charge(half, label="mine")
        spent = sum(entry.cost.epsilon for entry in ledger.entries())
        assert spent <= 1.0, f"{spent} was charged to a budget of 1"


def between(patch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Do something once, after the first event was priced and before it is charged."""
    real, left = posting._quoted, [act]

    def quoted(*args: Any) -> Any:
        found = real(*args)
        if left:
            left.pop()()
        return found

    patch.setattr(posting, "_quoted", quoted)


def test_prices_are_for_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another charge comes in between pricing and charging, and takes what the price relied on."""
    place = tmp_path / "study.db"
    gaussian = events.Gaussian(6.0)
    with Ledger.open(place, Budget(2.0, 1e-5)) as ledger, Ledger.open(place) as other:
        between(monkeypatch, lambda: other.charge(events.Gaussian(8.0), label="between", delta=8e-6))
        ledger.charge(gaussian, label="mine")
        assert [entry.label for entry in ledger.entries()] == ["between", "mine"]
        assert ledger.spent().epsilon <= 2.0
        assert sum(entry.cost.delta for entry in ledger.entries()) <= 1e-5 * (1 + 1e-12)
        ledger.verify()


def test_claims_of_two_processes(path: Path) -> None:
    with Ledger.open(path) as one, Ledger.open(path) as two:
        one.charge(EVENT, label="run", work=Work("r", paid=(0, 10)))
        found: list[str] = []

        def claim(ledger: Ledger, first: int) -> None:
            try:
                ledger.charge(events.Compose(()), label="run", work=Work("r", taken=(first, first + 4)))
                found.append("taken")
            except LedgerError as error:
                found.append(str(error))

        threads = [threading.Thread(target=claim, args=each) for each in ((one, 0), (two, 2), (one, 3))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found.count("taken") == 1
        with pytest.raises(LedgerError, match="not paid for"):
            one.charge(events.Compose(()), label="run", work=Work("r", taken=(8, 12)))
        with pytest.raises(LedgerError, match="paid for already"):
            one.charge(EVENT, label="run", work=Work("r", paid=(9, 12)))
        with pytest.raises(LedgerError, match="were not taken"):
            one.charge(events.Compose(()), label="run", work=Work("r", back=(7, 8)))
        assert len(one.work_of("r")) == 2
