"""AuditResult: what an audit has shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.relations import Relation

__all__ = ["AuditResult"]


@dataclass(frozen=True)
class AuditResult:
    """A lower bound on ε at ``delta`` that holds with probability ``confidence``.

    ``method`` is the bound that was used, ``assumption`` what it takes for granted beyond independent
    runs (``"none"`` if nothing), ``counts`` the guesses it was computed from. ``rule`` says how the threshold
    of the guesses was chosen, and ``hypotheses`` among how many thresholds the confidence was shared.
    ``relation`` and ``unit`` say how the two data sets differed, ``claimed`` which ε was promised.
    ``most`` is the bound that as many guesses would have given had all of them been right: an audit cannot
    refute a claim that is as large.

    >>> result = AuditResult(0.7, 0.0, 0.95, "one_run", "none", {"guesses": 100, "correct": 75})
    >>> result.contradicts(0.5), result.contradicts(1.0)
    (True, False)
    >>> print(result)
    ε ≥ 0.7 at δ = 0 with confidence 0.95 (one_run; assuming: none; guesses 100, correct 75).
    >>> print(result.against(0.5).verdict)
    the claim of ε = 0.5 is refuted: ε is at least 0.7 at δ = 0 with confidence 0.95
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    assumption: str
    counts: Mapping[str, int] = field(hash=False)
    rule: str = ""
    hypotheses: int = 1
    relation: str | None = None
    unit: str | None = None
    claimed: float | None = None
    most: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.non_negative("epsilon", self.epsilon))
        object.__setattr__(self, "delta", _validate.delta(self.delta))
        object.__setattr__(self, "confidence", _validate.open_probability("confidence", self.confidence))
        object.__setattr__(self, "counts", _counted(self.counts))
        _validate.count("hypotheses", self.hypotheses, 1)
        for name in ("method", "assumption", "rule", "relation", "unit"):
            told = getattr(self, name)
            if not isinstance(told, str) and not (told is None and name in ("relation", "unit")):
                raise InvalidValue(name, told, "text")
        if self.relation is not None:
            object.__setattr__(self, "relation", str(Relation.of(self.relation)))
        if self.claimed is not None:
            _validate.non_negative("claimed", self.claimed)
        if self.most is not None and _validate.non_negative("most", self.most) < self.epsilon:
            raise InvalidValue("most", self.most, f"epsilon, {self.epsilon:g}, or more")

    def contradicts(self, epsilon: float) -> bool:
        """Whether a claim of (epsilon, ``delta``)-differential privacy is refuted."""
        return self.epsilon > _validate.non_negative("epsilon", epsilon)

    def against(self, claimed: float | None) -> AuditResult:
        """The same result beside the ε that was claimed at ``delta``."""
        return replace(self, claimed=claimed)

    @property
    def verdict(self) -> str:
        """What the audit says about the claim, in words.

        A refutation names the assumption that it rests on. An audit that could not have refuted the claim
        says so: it is no evidence for it.
        """
        if self.claimed is None:
            return "no ε was claimed"
        if self.contradicts(self.claimed):
            given = "" if self.assumption == "none" else f" if {self.assumption}"
            return (
                f"the claim of ε = {self.claimed:.6g} is refuted{given}: ε is at least {self.epsilon:.6g} "
                f"at δ = {self.delta:.6g} with confidence {self.confidence:.10g}"
            )
        if self.most is not None and self.most <= self.claimed:
            return (
                f"the audit cannot judge the claim of ε = {self.claimed:.6g}: so few guesses prove "
                f"ε = {self.most:.6g} at most, even if all of them are right"
            )
        if self.epsilon == 0:
            return f"the audit proves no ε above 0, and so nothing about the claim of ε = {self.claimed:.6g}"
        return f"the audit is consistent with the claim of ε = {self.claimed:.6g}; it proves no such claim"

    def to_dict(self) -> dict[str, Any]:
        """All fields and the verdict, for JSON."""
        return {**asdict(self), "verdict": self.verdict}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AuditResult:
        """The result that :meth:`to_dict` gave, checked field by field."""
        try:
            rest = {name: value for name, value in data.items() if name != "verdict"}
            return cls(**rest)
        except (TypeError, ValueError, AttributeError):
            raise InvalidValue("audit", type(data).__name__, "as AuditResult.to_dict() makes it") from None

    def __str__(self) -> str:
        counts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.counts.items())
        return (
            f"ε ≥ {self.epsilon:.6g} at δ = {self.delta:.6g} with confidence {self.confidence:.10g} "
            f"({self.method}; assuming: {self.assumption}; {counts})."
        )


def _counted(counts: Mapping[str, int]) -> dict[str, int]:
    """Whole numbers by name."""
    if not isinstance(counts, Mapping) or not all(isinstance(name, str) for name in counts):
        raise InvalidValue("counts", type(counts).__name__, "whole numbers by name")
    return {name: _validate.count(name, value) for name, value in counts.items()}
