"""What a guarantee means for membership attacks, which ask whether a person was in the data.

A guarantee holds for many pairs (ε, δ(ε)) at once, and each pair bounds every test that tells a model fitted
with a person from one fitted without: a test with a share α of false alarms misses a share of at least β(α),
the maximum over ε of 1 − δ − e^ε·α and e^{−ε}·(1 − δ − α) (Wasserman and Zhou 2010; Dong, Roth and Su 2022).
No attack, whatever it knows, lies below this trade-off curve.

>>> from tacit import events
>>> attack = Tradeoff.of(Guarantee(1.0, 0.0, events.Pure(1.0)))
>>> round(attack.power(0.01), 4), round(attack.power(0.1), 4)
(0.0272, 0.2718)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit import accounting
from tacit.errors import TacitError
from tacit.guarantee import Guarantee
from tacit.report.planning import rounded_up

__all__ = ["Tradeoff", "in_words", "odds", "percent_up"]

POINTS = 24


@dataclass(frozen=True)
class Tradeoff:
    """The trade-off curve of the best membership attack, from pairs (ε, δ) that all hold."""

    promises: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, guarantee: Guarantee, *, stated_only: bool = False) -> Tradeoff:
        """What the guarantee and its event imply; with ``stated_only``, its ε and δ alone."""
        stated = (guarantee.epsilon, guarantee.delta)
        if stated_only or not math.isfinite(guarantee.epsilon):
            return cls((stated,))
        found = [stated]
        for place in range(POINTS):
            epsilon = guarantee.epsilon * place / (POINTS - 1)
            for method in ("pld", "tightest"):  # the first is the tightest where it applies, and quick
                try:
                    failure = accounting.delta(
                        guarantee.event, epsilon, relation=guarantee.relation, method=method
                    )
                except TacitError:
                    continue
                found.append((epsilon, failure))
                break
        return cls(tuple(found))

    @classmethod
    def of_membership(cls, guarantee: Guarantee) -> Tradeoff:
        """What the guarantee implies for an attack on membership: nothing, where it protects labels alone.

        >>> from tacit import events
        >>> from tacit.relations import Unit
        >>> labels = Guarantee(1.0, 0.0, events.Pure(1.0), relation="replace_one", unit=Unit(part="label"))
        >>> Tradeoff.of_membership(labels).power(0.01)
        1.0
        """
        return cls.of(guarantee) if guarantee.unit.part is None else cls(((math.inf, 0.0),))

    @property
    def profile(self) -> tuple[tuple[float, float], ...]:
        """The promises by ε, δ above 0."""
        return tuple(sorted(pair for pair in set(self.promises) if pair[1] > 0))

    def missed(self, false_alarms: float) -> float:
        """The least share of those who were in the data that an attack misses (type II error)."""
        bounds = [
            max(1 - failure - _exp(epsilon) * false_alarms, (1 - failure - false_alarms) / _exp(epsilon))
            for epsilon, failure in self.promises
        ]
        return min(1.0, max(0.0, *bounds))

    def power(self, false_alarms: float) -> float:
        """The largest share of those in the data that an attack finds with this share of false alarms."""
        return 1 - self.missed(false_alarms)

    def curve(self, points: int = 201) -> tuple[Sequence[float], Sequence[float]]:
        """Type I errors, denser near 0, and the least type II error at each."""
        wrong = [(place / (points - 1)) ** 2 for place in range(points)]
        return wrong, [self.missed(rate) for rate in wrong]


def odds(guarantee: Guarantee, prior: float = 0.5) -> float:
    """The largest probability, after seeing the model, that a person was in the data, if it was ``prior``.

    By Bayes' rule the model multiplies the odds by e^ε at most, apart from the probability δ.

    >>> from tacit import events
    >>> round(odds(Guarantee(1.0, 0.0, events.Pure(1.0))), 3)
    0.731
    """
    if not math.isfinite(guarantee.epsilon):
        return 1.0
    return 1 / (1 + math.exp(-guarantee.epsilon) * (1 - prior) / prior)


def in_words(guarantee: Guarantee, attack: Tradeoff) -> list[str]:
    """The guarantee of a model, for people who do not read ε."""
    if not math.isfinite(guarantee.epsilon):
        return ["This model was fitted without noise. Nothing is promised to the people in the data."]
    unit = guarantee.unit
    if unit.part is not None:
        return [*_seeded(guarantee), *_of_labels(guarantee, attack)]
    whom = "one row of the data" if unit.column is None else f"all that one {unit.name or unit.column} adds"
    if unit.name is not None and unit.column is None:
        whom += f", which is one {unit.name}"
    change = "leave it out" if guarantee.relation == "add_remove" else "replace it by any other"
    apart = f", apart from a probability of δ = {guarantee.delta:g}" if guarantee.delta else ""
    words = [
        f"Take {whom}, and {change}: the probability of every possible model changes by a factor of "
        f"at most e^ε = {rounded_up(_exp(guarantee.epsilon), 3)}{apart}. This holds for whatever is done "
        "with the model, by anybody, with any other knowledge and at any time.",
        "So somebody who thinks it as likely as not that a person was in the data, and then studies the "
        f"model, can become at most {percent_up(odds(guarantee))} sure of it{apart}; if the model told "
        "nothing, they would stay at 50%. An attack with 1% of false alarms, about people who were not in "
        f"the data, recognises at most {percent_up(attack.power(0.01))} of those who were; with 10% of false "
        f"alarms, at most {percent_up(attack.power(0.1))}. Random guessing recognises 1% and 10%.",
        "The guarantee does not say that nothing is learnt about people as a whole: what the model says of "
        "everybody like you, it says whether or not you were in the data. Nor does it cover what was "
        "released elsewhere from the same data; a ledger adds that up.",
    ]
    return [*_seeded(guarantee), *words]


def _seeded(guarantee: Guarantee) -> list[str]:
    if guarantee.noise != "seeded":
        return []
    return ["THE NOISE OF THIS MODEL WAS SEEDED, for a test. Whoever knows the seed can remove the noise."]


def _of_labels(guarantee: Guarantee, attack: Tradeoff) -> list[str]:
    """The guarantee of a model that protects labels alone."""
    apart = f", apart from a probability of δ = {guarantee.delta:g}" if guarantee.delta else ""
    return [
        "Only labels are protected. That a row was in the data, and what its features are, is not: the model "
        "may tell both.",
        f"Take the {guarantee.unit}, and replace it by any other: the probability of every possible model "
        f"changes by a factor of at most e^ε = {rounded_up(_exp(guarantee.epsilon), 3)}{apart}. This holds "
        "for whatever is done with the model, by anybody, with any other knowledge and at any time.",
        "So somebody who hesitates between two labels of a row, thinks both equally likely, and then studies "
        f"the model, can become at most {percent_up(odds(guarantee))} sure of one of them{apart}. An attack "
        "with 1% of false alarms, about rows that have the other label, recognises at most "
        f"{percent_up(attack.power(0.01))} of those that have the suspected one; with 10% of false alarms, "
        f"at most {percent_up(attack.power(0.1))}. Random guessing recognises 1% and 10%.",
        "A label that the features predict well is not hidden: what the model says of all rows with such "
        "features, it says whatever the label of this one was.",
    ]


def percent_up(share: float) -> str:
    """A share as a percentage, rounded up to a tenth.

    >>> percent_up(0.0271), percent_up(1.0)
    ('2.8%', '100%')
    """
    return f"{math.ceil(min(share, 1.0) * 1000 * (1 - 1e-12)) / 10:g}%"


def _exp(epsilon: float) -> float:
    return math.exp(epsilon) if epsilon < 700 else math.inf
