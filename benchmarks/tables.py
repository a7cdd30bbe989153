"""Private statistics on millions of rows: beside the same plain queries, and beside other libraries.

    python benchmarks/tables.py [--rows 5000000 50000000] [--rounds 5] [--data FOLDER] [--no-peers]

Makes Parquet files of the given sizes (in FOLDER, where they are kept, or in a temporary one) and asks
the same questions through ``tacit.tables`` and through plain Ibis, both on DuckDB with two threads and
at most 1 GB of memory. The sides take turns in one process and the best of several rounds counts.
Each size has a process of its own, whose peak memory is reported.

*raw* is the query a user would write without privacy; *clipped* is the same query with the same
bounds. tacit's time is that of the whole road: the charge in an SQLite ledger, on disk before the
data are read, then the query and the noise. What a question costs on a table of a thousand rows is
listed too.

The peers answer from the same file, on the first of the sizes; they run in environments of their own
(see ``_side.py``). Writes ``benchmarks/results/tables.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import ibis
from _people import BINS, EPSILON, MOST, PEOPLE, Call, Case, cases, ledger, parquet, read, schema
from _side import Peer, Refused

from tacit.tables import open as open_table

RESULTS = Path(__file__).parent / "results" / "tables.md"
TINY = 1_000


Best = dict[str, tuple[float, float]]
"""The least seconds of each side on the clock, and the least of all processors together."""


def interleaved(rounds: int, sides: dict[str, Call]) -> Best:
    """The sides taking turns."""
    best = dict.fromkeys(sides, (float("inf"), float("inf")))
    for _ in range(rounds):
        for name, side in sides.items():
            start, busy = time.perf_counter(), time.process_time()
            side()
            now = time.perf_counter() - start, time.process_time() - busy
            best[name] = min(best[name][0], now[0]), min(best[name][1], now[1])
    return best


def opened(file: Path, folder: Path, books: Path) -> list[Case]:
    table = read(file, folder)
    rows = open_table(file, schema=schema(), ledger=ledger(books), memory_limit="1GB")
    book = ledger(books, person=True)
    people = open_table(file, schema=schema(person=True), ledger=book, memory_limit="1GB")
    return cases(table, rows, people)


def scale(file: Path, folder: Path, rounds: int, only: str) -> dict[str, Best]:
    """In a process of its own: each question and its plain queries, in turns."""
    found = {}
    for case in opened(file, folder, folder):
        if only in case.name:
            repeats = min(rounds, 2) if "person" in case.name else rounds
            found[case.name] = interleaved(repeats, {"private": case.private, **case.plain})
            print(case.name, found[case.name], file=sys.stderr, flush=True)
    return found


def memory(file: Path, folder: Path, side: str) -> dict[str, float]:
    """In a process of its own: the peak resident memory after every question of one side, in MB."""
    peaks = {"start": _peak()}
    for case in opened(file, folder, folder):
        for ask in [case.private] if side == "private" else case.plain.values():
            ask()
        peaks[case.name] = _peak()
    return peaks


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def overhead(folder: Path, rounds: int) -> dict[str, Best]:
    """Seconds a question takes where there is nothing to read: with a ledger on disk, and in memory."""
    file = parquet(folder, TINY)
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as fast:
        on_disk, in_memory = opened(file, folder, folder), opened(file, folder, Path(fast))
        found = {}
        for case, other in zip(on_disk, in_memory, strict=True):
            plain = next(iter(case.plain.values()))
            sides = {"disk": case.private, "memory": other.private, "plain": plain}
            found[case.name] = interleaved(rounds, sides)
    return found


def from_file(case: str, file: Path, folder: Path) -> Call:
    """Our side of the comparison with peers: from the file, with a connection made for the question."""
    person = case.endswith("person")
    book = ledger(folder, person)

    def ask() -> None:
        with open_table(file, schema=schema(person), ledger=book, memory_limit="1GB") as table:
            if case == "five in one":
                with table.batch(epsilon=EPSILON) as asked:
                    asked.count()
                    asked.mean("age")
                    asked.mean("hours")
                    asked.sum("income")
                    asked.median("income")
            elif case.startswith("crosstab"):
                table.crosstab(["sex", "region"], epsilon=EPSILON)
            elif case == "mean by region":
                table.mean("income", by="region", epsilon=EPSILON)
            elif case == "count":
                table.count(epsilon=EPSILON)
            elif case == "histogram":
                table.histogram("income", BINS, epsilon=EPSILON)
            else:
                getattr(table, case.partition(", ")[0])("income", epsilon=EPSILON)

    return ask


PEER_CASES = (
    "count", "sum", "mean", "variance", "median", "histogram", "crosstab", "mean by region", "five in one",
    "mean, person", "crosstab, person",
)  # fmt: skip
ROADS = (("opendp", {"road": "direct"}), ("opendp", {"road": "context"}), ("diffprivlib", {}))


def peers(file: Path, folder: Path, rounds: int) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Best seconds from the file, and of computing alone, of tacit and of each road of each peer."""
    found: dict[str, dict[str, Any]] = {}
    with Peer("opendp") as opendp, Peer("diffprivlib") as diffprivlib:
        running = {"opendp": opendp, "diffprivlib": diffprivlib}
        for case in PEER_CASES:
            ours = from_file(case, file, folder)
            best: dict[str, Any] = {"tacit": float("inf")}
            for turn in range(rounds):
                best["tacit"] = min(best["tacit"], interleaved(1, {"tacit": ours})["tacit"][0])
                for name, options in ROADS:
                    key = f"{name} {options.get('road', '')}".strip()
                    if turn >= 2 and (isinstance(best[key], str) or best[key][0] > 2):
                        continue
                    best[key] = _better(
                        best.get(key), running[name], case=case, file=str(file), epsilon=EPSILON, **options
                    )
            found[case] = best
            print(case, best, file=sys.stderr, flush=True)
        return found, {name: peer.version for name, peer in running.items()}


def _better(before: Any, peer: Peer, **arguments: object) -> Any:
    try:
        timed = peer.ask("speed", **arguments)
    except Refused as refusal:
        return str(refusal)
    now = (timed.seconds, timed.compute)
    return now if before is None or now[0] < before[0] else before


def scale_lines(rows: int, found: dict[str, Best]) -> list[str]:
    lines = [
        f"## {rows:,} rows",
        "",
        "| question | tacit | first plain query | ratio | second plain query | ratio |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, best in found.items():
        (private, busy), cells = best["private"], []
        for each, (seconds, theirs) in best.items():
            if each != "private":
                cells += [f"{each} {seconds:.3f} s", f"{private / seconds:.2f} ({busy / theirs:.2f})"]
        lines.append(f"| {name} | {private:.3f} s | {' | '.join([*cells, '', ''][:4])} |")
    return [*lines, ""]


def overhead_lines(found: dict[str, Best]) -> list[str]:
    lines = [
        f"## What a question costs on {TINY:,} rows",
        "",
        "Milliseconds. *In memory*: the same ledger in a file system that never waits for a disk.",
        "",
        "| question | tacit, ledger on disk | tacit, ledger in memory | plain query |",
        "|---|---:|---:|---:|",
    ]
    for name, best in found.items():
        shown = " | ".join(f"{best[side][0] * 1e3:.1f}" for side in ("disk", "memory", "plain"))
        lines.append(f"| {name} | {shown} |")
    return [*lines, ""]


def peer_lines(rows: int, found: dict[str, dict[str, Any]], versions: dict[str, str]) -> list[str]:
    lines = [
        f"## Peers, {rows:,} rows, from the file to the answer",
        "",
        f"OpenDP {versions['opendp']} on Polars: *direct* is `make_private_lazyframe` with its scale worked "
        "out from the privacy map, *context* its Context API, which searches for the scale. diffprivlib "
        f"{versions['diffprivlib']}: the columns through Arrow, then its tools; in brackets, without "
        "loading. tacit: connection, charge on disk, query, noise. The peers have no memory limit and keep "
        "no ledger. The variance of OpenDP is a count, a sum and a sum of squares. *Five in one*: count, two "
        "means, a sum and a median. The last column compares tacit with the fastest of all.",
        "",
        "| statistic | tacit | OpenDP direct | OpenDP context | diffprivlib | fastest peer ÷ tacit |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, best in found.items():
        cells = []
        for key in ("opendp direct", "opendp context", "diffprivlib"):
            one = best[key]
            if isinstance(one, str):
                cells.append("–" if one == "not offered" else "failed")
            else:
                cells.append(f"{one[0]:.3f} s" + (f" ({one[1]:.3f} s)" if key == "diffprivlib" else ""))
        fastest = min(one[0] for one in best.values() if isinstance(one, tuple))
        lines.append(
            f"| {name} | {best['tacit']:.3f} s | {' | '.join(cells)} | {fastest / best['tacit']:.2f}× |"
        )
    return [*lines, ""]


def memory_lines(rows: int, peaks: dict[str, dict[str, float]]) -> list[str]:
    private, plain = (max(peaks[side].values()) for side in ("private", "plain"))
    return [
        f"Peak resident memory of a process that asked all of these once, {rows:,} rows: {private:,.0f} MB "
        f"privately, {plain:,.0f} MB with the plain queries ({peaks['private']['start']:,.0f} MB once "
        "everything is imported).",
        "",
    ]


def child(verb: str, file: Path, folder: Path, *arguments: str) -> Any:
    """Run one part in a process of its own."""
    command = [sys.executable, __file__, "--child", verb, str(file), str(folder), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def run(arguments: argparse.Namespace, data: Path) -> list[str]:
    lines = [
        "# Private statistics on tables",
        "",
        f"`python benchmarks/tables.py`: Python {platform.python_version()}, DuckDB {duckdb.__version__}, "
        f"Ibis {ibis.__version__}, {os.cpu_count()} cores ({platform.machine()}), DuckDB with 2 threads, "
        f"1 GB, Parquet files. Best of {arguments.rounds} rounds in turns (2 where the unit is a person: "
        f"{PEOPLE:,} people, at most {MOST} rows of each). The ratio is tacit's time over the plain query's, "
        "in brackets that of processor time; at most 1.3 is the aim.",
        "",
    ]
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory(dir=data) as scratch:
            file, folder = parquet(data, rows), Path(scratch)
            found = child("scale", file, folder, str(arguments.rounds), arguments.only)
            lines += scale_lines(rows, found)
            if not arguments.only:
                peaks = {side: child("memory", file, folder, side) for side in ("private", "plain")}
                lines += memory_lines(rows, peaks)
    if arguments.only:
        return lines
    with tempfile.TemporaryDirectory(dir=data) as scratch:
        lines += overhead_lines(overhead(Path(scratch), 20))
        if arguments.peers:
            rows = arguments.rows[0]
            lines += peer_lines(rows, *peers(parquet(data, rows), Path(scratch), arguments.rounds))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[5_000_000, 50_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", default="", help="only questions whose name has this in it; nothing else")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        verb, file, folder, *rest = arguments.child
        answer = (
            scale(Path(file), Path(folder), int(rest[0]), rest[1])
            if verb == "scale"
            else memory(Path(file), Path(folder), rest[0])
        )
        print(json.dumps(answer))
        return
    with tempfile.TemporaryDirectory() as temporary:
        data = arguments.data or Path(temporary)
        data.mkdir(parents=True, exist_ok=True)
        text = "\n".join(run(arguments, data))
    print(text)
    arguments.output.parent.mkdir(exist_ok=True)
    arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
