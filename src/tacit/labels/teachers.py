"""PATE-FM: every teacher sees all features and its own labels, and a noisy vote teaches a student."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, clone

from tacit import _validate, accounting, events
from tacit.data.declared import declared_classes
from tacit.data.given import places
from tacit.errors import InvalidValue
from tacit.labels.learning import permutation, probabilities, require_classifier
from tacit.labels.private import LabelPrivateEstimator
from tacit.labels.response import Float64, Int64
from tacit.randomness import Source
from tacit.relations import Relation

__all__ = ["PATEFM"]

UNLABELLED = -1
"""How a semi-supervised classifier of scikit-learn is told that a row has no label."""


class PATEFM(ClassifierMixin, LabelPrivateEstimator):  # type: ignore[misc]
    """PATE for private labels and public features (Malek et al. 2021, PATE-FM).

    The labels are parted among ``teachers``; which teacher gets which row is drawn without the labels. Every
    teacher is a copy of ``base``, a *semi-supervised* classifier that is fitted to all rows, with −1 in place
    of the labels of others, as :class:`sklearn.semi_supervised.SelfTrainingClassifier` and its relatives take
    them: features are public, so they need no parting. The teachers vote on ``queries`` of the public rows,
    drawn at random; the ``aggregator`` answers or abstains, and a student, again a copy of ``base``, is
    fitted to all rows with the answers as labels. A teacher draws random numbers of its own, cannot
    write to an array of shared features, and its warnings are dropped.

    Relation: ``replace_one`` of one label. Sensitivity: one label is with one teacher, in both data sets the
    same. That teacher's vote on any query may change, so the counts of votes move by at most 1 in each of two
    classes: what the aggregator's noise is made for. Event: ``aggregator.event(asked=queries,
    answered=answers)``, which is charged before a label is read: after ``answers`` answers no further query
    is put. The student is post-processing. A teacher whose labels are none of the classes, or that cannot be
    fitted, votes for the first class.

    ``aggregator`` is any object with ``answer(votes, random_state)``, which returns a class for each row of
    counts and −1 to abstain, and ``event(asked=, answered=)``, such as ``tacit.pate.ConfidentGNMax``.
    ``delta`` is the δ at which ε is stated.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.semi_supervised import SelfTrainingClassifier
    >>> from tacit import mechanisms
    >>> class Noisy:
    ...     def event(self, *, asked, answered):
    ...         return events.Repeat(events.Gaussian(5.0), asked)
    ...     def answer(self, votes, random_state=None):
    ...         noise = mechanisms.Gaussian(2**0.5, noise_multiplier=5.0, random_state=random_state)
    ...         return [int(np.argmax(noise(np.asarray(row, dtype=float)))) for row in votes]
    >>> rng = np.random.default_rng(1)
    >>> y = rng.integers(0, 2, 300)
    >>> X = np.eye(2)[y] * 6 + rng.normal(size=(300, 2))
    >>> base = SelfTrainingClassifier(LogisticRegression())
    >>> model = PATEFM(base, Noisy(), teachers=30, queries=10, classes=[0, 1], random_state=1).fit(X, y)
    >>> bool(np.mean(model.predict(X) == y) > 0.9), round(model.guarantee_.epsilon, 2)
    (True, 2.59)
    """

    title = "student of teachers with private labels"

    def __init__(
        self,
        base: Any,
        aggregator: Any,
        *,
        teachers: int = 100,
        queries: int = 250,
        answers: int | None = None,
        delta: float = 1e-5,
        classes: Any = None,
        ledger: Any = None,
        label: str | None = None,
        random_state: int | None = None,
    ) -> None:
        self.base = base
        self.aggregator = aggregator
        self.teachers = teachers
        self.queries = queries
        self.answers = answers
        self.delta = delta
        self.classes = classes
        self.ledger = ledger
        self.label = label
        self.random_state = random_state

    def _planned(self, X: Any, rows: int) -> tuple[float, float, events.Event]:
        declared_classes(self.classes)
        require_classifier(self.base, soft=False)
        if not (hasattr(self.aggregator, "answer") and hasattr(self.aggregator, "event")):
            advice = (
                "For example tacit.pate.ConfidentGNMax(threshold=200, sigma_threshold=150, sigma_answer=40)."
            )
            raise InvalidValue(
                "aggregator", type(self.aggregator).__name__, "able to answer, with an event", advice
            )
        for name, least, most in (("teachers", 2, rows), ("queries", 1, rows)):
            if _validate.count(name, getattr(self, name), least) > most:
                raise InvalidValue(name, getattr(self, name), f"at most the number of rows, {rows}")
        delta = _validate.delta(self.delta)
        event = self.aggregator.event(asked=self.queries, answered=self._answers())
        return accounting.epsilon(event, delta, relation=Relation.REPLACE_ONE), delta, event

    def _answers(self) -> int:
        if self.answers is None:
            return int(self.queries)
        return min(_validate.count("answers", self.answers, 1), int(self.queries))

    def _learn(self, X: Any, labels: NDArray[Any], source: Source) -> None:
        classes = declared_classes(self.classes)
        codes = places(labels, classes)
        rows, categories = len(codes), len(classes)
        owner = np.empty(rows, dtype=np.int64)
        owner[permutation(rows, source)] = np.arange(rows) % self.teachers
        asked = permutation(rows, source)[: self.queries]
        votes = np.zeros((len(asked), categories), dtype=np.int64)
        if isinstance(X, np.ndarray):
            X = X.view()
            X.flags.writeable = False
        for teacher in range(self.teachers):
            own = np.where(owner == teacher, codes, UNLABELLED)
            votes[np.arange(len(asked)), _voted(_seeded(self.base, source), X, own, asked, categories)] += 1
        del codes, labels
        answered = np.full(rows, UNLABELLED, dtype=np.int64)
        left = self._answers()
        for place, counts in zip(asked, votes, strict=True):
            if not left:
                break
            seed = int(source.bits(31)) if source.seeded else None
            answer = int(np.ravel(self.aggregator.answer(counts[None, :], random_state=seed))[0])
            answered[place] = answer
            left -= answer != UNLABELLED
        self.answered_ = int(self._answers() - left)
        self.answers_ = answered[asked]
        self.base_ = _fitted(self.base, X, answered)
        self.classes_ = np.asarray(classes)

    def predict_proba(self, X: Any) -> Float64:
        """P(class | x) by the student, a column for each of ``classes_``."""
        return probabilities(self.base_, self._checked(X), len(self.classes_))

    def predict(self, X: Any) -> NDArray[Any]:
        """The student's class of each row."""
        return np.asarray(self.classes_[np.argmax(self.predict_proba(X), axis=1)])

    def _facts(self) -> tuple[tuple[str, str], ...]:
        return (
            ("teachers", str(self.teachers)),
            ("asked", str(self.queries)),
            ("answered", str(self.answered_)),
        )


def _fitted(base: Any, X: Any, codes: Int64) -> Any:
    """A semi-supervised model of the labels there are; a constant where they are of one class."""
    known = np.unique(codes[codes != UNLABELLED])
    return _Constant(int(known[0]) if len(known) else 0) if len(known) < 2 else clone(base).fit(X, codes)


def _voted(base: Any, X: Any, own: Int64, asked: Int64, categories: int) -> Int64:
    """One teacher's class for each row that is asked about.

    A teacher sees labels as they are, so whatever it prints, warns of or raises would tell of them, and is
    dropped.
    """
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            predicted = probabilities(_fitted(base, X, own), X, categories)[asked]
    except Exception:
        return np.zeros(len(asked), dtype=np.int64)
    return np.asarray(np.argmax(predicted, axis=1))


def _seeded(base: Any, source: Source) -> Any:
    """A copy of the base with random numbers of its own, so that no teacher's labels reach another's."""
    made = clone(base)
    names = [name for name in made.get_params() if name.split("__")[-1] == "random_state"]
    return made.set_params(**{name: int(source.bits(31)) for name in names})


class _Constant:
    """A model of labels that are all the same."""

    def __init__(self, code: int) -> None:
        self.classes_ = np.array([code])

    def predict_proba(self, X: Any) -> Float64:
        return np.ones((X.shape[0], 1))
