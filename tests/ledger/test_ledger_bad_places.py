"""Ledgers that are missing, read-only, damaged, too new or unreachable: clear errors, never raw ones."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tacit import events
from tacit.errors import (
    InvalidValue,
    LedgerCorrupted,
    LedgerError,
    LedgerMissing,
    LedgerTooNew,
    LedgerUnwritable,
)
from tacit.ledger import Budget, Ledger
from tacit.ledger.location import Location

BUDGET = Budget(1.0)


@pytest.fixture
def study(path: Path) -> Path:
    with Ledger.open(path, BUDGET) as ledger:
        for _ in range(5):
            ledger.charge(events.Laplace(8.0), label="count")
    return path


def open_and_read(location: object, budget: Budget | None = None) -> None:
    with Ledger.open(location, budget) as ledger:  # type: ignore[arg-type]
        ledger.verify()


def test_a_missing_ledger_says_how_to_create_one(path: Path):
    with pytest.raises(LedgerMissing, match=r"budget=tacit\.Budget") as caught:
        Ledger.open(path)
    assert caught.value.location == str(path)
    assert not path.exists()


def test_a_database_without_a_ledger(postgres: str):
    with pytest.raises(LedgerMissing, match=r"budget=tacit\.Budget"):
        Ledger.open(postgres)
    with pytest.raises(LedgerMissing):
        Ledger.datasets_in(postgres)


def test_a_missing_directory(folder: Path):
    with pytest.raises(LedgerUnwritable, match="directory"):
        Ledger.open(folder / "nowhere" / "study.db", BUDGET)
    with pytest.raises(LedgerMissing):
        Ledger.open(folder / "nowhere" / "study.db")


@pytest.mark.parametrize("budget", [None, BUDGET])
def test_a_directory_instead_of_a_file(folder: Path, budget: Budget | None):
    with pytest.raises(LedgerCorrupted, match="is a directory"):
        Ledger.open(folder, budget)


def test_an_empty_file_is_no_ledger(path: Path):
    path.touch()
    for budget in (None, BUDGET):
        with pytest.raises(LedgerCorrupted, match="emptied"):
            open_and_read(path, budget)
    path.unlink()
    open_and_read(path, BUDGET)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("budget", [None, BUDGET])
@pytest.mark.parametrize("content", [b"not a database " * 100, os.urandom(5000), b"x", b"\0" * 4096])
def test_a_file_that_is_no_database(path: Path, content: bytes, budget: Budget | None):
    path.write_bytes(content)
    with pytest.raises(LedgerCorrupted) as caught:
        Ledger.open(path, budget)
    assert caught.value.location == str(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("budget", [None, BUDGET])
def test_the_database_of_another_program(path: Path, budget: Budget | None):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE customers (name)")
    with pytest.raises(LedgerCorrupted, match="other tables"):
        Ledger.open(path, budget)


@pytest.mark.parametrize("kept", [10, 100, 2000, 4096, 8192, 20000])
def test_a_truncated_ledger(study: Path, kept: int):
    content = study.read_bytes()
    assert kept < len(content)
    study.write_bytes(content[:kept])
    with pytest.raises(LedgerCorrupted):
        open_and_read(study)


@pytest.mark.parametrize("table", ["tacit_entries", "tacit_datasets", "tacit_scopes", "tacit_partitions"])
def test_a_table_dropped(study: Path, table: str):
    with closing(sqlite3.connect(study)) as connection, connection:
        connection.execute(f"DROP TABLE {table}")
    with pytest.raises(LedgerCorrupted):
        open_and_read(study)


def test_a_ledger_of_a_later_version(location: str):
    Ledger.open(location, BUDGET).close()
    ledger = Ledger.open(location)
    with ledger._book.store.write() as connection:
        connection.exec_driver_sql("UPDATE tacit_state SET schema_version = 99")
    ledger.close()
    with pytest.raises(LedgerTooNew, match="Upgrade tacit") as caught:
        Ledger.open(location)
    assert caught.value.version == 99
    with pytest.raises(LedgerTooNew):
        Ledger.open(location, BUDGET, dataset="other")


def test_a_read_only_ledger_can_be_read(study: Path):
    with Ledger.open(f"sqlite:///file:{study}?mode=ro&uri=true") as ledger:
        assert len(ledger.entries()) == 5
        assert ledger.spent().epsilon == 0.625
        ledger.verify()
        with pytest.raises(LedgerUnwritable, match="permissions"):
            ledger.charge(events.Laplace(8.0), label="count")


@pytest.mark.skipif(os.geteuid() == 0, reason="permission bits do not bind root")
def test_a_file_without_write_permission(study: Path):
    study.chmod(0o400)
    with Ledger.open(study) as ledger, pytest.raises(LedgerUnwritable):
        ledger.charge(events.Laplace(8.0), label="count")


def test_a_postgres_role_that_may_only_read(postgres: str):
    import psycopg

    Ledger.open(postgres, BUDGET).close()
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        with Ledger.open(postgres.replace("postgres:@", "reader:@")) as ledger:
            ledger.verify()
            with pytest.raises(LedgerUnwritable):
                ledger.charge(events.Laplace(8.0), label="count")
        connection.execute("DROP OWNED BY reader")
        connection.execute("DROP ROLE reader")


def test_a_busy_ledger_says_so(study: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tacit.ledger.store.PATIENCE", 0.1)
    with closing(sqlite3.connect(study, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with Ledger.open(study) as ledger, pytest.raises(LedgerError, match="in use elsewhere"):
            ledger.charge(events.Laplace(8.0), label="count")
        other.execute("ROLLBACK")
    open_and_read(study)


@pytest.mark.parametrize(
    "where",
    ["me:secret@127.0.0.1:1/study", "me@127.0.0.1:1/study?password=secret",
     "me@127.0.0.1:1/study?sslpassword=secret&sslmode=prefer"],
)  # fmt: skip
def test_an_unreachable_server_keeps_the_password_to_itself(where: str):
    with pytest.raises(LedgerError, match="cannot be reached") as caught:
        Ledger.open(f"postgresql://{where}", BUDGET)
    assert "secret" not in str(caught.value) + caught.value.location
    place = Location.of(f"postgresql://{where}")
    assert place.secret
    assert "***" in place.name or "password=hidden" in place.name


def test_a_url_without_a_password_is_named_as_it_is():
    place = Location.of("postgresql://me@host/study?sslmode=prefer")
    assert (place.secret, place.name) == (False, "postgresql://me@host/study?sslmode=prefer")


def test_a_server_without_the_database(postgres_server: str):
    with pytest.raises(LedgerError, match="no_such_database"):
        Ledger.open(postgres_server % "no_such_database", BUDGET)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerError, match=r"pip install 'tacit\[postgres\]'"):
        Ledger.open("postgresql://localhost/study", BUDGET)


@pytest.mark.parametrize(
    "location",
    ["mysql://host/db", "oracle://x", "postgresql+psycopg2://host/db", "http://host/study", "x y://z",
     "postgresql://host:port/db", ":memory:", "sqlite://", "sqlite:///:memory:",
     "sqlite:///file:x?mode=memory&uri=true"],
)  # fmt: skip
def test_places_where_no_ledger_can_be(location: str):
    with pytest.raises(LedgerError) as caught:
        Ledger.open(location, BUDGET)
    assert caught.value.next_step


@pytest.mark.parametrize("location", ["", None, 3, b"study.db"])
def test_things_that_are_no_place(location: object):
    with pytest.raises(InvalidValue, match="location"):
        Ledger.open(location, BUDGET)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [{"budget": 3.0}, {"budget": BUDGET, "relation": "neighbours"}, {"budget": BUDGET, "unit": "person"},
     {"budget": BUDGET, "dataset": ""}, {"budget": BUDGET, "dataset": 3}],
)  # fmt: skip
def test_bad_terms(path: Path, arguments: dict[str, object]):
    with pytest.raises(InvalidValue):
        Ledger.open(path, **arguments)  # type: ignore[arg-type]
    assert not path.exists()


def test_a_layout_that_never_was(tmp_path):
    path = tmp_path / "study.db"
    Ledger.open(path, budget=Budget(epsilon=1.0)).close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE tacit_state SET schema_version = 0")
        raw.commit()
    with pytest.raises(LedgerCorrupted, match="state"):
        Ledger.open(path)
