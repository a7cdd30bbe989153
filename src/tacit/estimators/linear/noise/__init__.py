"""Places where noise can enter the fit of a linear model, by name or with settings.

A linear model takes ``noise="gradient"``, or ``noise=noise.Gradient(steps=100)`` with ``from tacit.estimators
import noise``. All settings are public: they have to be chosen without looking at the data.

=====================  ==================================  =============================================
settings               noise is added to                   event, for δ = 0 and for δ > 0
=====================  ==================================  =============================================
:class:`Objective`     the objective that is minimised     Pure; ObjectivePerturbation with a Gaussian
:class:`Output`        the minimum                         Pure; Gaussian
:class:`Gradient`      the gradient of every step          Pure; (Poisson-sampled) Gaussian; repeated
:class:`Adaptive`      centre, scale, then gradients or    three Gaussian; Pure, Laplace and Pure
                       moments (least squares)
:class:`Statistics`    Σxxᵀ and Σxy (least squares)        Pure; Gaussian
:class:`Functional`    coefficients of a quadratic loss    Pure or Laplace; Gaussian
:class:`Input`         counts of cells of rows             Pure; ZeroConcentrated
:class:`Exponential`   the choice among a grid of weights  BoundedRange
=====================  ==================================  =============================================
"""

from collections.abc import Mapping
from typing import Any

from tacit import errors
from tacit.estimators.linear.noise.adaptive import Adaptive
from tacit.estimators.linear.noise.exponential import Exponential
from tacit.estimators.linear.noise.functional import Functional
from tacit.estimators.linear.noise.gradient import Gradient
from tacit.estimators.linear.noise.histogram import Input
from tacit.estimators.linear.noise.objective import Objective
from tacit.estimators.linear.noise.output import Output
from tacit.estimators.linear.noise.place import Noise
from tacit.estimators.linear.noise.statistics import Statistics

__all__ = [
    "PLACES",
    "Adaptive",
    "Exponential",
    "Functional",
    "Gradient",
    "Input",
    "Noise",
    "Objective",
    "Output",
    "Statistics",
    "noise_from_dict",
    "noise_of",
]

PLACES: dict[str, type[Noise]] = {
    kind.name: kind
    for kind in (Objective, Output, Functional, Gradient, Adaptive, Statistics, Input, Exponential)
}
"""The settings of every place, by its name."""


def noise_of(noise: Any) -> Noise:
    """Settings as they are, or the default settings of the place of this name.

    Settings are known by their exact class: a subclass may make a place of any event and any noise.

    >>> noise_of("input"), noise_of(Input(cells=5))
    (Input(cells=None), Input(cells=5))
    """
    if type(noise) in PLACES.values():
        settings: Noise = noise
        return settings
    if not isinstance(noise, str) or noise not in PLACES:
        known = "one of " + ", ".join(map(repr, PLACES)) + ", or settings such as noise.Gradient(steps=100)"
        raise errors.InvalidValue("noise", noise, known)
    return PLACES[noise]()


def noise_from_dict(saved: Mapping[str, Any]) -> Noise:
    """The settings that :meth:`Noise.to_dict` wrote.

    >>> noise_from_dict(Gradient(steps=7).to_dict()) == Gradient(steps=7)
    True
    """
    settings = dict(saved)
    return PLACES[settings.pop("name")](**settings)
