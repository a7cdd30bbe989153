"""Mechanisms: callables that turn a bounded statistic into a release, each with its event.

===========================  ==============================  ============================
mechanism                    releases                        event
===========================  ==============================  ============================
:class:`Laplace`             numbers, ℓ1 sensitivity         Laplace(scale)
:class:`Gaussian`            numbers, ℓ2 sensitivity         Gaussian(noise_multiplier)
:class:`Norm`                vectors, ℓ1, ℓ2 or ℓ∞           Pure(ε); Laplace for ℓ1
:class:`Wishart`             symmetric matrices, trace norm  Pure(ε)
:class:`DiscreteLaplace`     integers, ℓ1 sensitivity        Pure(ε)
:class:`DiscreteGaussian`    integers, ℓ2 sensitivity        ZeroConcentrated(ρ)
:class:`Exponential`         the index of a high score       BoundedRange(ε)
:class:`PermuteAndFlip`      the index of a high score       Pure(ε)
:class:`ReportNoisyMax`      the index of a high score       Pure(ε)
:class:`SparseVector`        which queries pass a threshold  Pure(ε), for its whole life
:class:`RandomizedResponse`  each respondent's answer        RandomizedResponse(ε, k)
===========================  ==============================  ============================

A mechanism is immutable but for its stream of random bits. Its parameters and the shape of what
it is called with are public; the values it is called with are private, and appear in no error
message. Whoever calls it charges ``mechanism.event`` first: once per call (:class:`SparseVector`:
once per object, :class:`RandomizedResponse`: once per respondent).

Not covered: running time. The samplers take nearly constant time, but rejection and the choice
of an index do not quite, and NumPy makes no promise about the rest.
"""

from tacit.mechanisms._base import normals
from tacit.mechanisms.choice import euclidean_noise, integer_noise
from tacit.mechanisms.discrete import DiscreteGaussian, DiscreteLaplace
from tacit.mechanisms.exponential import Exponential
from tacit.mechanisms.gaussian import Gaussian
from tacit.mechanisms.laplace import Laplace
from tacit.mechanisms.noisy_max import ReportNoisyMax
from tacit.mechanisms.norm import Norm
from tacit.mechanisms.permute_and_flip import PermuteAndFlip
from tacit.mechanisms.postprocess import without_negatives
from tacit.mechanisms.randomized_response import FrequencyEstimate, RandomizedResponse
from tacit.mechanisms.sparse_vector import SparseVector
from tacit.mechanisms.wishart import Wishart

__all__ = [
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "FrequencyEstimate",
    "Gaussian",
    "Laplace",
    "Norm",
    "PermuteAndFlip",
    "RandomizedResponse",
    "ReportNoisyMax",
    "SparseVector",
    "Wishart",
    "euclidean_noise",
    "integer_noise",
    "normals",
    "without_negatives",
]
