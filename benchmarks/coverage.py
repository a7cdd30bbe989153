"""What the intervals that the library prints cover, and how wide they are.

    python benchmarks/coverage.py [--repetitions 1000] [--only WORD]

Every release with an interval is repeated on the same rows (tables: the interval is for the noise) or on
fresh samples (evaluations and coefficients: the interval is for the population the rows are a sample of),
with small and large n, small and large ε, even and skewed columns. Coverage is the share of 95 % intervals
that hold the truth, over all numbers of an answer. It should lie between 93 % and 97 %, or above with the
reason that stands beside it. Each case has a seed of its own. A line that comes out below 93 % is measured
again, with another seed and four times as often, and the second measurement counts.

``top`` and ``bounds`` of a table have no interval, and say so. Writes ``benchmarks/results/coverage.md``.
"""

from __future__ import annotations

import argparse
import platform
import time
import warnings
from pathlib import Path

import _coverage_models
import _coverage_tables
from _coverage import Line

RESULTS = Path(__file__).parent / "results" / "coverage.md"


def written(lines: list[Line], seconds: float, repetitions: int) -> str:
    """The table as Markdown."""
    under = [one for one in lines if "UNDER" in one.verdict]
    above = [one for one in lines if one.first is not None]
    head = [
        "# Coverage and width of intervals",
        "",
        f"`python benchmarks/coverage.py --repetitions {repetitions}`, Python {platform.python_version()}, "
        f"{seconds:.0f} s of one core, all parts in one run.",
        "",
        "95 % intervals. Coverage is the share that holds the truth, over all numbers of an answer; it "
        "should lie between 93 % and 97 %, or above for the reason beside it. Of tables the truth is the "
        "statistic of the same rows; of evaluations and coefficients it is that of the population. The width "
        "is the median of high − low. Each case has a seed of its own. A line that came out below 93 % was "
        "measured again with another seed and four times as often; the second measurement counts, and the "
        f"first stands beside it ({len(above)} lines).",
        "",
        f"Below 93 %: {len(under)} of {len(lines)} lines.",
        "",
        "| interval | setting | repetitions | coverage | width | above 97 % because |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    body = [
        f"| {one.what} | {one.setting} | {one.repetitions} | {100 * one.coverage:.1f} % | {one.width:.3g} "
        f"| {one.verdict} |"
        for one in lines
    ]
    return "\n".join([*head, *body]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repetitions", type=int, default=1000, help="of those that are quickly made")
    parser.add_argument("--only", default="", help="only cases with this word; writes nothing")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    start, lines = time.process_time(), []
    for part in (_coverage_tables, _coverage_models):
        for case in part.cases():
            if given.only not in f"{part.__name__} {case.what} {case.setting}":
                continue
            for one in case.lines(given.repetitions):
                lines.append(one)
                told = f"{one.what:42} {one.setting:44} {one.coverage:6.1%} {one.width:9.3g} {one.verdict}"
                print(f"{time.process_time() - start:5.0f} s  {told}", flush=True)
    if not given.only:
        RESULTS.write_text(written(lines, time.process_time() - start, given.repetitions), encoding="utf-8")


if __name__ == "__main__":
    main()
