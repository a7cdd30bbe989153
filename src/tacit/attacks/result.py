"""How well an attack tells members from others: its ROC curve, and what it finds at few false alarms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, rankdata

from tacit import _validate
from tacit.audit.bounds import rate_bound
from tacit.audit.threshold import scores_of
from tacit.errors import InvalidValue

__all__ = ["Found", "MembershipScores"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """What an attack finds at a threshold that at most a share ``allowed`` of the others reach.

    Between equal scores a draw decides that knows nothing of membership, as it would for an adversary.
    ``low`` and ``high`` enclose the share of members that the best threshold with a false-alarm rate of at
    most ``allowed`` finds among all members, not only among these.
    """

    allowed: float
    members_found: int
    members: int
    false_alarms: int
    others: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """The share of the members that are found."""
        return self.members_found / self.members

    def __str__(self) -> str:
        return (
            f"{self.members_found} of {self.members} members found ({self.rate:.2%}, interval {self.low:.2%} "
            f"to {self.high:.2%}) with {self.false_alarms} of {self.others} others taken for members"
        )


@dataclass(frozen=True)
class MembershipScores:
    """Scores of an attack and the truth, for examples that are members and for others.

    A high score means "member". Whether an attack is better than chance is said by :attr:`auroc`; what it
    reveals of the people it is sure about by :meth:`found`, which is what matters (Carlini et al. 2022).

    >>> scores = MembershipScores([0.9, 0.8, 0.2, 0.4], [True, True, False, True])
    >>> scores.auroc, scores.found(0.0).members_found
    (1.0, 3)
    """

    scores: Array
    is_member: NDArray[np.bool_]

    def __post_init__(self) -> None:
        values, truth = scores_of("scores", self.scores), np.asarray(self.is_member)
        if truth.dtype != bool or truth.shape != values.shape:
            raise InvalidValue("is_member", f"{truth.dtype} of shape {truth.shape}", "one boolean per score")
        if truth.all() or not truth.any():
            raise InvalidValue("is_member", "all alike", "such that there are members and others")
        object.__setattr__(self, "scores", values)
        object.__setattr__(self, "is_member", truth)

    @classmethod
    def of(cls, members: ArrayLike, others: ArrayLike) -> MembershipScores:
        """From the scores of members and those of others."""
        first, second = scores_of("members", members), scores_of("others", others)
        truth = np.arange(first.size + second.size) < first.size
        return cls(np.concatenate([first, second]), truth)

    @cached_property
    def auroc(self) -> float:
        """How probable it is that a member scores higher than another; equal scores count one half."""
        ranks = rankdata(self.scores)[self.is_member]
        members, others = ranks.size, self.scores.size - ranks.size
        return float((ranks.sum() - members * (members + 1) / 2) / (members * others))

    def auroc_interval(self, *, confidence: float = 0.95) -> tuple[float, float]:
        """An interval for the AUROC among all members and all others.

        It is the interval of Clopper and Pearson for a share of so many trials as the smaller side has
        scores: the variance of the AUROC is never larger than that of such a share (van Dantzig 1951).
        """
        side = (1 - _validate.open_probability("confidence", confidence)) / 2
        members = int(self.is_member.sum())
        trials = min(members, self.scores.size - members)
        low = 1 - float(rate_bound((1 - self.auroc) * trials, trials, side))
        return low, float(rate_bound(self.auroc * trials, trials, side))

    @cached_property
    def roc(self) -> tuple[Array, Array]:
        """(shares of false alarms, shares of members found) at every threshold, from none to all."""
        order = np.argsort(-self.scores, kind="stable")
        values, truth = self.scores[order], self.is_member[order]
        last = np.append(np.flatnonzero(np.diff(values)), values.size - 1)
        hits, alarms = np.cumsum(truth)[last], np.cumsum(~truth)[last]
        found, false = hits / hits[-1], alarms / alarms[-1]
        return np.concatenate([[0.0], false]), np.concatenate([[0.0], found])

    @cached_property
    def untied(self) -> Array:
        """The places of the scores in rising order, equal ones in an order that is drawn at random.

        The draw is the same every time, and does not look at who is a member.
        """
        drawn = np.random.default_rng(0).random(self.scores.size)
        places = np.empty(self.scores.size)
        places[np.lexsort((drawn, self.scores))] = np.arange(self.scores.size)
        return places

    def found(self, allowed: float, *, confidence: float = 0.95) -> Found:
        """What is found where at most a share ``allowed`` of the others is taken for members.

        The interval covers the true-positive rate of the best threshold whose false-alarm rate, among all
        people who are no members, is at most ``allowed``. That threshold is not known: it is enclosed by two
        order statistics of the others' scores, and the share of members above each of them by the bounds of
        Clopper and Pearson. Of 1 − ``confidence``, four fifths go to the order statistics. Few others leave a
        wide interval: of 400, perhaps none lies above the threshold of 0.1 %, so ``low`` is 0 there.
        """
        share = float(_validate.non_negative("allowed", allowed))
        level = _validate.open_probability("confidence", confidence)
        members = int(self.is_member.sum())
        others = self.scores.size - members
        alarms = min(int(np.floor(share * others + 1e-9)), others)
        number = self._beyond(alarms)
        side = (1 - level) / 10
        few, many = self._above(share, 4 * side)
        high = float(rate_bound(many, members, side))
        low = 1 - float(rate_bound(members - few, members, side))
        return Found(share, number, members, alarms, others, low, high)

    def _above(self, share: float, side: float) -> tuple[int, int]:
        """How many members surely, and how many possibly, reach a threshold of this false-alarm rate.

        The false-alarm rate of a threshold at the k-th highest of the others' n scores is the k-th smallest
        of n uniform numbers: it is at most ``share`` with the probability P[Binomial(n, share) ≥ k].
        """
        alarms = binom(int((~self.is_member).sum()), min(share, 1.0))
        surely, possibly = max(int(alarms.ppf(side)), 0), max(int(alarms.isf(side)), 0)
        return 0 if surely == 0 else self._beyond(surely - 1), self._beyond(possibly)

    @cached_property
    def _sides(self) -> tuple[Array, Array]:
        return self.untied[self.is_member], np.sort(self.untied[~self.is_member])

    def _beyond(self, alarms: int) -> int:
        """How many members score higher than all others but so many of them."""
        ours, theirs = self._sides
        return ours.size if alarms >= theirs.size else int((ours > theirs[-1 - alarms]).sum())
