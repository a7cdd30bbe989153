"""Coefficients of a model on its page: the largest drawn, all of them listed, doubtful ones marked."""

from __future__ import annotations

import math
from statistics import NormalDist

from tacit.models.description import CONFIDENCE, Weight
from tacit.report.facts import Facts
from tacit.report.numbers import ends, number
from tacit.report.page import Fold, Section

__all__ = ["CHANCE", "ZERO", "doubt", "listed", "shown"]

MOST_BARS = 20
ZERO = "may be 0"
"""The mark of a coefficient whose own interval includes zero."""
CHANCE = "may be chance"
"""The mark of a coefficient whose interval excludes zero only as long as nobody looks at the others."""


def doubt(weight: Weight, among: int) -> str:
    """The mark of a coefficient that was found ``among`` so many, empty for one that stands out.

    Whoever looks at many intervals of 95 % and picks the largest coefficients picks the errors as well. So an
    interval counts as clear of zero only if it still is when widened, by Bonferroni's bound, until all
    ``among`` together hold with 95 %.

    >>> doubt(Weight("", "age", 0.9, 0.5, 1.3), 40), doubt(Weight("", "age", 0.5, 0.1, 0.9), 40)
    ('', 'may be chance')
    >>> doubt(Weight("", "age", 0.3, -0.1, 0.7), 40), doubt(Weight("", "age", 0.3), 40)
    ('may be 0', '')
    """
    if weight.low is None or weight.high is None:
        return ""
    if weight.low <= 0 <= weight.high:
        return ZERO
    normal = NormalDist()
    wider = normal.inv_cdf(1 - (1 - CONFIDENCE) / (2 * max(among, 1))) / normal.inv_cdf((1 + CONFIDENCE) / 2)
    return CHANCE if abs(weight.value) <= wider * (weight.high - weight.low) / 2 else ""


def shown(facts: Facts) -> list[Section]:
    """The largest coefficients, drawn; those that are marked in the list are pale."""
    found, classes = facts.description.weights, facts.description.classes
    if not found:
        return []
    from tacit.report import plots

    top = found[:MOST_BARS]
    intervals = [(one.low, one.high) for one in top if one.low is not None and one.high is not None]
    bounded = len(intervals) == len(top)
    marked = [bool(doubt(one, len(found))) for one in top]
    title = "All of them" if len(top) == len(found) else f"The {len(top)} largest of {len(found)}"
    drawn = plots.coefficient_figure(
        [one.label for one in top],
        [one.value for one in top],
        intervals if bounded else None,
        f"{title}; pale: cannot be told from zero" if any(marked) else title,
        marked,
    )
    several = len({one.output for one in found}) > 1
    target = "" if facts.preprocessor is None else f"{facts.preprocessor.target} = "
    label = "the class" if several else f"{target}{classes[-1]}" if classes else ""
    kind = "log-odds" if hasattr(facts.model, "predict_proba") else "score"
    scale = " A category counts 1 where it applies; a number runs from −1 to 1 between its declared bounds."
    what = f"the {kind} of {label}" if label else "the prediction"
    says = f"What each feature adds to {what}.{scale if facts.preprocessor else ''}"
    if not facts.is_linear:
        says = f"How strongly each feature moves {what}, in short; the model itself holds more."
    if facts.description.tree is not None:
        says = "How much better the classes are told apart by the splits of each column, by the noisy counts."
    return [
        Section(
            "Coefficients" if facts.is_linear else "What the features do",
            [says, _certainty(facts)],
            figure=plots.embedded(drawn, "The largest coefficients as bars."),
        )
    ]


def _certainty(facts: Facts) -> str:
    """What may be read into the coefficients, in words."""
    found = facts.description.weights
    many, missed = len(found), math.ceil(len(found) * (1 - CONFIDENCE))
    if not any(one.low is not None for one in found):
        bought = " (tacit fit --interval-share buys some)" if hasattr(facts.model, "interval_share") else ""
        what = "coefficient" if facts.is_linear else "number"
        picked = (
            " The largest are shown first: they were picked because they are large, and the largest of "
            f"{many} noisy numbers tend to be too large."
        )
        return (
            f"Intervals are not available for this model{bought}, so no {what} can be told from noise here."
            f"{picked if many > 1 else ''}"
        )
    return (
        f"The {CONFIDENCE:.0%} intervals include the privacy noise; about {missed} of the {many} may miss "
        f"the true coefficient. In the list below, “{ZERO}” marks a coefficient whose "
        f"interval includes zero: not even its sign is known. “{CHANCE}” marks one whose interval excludes "
        f"zero, but not if widened for having been picked among {many}."
    )


def listed(facts: Facts) -> list[Section]:
    """Every coefficient with its interval and its mark, the largest first."""
    found = facts.description.weights
    if not found:
        return []
    bounded = any(one.low is not None for one in found)
    rows = []
    for one in found:
        interval = "" if one.low is None or one.high is None else ends((one.low, one.high))
        rows.append([one.label, number(one.value), *([interval, doubt(one, len(found))] if bounded else [])])
    header = ("feature", "value", *(("interval", "") if bounded else ()))
    linear = facts.is_linear
    heading = "All coefficients, the largest first" if linear else "All features, the strongest first"
    if len(rows) <= MOST_BARS:
        return [Section(heading, table=(header, rows))]
    return [Section(heading, fold=Fold(f"The list of {len(rows)}", table=(header, rows)))]
