"""verify() finds every alteration made behind the ledger's back."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tacit import events
from tacit.errors import InvalidValue, LedgerCorrupted, TacitError
from tacit.ledger import Budget, Ledger
from tacit.ledger.chain import ORIGIN, Record
from tampering import tamper

LAST = "(SELECT max(number) FROM tacit_entries)"
COLUMNS = (
    "kind, dataset, time, version, previous, label, scope, partition, event, epsilon, delta, renyi, "
    "renyi_delta, mode, declared_delta, noise, details, hash"
)


@pytest.fixture
def study(path: Path) -> Path:
    """Two datasets, a scope, and charges of several kinds: 10 entries."""
    with Ledger.open(path, Budget(3.0)) as ledger:
        for number in range(4):
            ledger.charge(events.Laplace(8.0), label=f"count {number}")
        scope = ledger.parallel("region", partitions=["north", "south"])
        scope.charge("north", events.Laplace(4.0), label="north")
        scope.charge("south", events.Laplace(8.0), label="south")
        with Ledger.open(path, Budget(1.0), dataset="hospital") as hospital:
            hospital.charge(events.Laplace(8.0), label="beds")
        ledger.verify()
    return path


def verify(path: Path, head: str | None = None) -> str:
    with Ledger.open(path) as ledger:
        return ledger.verify(head)


TAMPERINGS = {
    "label": ["UPDATE tacit_entries SET label = 'innocent' WHERE number = 3"],
    "event": ["""UPDATE tacit_entries SET event = '{"is":"laplace","scale":80.0}' WHERE number = 3"""],
    "cost": ["UPDATE tacit_entries SET epsilon = 0.01 WHERE number = 3"],
    "cost to text": ["UPDATE tacit_entries SET epsilon = 'free' WHERE number = 3"],
    "cost to a blob": ["UPDATE tacit_entries SET epsilon = x'00ff' WHERE number = 3"],
    "noise": ["UPDATE tacit_entries SET noise = 'exact' WHERE number = 3"],
    "time": ["UPDATE tacit_entries SET time = '2001-01-01' WHERE number = 3"],
    "declared delta": ["UPDATE tacit_entries SET declared_delta = 0.1 WHERE number = 3"],
    "scope": ["UPDATE tacit_entries SET scope = NULL, partition = NULL WHERE number = 7"],
    "partition": ["UPDATE tacit_entries SET partition = 'south' WHERE number = 7"],
    "dataset": ["UPDATE tacit_entries SET dataset = 'hospital' WHERE number = 3"],
    "hash": ["UPDATE tacit_entries SET hash = previous WHERE number = 3"],
    "previous": ["UPDATE tacit_entries SET previous = hash WHERE number = 3"],
    "first removed": ["DELETE FROM tacit_entries WHERE number = 1"],
    "middle removed": ["DELETE FROM tacit_entries WHERE number = 4"],
    "middle removed and renumbered": [
        "DELETE FROM tacit_entries WHERE number = 4",
        "UPDATE tacit_entries SET number = number - 1 WHERE number > 4",
    ],
    "last removed": [f"DELETE FROM tacit_entries WHERE number = {LAST}"],
    "last removed and counted": [
        f"DELETE FROM tacit_entries WHERE number = {LAST}",
        f"UPDATE tacit_state SET entries = {LAST}",
    ],
    "last removed and head moved": [
        f"DELETE FROM tacit_entries WHERE number = {LAST}",
        f"UPDATE tacit_state SET entries = {LAST}, "
        f"head = (SELECT hash FROM tacit_entries WHERE number = {LAST})",
    ],
    "all removed": ["DELETE FROM tacit_entries"],
    "swapped": [
        "UPDATE tacit_entries SET number = 99 WHERE number = 3",
        "UPDATE tacit_entries SET number = 3 WHERE number = 4",
        "UPDATE tacit_entries SET number = 4 WHERE number = 99",
    ],
    "forged at the end": [
        f"INSERT INTO tacit_entries (number, {COLUMNS}) SELECT {LAST} + 1, {COLUMNS} "
        "FROM tacit_entries WHERE number = 3"
    ],
    "forged in between": [
        "UPDATE tacit_entries SET number = number + 1000 WHERE number > 3",
        f"INSERT INTO tacit_entries (number, {COLUMNS}) SELECT 4, {COLUMNS} "
        "FROM tacit_entries WHERE number = 3",
        "UPDATE tacit_entries SET number = number - 999 WHERE number > 1000",
        f"UPDATE tacit_state SET entries = {LAST}",
    ],
    "budget in the state": ["UPDATE tacit_datasets SET terms = replace(terms, '3.0', '30.0')"],
    "budget in the entry": [
        "UPDATE tacit_entries SET details = replace(details, '3.0', '30.0') WHERE number = 1"
    ],
    "budget in both": [
        "UPDATE tacit_datasets SET terms = replace(terms, '3.0', '30.0')",
        "UPDATE tacit_entries SET details = replace(details, '3.0', '30.0') WHERE number = 1",
    ],
    "unreadable budget": ["UPDATE tacit_datasets SET terms = 'generous'"],
    "relation": ["UPDATE tacit_datasets SET terms = replace(terms, 'add_remove', 'replace_one')"],
    "total": ["""UPDATE tacit_datasets SET total = replace(total, '"epsilon": "0.', '"epsilon": "0.0')"""],
    "unreadable total": ["UPDATE tacit_datasets SET total = 'nothing'"],
    "mode": ["UPDATE tacit_datasets SET mode = 'renyi'"],
    "rule": ["UPDATE tacit_datasets SET terms = replace(terms, '\"basic\"', '\"renyi\"')"],
    "rule in the entry that opened it": [
        "UPDATE tacit_entries SET details = replace(details, '\"basic\"', '\"renyi\"') WHERE number = 1",
    ],
    "worst noise": ["UPDATE tacit_datasets SET noise = 'exact'"],
    "number of charges": ["UPDATE tacit_datasets SET charges = charges - 1"],
    "partition total": ["""UPDATE tacit_partitions SET total = replace(total, '0.25', '0.05')"""],
    "partition total removed": ["DELETE FROM tacit_partitions WHERE name = 'north'"],
    "declared partitions": ["""UPDATE tacit_scopes SET partitions = '["north", "south", "east"]'"""],
    "scope removed": ["DELETE FROM tacit_scopes"],
    "dataset state removed": ["DELETE FROM tacit_datasets WHERE name = 'hospital'"],
    "dataset state invented": [
        "INSERT INTO tacit_datasets SELECT 'clinic', terms, mode, noise, charges, total FROM tacit_datasets "
        "WHERE name = 'hospital'"
    ],
    "whole dataset removed": [
        "DELETE FROM tacit_datasets WHERE name = 'hospital'",
        "DELETE FROM tacit_entries WHERE dataset = 'hospital'",
    ],
    "state removed": ["DELETE FROM tacit_state"],
    "head": ["UPDATE tacit_state SET head = 'f' || substr(head, 2) || 'f'"],
    "count": ["UPDATE tacit_state SET entries = entries + 1"],
}


@pytest.mark.parametrize("statements", TAMPERINGS.values(), ids=TAMPERINGS.keys())
def test_every_alteration_is_found(study: Path, statements: list[str]):
    tamper(study, *statements)
    with pytest.raises(LedgerCorrupted) as caught:
        verify(study)
    assert caught.value.location == str(study)
    assert caught.value.next_step


def test_an_untouched_ledger_verifies(study: Path):
    assert re.fullmatch(r"10:[0-9a-f]{32}", verify(study))


def test_the_first_fault_is_named(study: Path):
    tamper(study, "UPDATE tacit_entries SET label = 'innocent' WHERE number IN (3, 5)")
    with pytest.raises(LedgerCorrupted, match="Entry 3 has been edited") as caught:
        verify(study)
    assert caught.value.entry == 3


def test_a_lost_dataset_cannot_be_opened_afresh(study: Path):
    tamper(study, "DELETE FROM tacit_datasets WHERE name = 'default'")
    with pytest.raises(LedgerCorrupted, match="has lost its state"):
        Ledger.open(study, Budget(3.0))


def forge(path: Path) -> None:
    """What an attacker with full access can do: drop a charge, and recompute all that depends on it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.row_factory = sqlite3.Row
        for trigger in ("tacit_no_update", "tacit_no_delete"):
            connection.execute(f"DROP TRIGGER {trigger}")
        rows = [dict(row) for row in connection.execute("SELECT * FROM tacit_entries ORDER BY number")]
        rows = [row for row in rows if row["number"] != 3]
        connection.execute("DELETE FROM tacit_entries")
        last = ORIGIN
        for number, row in enumerate(rows, 1):
            del row["hash"]
            record = Record(**{**row, "number": number, "previous": last})
            last = record.hash()
            values = {**row, "number": number, "previous": record.previous, "hash": last}
            names, marks = ", ".join(values), ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO tacit_entries ({names}) VALUES ({marks})", list(values.values()))
        connection.execute("UPDATE tacit_state SET entries = ?, head = ?", (len(rows), last))
        (text,) = connection.execute("SELECT total FROM tacit_datasets WHERE name = 'default'").fetchone()
        total = json.loads(text)
        entry = next(row for row in rows if row["label"] == "count 2")
        for name in total:
            total[name] = format(float(total[name]) - entry[name], "f").rstrip("0").rstrip(".") or "0"
        connection.execute(
            "UPDATE tacit_datasets SET charges = charges - 1, total = ? WHERE name = 'default'",
            (json.dumps(total, sort_keys=True),),
        )


def test_a_head_written_down_convicts_a_forger_who_rewrote_everything(study: Path):
    early = verify(study)
    with Ledger.open(study) as ledger:
        ledger.charge(events.Laplace(8.0), label="later")
        assert ledger.verify(early) == ledger.head()
    forge(study)
    with pytest.raises(LedgerCorrupted, match="written down"):
        verify(study, early)


def test_a_head_that_counts_more_than_is_left_is_found(study: Path):
    with Ledger.open(study) as ledger:
        with pytest.raises(LedgerCorrupted, match="counts 11 entries; 10 are left"):
            ledger.verify("11:" + "0" * 32)
        with pytest.raises(LedgerCorrupted, match="written down"):
            ledger.verify("10:" + "0" * 32)


@pytest.mark.parametrize("head", ["", "10", "10:abc", "ten:" + "0" * 32, "-1:" + "0" * 32])
def test_a_head_has_a_form(study: Path, head: str):
    with pytest.raises(InvalidValue, match="head"):
        verify(study, head)


def test_flipped_bits_are_found_or_harmless(study: Path):
    import random

    random.seed(5)
    with Ledger.open(study) as ledger:
        lines = list(ledger.export())
    sound = study.read_bytes()
    found = 0
    for position in random.sample(range(len(sound)), 60):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << random.randrange(8)
        study.write_bytes(damaged)
        try:
            with Ledger.open(study) as ledger:
                ledger.verify()
                assert list(ledger.export()) == lines
        except TacitError:
            found += 1
    assert found > 0


def test_postgres_tampering_is_found(postgres: str):
    import psycopg

    with Ledger.open(postgres, Budget(3.0)) as ledger:
        for number in range(3):
            ledger.charge(events.Laplace(8.0), label=f"count {number}")
        for statement in (
            "UPDATE tacit_entries SET label = 'innocent' WHERE number = 2",
            "DELETE FROM tacit_entries WHERE number = 4",
            "UPDATE tacit_datasets SET terms = replace(terms, '3.0', '30.0')",
            "UPDATE tacit_state SET entries = 3",
        ):
            ledger.verify()
            with psycopg.connect(postgres) as connection:
                connection.execute("CREATE TABLE e AS TABLE tacit_entries")
                connection.execute("CREATE TABLE d AS TABLE tacit_datasets")
                connection.execute("CREATE TABLE s AS TABLE tacit_state")
                connection.execute("ALTER TABLE tacit_entries DISABLE TRIGGER tacit_append_only")
                connection.execute(statement)
            with pytest.raises(LedgerCorrupted):
                ledger.verify()
            with psycopg.connect(postgres) as connection:
                for copy, table in (("e", "tacit_entries"), ("d", "tacit_datasets"), ("s", "tacit_state")):
                    connection.execute(f"DELETE FROM {table}")
                    connection.execute(f"INSERT INTO {table} SELECT * FROM {copy}")
                    connection.execute(f"DROP TABLE {copy}")
        ledger.verify()


def test_a_postgres_ledger_that_was_dropped_or_edited_is_not_charged(postgres: str):
    import psycopg

    with Ledger.open(postgres, Budget(3.0)) as ledger:
        ledger.charge(events.Laplace(8.0), label="count")
        with psycopg.connect(postgres) as connection:
            connection.execute("UPDATE tacit_datasets SET terms = replace(terms, '3.0', '30.0')")
        with pytest.raises(LedgerCorrupted, match="another budget"):
            ledger.charge(events.Laplace(8.0), label="count")
    with pytest.raises(LedgerCorrupted, match="another budget"):
        Ledger.open(postgres)
    with psycopg.connect(postgres) as connection:
        connection.execute("UPDATE tacit_datasets SET terms = replace(terms, '30.0', '3.0')")
        connection.execute("ALTER TABLE tacit_entries DISABLE TRIGGER tacit_append_only")
        connection.execute("DELETE FROM tacit_entries WHERE number = 2")
    with Ledger.open(postgres) as ledger, pytest.raises(LedgerCorrupted, match="last entries"):
        ledger.charge(events.Laplace(8.0), label="count")
    with psycopg.connect(postgres) as connection:
        connection.execute(
            "DROP TABLE tacit_state, tacit_datasets, tacit_scopes, tacit_partitions, tacit_entries"
        )
    with pytest.raises(LedgerCorrupted, match="lost its state"):
        Ledger.open(postgres, Budget(3.0))
