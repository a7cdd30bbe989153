"""AuditResult: what an audit has shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tacit import _validate

__all__ = ["AuditResult"]


@dataclass(frozen=True)
class AuditResult:
    """A lower bound on ε at ``delta`` that holds with probability ``confidence``.

    ``method`` is the bound that was used, ``assumption`` what it takes for granted beyond independent
    runs (``"none"`` if nothing), ``counts`` the guesses it was computed from.

    >>> result = AuditResult(0.7, 0.0, 0.95, "one_run", "none", {"guesses": 100, "correct": 75})
    >>> result.contradicts(0.5), result.contradicts(1.0)
    (True, False)
    >>> print(result)
    ε ≥ 0.7 at δ = 0 with confidence 0.95 (one_run; assuming: none; guesses 100, correct 75).
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    assumption: str
    counts: Mapping[str, int] = field(hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.non_negative("epsilon", self.epsilon))
        object.__setattr__(self, "delta", _validate.delta(self.delta))
        _validate.open_probability("confidence", self.confidence)
        object.__setattr__(self, "counts", dict(self.counts))

    def contradicts(self, epsilon: float) -> bool:
        """Whether a claim of (epsilon, ``delta``)-differential privacy is refuted."""
        return self.epsilon > _validate.non_negative("epsilon", epsilon)

    def __str__(self) -> str:
        counts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.counts.items())
        return (
            f"ε ≥ {self.epsilon:.6g} at δ = {self.delta:.6g} with confidence {self.confidence:.10g} "
            f"({self.method}; assuming: {self.assumption}; {counts})."
        )
