"""Processes and threads racing for the last of the budget, and processes killed at any point."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from tacit import events
from tacit.errors import BudgetExceeded, LedgerExists
from tacit.ledger import Budget, Ledger

fork = multiprocessing.get_context("fork")
EVENT = events.Laplace(32.0)
"""Thirty-two of these spend a budget of ε = 1 exactly."""


def spend_all(location: str, start, admitted, name: str) -> None:
    with Ledger.open(location) as ledger:
        start.wait()
        count = 0
        try:
            while True:
                with ledger.charge(EVENT, label=name):
                    count += 1
        except BudgetExceeded:
            admitted.put((name, count))


def test_processes_race_for_the_last_of_the_budget(location: str):
    Ledger.open(location, Budget(1.0)).close()
    start, admitted = fork.Barrier(4), fork.Queue()
    racers = [
        fork.Process(target=spend_all, args=(location, start, admitted, f"racer {number}"))
        for number in range(4)
    ]
    for racer in racers:
        racer.start()
    counts = dict(admitted.get(timeout=120) for _ in racers)
    for racer in racers:
        racer.join(120)
        assert racer.exitcode == 0
    assert sum(counts.values()) == 32
    with Ledger.open(location) as ledger:
        ledger.verify()
        assert ledger.spent().epsilon == 1.0
        assert {part.label: part.charges for part in ledger.by_label()} == {
            name: count for name, count in counts.items() if count
        }


def test_processes_race_within_a_parallel_scope(location: str):
    with Ledger.open(location, Budget(1.0)) as ledger:
        ledger.parallel("region", partitions=["north", "south"])
    start, admitted = fork.Barrier(4), fork.Queue()

    def spend(partition: str) -> None:
        with Ledger.open(location) as ledger:
            scope = ledger.parallel("region", partitions=["north", "south"])
            start.wait()
            count = 0
            try:
                while True:
                    scope.charge(partition, events.Laplace(8.0), label="count")
                    count += 1
            except BudgetExceeded:
                admitted.put(count)

    racers = [fork.Process(target=spend, args=(name,)) for name in ("north", "south") * 2]
    for racer in racers:
        racer.start()
    assert sum(admitted.get(timeout=120) for _ in racers) == 16
    for racer in racers:
        racer.join(120)
    with Ledger.open(location) as ledger:
        ledger.verify()


def test_processes_race_to_create(location: str):
    start, outcomes = fork.Barrier(4), fork.Queue()

    def create(epsilon: float) -> None:
        start.wait()
        try:
            with Ledger.open(location, Budget(epsilon)) as ledger:
                outcomes.put(("opened", ledger.budget.epsilon))
        except LedgerExists:
            outcomes.put(("refused", epsilon))

    racers = [fork.Process(target=create, args=(epsilon,)) for epsilon in (1.0, 1.0, 2.0, 2.0)]
    for racer in racers:
        racer.start()
    results = sorted(outcomes.get(timeout=120) for _ in racers)
    for racer in racers:
        racer.join(120)
    winner = results[0][1]
    assert results == [("opened", winner)] * 2 + [("refused", 3.0 - winner)] * 2
    with Ledger.open(location) as ledger:
        assert ledger.verify().startswith("1:")


def test_threads_share_a_ledger(location: str):
    with Ledger.open(location, Budget(1.0)) as ledger:
        admitted: list[int] = []

        def spend() -> None:
            try:
                while True:
                    number = ledger.charge(EVENT, label="count").entry.number
                    admitted.append(number)
            except BudgetExceeded:
                pass

        threads = [threading.Thread(target=spend) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(admitted) == list(range(2, 34))
        ledger.verify()


def test_a_ledger_survives_a_fork(location: str):
    with Ledger.open(location, Budget(1.0)) as ledger:
        ledger.charge(EVENT, label="parent")

        def charge() -> None:
            ledger.charge(EVENT, label="child")

        child = fork.Process(target=charge)
        child.start()
        child.join(120)
        assert child.exitcode == 0
        ledger.charge(EVENT, label="parent")
        assert [entry.label for entry in ledger.entries()] == ["parent", "child", "parent"]
        ledger.verify()


def release(folder: Path, number: int) -> None:
    """A release: something that exists outside the ledger once the body has run."""
    with open(folder / "released", "ab", buffering=0) as file:
        file.write(f"{number}\n".encode())


def released(folder: Path) -> set[int]:
    """The numbers of the entries whose release was made."""
    file = folder / "released"
    return {int(line) for line in file.read_text().split()} if file.exists() else set()


def check_after_a_kill(location: str, folder: Path) -> int:
    """No release without its entry, and nothing half-written; returns the number of charges."""
    with Ledger.open(location) as ledger:
        ledger.verify()
        entries = {entry.number for entry in ledger.entries()}
    assert released(folder) <= entries
    return len(entries)


def kill_self(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run_and_die(location: str, folder: Path, point: str) -> None:
    ledger = Ledger.open(location)
    engine = ledger._book.store._engine
    if point.startswith("statement"):
        remaining = iter(range(int(point.split()[1])))
        sa.event.listen(
            engine, "before_cursor_execute", lambda *_: kill_self() if next(remaining, None) is None else None
        )
    elif point == "before commit":
        sa.event.listen(engine, "commit", kill_self)
    with ledger.charge(EVENT, label=point) as entry:
        if point == "after commit":
            kill_self()
        release(folder, entry.number)
        if point == "inside body":
            kill_self()
    os._exit(3)


POINTS = {
    **{f"statement {number}": 0 for number in range(5)},
    "before commit": 0,
    "after commit": 1,
    "inside body": 1,
}


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_chosen_point(location: str, folder: Path, point: str):
    Ledger.open(location, Budget(1.0)).close()
    child = fork.Process(target=run_and_die, args=(location, folder, point))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    assert check_after_a_kill(location, folder) == POINTS[point]
    with Ledger.open(location) as ledger:
        ledger.charge(EVENT, label="life goes on")


def charge_forever(location: str, folder: Path) -> None:
    with Ledger.open(location) as ledger:
        while True:
            with ledger.charge(events.Laplace(1e6), label="count") as entry:
                release(folder, entry.number)


def test_killed_at_random_points(location: str, folder: Path):
    random.seed(11)
    Ledger.open(location, Budget(1.0)).close()
    charges = 0
    for _ in range(12):
        before = len(released(folder))
        child = fork.Process(target=charge_forever, args=(location, folder))
        child.start()
        deadline = time.monotonic() + 120
        while len(released(folder)) <= before and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(random.uniform(0.0, 0.05))
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join(120)
        now = check_after_a_kill(location, folder)
        assert now >= charges
        charges = now
    assert charges >= 12
