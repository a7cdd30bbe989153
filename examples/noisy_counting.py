"""Noisy counting: why a noisy answer protects, why many do not, and what a ledger does about it.

A table counts people by credit rating: 3 bad, 1510 normal, 200 good. Somebody may ask how many
are rated bad, and is told the count plus Laplace noise of standard deviation 2. One answer says
little. But the noise averages to zero, and whoever asks often enough learns the count. A ledger
with a budget stops that: it refuses, before the data are touched, what would overspend.

Prints the story, and writes noisy_counting.png, noisy_counting.html and study.db to out/.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from scipy.optimize import brentq
from scipy.special import gammainc
from scipy.stats import nbinom

import tacit
from tacit import accounting, events, mechanisms, report
from tacit.report import plots

RATINGS = {"Bad": 3, "Normal": 1510, "Good": 200}
QUESTION = "how many are rated bad"
SENSITIVITY = 1.0
"""One person more or less changes a count by one."""
STDDEV = 2.0
EPSILON = math.sqrt(2) * SENSITIVITY / STDDEV
"""Laplace noise of scale b has standard deviation √2·b and costs ε = sensitivity / b."""
DELTA = 1e-6
CONFIDENCE = 0.90
REPEATS = (1, 5, 10, 20, 50, 100, 200)
BUDGET = 3.0


@dataclass(frozen=True)
class Knowledge:
    """What the adversary knows after averaging ``answers`` answers."""

    answers: int
    average: float
    low: float
    high: float
    rounds_right: float
    """How probable it is that the average of so many answers rounds to the true count."""

    @property
    def event(self) -> events.Event:
        """What was spent to learn it."""
        return events.Repeat(events.Laplace(1 / EPSILON), self.answers)


def probability_within(distance: float, answers: int) -> float:
    """How probable it is that an average of so many answers is this close to the true count.

    Exact: the sum of k Laplace variables of scale b has, in absolute value, the distribution of a
    mixture of Gamma(k − j, b) with weights 2·C(k + j − 1, j)/2^(k + j), j = 0 … k − 1.
    """
    j = np.arange(answers)
    weights = 2 * nbinom.pmf(j, answers, 0.5)
    return float(weights @ gammainc(answers - j, answers * distance * EPSILON / SENSITIVITY))


def averaged(answers: list[float]) -> Knowledge:
    """The average of all answers, and an interval from the publicly known noise."""
    count, average = len(answers), math.fsum(answers) / len(answers)
    half = brentq(lambda distance: probability_within(distance, count) - CONFIDENCE, 0, 10 * STDDEV)
    return Knowledge(count, average, average - half, average + half, probability_within(0.5, count))


def ask_without_limit(mechanism: mechanisms.Laplace, times: int) -> list[float]:
    """A curator who answers every time."""
    return [mechanism(RATINGS["Bad"]) for _ in range(times)]


def ask_a_ledger(
    mechanism: mechanisms.Laplace, times: int, ledger: tacit.Ledger
) -> tuple[list[float], tacit.BudgetExceeded | None]:
    """A curator who charges a ledger before looking at the data."""
    answers: list[float] = []
    try:
        for _ in range(times):
            with ledger.charge(mechanism.event, label=QUESTION, noise=mechanism.noise):
                answers.append(mechanism(RATINGS["Bad"]))
    except tacit.BudgetExceeded as refusal:
        return answers, refusal
    return answers, None


def rows(stages: list[Knowledge]) -> list[list[str]]:
    """The attack as a table; the last two columns are what it spends."""
    return [
        [
            str(stage.answers),
            f"{stage.average:.3f}",
            f"{stage.low:.2f} to {stage.high:.2f}",
            f"{stage.rounds_right:.1%}" if stage.rounds_right < 0.9995 else "> 99.9%",
            report.rounded_up(accounting.epsilon(stage.event, 0.0, method="basic"), 4),
            report.rounded_up(accounting.epsilon(stage.event, DELTA), 4),
        ]
        for stage in stages
    ]


HEADER = (
    "answers",
    "average",
    f"{CONFIDENCE:.0%} interval",
    "rounds to 3",
    "ε added up",
    f"ε at δ = {DELTA:g}",
)


def drawn(answers: list[float], stopped: list[float]) -> Figure:
    """Both attacks: the average and its interval, against the number of questions."""
    figure, panels = plots.new_figure(
        "questions asked",
        "people rated bad, as the adversary sees it",
        "Every question answered",
        f"A ledger with budget ε = {BUDGET:g}",
    )
    truth, asked = RATINGS["Bad"], range(1, len(answers) + 1)
    for axes, series, colour in zip(panels, (answers, stopped), ("#D55E00", "#0072B2"), strict=True):
        known = [averaged(series[:count]) for count in range(1, len(series) + 1)]
        known += [known[-1]] * (len(answers) - len(series))  # refused: nothing more is learnt
        axes.axhspan(truth - 0.5, truth + 0.5, color="#bbbbbb", alpha=0.5, lw=0, label=f"rounds to {truth}")
        axes.fill_between(
            asked,
            [stage.low for stage in known],
            [stage.high for stage in known],
            color=colour,
            alpha=0.25,
            linewidth=0,
            label=f"{CONFIDENCE:.0%} interval",
        )
        axes.plot(asked, [stage.average for stage in known], color=colour, label="average of the answers")
        axes.axhline(truth, color="#222222", linewidth=1.0, label=f"true count, {truth}")
        axes.legend(frameon=False, loc="lower right")
    panels[1].axvline(len(stopped), color="#222222", linewidth=1.0, linestyle=":")
    panels[1].annotate(
        "refused from here on", (len(stopped), 0.97), (6, 0), xycoords=("data", "axes fraction"),
        textcoords="offset points", va="top",
    )  # fmt: skip
    panels[0].set_xscale("log")
    panels[0].set_xlim(1, REPEATS[-1])
    for axes in panels:
        axes.set_xticks(REPEATS, [str(count) for count in REPEATS])
        axes.minorticks_off()
    return figure


def written(
    folder: Path,
    figure: Figure,
    stages: list[Knowledge],
    limited: Knowledge,
    refusal: tacit.BudgetExceeded,
    guarantee: tacit.Guarantee,
) -> Path:
    """The page that tells the story."""
    last = stages[-1]
    sections = [
        report.Section(
            "The table",
            [
                f"The question: {QUESTION}? Each answer is the count plus Laplace noise of standard "
                f"deviation {STDDEV:g}: scale √2, ε = {EPSILON:.4f}, since one person changes a count "
                "by one.",
            ],
            table=(("rating", "people"), [[name, str(count)] for name, count in RATINGS.items()]),
        ),
        report.Section(
            "Every question answered: averaging finds the count",
            [
                f"After {last.answers} answers the average is {last.average:.3f}, and the interval lies "
                f"between {last.low:.2f} and {last.high:.2f}. “Rounds to 3” is how probable it is that "
                "an average of so many answers rounds to the true count. ε added up is the total at "
                f"δ = 0; beside it is the tightest accountant's at δ = {DELTA:g}.",
            ],
            table=(HEADER, rows(stages)),
        ),
        report.Section(
            f"A ledger with budget ε = {BUDGET:g}: the answers stop",
            [
                f"{limited.answers} answers are given; the average is {limited.average:.3f}, and its "
                f"interval stays wide: {limited.low:.2f} to {limited.high:.2f}. The next "
                "question is refused before the data are touched. The curator sees:",
            ],
            note=str(refusal),
            figure=plots.embedded(
                figure, "Average and interval against the number of questions, with and without a ledger."
            ),
        ),
        report.Section("What is promised", in_plain_words(guarantee), note=guarantee.statement()),
    ]
    page = folder / "noisy_counting.html"
    page.write_text(
        report.render(
            "Noisy counting", "One question asked often, with and without a privacy ledger.", sections
        ),
        encoding="utf-8",
    )
    return page


def in_plain_words(guarantee: tacit.Guarantee) -> list[str]:
    """The ledger's guarantee, for people who do not read ε."""
    factor = report.rounded_up(math.exp(guarantee.epsilon), 3)
    words = [
        "Add one person to the table, or take one away: whatever is concluded from all released "
        f"answers together becomes at most {factor} times more or less likely (e^ε with "
        f"ε = {report.rounded_up(guarantee.epsilon, 4)}). This holds whatever else the adversary knows "
        "and however the questions were chosen.",
        "It is not promised that nothing is learnt about the table as a whole, nor anything about "
        "answers given outside the ledger, nor about several people together beyond what group "
        "privacy gives.",
    ]
    if guarantee.noise == "seeded":
        words.append("This run used seeded noise, for show: who knows the seed can subtract the noise.")
    return words


def main(arguments: list[str] | None = None) -> None:
    """Run both attacks, print them, and write the plot and the page."""
    parser = argparse.ArgumentParser(description="The averaging attack, with and without a ledger.")
    parser.add_argument("--random-state", type=int, help="seed, for a reproducible run without privacy")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder to write to (default: out)")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)

    def show(text: str) -> None:
        console.print(text, markup=False)

    mechanism = mechanisms.Laplace(
        sensitivity=SENSITIVITY, epsilon=EPSILON, random_state=options.random_state
    )
    console.rule("The table")
    table = Table("rating", "people")
    for name, count in RATINGS.items():
        table.add_row(name, str(count))
    console.print(table)
    show(f"The question: {QUESTION}?")
    show(f"Each answer has Laplace noise of standard deviation {STDDEV:g} and costs ε = {EPSILON:.4f}.\n")

    console.rule("Every question answered")
    answers = ask_without_limit(mechanism, REPEATS[-1])
    stages = [averaged(answers[:count]) for count in REPEATS]
    show("The first five answers: " + ", ".join(f"{answer:.3f}" for answer in answers[:5]))
    attack = Table(*HEADER)
    for column in attack.columns:
        column.justify = "right"
    for row in rows(stages):
        attack.add_row(*row)
    console.print(attack)
    show(f"ε added up is at δ = 0; the column beside it is the tightest accountant's at δ = {DELTA:g}.")
    last = stages[-1]
    show(f"Rounded, {last.answers} answers give {round(last.average)}; true is {RATINGS['Bad']}.\n")

    console.rule(f"The same attack on a ledger with budget ε = {BUDGET:g}")
    database = options.out / "study.db"
    for leftover in options.out.glob("study.db*"):
        leftover.unlink()
    with tacit.Ledger.open(database, budget=tacit.Budget(epsilon=BUDGET)) as ledger:
        stopped, refusal = ask_a_ledger(mechanism, REPEATS[-1], ledger)
        guarantee = ledger.spent()
    assert refusal is not None, "the budget is smaller than the attack"
    limited = averaged(stopped)
    show(f"{len(stopped)} answers: " + ", ".join(f"{answer:.3f}" for answer in stopped))
    show(
        f"Average {limited.average:.3f}, {CONFIDENCE:.0%} interval {limited.low:.2f} to {limited.high:.2f}; "
        f"it rounds to 3 with probability {limited.rounds_right:.0%}."
    )
    show(f"Then the curator sees:\n  BudgetExceeded: {refusal}\n")

    console.rule("What is promised")
    show(guarantee.statement())
    for paragraph in in_plain_words(guarantee):
        show(paragraph)

    figure = drawn(answers, stopped)
    plots.save(figure, options.out / "noisy_counting.png")
    page = written(options.out, figure, stages, limited, refusal, guarantee)
    show(f"\nWritten: {page}, {options.out / 'noisy_counting.png'}, {database}")


if __name__ == "__main__":
    main()
