"""Aggregators that answer only where the teachers agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.mechanisms import Gaussian
from tacit.pate.aggregator import ABSTAINED, ROOT, Aggregator, Bool
from tacit.pate.bounds import Array, log_q_gaussian, log_q_threshold, total_gaussian
from tacit.pate.noisy_max import checked_sigma, gaussian_winners, in_blocks
from tacit.pate.votes import Int64, Labels, as_array, described
from tacit.randomness import Source

__all__ = ["ConfidentGNMax", "InteractiveGNMax"]

_STUDENT_STEPS = 2.0**20
"""The student's share of the votes is rounded to this many steps per vote, so that differences are exact."""


@dataclass(frozen=True)
class ConfidentGNMax(Aggregator):
    """GNMax where the winner has about ``threshold`` votes or more, else −1 (Papernot et al. 2018).

    A query passes if max_j n_j + N(0, sigma_threshold²) ≥ ``threshold``; one that passes is answered by
    :class:`GNMax` with sigma_answer.

    Relation: see :class:`Aggregator`. Sensitivity: the largest count moves by 1, the counts by √2 in ℓ2.
    Event: ``Gaussian(sigma_threshold)`` for each query that is asked, and ``Gaussian(sigma_answer/√2)`` for
    each that is answered. The noise of the test is added to the maximum, one number: with noise on every count
    *inside* the maximum it would have to be charged as the whole vector, at twice the divergence.
    The noise is exact (:class:`tacit.mechanisms.Gaussian`).

    Thresholds and deviations are public: chosen by looking at these votes, they are not accounted for.

    >>> teachers = ConfidentGNMax(threshold=200, sigma_threshold=15, sigma_answer=4)
    >>> teachers.answer([[240, 8, 2], [90, 80, 80]], random_state=1).tolist()
    [0, -1]
    >>> teachers.event(asked=2, answered=1).events
    (Repeat(event=Gaussian(noise_multiplier=15.0), times=2), Repeat(event=Gaussian(noise_multiplier=2.82...), times=1))
    """  # noqa: E501

    threshold: float = 200.0
    sigma_threshold: float = 150.0
    sigma_answer: float = 40.0

    tests: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("threshold", _validate.finite("threshold", self.threshold))
        for name in ("sigma_threshold", "sigma_answer"):
            self._keep(name, checked_sigma(name, getattr(self, name)))

    def _test_event(self) -> events.Event:
        return events.Gaussian(self.sigma_threshold)

    def _answer_event(self) -> events.Event:
        return events.Gaussian(self.sigma_answer / ROOT)

    def _heights(self, votes: Int64, student: Array | None) -> Array:
        """What is compared with the threshold; one vote moves it by 1 at most."""
        return np.asarray(votes.max(axis=1), dtype=float)

    def _passed(self, votes: Int64, student: Array | None, source: Source) -> Bool:
        mechanism = Gaussian(1.0, noise_multiplier=self.sigma_threshold, random_state=source)
        return in_blocks(self._heights(votes, student), mechanism) >= self.threshold

    def _labels(self, votes: Int64, source: Source) -> Labels:
        return gaussian_winners(votes, self.sigma_answer, source)

    def _test_chances(self, votes: Int64, student: Array | None) -> Array:
        return np.asarray(ndtr((self._heights(votes, student) - self.threshold) / self.sigma_threshold))

    def _test_cost(self, votes: Int64, student: Array | None, orders: Array, both: bool) -> Array:
        heights, times = np.unique(self._heights(votes, student), return_counts=True)
        log_q = log_q_threshold(heights, self.threshold, self.sigma_threshold)
        if both:
            for step in (-1.0, 1.0):
                beside = log_q_threshold(heights + step, self.threshold, self.sigma_threshold)
                log_q = np.maximum(log_q, beside)
        return total_gaussian(log_q, times.astype(float), ROOT * self.sigma_threshold, orders)

    def _log_q(self, gaps: Int64) -> Array:
        return log_q_gaussian(gaps, self.sigma_answer)

    def _answer_cost(self, log_q: Array, weights: Array, orders: Array) -> Array:
        return total_gaussian(log_q, weights, self.sigma_answer, orders)


@dataclass(frozen=True)
class InteractiveGNMax(ConfidentGNMax):
    """Asks the teachers only where they contradict a student, and else trusts a confident student.

    (Papernot et al. 2018, algorithm 2.) ``student`` holds the student's class probabilities for each query.
    It has to be public: predicted by a model that was fitted to public data and to labels that were released
    and charged before. A query passes if max_j (n_j − teachers·p_j) + N(0, sigma_threshold²) ≥ ``threshold``
    and is then answered by :class:`GNMax`. One that fails gets the student's own class where its
    probability is above ``confidence``, else −1.

    Relation, sensitivity and events are those of :class:`ConfidentGNMax`: the student's part of the
    difference is a constant. The student's own class is public and costs nothing beyond the test.

    >>> teachers = InteractiveGNMax(threshold=50, sigma_threshold=5, sigma_answer=5, teachers=250)
    >>> votes = [[240, 8, 2], [240, 8, 2], [90, 80, 80]]
    >>> student = [[0.1, 0.8, 0.1], [0.98, 0.01, 0.01], [0.4, 0.3, 0.3]]
    >>> teachers.answer(votes, student=student, random_state=1).tolist()
    [0, 0, -1]
    """

    confidence: float = 0.9

    teachers: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("confidence", _validate.open_probability("confidence", self.confidence))
        if self.teachers is None:
            raise InvalidValue("teachers", None, "declared", "Say how many teachers vote: teachers=250.")

    def _student(self, student: Any, shape: tuple[int, ...]) -> Array:
        if student is None:
            advice = "Pass the student's class probabilities, one row per query."
            raise InvalidValue("student", None, "given", advice)
        array = as_array("student", student)
        if array.shape != shape:
            raise InvalidValue("student", described(array), f"of the shape of the votes, {shape}")
        chances = array.astype(float)
        if not ((chances >= 0) & (chances <= 1)).all():
            raise InvalidValue("student", described(array), "probabilities in [0, 1]")
        return chances

    def _heights(self, votes: Int64, student: Array | None) -> Array:
        if student is None or self.teachers is None:
            raise InvalidValue("student", None, "given")
        share = np.rint(self.teachers * student * _STUDENT_STEPS) / _STUDENT_STEPS
        return np.asarray((votes - share).max(axis=1))

    def _unanswered(self, queries: int, student: Array | None) -> Labels:
        if student is None:
            return super()._unanswered(queries, student)
        sure = student.max(axis=1) > self.confidence
        return np.where(sure, student.argmax(axis=1), ABSTAINED)
