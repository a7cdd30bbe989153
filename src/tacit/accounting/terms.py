"""The one place where relation, repetition and nesting are resolved.

:func:`resolve` turns an event and a relation into *terms*: a multiset of things that are composed,
each with how often. Accountants see only terms. Five kinds exist:

* a leaf event (Gaussian, Laplace, Pure, …), whose cost does not depend on the relation;
* :class:`Amplified`, terms run on a secret sample;
* :class:`Reversed`, a term whose two neighbours have changed places;
* :class:`Worst`, the costliest of several multisets (parallel composition);
* :class:`Selected`, terms run a random number of times, of which the best output is released.

Because a count multiplies the finished curve of one term, ``Repeat(e, n)`` and a list of n copies
of ``e`` are the same multiset and cost the same, for every event and every accountant.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from tacit import events
from tacit._stopping import NegativeBinomial, Poisson, Stopping
from tacit.errors import InvalidValue, UnsupportedEvent
from tacit.relations import Relation

Terms = tuple[tuple["Term", int], ...]

PAIRS_LIMIT = 16
"""Parallel parts up to this many different costs are paired exactly under ``replace_one``."""


@dataclass(frozen=True)
class Amplified:
    """``inner`` run on a sample that holds a given unit with probability ``rate``.

    One-sided (``near`` is None): one neighbour's output is a mixture, (1−q)·P₀ + q·P₁, the
    other's is P₀, and ``inner`` bounds P₁ against P₀.
    Two-sided: both are mixtures, (1−q)·P₀ + q·P₁ and (1−q)·P₀ + q·P₁′; ``inner`` bounds P₁ against
    P₁′ and ``near`` bounds either against P₀.
    """

    rate: float
    inner: Terms
    near: Terms | None = None

    @property
    def near_is_half(self) -> bool:
        """Whether P₀ lies half as far from P₁ and P₁′ as these may lie from each other."""
        return self.near is not None and self.near != self.inner and self.near == _halved(self.inner)


@dataclass(frozen=True)
class Reversed:
    """A one-sided ``term`` for a unit that enters where the other terms' unit leaves."""

    term: Amplified


@dataclass(frozen=True)
class Worst:
    """The costliest of ``options``; accountants take the upper envelope of their curves."""

    options: tuple[Terms, ...]


@dataclass(frozen=True)
class Selected:
    """``inner`` run as often as ``stopping`` draws, of which the output with the best score is released.

    Its bounds are the same for two neighbours and for the same two in the other order.
    """

    inner: Terms
    stopping: Stopping


Term = events.Event | Amplified | Reversed | Worst | Selected


def resolve(event: events.Event, relation: Relation | str) -> Terms:
    """The multiset of terms that ``event`` amounts to under ``relation``."""
    if not isinstance(event, events.Event):
        raise InvalidValue("event", event, "an event", "See tacit.events for the kinds.")
    return _terms(_resolve(event, Relation.of(relation)))


def either(a: Terms, b: Terms) -> Terms:
    """The worse of two multisets."""
    return _worst([a, b])


def merged(terms: Terms) -> Terms:
    """The same composition with all Gaussian terms as one: inverse squares of their noise add up."""
    gaussians = [(t, n) for t, n in terms if isinstance(t, events.Gaussian)]
    if sum(n for _, n in gaussians) <= 1:
        return terms
    precision = math.fsum(n / t.noise_multiplier**2 for t, n in gaussians)
    rest = tuple((t, n) for t, n in terms if not isinstance(t, events.Gaussian))
    return ((events.Gaussian(1 / math.sqrt(precision)), 1), *rest)


def _resolve(event: events.Event, relation: Relation) -> Counter[Term]:
    if isinstance(event, events.Repeat):
        once = _resolve(event.event, relation)
        return Counter({term: count * event.times for term, count in once.items()})
    if isinstance(event, events.Compose):
        total: Counter[Term] = Counter()
        for part, times in Counter(event.events).items():
            for term, count in _resolve(part, relation).items():
                total[term] += count * times
        return total
    if isinstance(event, events.Parallel):
        return _parallel(event, relation)
    if isinstance(event, events.PoissonSampled):
        inner = _sampled(event, relation)
        if any(_shuffled(inner)):
            raise UnsupportedEvent(
                "How many of a Poisson sample report is not fixed, and shuffling does not hide it.",
                "Shuffle a sample of fixed size (SampledWithoutReplacement), or claim no sampling.",
                event=event,
            )
        if event.rate == 1 or not inner:
            return _counter(inner)
        near = None if relation is Relation.ADD_REMOVE else _halved(inner)
        return Counter({Amplified(event.rate, inner, near): 1})
    if isinstance(event, events.SampledWithoutReplacement):
        inner = _sampled(event, Relation.REPLACE_ONE)
        if any(batch.reports > event.batch_size for batch in _shuffled(inner)):
            raise UnsupportedEvent(
                f"A sample of {event.batch_size} people cannot mix more than {event.batch_size} reports.",
                "Give Shuffled the number of reports of the people in the sample.",
                event=event,
            )
        if event.batch_size == event.population or not inner:
            return _counter(inner)
        rate = event.batch_size / event.population
        near = None if relation is Relation.ADD_REMOVE else inner
        return Counter({Amplified(rate, inner, near): 1})
    if isinstance(event, events.OneOf):
        return _counter(_worst([resolve(part, relation) for part in event.events]))
    if isinstance(event, events.BestOf):
        return _selected(event.event, NegativeBinomial(event.eta, event.gamma), relation)
    if isinstance(event, events.BestOfPoisson):
        return _selected(event.event, Poisson(event.mean), relation)
    return Counter({event: 1})


def _selected(event: events.Event, stopping: Stopping, relation: Relation) -> Counter[Term]:
    inner = resolve(event, relation)
    return Counter({Selected(inner, stopping): 1} if inner else {})


def _sampled(event: events.PoissonSampled | events.SampledWithoutReplacement, relation: Relation) -> Terms:
    """The terms of what is run on a secret sample, which may not be a random search."""
    inner = merged(resolve(event.event, relation))
    if _selects(inner):
        raise UnsupportedEvent(
            "The best of a random number of runs is not accounted for on a secret sample.",
            "Sample inside each run instead, or charge the search as if nothing were sampled.",
            event=event,
        )
    return inner


def _selects(terms: Terms) -> bool:
    """Whether a random search is somewhere among the terms."""
    for term, _ in terms:
        match term:
            case Selected():
                return True
            case Worst(options=options) if any(_selects(option) for option in options):
                return True
    return False


def _shuffled(terms: Terms) -> Iterator[events.Shuffled]:
    """The batches of shuffled reports among the terms, wherever they are."""
    for term, _ in terms:
        match term:
            case events.Shuffled():
                yield term
            case Worst(options=options):
                for option in options:
                    yield from _shuffled(option)
            case Amplified(inner=inner) | Reversed(term=Amplified(inner=inner)):
                yield from _shuffled(inner)


def _parallel(event: events.Parallel, relation: Relation) -> Counter[Term]:
    parts = Counter(event.events)
    options = [resolve(part, relation) for part in parts]
    if relation is Relation.REPLACE_ONE and len(event.events) > 1:
        leaving = [resolve(part, Relation.ADD_REMOVE) for part in parts]
        entering = [_reversed(part) for part in leaving]
        if len(parts) <= PAIRS_LIMIT:
            pairs = list(permutations(range(len(leaving)), 2))
            pairs += [(i, i) for i, many in enumerate(parts.values()) if many > 1]
            options += [_sum(leaving[i], entering[j]) for i, j in pairs]
        else:
            any_part = _worst(leaving + entering)
            options.append(_sum(any_part, any_part))
    return _counter(_worst(options))


def _reversed(terms: Terms) -> Terms:
    return tuple((_reversed_term(term), count) for term, count in terms)


def _reversed_term(term: Term) -> Term:
    match term:
        case Amplified(near=None):
            return Reversed(term)
        case Reversed(term=original):
            return original
        case Worst(options=options):
            return Worst(tuple(_reversed(option) for option in options))
    return term


def _worst(options: list[Terms]) -> Terms:
    distinct = tuple(dict.fromkeys(option for option in options if option))
    if len(distinct) <= 1:
        return distinct[0] if distinct else ()
    return ((Worst(distinct), 1),)


def _halved(terms: Terms) -> Terms:
    """What the terms cost when one unit moves the sampled result half as far.

    Noise scaled to the sensitivity of replacing is, for adding or removing, twice as large per
    unit of sensitivity. Terms that are not additive noise stay as they are.
    """
    changed: Counter[Term] = Counter()
    for term, count in terms:
        if isinstance(term, events.Gaussian):
            changed[events.Gaussian(2 * term.noise_multiplier)] += count
        elif isinstance(term, events.Laplace):
            changed[events.Laplace(2 * term.scale)] += count
        else:
            changed[term] += count
    return _terms(changed)


def _terms(counts: Counter[Term]) -> Terms:
    return tuple((term, count) for term, count in counts.items() if count > 0)


def _counter(terms: Terms) -> Counter[Term]:
    return Counter(dict(terms))


def _sum(a: Terms, b: Terms) -> Terms:
    return _terms(_counter(a) + _counter(b))
