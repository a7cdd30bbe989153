"""Events: frozen facts about what was done to the data, sufficient for accounting.

An event knows nothing of the code that caused it and its meaning never changes. Ledgers store
events; ε is derived from them, so that a better accountant can re-read an old ledger.

Noise is stated *per unit of sensitivity*, and sensitivity depends on the relation (see
:mod:`tacit.relations`); so ``Gaussian(1.0)`` costs the same under either relation, because the
sensitivity that scaled its noise was already the right one. Where the relation does change the
cost, it is because of sampling or of parallel composition, and is stated at those classes.

>>> run = Repeat(PoissonSampled(256 / 60000, Gaussian(1.1)), 3510)
>>> from_json(run.to_json()) == run
True
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from tacit import _validate
from tacit.errors import InvalidValue, MalformedEvent

__all__ = [
    "WITHOUT_PRIVACY",
    "Approximate",
    "BestOf",
    "BestOfPoisson",
    "BoundedRange",
    "Compose",
    "Event",
    "Gaussian",
    "Laplace",
    "ObjectivePerturbation",
    "OneOf",
    "Parallel",
    "PoissonSampled",
    "Pure",
    "RandomizedResponse",
    "Renyi",
    "Repeat",
    "SampledWithoutReplacement",
    "Shuffled",
    "ZeroConcentrated",
    "from_json",
]

MAX_DEPTH = 64
"""Events nested deeper than this are refused, so that no stored text can exhaust the stack."""


class Event:
    """Base of all events. Subclasses are frozen dataclasses; equality is by value."""

    __slots__ = ()

    @property
    def depth(self) -> int:
        """How many events are nested inside one another, this one included."""
        return 1

    def to_json(self) -> str:
        """Tagged JSON, one line, keys sorted: the form in which ledgers store and hash it."""
        return json.dumps(_encode(self), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _require_event(name: str, value: Any) -> int:
    if not isinstance(value, Event):
        raise InvalidValue(name, value, "an event", "See tacit.events for the kinds.")
    return value.depth


def _require_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidValue("depth", depth, f"at most {MAX_DEPTH} nested events")


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise of standard deviation ``noise_multiplier`` × ℓ2 sensitivity, added once."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _set(self, "noise_multiplier", _validate.positive)


@dataclass(frozen=True)
class Laplace(Event):
    """Laplace noise of scale ``scale`` × ℓ1 sensitivity, added once. Pure with ε = 1/scale."""

    scale: float

    def __post_init__(self) -> None:
        _set(self, "scale", _validate.positive)


@dataclass(frozen=True)
class Pure(Event):
    """A release known only to be ε-differentially private."""

    epsilon: float

    def __post_init__(self) -> None:
        _set(self, "epsilon", _validate.positive)


@dataclass(frozen=True)
class Approximate(Event):
    """A release known only to be (ε, δ)-differentially private. ε = 0 is allowed when δ > 0."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _set(self, "epsilon", _validate.non_negative)
        object.__setattr__(self, "delta", _validate.delta(self.delta))
        if self.epsilon == 0 and self.delta == 0:
            raise InvalidValue("epsilon", self.epsilon, "above 0 where delta is 0")


@dataclass(frozen=True)
class ZeroConcentrated(Event):
    """A release known only to be ρ-zCDP (Bun and Steinke 2016)."""

    rho: float

    def __post_init__(self) -> None:
        _set(self, "rho", _validate.positive)


@dataclass(frozen=True)
class BoundedRange(Event):
    """A release whose privacy loss spans an interval of length ε (Durfee and Rogers 2019).

    The exponential mechanism has this property. Permute-and-flip does not: with two candidates
    of equal score against scores one apart either way its loss spans ε + ln(2 − e^−ε) > ε, so it
    is charged as :class:`Pure`.
    """

    epsilon: float

    def __post_init__(self) -> None:
        _set(self, "epsilon", _validate.positive)


@dataclass(frozen=True)
class RandomizedResponse(Event):
    """One answer among ``categories``, kept with odds e^ε : 1 against each other category.

    Neighbours differ in the answer of one respondent. Under ``add_remove`` a removed respondent
    is one whose answer is drawn as for some other value; how many responded is public.
    """

    epsilon: float
    categories: int

    def __post_init__(self) -> None:
        _set(self, "epsilon", _validate.positive)
        object.__setattr__(self, "categories", _validate.count("categories", self.categories, 2))


@dataclass(frozen=True)
class Renyi(Event):
    """A release known by its Rényi divergences at some orders, and by nothing else."""

    orders: tuple[float, ...]
    divergences: tuple[float, ...]

    def __post_init__(self) -> None:
        for name, check in (("orders", _validate.finite), ("divergences", _validate.non_negative)):
            values = getattr(self, name)
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise InvalidValue(name, values, "a sequence of numbers")
            object.__setattr__(self, name, tuple(check(name, value) for value in values))
        if not self.orders or len(self.orders) != len(self.divergences):
            raise InvalidValue(
                "divergences", self.divergences, f"one per order, of which there are {len(self.orders)}"
            )
        if any(order <= 1 for order in self.orders):
            raise InvalidValue("orders", self.orders, "all above 1")
        if any(a >= b for a, b in zip(self.orders, self.orders[1:], strict=False)):
            raise InvalidValue("orders", self.orders, "strictly increasing")


@dataclass(frozen=True)
class ObjectivePerturbation(Event):
    """The exact minimum of a strongly convex objective plus ⟨b, θ⟩ with Gaussian b (Kifer et al. 2012).

    ``noise_multiplier``
        standard deviation of b ÷ the largest ℓ2 change of the gradient that one unit can cause.
    ``log_determinant``
        the largest change of ln det of the Hessian that one unit can cause.
    ``directions``
        dimensions of a subspace that contains the change of the gradient wherever it is taken: 1 for a row
        of a generalised linear model, which changes it along its features.
    """

    noise_multiplier: float
    log_determinant: float
    directions: int = 1

    def __post_init__(self) -> None:
        _set(self, "noise_multiplier", _validate.positive)
        _set(self, "log_determinant", _validate.non_negative)
        _set(self, "directions", lambda name, value: _validate.count(name, value, 1))


class _Around(Event):
    """What is done with one other event inside."""

    __slots__ = ()

    event: Event

    @property
    def depth(self) -> int:
        return 1 + self.event.depth


@dataclass(frozen=True)
class PoissonSampled(_Around):
    """``event`` run on a secret sample that includes each unit independently with ``rate``.

    Under ``replace_one`` the event must be one in which adding or removing a unit moves the
    result by at most half of what replacing it does (Gaussian, Laplace: a clipped sum) or is
    covered by the event too (all others): a replaced unit is also in or out of the sample.
    """

    rate: float
    event: Event

    def __post_init__(self) -> None:
        _set(self, "rate", _validate.probability)
        _require_depth(1 + _require_event("event", self.event))


@dataclass(frozen=True)
class SampledWithoutReplacement(_Around):
    """``event`` run on a secret uniform subset of ``batch_size`` of ``population`` units.

    ``population`` is the smaller of two neighbours' sizes. The event's own sensitivity is that
    of replacing one unit of the batch, whatever the outer relation: a unit that enters a batch
    of fixed size pushes another one out.
    """

    batch_size: int
    population: int
    event: Event

    def __post_init__(self) -> None:
        _set(self, "population", lambda name, value: _validate.count(name, value, 1))
        _set(self, "batch_size", lambda name, value: _validate.count(name, value, 1))
        if self.batch_size > self.population:
            raise InvalidValue("batch_size", self.batch_size, f"at most the population, {self.population}")
        _require_depth(1 + _require_event("event", self.event))


@dataclass(frozen=True)
class Shuffled(_Around):
    """``reports`` people each applied the same local randomizer once; their reports were mixed before
    anybody looked.

    ``event`` is the randomizer of one person: :class:`RandomizedResponse`, or :class:`Pure` for any other
    that is ε-private for every two values. It must be the same for all, draw independently, and name
    nobody: a report that carries a device or a time is not shuffled. ``reports`` counts those of people who
    followed the protocol, and is public.

    Neighbours differ in the value of one person. As with :class:`RandomizedResponse`, a removed person
    under ``add_remove`` is one whose report is drawn as for some other value, so both relations cost the
    same. Were the report missing, its absence would show in the number of reports, which this event does
    not hide.

    Feldman, McMillan and Talwar 2021, 2023.
    """

    event: RandomizedResponse | Pure
    reports: int

    def __post_init__(self) -> None:
        _set(self, "reports", lambda name, value: _validate.count(name, value, 1))
        _require_depth(1 + _require_event("event", self.event))
        if not isinstance(self.event, RandomizedResponse | Pure):
            raise InvalidValue(
                "event", self.event, "RandomizedResponse, or Pure with the ε of one person's whole report",
                "Amplification by shuffling is known for reports without a δ. Give Pure(epsilon).",
            )  # fmt: skip


@dataclass(frozen=True)
class Repeat(_Around):
    """``event`` done ``times`` times: costs what a list of that many copies costs."""

    event: Event
    times: int

    def __post_init__(self) -> None:
        _set(self, "times", lambda name, value: _validate.count(name, value, 0))
        _require_depth(1 + _require_event("event", self.event))


@dataclass(frozen=True)
class BestOf(_Around):
    """``event`` done K times on the same data, of which only the output with the best score is released.

    The score is part of the output of ``event``. K is drawn without the data, is kept secret, and is
    truncated negative binomial: P(K = k) ∝ (1−γ)^k·∏_{l<k} (l+η)/(l+1) for k ≥ 1, η = ``eta``, γ = ``gamma``;
    η = 1 is the geometric distribution (Liu and Talwar 2019), η = 0 the logarithmic one (Papernot and
    Steinke 2022). The runs that lost cost nothing of their own.
    """

    event: Event
    eta: float
    gamma: float

    def __post_init__(self) -> None:
        if _validate.finite("eta", self.eta) <= -1:
            raise InvalidValue("eta", self.eta, "above -1")
        _set(self, "eta", _validate.finite)
        _set(self, "gamma", _validate.probability)
        _require_depth(1 + _require_event("event", self.event))


@dataclass(frozen=True)
class BestOfPoisson(_Around):
    """As :class:`BestOf`, with K Poisson of this ``mean``.

    Where K = 0, what is released does not depend on the data.

    Papernot and Steinke 2022, theorem 6.
    """

    event: Event
    mean: float

    def __post_init__(self) -> None:
        _set(self, "mean", _validate.positive)
        _require_depth(1 + _require_event("event", self.event))


class _Many(Event):
    """A tuple of events."""

    __slots__ = ()

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        if isinstance(self.events, Event) or not isinstance(self.events, Iterable):
            raise InvalidValue("events", self.events, "a sequence of events")
        object.__setattr__(self, "events", tuple(self.events))
        depths = [_require_event("events", event) for event in self.events]
        _require_depth(1 + max(depths, default=0))

    @property
    def depth(self) -> int:
        return 1 + max((event.depth for event in self.events), default=0)


@dataclass(frozen=True)
class Compose(_Many):
    """All of ``events`` done to the same data, each fixed in advance or chosen adaptively."""

    events: tuple[Event, ...]


@dataclass(frozen=True)
class Parallel(_Many):
    """Each of ``events`` done to its own part of a public partition of the data.

    One unit lives in one part, so under ``add_remove`` the cost is that of the worst part.
    Under ``replace_one`` a unit may also move from one part to another, which removes it from
    the one and adds it to the other: the cost is that of the two worst parts together.
    """

    events: tuple[Event, ...]


@dataclass(frozen=True)
class OneOf(_Many):
    """One of ``events`` done to a unit's data; which one, is drawn without looking at any data.

    The draw may be made for all units together (one of several models is fitted) or for each unit by itself
    (a coin puts it into the rows for fitting, or into those for scoring), as long as a unit that is replaced
    keeps the draw of the unit before it. The cost is that of the costliest of them, under either relation.
    """

    events: tuple[Event, ...]


def _set(event: Event, name: str, check: Any) -> None:
    object.__setattr__(event, name, check(name, getattr(event, name)))


_TAGS: dict[str, type[Event]] = {
    "approximate": Approximate,
    "best_of": BestOf,
    "best_of_poisson": BestOfPoisson,
    "bounded_range": BoundedRange,
    "compose": Compose,
    "gaussian": Gaussian,
    "laplace": Laplace,
    "objective_perturbation": ObjectivePerturbation,
    "one_of": OneOf,
    "parallel": Parallel,
    "poisson_sampled": PoissonSampled,
    "pure": Pure,
    "randomized_response": RandomizedResponse,
    "renyi": Renyi,
    "repeat": Repeat,
    "sampled_without_replacement": SampledWithoutReplacement,
    "shuffled": Shuffled,
    "zero_concentrated": ZeroConcentrated,
}
_NAMES = {kind: tag for tag, kind in _TAGS.items()}


def _encode(value: Any) -> Any:
    if isinstance(value, Event):
        encoded = {field.name: _encode(getattr(value, field.name)) for field in fields(value)}  # type: ignore[arg-type]
        return {"is": _NAMES[type(value)], **encoded}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return value


def from_json(text: str) -> Event:
    """The event that ``text`` describes. Unknown tags and tampered values raise MalformedEvent."""
    try:
        data = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite_float
        )
        return _decode(data, 0)
    except MalformedEvent:
        raise
    except (InvalidValue, TypeError, ValueError, RecursionError) as error:
        raise MalformedEvent(
            f"This text is not an event: {error}", "Restore it from the ledger it came from."
        ) from error


def _decode(data: Any, depth: int) -> Event:
    _require_depth(depth)
    if not isinstance(data, dict):
        raise MalformedEvent(f"An event is a JSON object, got {data!r:.80}.")
    tag = data.get("is")
    kind = _TAGS.get(tag) if isinstance(tag, str) else None
    if kind is None:
        raise MalformedEvent(
            f"Unknown kind of event {tag!r:.80}.",
            "Known kinds: " + ", ".join(_TAGS) + ". A newer version of tacit may know more.",
        )
    expected = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if (given := set(data) - {"is"}) != expected:
        raise MalformedEvent(f"An event of kind {tag!r} has fields {sorted(expected)}, got {sorted(given)}.")
    arguments = {name: value for name, value in data.items() if name != "is"}
    if "event" in arguments:
        arguments["event"] = _decode(arguments["event"], depth + 1)
    if "events" in arguments:
        if not isinstance(arguments["events"], list):
            raise MalformedEvent(f"events must be a list, got {arguments['events']!r:.80}.")
        arguments["events"] = tuple(_decode(item, depth + 1) for item in arguments["events"])
    return kind(**arguments)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise MalformedEvent("A field is given twice.")
    return result


def _no_constant(text: str) -> Any:
    raise MalformedEvent(f"{text} is not a value an event can have.")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise MalformedEvent(f"{text} is not a finite number.")
    return value


WITHOUT_PRIVACY = Pure(sys.float_info.max)
"""What a fit with ε = ∞ is recorded as: it promises nothing, and no ledger takes it."""
