"""Replay: two neighbours are fitted with the same answers of every mechanism, and compared call by call.

The first fit records what it asks each mechanism, and the answers. The second, on the neighbour, is given the
same answers. Then all that may differ are the exact values that the mechanisms were asked about: no further
than their sensitivity, at a cost that adds up to no more than ε. Whatever else differs was not paid for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from tacit import accounting, events
from tacit.estimators import private
from tacit.mechanisms import Gaussian, Laplace, PermuteAndFlip, _base, discrete
from tacit.randomness import Source

Rows = tuple[np.ndarray, np.ndarray]


@dataclass
class Tape:
    """The calls of one fit, and the answers of another that it is given."""

    answers: list[Any] | None = None
    asked: list[tuple[Any, np.ndarray]] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)
    source: Source = field(default_factory=lambda: Source(7))

    def answer(self, mechanism: Any, values: Any, call: Any) -> Any:
        self.asked.append((replace(mechanism, random_state=None), np.array(values, dtype=float)))
        if self.answers is None:
            found = call(replace(mechanism, random_state=self.source), values)
        else:
            assert len(self.given) < len(self.answers), "a neighbour asks more often"
            found = self.answers[len(self.given)]
            assert np.shape(found) == (() if isinstance(found, int) else np.shape(values)), "another shape"
        self.given.append(found)
        return found


def fitted(estimator: Any, rows: Rows, unit: int, patch: pytest.MonkeyPatch, tape: Tape) -> Any:
    """A fit on a tape; the last ``unit`` rows are one unit, every other row is one by itself."""
    with patch.context() as patched:
        patched.setattr(private, "bounded_units", lambda units, most, source: np.ones(len(units), dtype=bool))
        for kind in (_base.RealMechanism, discrete._Integers, PermuteAndFlip):

            def recorded(mechanism: Any, values: Any, call: Any = kind.__call__) -> Any:
                return tape.answer(mechanism, values, call)

            patched.setattr(kind, "__call__", recorded)
        units = np.minimum(np.arange(len(rows[0])), max(len(rows[0]) - unit, 0))
        return estimator.fit(*rows, *((units,) if estimator.rows_per_unit > 1 else ()))


@dataclass(frozen=True)
class Found:
    """What the calls of two neighbours cost together, and how near the nearest came to its sensitivity."""

    epsilon: float
    tightest: float


def compare(estimator: Any, one: Rows, other: Rows, patch: pytest.MonkeyPatch, units: Any) -> Found:
    """Fit to both; raises where what is released differs, or a call differs by more than its sensitivity.

    ``units`` says how many rows at the end of each are the unit that the neighbours differ by.
    """
    tape = Tape()
    first = fitted(estimator, one, units[0], patch, tape)
    released, claims = numbers(first), (repr(first), first.guarantee_, first.describe())
    again = Tape(tape.given)
    second = fitted(estimator, other, units[1], patch, again)
    assert len(again.asked) == len(tape.asked), "a neighbour asks less often"
    assert np.array_equal(numbers(second), released), "what is released depends on more than the answers"
    assert (repr(second), second.guarantee_, second.describe()) == claims
    costs: list[events.Event] = []
    ratios = [0.0]
    for (mechanism, value), (same, neighbour) in zip(tape.asked, again.asked, strict=True):
        assert mechanism == same, "a neighbour has another mechanism"
        cost, ratio = _cost(mechanism, value, neighbour)
        assert ratio <= 1 + 1e-9, f"{mechanism} is asked about values that differ {ratio:.3f} times as much"
        costs += [cost] if cost is not None else []
        ratios.append(ratio)
    delta = estimator.delta
    spent = accounting.epsilon(events.Compose(tuple(costs)), delta) if costs else 0.0
    assert spent <= estimator.epsilon * (1 + 1e-6), f"ε = {spent} was spent of {estimator.epsilon}"
    return Found(spent, max(ratios))


def numbers(model: Any) -> np.ndarray:
    """All numbers that were released, in a row."""
    found = [getattr(model, name) for name in model.released if hasattr(model, name)]
    flat: list[Any] = []
    for each in found:
        parts = each.values() if isinstance(each, dict) else [each]
        flat += [np.ravel(part) for part in map(np.asarray, parts) if part.dtype.kind in "fiub"]
    return np.concatenate([part.astype(float) for part in flat])


def _cost(mechanism: Any, value: np.ndarray, other: np.ndarray) -> tuple[events.Event | None, float]:
    """The event of telling these two values apart, and their distance as a part of the sensitivity."""
    if isinstance(mechanism, PermuteAndFlip):
        chances = [np.log(selected(mechanism, scores)) for scores in (value, other)]
        loss = float(np.abs(chances[0] - chances[1]).max())
        return (events.Pure(loss) if loss > 1e-12 else None), loss / mechanism.epsilon
    order = 2 if isinstance(mechanism, Gaussian) else 1
    ratio = float(np.linalg.norm((value - other).ravel(), order)) / mechanism.sensitivity
    if ratio == 0:
        return None, 0.0
    if isinstance(mechanism, Gaussian):
        return events.Gaussian(mechanism.event.noise_multiplier / ratio), ratio
    if isinstance(mechanism, Laplace):
        return events.Laplace(mechanism.event.scale / ratio), ratio
    return events.Pure(mechanism.epsilon * ratio), ratio


def selected(mechanism: PermuteAndFlip, scores: np.ndarray) -> np.ndarray:
    """The probability of each index: accepted, and then picked among those accepted with it.

    With 0 ≤ t ≤ 1 uniform, 1/(1 + others) is the mean of t^others.
    """
    steps = mechanism._steps(scores)
    accepted = np.exp(-float(mechanism._rate()) * (steps.max() - steps))
    places, weights = np.polynomial.legendre.leggauss(len(steps) // 2 + 1)
    t = (places + 1) / 2
    parts = 1 - accepted[:, None] + accepted[:, None] * t
    found = [
        chance * float((weights / 2 * np.delete(parts, place, axis=0).prod(axis=0)).sum())
        for place, chance in enumerate(accepted)
    ]
    assert math.isclose(sum(found), 1.0, rel_tol=1e-9)
    return np.array(found)
