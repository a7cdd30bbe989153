"""What a client may send, and what becomes of it: never an error, never more than the bound."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tacit.errors import InvalidValue
from tacit.federated import Metric, Updates
from tacit.federated.updates import accepted, grid, in_steps

ANY = st.floats(allow_nan=True, allow_infinity=True, width=64)


def square(vector: np.ndarray) -> Fraction:
    """The squared norm, exactly."""
    return sum((Fraction(float(each)) ** 2 for each in vector), Fraction(0))


@given(
    hnp.arrays(np.float64, st.integers(1, 30), elements=ANY),
    st.floats(1e-9, 1e9),
    st.integers(1, 10**6),
)
def test_norm_is_within_the_bound_exactly(vector: np.ndarray, clip_norm: float, most: int) -> None:
    clipped = accepted(vector, clip_norm, most)
    assert square(clipped) <= Fraction(clip_norm) ** 2
    steps = in_steps(vector, clip_norm, grid(clip_norm, most))
    assert np.array_equal(steps, np.trunc(steps))
    assert np.abs(steps).max(initial=0) * most <= 2**53
    if not np.isfinite(vector).all():
        assert not clipped.any()


@pytest.mark.parametrize("scale", [1e300, 1e154, 1e9, 1.0, 1 + 1e-15])
def test_long_vectors_become_as_long_as_allowed(scale: float) -> None:
    vector = np.array([0.6, -0.8]) * scale
    np.testing.assert_allclose(accepted(vector, 1.0), [0.6, -0.8], rtol=1e-13)


def test_a_bound_that_rounding_would_break_holds() -> None:
    """2,000 random vectors, each scaled by the plain formula and by ours."""
    generator = np.random.default_rng(0)
    broken = 0
    for _ in range(2000):
        vector = generator.normal(size=7)
        plain = vector * min(1.0, 1.0 / np.linalg.norm(vector))
        broken += square(plain) > 1
        assert square(accepted(vector, 1.0)) <= 1
    assert broken > 100


@pytest.mark.parametrize("scale", [1e-12, 1e-320, 0.0])
def test_short_vectors_stay_or_vanish(scale: float) -> None:
    clipped = accepted(np.array([scale, -scale]), 1.0)
    np.testing.assert_allclose(clipped, [scale, -scale], atol=2.0**-51)


@given(st.integers(0, 10**6))
def test_sums_are_exact_in_any_order(seed: int) -> None:
    generator = np.random.default_rng(seed)
    sizes = 10.0 ** generator.integers(-9, 9, size=50)
    parts = [accepted(generator.normal(size=3) * size, 0.7, 50) for size in sizes]
    whole = sum(parts)
    assert np.array_equal(whole, sum(parts[::-1]))
    assert np.array_equal(whole - parts[7], sum(parts[:7] + parts[8:]))


HOSTILE: list[Any] = [
    None, 3, "text", b"bytes", [], [np.ones(3)], [np.ones(2), np.ones((1, 3))], [np.ones(2), np.ones((2, 1))],
    [np.ones(2), np.ones((1, 2)), np.ones(1)], [np.array(["a", "b"]), np.ones((1, 2))],
    [np.array([1j, 2]), np.ones((1, 2))], [np.array([None, object()]), np.ones((1, 2))],
    [[[1.0], [2.0, 3.0]], np.ones((1, 2))], {"a": 1}, iter([]), object(),
    [np.array([1, 2], "datetime64[s]"), np.ones((1, 2))],
]  # fmt: skip


@pytest.mark.parametrize("sent", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_is_no_update_is_none(sent: Any) -> None:
    assert Updates([(2,), (1, 2)]).flatten(sent) is None


class Raising:
    """An array that raises when it is read."""

    def __array__(self, *given: Any, **named: Any) -> Any:
        raise MemoryError("98765")


def test_an_array_that_raises_is_none() -> None:
    assert Updates([(2,)]).flatten([Raising()]) is None


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint64, np.bool_])
def test_numbers_of_any_kind(dtype: Any) -> None:
    flat = Updates([(2,), (1, 1)]).flatten([np.ones(2, dtype), np.ones((1, 1), dtype)])
    assert flat is not None
    assert np.array_equal(flat, np.ones(3))


def test_there_and_back() -> None:
    updates = Updates([(2, 3), (), (4,)])
    arrays = [np.arange(6.0).reshape(2, 3), np.array(7.0), np.arange(4.0)]
    flat = updates.flatten(arrays)
    assert flat is not None
    for one, other in zip(updates.unflatten(flat), arrays, strict=True):
        assert np.array_equal(one, other)
    assert Updates.like(arrays).shapes == updates.shapes


@pytest.mark.parametrize("shapes", [[], [(0,)], [(2, -1)], None, 3, [("a",)]])
def test_shapes_are_checked(shapes: Any) -> None:
    with pytest.raises(InvalidValue):
        Updates(shapes)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"loss": 2.0}, 0.0), ({"loss": 4.0}, 1.0), ({"loss": 1e9}, 1.0), ({"loss": -7}, -1.0),
        ({"loss": float("nan")}, 0.0), ({"loss": float("inf")}, 0.0), ({"loss": "3"}, 0.0),
        ({"loss": True}, 0.0),
        ({"loss": None}, 0.0), ({"loss": [3.0]}, 0.0), ({"other": 4.0}, 0.0), ({}, 0.0), (None, 0.0),
        (4.0, 0.0),
        ({"loss": np.float32(4.0)}, 1.0), ({"loss": np.array(0.0)}, -1.0), ({"loss": 10**400}, 0.0),
        ({"loss": 1j}, 0.0), ({"loss": np.complex128(1)}, 0.0),
    ],
)  # fmt: skip
def test_metrics_are_bounded_by_a_public_rule(sent: Any, expected: float) -> None:
    assert Metric("loss", 0.0, 4.0).scaled(sent) == expected


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300), ANY)
def test_metrics_are_within_one(lower: float, upper: float, value: float) -> None:
    if not lower < upper:
        return
    metric = Metric("m", lower, upper)
    assert -1.0 <= metric.scaled({"m": value}) <= 1.0
    assert lower <= metric.mean(0.3) <= upper
