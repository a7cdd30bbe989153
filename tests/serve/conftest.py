"""A service with one curator, two analysts, an auditor and a dataset, on both databases."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from databases import MEMORY
from tacit.serve.access import Caller
from tacit.serve.actions import holdings, people
from tacit.serve.service import Place, Service

with warnings.catch_warnings():
    # Starlette's client for tests asks for a later httpx than this one.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

__all__ = ["SCHEMA", "Study", "TestClient", "made", "write_rows"]

SCHEMA = """
[columns.age]
type = "integer"
bounds = [0, 100]

[columns.sex]
type = "category"
categories = ["F", "M"]

[columns.income]
type = "category"
categories = ["high", "low"]
"""
ROWS = 2000


def write_rows(path: Path, rows: int = ROWS) -> None:
    """Rows in which income hangs on age."""
    rng = np.random.default_rng(5)
    ages = rng.integers(18, 90, rows)
    rich = rng.random(rows) < ages / 120
    with path.open("w") as file:
        file.write("age,sex,income\n")
        for age, sex, high in zip(ages, rng.choice(["F", "M"], rows), rich, strict=True):
            file.write(f"{age},{sex},{'high' if high else 'low'}\n")


@dataclass
class Study:
    """An open service and the people in it; ``tokens`` has the text of each one's token."""

    service: Service
    curator: Caller
    ada: Caller
    bob: Caller
    auditor: Caller
    tokens: dict[str, str]

    def grant(self, analyst: str = "ada", epsilon: float = 1.0, **options: Any) -> str:
        """A grant on the dataset; its id."""
        made = holdings.make_grant(
            self.service, self.curator, analyst=analyst, dataset="people", epsilon=epsilon, **options
        )
        return str(made["id"])

    def spent(self) -> float:
        """ε spent on the dataset."""
        with self.service.ledger("people") as ledger:
            return ledger.spent().epsilon

    def entries(self) -> int:
        """How many charges were made."""
        with self.service.ledger("people") as ledger:
            return len(ledger.entries())


def made(place: Place, budget: tuple[float, float] = (4.0, 1e-6)) -> Study:
    """A new study at this place."""
    service = place.open()
    write_rows(service.data / "people.csv")
    first = people.first_curator(service)
    assert first is not None
    curator = Caller("curator", "curator", first.id)
    tokens = {"curator": first.text}
    callers = {}
    for name, role in (("ada", "analyst"), ("bob", "analyst"), ("eve", "auditor")):
        people.add_user(service, curator, name, role)
        token = people.issue_token(service, curator, name)
        tokens[name], callers[name] = token["token"], Caller(name, role, token["id"])
    holdings.register(
        service, curator, "people", source="people.csv", schema=SCHEMA, epsilon=budget[0], delta=budget[1]
    )
    return Study(service, curator, callers["ada"], callers["bob"], callers["eve"], tokens)


@pytest.fixture
def make_study(folder: Path) -> Iterator[Callable[..., Study]]:
    """Makes a study in a folder, closed after the test."""
    opened: list[Study] = []

    def make(**options: Any) -> Study:
        budget = options.pop("budget", (4.0, 1e-6))
        options = {"rate": 0, "failures": 0, **options}
        opened.append(made(Place(folder / "home", **options), budget))
        return opened[-1]

    yield make
    for study in opened:
        study.service.close()


@pytest.fixture
def study(make_study: Callable[..., Study]) -> Study:
    """A study in files."""
    return make_study()


@pytest.fixture(scope="module")
def lasting() -> Iterator[Study]:
    """A study in files for several tests, which charge nothing; ada may count."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        study = made(Place(Path(name) / "home", rate=0, failures=0))
        study.grant(statistics=["count"])
        yield study
        assert study.entries() == 0
        study.service.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def anywhere(request: pytest.FixtureRequest, make_study: Callable[..., Study]) -> Study:
    """A study on each of the two databases."""
    if request.param == "sqlite":
        return make_study()
    return make_study(database=request.getfixturevalue("postgres"))
