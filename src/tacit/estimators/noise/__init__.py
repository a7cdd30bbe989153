"""Places where noise can enter the fitting of a linear model, by name."""

from tacit.errors import InvalidValue
from tacit.estimators.noise.objective import Objective
from tacit.estimators.noise.output import Output
from tacit.estimators.noise.place import Place, Task

__all__ = ["PLACES", "Place", "Task", "place_of"]

PLACES: dict[str, type[Place]] = {place.name: place for place in (Objective, Output)}


def place_of(name: str, task: Task) -> Place:
    """The place of this name, made for ``task``."""
    if name not in PLACES:
        raise InvalidValue("noise", name, "one of " + ", ".join(map(repr, PLACES)))
    return PLACES[name](task)
