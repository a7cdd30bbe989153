"""One page for a set of answers: what was asked, what it says, how sure that is, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tacit.guarantee import Guarantee
from tacit.report.membership import odds, percent_up
from tacit.report.numbers import counted, price, up
from tacit.report.page import Fact, Fold, Picture, Section, Summary, render
from tacit.report.summary import written
from tacit.report.wording import called, protected, tree_of
from tacit.tables.lines import AnswerLines, answer_of, shown

if TYPE_CHECKING:
    from tacit.ledger import Ledger
    from tacit.tables import Release

__all__ = ["answer_sections", "answers_page", "cost_section"]

MOST_LINES = 60
"""A table of more numbers is folded away, below its picture; so are the numbers of a heatmap."""


def answers_page(
    releases: Sequence[Release],
    guarantee: Guarantee,
    *,
    name: str,
    ledger: Ledger | None = None,
    confidence: float = 0.95,
) -> str:
    """The page as HTML that needs no other file: answers with intervals, drawn and as tables.

    ``guarantee`` is that of all answers together, and ``name`` that of the table which was asked. Made of
    what was released alone: post-processing.
    """
    answers = answer_sections(releases, confidence)
    cost = cost_section(releases, guarantee)
    told: list[Fact] = [
        ("What", f"{counted(len(releases), 'answer')} about {name}"),
        ("Protects", protected(guarantee.unit)),
        ("These answers", f"{price(guarantee)} together"),
        *_spent(ledger),
        ("This page", written()),
    ]
    lead = (
        "Each number is noisy. The true one, of these very rows, bounded as the schema says, lies in the "
        f"interval beside it in at least {100 * confidence:g} of 100 such releases."
    )
    return render(f"Answers about {name}", lead, [*answers, cost], Summary(_sentence(guarantee), told))


def answer_sections(releases: Sequence[Release], confidence: float) -> list[Section]:
    """The answers with their intervals, drawn and as tables; those that are single numbers come first."""
    found = [(release, answer_of(release, confidence)) for release in releases]
    single = [lines for _, lines in found if not lines.names]
    answers = [_answer(release, lines, confidence) for release, lines in found if lines.names]
    return [_numbers(single, confidence), *answers] if single else answers


def cost_section(releases: Sequence[Release], guarantee: Guarantee) -> Section:
    """What each answer cost, and what all of them promise together."""
    return Section(
        "What it cost",
        [guarantee.statement()],
        table=(("question", "ε", "δ"), [_price(release) for release in releases]),
        fold=Fold("What was done to the data", tree=tree_of(guarantee.event, guarantee.unit)),
    )


def _sentence(guarantee: Guarantee) -> str:
    if guarantee.noise == "seeded":
        return "The noise of these answers was seeded, for a test: they promise nothing to anybody."
    apart = f", apart from a probability of {guarantee.delta:g}" if guarantee.delta else ""
    return (
        f"With ε = {up(guarantee.epsilon)}, whoever reads these answers can become at most "
        f"{percent_up(odds(guarantee))} sure that the data of one given {called(guarantee.unit)} were used, "
        f"if 50% sure before{apart}."
    )


def _spent(ledger: Ledger | None) -> list[Fact]:
    if ledger is None:
        return []
    charges = counted(len(ledger.entries()), "charge")
    spent = (
        f"ε = {up(ledger.spent().epsilon)} of {ledger.budget.epsilon:g} spent on the same people in all, in "
        f"{charges} to “{ledger.dataset}”; ε = {ledger.remaining():.4g} remains"
    )
    return [("In all", spent)]


def _price(release: Release) -> list[str]:
    guarantee = release.guarantee
    return [release.label, up(guarantee.epsilon), f"{guarantee.delta:g}"]


def _numbers(answers: Sequence[AnswerLines], confidence: float) -> Section:
    """All answers that are single numbers, in one table."""
    rows = [[answer.label, *shown(answer.lines)[0]] for answer in answers]
    return Section("Single numbers", table=(("question", "value", f"{100 * confidence:g} % interval"), rows))


def _answer(release: Release, lines: AnswerLines, confidence: float) -> Section:
    from tacit.tables.pictures import drawable

    numbers = shown(lines.lines)
    rows = [
        [*map(str, line.keys), value, *([ends] if ends else [])]
        for line, (value, ends) in zip(lines.lines, numbers, strict=True)
    ]
    if not rows:
        return Section(release.label, ["Nothing passed the threshold."])
    intervals = any(ends for _, ends in numbers)
    heads = [*lines.names, "value", *([f"{100 * confidence:g} % interval"] if intervals else [])]
    drawn = _picture(release, confidence) if drawable(release, confidence) else None
    if drawn is not None and (len(rows) > MOST_LINES or hasattr(release.value, "columns")):
        fold = Fold(f"All {len(rows)} numbers", table=(heads, rows))
        return Section(release.label, figure=drawn, fold=fold)
    return Section(release.label, table=(heads, rows), figure=drawn)


def _picture(release: Release, confidence: float) -> Picture:
    """The chart, drawn once for wide and once for narrow screens."""
    from tacit.drawing.charts import NARROW, figure_of
    from tacit.report import plots
    from tacit.tables.pictures import chart_of

    chart = chart_of(release, confidence, alone=False)
    wide, narrow = (
        plots.inline(figure_of([replace(chart, width=width)]), salt)
        for width, salt in ((chart.width, "wide"), (NARROW, "narrow"))
    )
    return Picture(wide, narrow, text=f"{release.label}, as a chart of the numbers in the table.")
