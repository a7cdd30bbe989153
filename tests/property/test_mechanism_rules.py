"""Mechanisms hold to their public rules for all inputs: the grid, shapes, clamping, refusals."""

import math
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tacit import mechanisms
from tacit.errors import InvalidValue
from tacit.mechanisms import _grid
from tacit.mechanisms._base import real_values
from tacit.randomness import MAX_SCALE

sensitivities = st.floats(2.0**-400, 2.0**400)
finite = st.floats(allow_nan=False, allow_infinity=False)
exponents = st.integers(-60, 10)


@given(sensitivities, st.integers(0, 10**9), st.floats(2.0**-100, 2.0**30))
def test_the_grid_absorbs_every_step_the_laplace_proof_needs(sensitivity, coordinates, noise):
    exponent = _grid.grid_exponent(sensitivity, coordinates + 1, noise)
    steps = _grid.in_steps(sensitivity, exponent)
    assert math.floor(steps + coordinates) + 1 <= _grid.WIDENED * steps
    assert steps < 2 ** (43 + (coordinates + 1).bit_length())


@given(sensitivities, st.integers(1, 10**9), st.floats(2.0**-30, 2.0**25))
def test_the_grid_absorbs_every_step_the_gaussian_proof_needs(sensitivity, coordinates, multiplier):
    root = math.isqrt(coordinates - 1) + 1
    assert root**2 >= coordinates
    exponent = _grid.grid_exponent(sensitivity, 2 * root, multiplier)
    steps = _grid.in_steps(sensitivity, exponent)
    assert steps + 2 * root <= _grid.WIDENED * steps
    assert steps * Fraction(multiplier) >= 1
    assert mechanisms.Gaussian(sensitivity, noise_multiplier=multiplier)._exponent(coordinates) == exponent


@given(finite, st.integers(-(2**62), 2**62), exponents)
def test_sums_on_the_grid_are_exact(value, noise, exponent):
    """(rounded value + noise)·g, exactly where float64 can hold it and else to its last digit."""
    result = float(_grid.add_steps(np.array([value]), np.array([noise]), exponent)[0])
    limit = 2**100
    steps = min(max(round(Fraction(value) / Fraction(2) ** exponent), -limit), limit)
    total = Fraction(steps + noise)
    got = Fraction(result) / Fraction(2) ** exponent
    if abs(total) <= 2**53:
        assert got == total
    else:
        assert abs(got - total) <= abs(total) * Fraction(1, 2**51)


@given(finite, st.integers(-(2**62), 2**62), st.integers(-(2**70), 2**70), exponents)
def test_the_release_depends_on_nothing_but_the_exact_sum(value, noise, move, exponent):
    """Moving d steps from the value to the noise changes nothing."""
    steps = round(Fraction(value) / Fraction(2) ** exponent)
    if abs(steps) > 2**53 or abs(steps - move) > 2**53 or abs(noise + move) > 2**62:
        return
    here = _grid.add_steps(np.array([math.ldexp(steps, exponent)]), np.array([noise]), exponent)
    there = _grid.add_steps(
        np.array([math.ldexp(steps - move, exponent)]), np.array([noise + move]), exponent
    )
    assert here.tobytes() == there.tobytes()


@given(finite, finite, exponents)
def test_rounding_and_clamping_add_at_most_one_step(a, b, exponent):
    first, second = (int(x) for x in _grid.to_grid(np.array([a, b]), exponent))
    assert abs(first - second) <= abs(Fraction(a) - Fraction(b)) / Fraction(2) ** exponent + 1
    assert max(abs(first), abs(second)) <= _grid.STEPS


shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
real_types = st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.int8, np.uint64, np.uint16])
arrays = real_types.flatmap(
    lambda kind: hnp.arrays(
        kind,
        shapes,
        elements={"allow_nan": False, "allow_infinity": False} if np.dtype(kind).kind == "f" else None,
    )
)


@settings(max_examples=60, deadline=None)
@given(arrays)
def test_shapes_and_types_are_kept(values):
    for mechanism in (
        mechanisms.Laplace(1.0, epsilon=1.0, random_state=1),
        mechanisms.Gaussian(1.0, epsilon=1.0, delta=1e-6, random_state=1),
    ):
        released = mechanism(values)
        assert np.isfinite(released).all()
        if values.ndim:
            assert released.shape == values.shape
            assert released.dtype == np.float64
        else:
            assert type(released) is float


@given(st.integers(-(10**30), 10**30), st.integers(-(10**30), 10**30))
def test_conversion_never_widens_a_difference_of_integers(a, b):
    first, second = (Fraction(float(real_values(x)[0])) for x in (a, b))
    assert abs(first - second) <= abs(a - b)


@settings(max_examples=30, deadline=None)
@given(hnp.arrays(np.int64, shapes))
def test_integer_mechanisms_keep_integers(values):
    for mechanism in (
        mechanisms.DiscreteLaplace(1, 1.0, random_state=1),
        mechanisms.DiscreteGaussian(1.0, noise_multiplier=2.0, random_state=1),
    ):
        released = mechanism(values)
        assert type(released) is int or (released.shape == values.shape and released.dtype == np.int64)
        assert mechanism(10**30) == pytest.approx(2**60)


@settings(max_examples=50, deadline=None)
@given(hnp.arrays(np.float64, st.integers(1, 20), elements=finite))
def test_selection_returns_an_index(scores):
    for kind in (mechanisms.Exponential, mechanisms.PermuteAndFlip, mechanisms.ReportNoisyMax):
        index = kind(1.0, 1.0, random_state=1)(scores)
        assert type(index) is int
        assert 0 <= index < scores.size


NUMBERS = {
    "Laplace": mechanisms.Laplace(1.0, epsilon=1.0),
    "Gaussian": mechanisms.Gaussian(1.0, noise_multiplier=1.0),
    "Norm": mechanisms.Norm(1.0, 1.0),
    "Exponential": mechanisms.Exponential(1.0, 1.0),
    "PermuteAndFlip": mechanisms.PermuteAndFlip(1.0, 1.0),
    "ReportNoisyMax": mechanisms.ReportNoisyMax(1.0, 1.0),
    "SparseVector": mechanisms.SparseVector(1.0, 1.0, threshold=0.0),
    "DiscreteLaplace": mechanisms.DiscreteLaplace(1, 1.0),
    "DiscreteGaussian": mechanisms.DiscreteGaussian(1.0, noise_multiplier=1.0),
}
SECRET = 918273645.5
BAD_VALUES = [
    [SECRET, math.nan],
    [SECRET, math.inf],
    math.nan,
    -math.inf,
    np.array([SECRET, 1j]),
    np.array([SECRET], dtype=np.longdouble) if np.dtype(np.longdouble).itemsize > 8 else None,
    [True, False],
    True,
    "918273645.5",
    ["918273645.5"],
    None,
    [[SECRET], [SECRET, SECRET]],
    np.array([SECRET], dtype=object),
    np.datetime64("2020-01-01"),
    {},
]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", BAD_VALUES, ids=repr)
def test_bad_values_are_refused_without_being_shown(name, value):
    with pytest.raises(InvalidValue) as caught:
        NUMBERS[name](value)
    assert "918273645" not in str(caught.value)
    assert "918273645" not in repr(vars(caught.value))
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_wrong_shapes_are_refused():
    for name in ("Exponential", "PermuteAndFlip", "ReportNoisyMax"):
        for scores in ([], 3.0, [[1.0, 2.0]]):
            with pytest.raises(InvalidValue):
                NUMBERS[name](scores)
    refused = {"SparseVector": [1.0], "Norm": 1.0, "DiscreteLaplace": 1.5, "DiscreteGaussian": [1.0]}
    for name, value in refused.items():
        with pytest.raises(InvalidValue):
            NUMBERS[name](value)
    for name in ("Laplace", "Gaussian", "Norm", "DiscreteLaplace", "DiscreteGaussian"):
        assert NUMBERS[name]([]).shape == (0,)
        assert NUMBERS[name](np.empty((0, 3))).shape == (0, 3)


BUILDERS = {
    "laplace": lambda **p: mechanisms.Laplace(**{"sensitivity": 1.0, "epsilon": 1.0} | p),
    "gaussian": lambda **p: mechanisms.Gaussian(**{"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-6} | p),
    "norm": lambda **p: mechanisms.Norm(**{"sensitivity": 1.0, "epsilon": 1.0} | p),
    "discrete laplace": lambda **p: mechanisms.DiscreteLaplace(**{"sensitivity": 1, "epsilon": 1.0} | p),
    "discrete gaussian": lambda **p: mechanisms.DiscreteGaussian(
        **{"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-6} | p
    ),
    "exponential": lambda **p: mechanisms.Exponential(**{"sensitivity": 1.0, "epsilon": 1.0} | p),
    "permute and flip": lambda **p: mechanisms.PermuteAndFlip(**{"sensitivity": 1.0, "epsilon": 1.0} | p),
    "noisy max": lambda **p: mechanisms.ReportNoisyMax(**{"sensitivity": 1.0, "epsilon": 1.0} | p),
    "sparse vector": lambda **p: mechanisms.SparseVector(
        **{"sensitivity": 1.0, "epsilon": 1.0, "threshold": 0.0} | p
    ),
    "randomized response": lambda **p: mechanisms.RandomizedResponse(**{"epsilon": 1.0} | p),
}
NOT_POSITIVE = (0, 0.0, -1.0, math.nan, math.inf, True, "1")


@pytest.mark.parametrize("name", BUILDERS)
def test_bad_parameters_are_refused(name):
    build = BUILDERS[name]
    assert build().event == build(random_state=4).event
    wrong = [("epsilon", value) for value in NOT_POSITIVE]
    if name != "randomized response":
        wrong += [("sensitivity", value) for value in NOT_POSITIVE]
    if "gaussian" in name:
        wrong += [("delta", value) for value in (0.0, 1.0, -1e-6, math.nan, None)]
        wrong += [("noise_multiplier", 1.0)]
    if name in ("exponential", "permute and flip", "noisy max", "sparse vector"):
        wrong += [("monotone", 1)]
    wrong += [("random_state", value) for value in (-1, 1.5, "seed", True)]
    for parameter, value in wrong:
        with pytest.raises(InvalidValue):
            build(**{parameter: value})


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("laplace", {"scale": 1.0}),
        ("laplace", {"epsilon": None}),
        ("laplace", {"epsilon": None, "scale": 0.0}),
        ("laplace", {"epsilon": 1e-300}),
        ("laplace", {"epsilon": 1e300}),
        ("laplace", {"sensitivity": 1e-300}),
        ("gaussian", {"sensitivity": 1e300}),
        ("gaussian", {"epsilon": None, "delta": None, "noise_multiplier": 1e-12}),
        ("gaussian", {"epsilon": None, "delta": None, "noise_multiplier": 1e12}),
        ("discrete laplace", {"epsilon": 1e-300}),
        ("discrete gaussian", {"sensitivity": 1e300}),
        ("exponential", {"epsilon": 1e-300}),
        ("sparse vector", {"epsilon": 1e-300}),
        ("randomized response", {"epsilon": 1e-300}),
        ("gaussian", {"epsilon": 1.01, "calibration": "classical"}),
        ("gaussian", {"calibration": "magic"}),
        ("gaussian", {"epsilon": None, "delta": None}),
        ("gaussian", {"epsilon": None, "noise_multiplier": 1.0}),
        ("norm", {"epsilon": 1e-300}),
        ("norm", {"norm": 3}),
        ("norm", {"norm": True}),
        ("norm", {"norm": "2"}),
        ("discrete laplace", {"sensitivity": 1.5}),
        ("discrete gaussian", {"epsilon": None, "delta": None, "noise_multiplier": -1.0}),
        ("sparse vector", {"hits": 0}),
        ("sparse vector", {"hits": 1.0}),
        ("sparse vector", {"threshold": math.inf}),
        ("sparse vector", {"answers": 1.0}),
        ("randomized response", {"categories": 1}),
        ("randomized response", {"categories": "yes"}),
        ("randomized response", {"categories": ["yes", "yes"]}),
        ("randomized response", {"categories": ["only"]}),
        ("randomized response", {"categories": [[1], [2]]}),
        ("randomized response", {"categories": [1.0, math.nan]}),
    ],
    ids=str,
)
def test_bad_combinations_are_refused(name, parameters):
    with pytest.raises(InvalidValue):
        BUILDERS[name](**parameters)


def test_intervals_check_their_arguments():
    for bad in ({"confidence": 0.0}, {"confidence": 1.0}, {"confidence": math.nan}, {"coordinates": 0}):
        for name in ("Laplace", "Gaussian", "DiscreteLaplace", "DiscreteGaussian"):
            with pytest.raises(InvalidValue):
                NUMBERS[name].interval(**bad)


def test_randomized_response_knows_its_categories():
    ask = mechanisms.RandomizedResponse(1.0, categories=["yes", "no", None, 3])
    assert ask(None) in ("yes", "no", None, 3)
    assert set(ask(["yes", 3] * 50)) <= {"yes", "no", None, 3}
    assert mechanisms.RandomizedResponse(1.0, 5)(np.zeros((4, 3), dtype=int)).shape == (4, 3)
    assert mechanisms.RandomizedResponse(1.0, 5)([]).shape == (0,)
    for bad in ("perhaps", ["yes", "perhaps"], [["yes"]], {"perhaps": 1}):
        with pytest.raises(InvalidValue, match="among the 4 categories") as caught:
            ask(bad)
        assert "perhaps" not in str(caught.value)
    with pytest.raises(InvalidValue):
        ask.estimate([])


def test_mechanisms_are_frozen_and_replaceable():
    laplace = mechanisms.Laplace(1.0, epsilon=1.0)
    with pytest.raises(FrozenInstanceError):
        laplace.epsilon = 2.0
    assert replace(laplace, epsilon=2.0).event.scale == 0.5


@pytest.mark.parametrize("coordinates", [1, 2, 24, 66, 1000, 10**6])
@pytest.mark.parametrize("scale", [1.0, 2.0**20, 2.0**27, 1.1 * 2.0**29, 2.0**30])
def test_laplace_noise_covers_rounding_on_every_grid(coordinates: int, scale: float) -> None:
    """Neighbours are at most m = ⌊sensitivity/g + d⌋ steps apart, and the proof needs noise for m + 1."""
    mechanism = mechanisms.Laplace(0.7, scale=scale)
    exponent, steps = mechanism._on_grid(coordinates)
    apart = math.floor(Fraction(0.7) / Fraction(2) ** exponent + coordinates)
    assert (apart + 1) * Fraction(scale) <= steps <= MAX_SCALE
    most = (1 + Fraction(coordinates + 2, 2**22)) * (1 + Fraction(1, 2**20)) * Fraction(0.7) * Fraction(scale)
    assert steps * Fraction(2) ** exponent <= most
    half = mechanism.interval(0.95, coordinates=coordinates)[1]
    assert half >= float(steps * Fraction(2) ** exponent) * -math.log(0.05 / coordinates)
