"""Attacks on counts: averaging repeated answers, and reconstruction of everybody's secret bit.

Visits to places are generated: a person was there on a day, or was not. Somebody who may ask how many of a
set of people were there asks the same question often and averages, or asks about many random sets and
solves for every person (Dinur and Nissim 2003). If each answer costs ε alone, noise averages out, and
everybody is revealed although each answer is private. If ε is a budget for all answers, kept by a ledger,
the first attack is refused after a few questions, and the noise that pays for all questions of the second
leaves it guessing.

Prints a table, and writes attack_counts.png to out/.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from showing import COLOURS, EPSILONS, Array, Labels, arguments, printed, saved, title_of

import tacit
from tacit import attacks, mechanisms

SHARE = 4
"""With a ledger, a question costs this part of the budget: so many are answered."""


def averaged(truth: float, epsilon: float | None, times: int) -> attacks.Averaged:
    """The same count, asked until a ledger with a budget of ε refuses."""
    if epsilon is None:
        return attacks.average(lambda: truth, 1)
    noisy = mechanisms.Laplace(1.0, epsilon / SHARE, random_state=1)
    with (
        tempfile.TemporaryDirectory() as folder,
        tacit.Ledger.open(Path(folder) / "visits.db", budget=tacit.Budget(epsilon=epsilon)) as ledger,
    ):

        def ask() -> float:
            with ledger.charge(noisy.event, label="how many were there", noise="seeded"):
                return float(noisy(truth))

        return attacks.average(ask, times)


def reconstructed(bits: Labels, asked: Labels, epsilon: float | None, budgeted: bool) -> float:
    """The share of people whose bit is found, from one count of each set.

    ``budgeted`` says whether ε pays for all counts together or for each of them.
    """
    exact = (asked @ bits).astype(np.float64)
    told: Array = exact
    if epsilon is not None:
        noisy = mechanisms.Laplace(float(len(asked)) if budgeted else 1.0, epsilon, random_state=1)
        told = np.asarray(noisy(exact)) if budgeted else np.array([float(noisy(each)) for each in exact])
    return attacks.reconstruct(asked, told).agreement(bits)


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__, argv)
    people = 20 if given.quick else 100
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2, people)
    asked = rng.integers(0, 2, (8 * people, people))
    truth = float(bits.sum())
    rows, shares = [], []
    for epsilon in EPSILONS:
        stopped = averaged(truth, epsilon, 1000)
        off = stopped.standard_error if math.isfinite(stopped.standard_error) else 0.0
        needed = 1 if epsilon is None else attacks.queries_needed(scale=SHARE / epsilon)
        pair = [reconstructed(bits, asked, epsilon, budgeted) for budgeted in (False, True)]
        shares.append(pair)
        rows.append((title_of(epsilon), f"{needed:,}", "all" if epsilon is None else str(stopped.answers),
                     f"± {off:.1f}", *(f"{share:.0%}" for share in pair)))  # fmt: skip
    printed(
        f"Counts of {people} people; {8 * people} sets for the reconstruction",
        ("protection", "answers that average to the truth", "answered by a ledger", "error then",
         "bits found, ε for each count", "bits found, ε for all"),
        rows,
    )  # fmt: skip
    figure = Figure(figsize=(6, 4))
    ax = figure.add_subplot()
    places = np.arange(len(EPSILONS))
    for offset, name, colour in (
        (0, "ε for each count", COLOURS[1]),
        (1, "ε for all counts, by a ledger", COLOURS[2]),
    ):
        ax.bar(places + 0.38 * offset, [pair[offset] for pair in shares], 0.36, color=colour, label=name)
    ax.axhline(0.5, color="#222222", linestyle=":", label="guessing")
    ax.set_xticks(places + 0.19, [title_of(each) for each in EPSILONS])
    ax.set(ylabel="bits found", ylim=(0, 1.3), title="Reconstruction from noisy counts")
    ax.legend(frameon=False, fontsize=8, loc="upper right", ncols=2)
    saved(figure, given.out, "attack_counts.png")


if __name__ == "__main__":
    main()
