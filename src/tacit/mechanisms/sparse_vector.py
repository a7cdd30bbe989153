"""The sparse vector technique."""

from __future__ import annotations

import math
import os
import threading
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from tacit import _validate, events
from tacit.errors import BudgetExceeded, InvalidValue
from tacit.mechanisms import _grid
from tacit.mechanisms._base import Mechanism, real_values
from tacit.randomness import MAX_SCALE, discrete_laplace


@dataclass
class _Life:
    """What changes while a sparse vector is used: noise drawn once, and the positives so far."""

    threshold: int
    process: int = field(default_factory=os.getpid)
    positives: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, eq=False)
class SparseVector(Mechanism):
    """Says of one query after another whether it passes a threshold, until ``hits`` of them have.

    ``sensitivity`` bounds how far each query's value can move between neighbours; ``monotone``
    says that all of them move the same way. Queries may be chosen adaptively and negatives are
    free: ``epsilon`` pays for the object's whole life, so charge ``event`` once, when it is made.
    With ``answers``, a share of ε in (0, 1), each positive is answered by the query's value with
    fresh noise instead of ``True``, and each negative by ``None`` instead of ``False``.

    Guarantee: ε-differential privacy, by the form that Lyu, Su and Li 2017, "Understanding the
    sparse vector technique", prove correct (their algorithm 7; several published forms are not
    private at all): the threshold gets noise of scale sensitivity/ε1 once, each query fresh noise
    of scale 2·hits·sensitivity/ε2 (hits·sensitivity/ε2 if monotone), answers noise of scale
    hits·sensitivity/ε3, and ε = ε1 + ε2 + ε3 with ε1 : ε2 = 1 : (2·hits)^(2/3) (hits^(2/3) if
    monotone). Their proof shifts the threshold noise by one sensitivity and compares tails; both
    hold for discrete Laplace noise and whole steps. The noise is exact; values are rounded to a
    grid of g ≤ 2^−20 sensitivities, with the sensitivity taken as ⌊sensitivity/g + 1⌋ steps.

    After the last positive every call raises :class:`~tacit.errors.BudgetExceeded`. Copies, pickles
    and forked processes would share the threshold's noise without sharing the count, so they
    are refused.

    >>> above = SparseVector(sensitivity=1.0, epsilon=4.0, threshold=100.0, hits=2, random_state=1)
    >>> [above(value) for value in (20.0, 300.0, 35.0, 180.0)]
    [False, True, False, True]
    >>> above.remaining, above.event
    (0, Pure(epsilon=4.0))
    """

    sensitivity: float
    epsilon: float
    threshold: float
    hits: int = 1
    monotone: bool = False
    answers: float = 0.0
    event: events.Pure = field(init=False, repr=False)
    _scales: tuple[Fraction, Fraction, Fraction] = field(init=False, repr=False)
    _life: _Life = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("sensitivity", _grid.real_sensitivity(self.sensitivity))
        self._keep("epsilon", _validate.epsilon(self.epsilon))
        self._keep("threshold", _validate.finite("threshold", self.threshold))
        self._keep("hits", _validate.count("hits", self.hits, 1))
        if self.hits > 2**30:
            raise InvalidValue("hits", self.hits, "at most 2^30")
        if not isinstance(self.monotone, bool):
            raise InvalidValue("monotone", self.monotone, "True or False")
        if not 0 <= _validate.finite("answers", self.answers) < 1:
            raise InvalidValue("answers", self.answers, "a share of epsilon in [0, 1)")
        self._keep("_scales", self._noise_scales())
        if max(self._scales) > MAX_SCALE:
            raise InvalidValue("epsilon", self.epsilon, "larger for this many hits")
        self._keep("event", events.Pure(self.epsilon))
        noise = discrete_laplace(self._source, self._scales[0], 1)[0]
        self._keep("_life", _Life(self._steps(self.threshold) + int(noise)))

    @property
    def _exponent(self) -> int:
        return _grid.grid_exponent(self.sensitivity, 1)

    def _noise_scales(self) -> tuple[Fraction, Fraction, Fraction]:
        """Noise scales in steps of threshold, queries and answers; the shares of ε sum to it exactly."""
        steps = math.floor(_grid.in_steps(self.sensitivity, self._exponent) + 1)
        answering = Fraction(self.answers)
        reach = self.hits if self.monotone else 2 * self.hits
        first = (1 - answering) * Fraction(1 / (1 + reach ** (2 / 3)))
        epsilon = Fraction(self.epsilon)
        third = self.hits * steps / (epsilon * answering) if answering else Fraction(1)
        return steps / (epsilon * first), reach * steps / (epsilon * (1 - answering - first)), third

    def _steps(self, value: float) -> int:
        return int(_grid.to_grid(np.float64(value), self._exponent))  # type: ignore[arg-type]

    @property
    def remaining(self) -> int:
        """How many more positives may be reported."""
        return self.hits - self._life.positives

    def __call__(self, value: float) -> bool | float | None:
        """Whether the value passes the threshold; or its noisy value, if it does, under ``answers``."""
        array, scalar = real_values(value)
        if not scalar:
            raise InvalidValue("value", "an array", "a single number", "Ask one query at a time.")
        life = self._life
        with life.lock:
            if os.getpid() != life.process:
                raise BudgetExceeded("A sparse vector lives in one process.", "Make a new one and charge it.")
            if life.positives >= self.hits:
                raise BudgetExceeded(
                    f"This sparse vector has reported its {self.hits} positive answers.",
                    "Make a new one and charge its event to go on.",
                    hits=self.hits,
                )
            _, querying, answering = self._scales
            steps = self._steps(float(array))
            noise = int(discrete_laplace(self._source, querying, 1)[0])
            positive = steps + noise >= life.threshold
            life.positives += positive
        if not self.answers:
            return positive
        if not positive:
            return None
        return math.ldexp(steps + int(discrete_laplace(self._source, answering, 1)[0]), self._exponent)

    def __reduce__(self) -> NoReturn:
        raise TypeError("A sparse vector cannot be copied: its count of positives is its guarantee.")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self.__reduce__()
