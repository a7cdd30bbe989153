"""How well an attack tells members from others: its ROC curve, and what it finds at few false alarms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from tacit import _validate
from tacit.audit.bounds import rate_bound
from tacit.audit.threshold import scores_of
from tacit.errors import InvalidValue

__all__ = ["Found", "MembershipScores"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """What an attack finds at a threshold that at most a share ``allowed`` of the others reach."""

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

    @cached_property
    def roc(self) -> tuple[Array, Array]:
        """(shares of false alarms, shares of members found) at every threshold, from none to all."""
        order = np.argsort(-self.scores, kind="stable")
        values, truth = self.scores[order], self.is_member[order]
        last = np.append(np.flatnonzero(np.diff(values)), values.size - 1)
        hits, alarms = np.cumsum(truth)[last], np.cumsum(~truth)[last]
        found, false = hits / hits[-1], alarms / alarms[-1]
        return np.concatenate([[0.0], false]), np.concatenate([[0.0], found])

    def found(self, allowed: float, *, confidence: float = 0.95) -> Found:
        """What is found where at most a share ``allowed`` of the others is taken for members.

        The interval is that of Clopper and Pearson for the share of members found at that threshold.
        """
        share = float(_validate.non_negative("allowed", allowed))
        level = _validate.open_probability("confidence", confidence)
        false, hits = self.roc
        members = int(self.is_member.sum())
        others = self.scores.size - members
        place = int(np.searchsorted(false, share + 1e-12, side="right")) - 1
        number, alarms = round(hits[place] * members), round(false[place] * others)
        side = (1 - level) / 2
        high = float(rate_bound(number, members, side))
        low = 1 - float(rate_bound(members - number, members, side))
        return Found(share, number, members, alarms, others, low, high)
