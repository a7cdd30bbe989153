"""A page about a membership attack: what it found, and what the guarantee of the model allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.guarantee import Guarantee
from tacit.report.membership import Tradeoff, percent_up
from tacit.report.page import Fact, Section, Summary, render
from tacit.report.summary import written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tacit.attacks import Found, MembershipScores

__all__ = ["attack_page", "found_table", "roc_figure", "verdict"]

ALLOWED = (0.001, 0.01, 0.1)
"""The shares of false alarms at which a page says what is found."""
LEAST = 1e-4
"""Where the logarithmic axes begin."""
SURE = 0.99
"""The confidence of each of the intervals by which a verdict is reached; there are four of them."""


def found_table(scores: MembershipScores, guarantee: Guarantee | None) -> list[tuple[Found, float | None]]:
    """What is found at few false alarms, each with the most that the guarantee allows."""
    bound = None if guarantee is None else Tradeoff.of_membership(guarantee)
    return [(scores.found(share), None if bound is None else bound.power(share)) for share in ALLOWED]


def attack_page(
    scores: MembershipScores,
    guarantee: Guarantee | None,
    *,
    name: str,
    signal: str,
    left_out: int = 0,
    shared: int = 0,
) -> str:
    """The page as HTML that needs no other file. Exact numbers about private rows: for the curator alone."""
    from tacit.report import plots

    found = found_table(scores, guarantee)
    one = found[1][0]
    facts: list[Fact] = [
        ("What", f"a membership attack on {name}"),
        ("Looks at", f"{signal}, of each row by itself"),
        ("Members", f"{one.members} rows that the model was fitted to"),
        ("Others", f"{one.others} rows that it was not fitted to"),
        *([("Left out", f"{left_out} rows whose target is not declared")] if left_out else []),
        *([("In both files", f"{shared} of the other rows equal a member's row")] if shared else []),
        ("Guarantee", "none" if guarantee is None else guarantee.statement()),
        ("This page", f"{written()}; made from private rows without noise: for the curator alone"),
    ]
    rows = [
        [
            f"{each.allowed:.1%}", f"{each.members_found} of {each.members}",
            f"{each.rate:.2%}", f"{each.low:.2%} – {each.high:.2%}",
            *([] if bound is None else [percent_up(bound)]),
        ]
        for each, bound in found
    ]  # fmt: skip
    heads = ["false alarms allowed", "members found", "share", "95 % interval"]
    heads += [] if guarantee is None else ["most that the guarantee allows"]
    explained = [
        "An attack that guesses finds as large a share of the members as it has false alarms. The rows at "
        "the top, with few false alarms, matter most: they are the people whom an attack can be sure about.",
        "This attack looks at each row by itself, with no shadow models. A stronger one may find more; where "
        "there is a guarantee, no attack finds more than it allows, on average over the noise of the fit. So "
        "an attack that finds nothing does not show that the model is safe.",
        "Both files have to hold rows of the same kind, from the same source and time. Otherwise the attack "
        "tells the files apart by something else than membership, and seems stronger than it is.",
        "The intervals cover the share that the best threshold with so few false alarms would find among all "
        "members. They are wide where there are few others, since these alone show where the threshold is.",
    ]
    if guarantee is not None and guarantee.unit.part is not None:
        explained.append("The guarantee protects labels alone. It promises nothing about membership.")
    sections = [
        Section("What the attack found", explained, table=(heads, rows)),
        Section("The trade-off", figure=plots.embedded(roc_figure(scores, guarantee), _told(scores))),
    ]
    lead = "Somebody who has a person's row asks the model about it, and guesses whether it was in the data."
    return render(f"Membership attack on {name}", lead, sections, Summary(verdict(scores, guarantee), facts))


def roc_figure(scores: MembershipScores, guarantee: Guarantee | None = None) -> Figure:
    """The ROC curve on logarithmic axes, with the line of guessing and the bound of the guarantee."""
    from tacit.report.plots import new_figure, percent_axis

    figure, (axes,) = new_figure(
        "false alarms, of people not in the data", "found, of people in the data", "Members found"
    )
    line = [LEAST * 10 ** (place / 25) for place in range(101)]
    axes.plot(line, line, color="#555555", linestyle="--", linewidth=1.2, label="guessing")
    if guarantee is not None:
        bound = Tradeoff.of_membership(guarantee)
        axes.plot(line, [bound.power(each) for each in line], color="#009E73", linewidth=2.0,
                  label="the most that the guarantee allows")  # fmt: skip
    false, found = type(scores)(scores.untied, scores.is_member).roc
    axes.step(false, found, where="post", color="#D55E00", linewidth=2.2,
              label=f"this attack, AUROC {scores.auroc:.3f}")  # fmt: skip
    percent_axis(axes, "x")
    percent_axis(axes, "y")
    axes.set_xlim(LEAST, 1)
    axes.set_ylim(LEAST, 1.1)
    figure.legend(frameon=False, loc="outside upper left")
    return figure


def verdict(scores: MembershipScores, guarantee: Guarantee | None = None) -> str:
    """What the attack says about the model, in words.

    Members count as given away if the interval of the AUROC, or that of the share found at one of the few
    false alarms of the table, lies above guessing. Four intervals of 99 % are looked at, so that a model
    which tells nothing is called leaky in about 4 % of all cases at most.

    >>> from tacit.attacks import MembershipScores
    >>> verdict(MembershipScores.of([0.2, 0.7, 0.4], [0.1, 0.5, 0.3]))[:53]
    'This attack did not tell members from others: with 1%'
    """
    one = scores.found(ALLOWED[1], confidence=SURE)
    low, high = scores.auroc_interval(confidence=SURE)
    figures = (
        f"with {one.allowed:.0%} of false alarms, {one.rate:.1%} of the members are found, and the AUROC is "
        f"{scores.auroc:.3f} (guessing finds {one.allowed:.0%} and has 0.5)"
    )
    leaks = low > 0.5 or any(scores.found(share, confidence=SURE).low > share for share in ALLOWED)
    if leaks:
        above = ""
        if guarantee is not None:
            bound = Tradeoff.of_membership(guarantee)
            if any(scores.found(share, confidence=SURE).low > bound.power(share) for share in ALLOWED):
                above = (
                    " This is more than the guarantee allows on average: look whether both files hold rows "
                    "of the same kind, and audit the model if they do."
                )
        return f"The model gives members away: {figures}.{above}"
    if high < 0.5:
        return (
            f"Members score lower than others: {figures}. Look whether the files are swapped, or differ in "
            "where their rows come from. If neither is so, the model gives members away to whoever turns the "
            "guess around."
        )
    return (
        f"This attack did not tell members from others: {figures}. From so many rows, a share of "
        f"{percent_up(one.high)} and an AUROC of {high:.3f} cannot be ruled out, and a stronger attack may "
        "find more."
    )


def _told(scores: MembershipScores) -> str:
    return f"Share of members found against share of false alarms, logarithmic; AUROC {scores.auroc:.3f}."
