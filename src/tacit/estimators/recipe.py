"""What a fit will do and cost, decided from public facts before any row is read."""

from __future__ import annotations

from dataclasses import dataclass, field

from tacit import events
from tacit.data.features import Features
from tacit.guarantee import above
from tacit.relations import Relation, Unit

__all__ = ["Planned", "Public", "Recipe"]


@dataclass(frozen=True)
class Public:
    """The facts that a plan is made from. None of them was read off the rows."""

    epsilon: float
    """ε of the whole fit; infinite where a model is to be fitted without noise."""
    delta: float
    relation: Relation
    unit: Unit
    width: int
    """The number of features."""
    features: Features | None = None
    """Names and bounds of the features, where a :class:`~tacit.data.preprocessor.Preprocessor` knows them."""
    whole: bool = True
    """Whether no condition leaves rows out: how many rows meet one is private under every relation."""


@dataclass(frozen=True)
class Recipe:
    """What a fit will do, decided from public facts. Subclasses add what they need to carry it out."""

    event: events.Event
    """What the whole fit costs, purchases included."""
    kind: str
    """The kind of noise, one of :data:`tacit.guarantee.NOISE_KINDS`."""
    parts: tuple[tuple[str, float], ...] = ()
    """What ε is spent on."""
    notes: tuple[str, ...] = ()
    """Lines for the reader of a plan: what was chosen, and how much noise there will be."""
    expected: tuple[str, ...] = field(default=(), kw_only=True)
    """How good the fit can be expected to be, where theory tells from public facts."""
    doubts: tuple[str, ...] = field(default=(), kw_only=True)
    """Why, by public facts alone, the fit cannot learn anything; empty where it can."""


@dataclass(frozen=True)
class Planned:
    """What a fit will do and cost, known before any data are: print it."""

    epsilon: float
    delta: float
    relation: Relation
    unit: Unit
    parts: tuple[tuple[str, float], ...]
    notes: tuple[str, ...]
    event: events.Event
    kind: str
    expected: tuple[str, ...] = ()
    """How good the fit can be expected to be, where theory tells from public facts."""
    doubts: tuple[str, ...] = ()
    """Why, by public facts alone, the fit cannot learn anything: ``fit`` warns of it before the charge."""

    @classmethod
    def of(cls, public: Public, recipe: Recipe) -> Planned:
        """The part of a plan that may be shown."""
        return cls(
            public.epsilon, public.delta, public.relation, public.unit,
            recipe.parts, recipe.notes, recipe.event, recipe.kind, recipe.expected, recipe.doubts,
        )  # fmt: skip

    def __str__(self) -> str:
        promised = f"ε = {above(self.epsilon, 6)}, δ = {above(self.delta, 6)}"
        lines = [f"{promised}, {self.relation} of one {self.unit}"]
        lines += [f"  {part:<12} ε = {above(cost, 4)}" for part, cost in self.parts]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])
