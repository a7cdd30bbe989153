"""How far off the answers are on Adult, beside OpenDP and diffprivlib; and what the intervals cover.

    python benchmarks/tables_error.py [--repetitions 200] [--adult FOLDER]

Every library gets the same public bounds, the same ε and the training rows of the Adult data, and
answers many times. The error is the mean of |answer − truth|, over cells too where the answer is a
table; the truth is the same statistic of the bounded rows. FOLDER holds ``adult.data.xz`` or
``adult.data``. Writes ``benchmarks/results/tables_error.md``.

Two settings. *n private*: neighbours differ by one row more or less. *n public*: one row is replaced by
another, and the number of rows is known. OpenDP is asked in both, through ``make_private_lazyframe``
with symmetric or change-one distance: ``dp.mean``, ``dp.quantile`` on the same candidates as tacit, and
``dp.len`` per group with public keys. diffprivlib divides by the true n, so its mean belongs to the
second; its quantile holds in both; its histogram, with sensitivity 1, in the first. diffprivlib and
tacit are seeded, OpenDP cannot be.
"""

from __future__ import annotations

import argparse
import math
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from _adult import ADULT, Numbers, Question, adult, compared, covered, numbers_of, schema
from _side import Peer

import tacit
from tacit.tables import open as open_table

RESULTS = Path(__file__).parent / "results" / "tables_error.md"
EPSILONS = (0.1, 0.5, 1.0)


def measured(
    tables: dict[bool, Any],
    peers: dict[str, Peer],
    file: Path,
    question: Question,
    epsilon: float,
    count: int,
) -> dict[tuple[str, bool], Numbers]:
    """The errors of every library, by setting: (library, is n public)."""
    found = {}
    rows = tables[True].schema.population
    asked = {"file": str(file), "epsilon": epsilon, "repetitions": count, "seed": round(1000 * epsilon)}
    for public in question.settings:
        options = question.for_peer(rows if public else None)
        ours = [question.answer(tables[public], epsilon) for _ in range(count)]
        found["tacit", public] = question.errors(ours)
        answers = peers["opendp"].ask("repeated", **asked, **options).answer
        found["OpenDP", public] = question.errors(answers)
    if question.diffprivlib:
        answers = peers["diffprivlib"].ask("repeated", **asked, **options).answer
        for public in question.diffprivlib:
            found["diffprivlib", public] = question.errors(answers)
    return found


class Compared(NamedTuple):
    """Ours over theirs, both summed over the ε's with weight ε, and a standard error of that."""

    ratio: float
    doubt: float
    larger: bool
    """Whether ours is larger by more than two standard errors of the difference."""

    @classmethod
    def of(cls, ours: list[Numbers], theirs: list[Numbers]) -> Compared:
        mine, other = (
            np.sum([epsilon * errors for epsilon, errors in zip(EPSILONS, each, strict=True)], axis=0)
            for each in (ours, theirs)
        )
        larger = mine.mean() - other.mean() > 2 * math.sqrt((mine.var() + other.var()) / mine.size)
        if other.mean() == 0 or mine.mean() == 0:
            return cls(math.nan if other.mean() == 0 else 0.0, 0.0, bool(larger))
        spread = [each.std() / each.mean() / each.size**0.5 for each in (mine, other)]
        ratio = float(mine.mean() / other.mean())
        return cls(ratio, ratio * math.hypot(*spread), bool(larger))

    def __str__(self) -> str:
        return "–" if math.isnan(self.ratio) else f"{self.ratio:.2f} ± {self.doubt:.2f}"


def comparison(
    tables: dict[bool, Any], peers: dict[str, Peer], file: Path, data: pd.DataFrame, count: int
) -> list[str]:
    shown = " / ".join(f"{epsilon:g}" for epsilon in EPSILONS)
    lines = [
        f"| statistic | n | tacit, ε = {shown} | OpenDP | ratio | diffprivlib | ratio |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    larger, total = [], 0
    for question in compared(data):
        found = [measured(tables, peers, file, question, epsilon, count) for epsilon in EPSILONS]
        for public in question.settings:
            setting = "public" if public else "private"
            ours = [each["tacit", public] for each in found]
            cells = [question.name, setting, means(ours)]
            for peer in ("OpenDP", "diffprivlib"):
                if (peer, public) not in found[0]:
                    cells += ["–", ""]
                    continue
                theirs = [each[peer, public] for each in found]
                outcome = Compared.of(ours, theirs)
                total += 1
                if outcome.larger:
                    larger.append(f"{question.name} with n {setting}, than {peer}'s ({outcome})")
                cells += [means(theirs), str(outcome)]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    said = "; ".join(larger) if larger else "none"
    return [
        *lines,
        "",
        f"tacit's error was no larger in {total - len(larger)} of {total} comparisons, and larger by more "
        f"than two standard errors in {len(larger)}: {said}. Of pairs that are equally good, one in forty is "
        "called larger by chance.",
        "",
    ]


def means(errors: list[Numbers]) -> str:
    return " / ".join(f"{each.mean():.3g}" for each in errors)


def heading(peers: dict[str, Peer], rows: int, count: int) -> list[str]:
    return [
        "# Errors on Adult",
        "",
        f"`python benchmarks/tables_error.py`: {rows:,} rows, {count} repetitions, Python "
        f"{platform.python_version()}, OpenDP {peers['opendp'].version}, diffprivlib "
        f"{peers['diffprivlib'].version}. Mean absolute error, over cells too. *Ratio*: tacit's over the "
        "peer's, summed over the ε's with weight ε, ± a standard error. *n public*: one row is replaced by "
        "another; *n private*: one is added or removed. Quantiles are without an interval, which would cost "
        "a fifth of ε; OpenDP has the same candidates as tacit (every year of age, every 32nd number of "
        "fnlwgt), diffprivlib the continuum.",
        "",
    ]


def coverage(tables: dict[bool, Any], data: pd.DataFrame, count: int) -> list[str]:
    lines = [
        "## Coverage of 95 % intervals, n private",
        "",
        f"The fraction of {count} repetitions, and of cells, in which the interval held the truth. Those "
        "marked ! are below 0.95 by more than two standard errors of repetitions.",
        "",
        "| statistic | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " |",
        "|---|" + "---:|" * len(EPSILONS),
    ]
    for question in covered(data):
        cells = []
        for epsilon in EPSILONS:
            held = []
            for _ in range(count):
                low, high = question.ask(tables[False], epsilon=epsilon).interval()
                inside = (numbers_of(low) <= question.truth) & (question.truth <= numbers_of(high))
                held.append(inside.mean())
            rate, doubt = float(np.mean(held)), 2 * float(np.std(held)) / count**0.5
            cells.append(f"{rate:.3f}{' !' if rate + doubt < 0.95 else ''}")
        lines.append(f"| {question.name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return [*lines, ""]


def remembered(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    found: dict[Any, Any] = {}

    def again(query: Any) -> Any:
        key = query.op()
        if key not in found:
            found[key] = run(query)
        return found[key]

    return again


def opened(folder: Path, file: Path, rows: int) -> dict[bool, Any]:
    """tacit's two tables, seeded: n private, and n public.

    What the engine says is remembered: it is the same every time, and only the noise is of interest.
    """
    tables = {}
    for public, relation in ((False, "add_remove"), (True, "replace_one")):
        book = tacit.Ledger.open(folder / f"{relation}.db", tacit.Budget(1e6), relation=relation)
        table = open_table(str(file), schema=schema(rows if public else None), ledger=book, random_state=7)
        table.source.run = remembered(table.source.run)
        tables[public] = table
    return tables


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--adult", type=Path, default=ADULT)
    parser.add_argument("--only", choices=("errors", "coverage"))
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    data, count = adult(arguments.adult), arguments.repetitions
    shared = Path("/dev/shm")
    lines: list[str] = []
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        file = Path(folder) / "adult.parquet"
        data.to_parquet(file, index=False)
        tables = opened(Path(folder), file, len(data))
        if arguments.only != "coverage":
            with Peer("opendp") as opendp, Peer("diffprivlib") as diffprivlib:
                peers = {"opendp": opendp, "diffprivlib": diffprivlib}
                lines += heading(peers, len(data), count)
                lines += comparison(tables, peers, file, data, count)
        if arguments.only != "errors":
            lines += coverage(tables, data, count)
        for table in tables.values():
            table.close()
    text = "\n".join(lines)
    print(text)
    arguments.output.parent.mkdir(exist_ok=True)
    arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
