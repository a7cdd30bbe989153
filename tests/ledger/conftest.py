"""Both databases a ledger can live in: a SQLite file, and a PostgreSQL server started for the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tacit.ledger import Budget, Ledger

BUDGET = Budget(1.0)


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "study.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest) -> str:
    """Where to put a ledger, on each of the two databases."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("path"))
    return str(request.getfixturevalue("postgres"))


@pytest.fixture
def open_ledger() -> Iterator[Callable[..., Ledger]]:
    """Ledger.open with a budget of ε = 1 unless told, closed after the test."""
    opened: list[Ledger] = []

    def open_(location: object, budget: Budget | None = BUDGET, **options: object) -> Ledger:
        opened.append(Ledger.open(location, budget, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_
    for ledger in opened:
        ledger.close()
