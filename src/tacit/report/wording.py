"""Events and units in words, for pages.

>>> run = events.Repeat(events.PoissonSampled(0.004, events.Gaussian(1.1)), 3510)
>>> tree = tree_of(run)
>>> tree.text, tree.below[0].text
('3,510 times:', 'on a secret sample, in which each row is with a probability of 0.4%:')
"""

from __future__ import annotations

from collections import Counter

from tacit import events
from tacit._stopping import NegativeBinomial
from tacit.guarantee import above
from tacit.relations import Unit
from tacit.report.page import Branch

__all__ = ["called", "protected", "suspicion", "tree_of"]

MOST_BRANCHES = 40


def called(unit: Unit) -> str:
    """What people call one unit: its declared name, else its column, else “row”; or the label of one.

    >>> called(Unit()), called(Unit("patient_id", 3)), called(Unit("patient_id", 3, name="patient"))
    ('row', 'patient_id', 'patient')
    >>> called(Unit(part="label"))
    'label'
    """
    return str(unit) if unit.part is not None else unit.name or unit.column or "row"


def suspicion(unit: Unit, otherwise: str) -> str:
    """What an attacker can become surer of: ``otherwise``, or which of two labels is the true one.

    >>> suspicion(Unit(part="label"), "one given row was in the data")
    'a suspected label of one given row is the true one, and not a certain other'
    """
    if unit.part is None:
        return otherwise
    whose = unit.name or "row"
    return f"a suspected {unit.part} of one given {whose} is the true one, and not a certain other"


def protected(unit: Unit) -> str:
    """Who is protected, with what one of them may have in the data.

    >>> protected(Unit()), protected(Unit(name="patient"))
    ('one row of the data', 'one patient (one row is one patient)')
    >>> protected(Unit("patient_id", 3))
    'one patient_id, with all of its rows, of which at most 3 count'
    >>> protected(Unit(part="label"))
    'the label of one row, and nothing else; the features are not protected'
    """
    if unit.part is not None:
        whose = unit.name or "row"
        return f"the {unit.part} of one {whose}, and nothing else; the features are not protected"
    if unit.column is None:
        if unit.name is None:
            return "one row of the data"
        return f"one {unit.name} (one row is one {unit.name})"
    rows = "its only row" if unit.rows == 1 else f"all of its rows, of which at most {unit.rows} count"
    known_by = "" if unit.name is None else f" (known by {unit.column})"
    return f"one {called(unit)}{known_by}, with {rows}"


def tree_of(event: events.Event, unit: Unit | None = None) -> Branch:
    """What was done to the data, as a tree of sentences; ``unit`` gives “row” its name."""
    whom = called(unit or Unit())
    match event:
        case events.Compose():
            parts = _flat(event)
            if len(parts) == 1:
                return tree_of(parts[0], unit)
            return Branch("all of these, on the same data:" if parts else "nothing", _list(parts, unit))
        case events.Parallel(events=parts):
            return Branch(f"each of these on a part of the data; one {whom} is in one part only:",
                          _list(parts, unit))  # fmt: skip
        case events.OneOf(events=parts):
            text = f"one of these for any one {whom}, drawn without looking at the data:"
            return Branch(text, _list(parts, unit))
        case events.BestOf(event=part, eta=eta, gamma=gamma):
            expected = NegativeBinomial(eta, gamma).mean
            law = f"truncated negative binomial with η = {eta:.4g}, γ = {gamma:.4g}"
            return Branch(_best_of(expected, law), [tree_of(part, unit)])
        case events.BestOfPoisson(event=part, mean=mean):
            return Branch(_best_of(mean, "Poisson"), [tree_of(part, unit)])
        case events.Repeat(event=part, times=times):
            return Branch("once:" if times == 1 else f"{times:,} times:", [tree_of(part, unit)])
        case events.PoissonSampled(rate=rate, event=part):
            text = f"on a secret sample, in which each {whom} is with a probability of {100 * rate:.3g}%:"
            return Branch(text, [tree_of(part, unit)])
        case events.SampledWithoutReplacement(batch_size=size, population=population, event=part):
            text = f"on a secret sample of {size:,} out of {population:,}:"
            return Branch(text, [tree_of(part, unit)])
        case events.Shuffled(event=part, reports=reports):
            text = f"{reports:,} reports, mixed before anybody saw them; each was randomized by its sender:"
            return Branch(text, [tree_of(part, unit)])
    return Branch(_leaf(event, whom))


def _best_of(mean: float, law: str) -> str:
    return (
        f"a secret number of times, {mean:.4g} on average ({law}), of which only the result with the best "
        "score is released:"
    )


def _leaf(event: events.Event, whom: str) -> str:
    match event:
        case events.Gaussian(noise_multiplier=times):
            return (
                f"Gaussian noise, added once; its standard deviation is {times:.4g} times the largest change "
                f"(in ℓ2) that one {whom} can make"
            )
        case events.Laplace(scale=scale):
            return (
                f"Laplace noise, added once; its scale is {scale:.4g} times the largest change (in ℓ1) that "
                f"one {whom} can make, so ε = {above(1 / scale, 4)}"
            )
        case events.Pure(epsilon=epsilon):
            return f"a release with ε = {above(epsilon, 4)} and no δ"
        case events.Approximate(epsilon=epsilon, delta=delta):
            return f"a release with ε = {above(epsilon, 4)} and δ = {above(delta, 4)}"
        case events.ZeroConcentrated(rho=rho):
            return f"a release that is zero-concentrated private with ρ = {rho:.4g}"
        case events.BoundedRange(epsilon=epsilon):
            return f"a choice by the exponential mechanism with ε = {above(epsilon, 4)}"
        case events.RandomizedResponse(epsilon=epsilon, categories=categories):
            return f"a randomized answer among {categories} categories with ε = {above(epsilon, 4)}"
        case events.ObjectivePerturbation(noise_multiplier=times, log_determinant=shift):
            return (
                f"the minimum of a loss to which Gaussian noise was added; its standard deviation is "
                f"{times:.4g} times the largest change of the gradient (in ℓ2) that one {whom} can make, and "
                f"one {whom} changes the logarithm of the Hessian's determinant by at most {shift:.4g}"
            )
        case events.Renyi(orders=orders):
            return f"a release known by its Rényi divergences at {len(orders)} orders"
    return f"{type(event).__name__}: " + ", ".join(f"{name} = {value}" for name, value in vars(event).items())


def _flat(event: events.Event) -> tuple[events.Event, ...]:
    """The events of a composition, and of compositions inside it."""
    if not isinstance(event, events.Compose):
        return (event,)
    return tuple(each for part in event.events for each in _flat(part))


def _list(parts: tuple[events.Event, ...], unit: Unit | None) -> list[Branch]:
    """The branches of several events, equal ones counted, and no more than a reader can take in."""
    counted = Counter(parts)
    shown = [
        tree_of(part if times == 1 else events.Repeat(part, times), unit)
        for part, times in list(counted.items())[:MOST_BRANCHES]
    ]
    left = len(counted) - len(shown)
    return [*shown, Branch(f"… and {left} more kinds of releases")] if left else shown
