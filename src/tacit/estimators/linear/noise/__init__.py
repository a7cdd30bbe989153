"""Places where noise can enter the fitting of a linear model, by name."""

from tacit import errors
from tacit.estimators.linear.noise.exponential import Exponential
from tacit.estimators.linear.noise.functional import Functional
from tacit.estimators.linear.noise.gradient import Gradient
from tacit.estimators.linear.noise.histogram import Histogram
from tacit.estimators.linear.noise.objective import Objective
from tacit.estimators.linear.noise.output import Output
from tacit.estimators.linear.noise.place import Place, Task
from tacit.estimators.linear.noise.statistics import Statistics

__all__ = [
    "PLACES",
    "Exponential",
    "Functional",
    "Gradient",
    "Histogram",
    "Objective",
    "Output",
    "Place",
    "Statistics",
    "Task",
    "place_of",
]

PLACES: dict[str, type[Place]] = {
    place.name: place
    for place in (Objective, Output, Functional, Gradient, Statistics, Histogram, Exponential)
}


def place_of(name: str, task: Task) -> Place:
    """The place of this name, made for ``task``."""
    if name not in PLACES:
        raise errors.InvalidValue("noise", name, "one of " + ", ".join(map(repr, PLACES)))
    return PLACES[name](task)
