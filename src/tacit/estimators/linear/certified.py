"""A minimum within a certified distance of the exact one, whatever the rows are.

Noise on the output or in the objective is calibrated for a minimum within γ/λ of the exact one, γ and λ being
public. So the rows must not decide whether that is kept, and neither may an error tell of them.
:func:`certified` finds such a point in two attempts.

1. Newton's method (:mod:`tacit.estimators.linear.newton`), which is fast and has reached γ on all rows that
   are known. Its point is taken if the gradient there is at most γ, with the error of computing it: J being
   λ-strongly convex, the minimum is then within γ/λ. The gradient is computed fast, in float64, and its error
   bounded by the number of rows and the length of Θ; where that bound is too large, once more, to within η.
2. Otherwise accelerated gradient descent (Nesterov), which needs no luck. Its number of steps is fixed in
   advance by λ, the curvature and the number of rows, and is not shown.

Proof for the second. J is λ-strongly convex and L-smooth, L = λ + curvature·Σ‖x‖², and gradients are known to
within η. Such gradients are an inexact oracle (Devolder, Glineur and Nesterov 2013) of constants λ/2, 2L and
δ ≤ 3η²/2λ: −⟨e, x − y⟩ ≥ −η²/λ − λ/4·‖x − y‖² below, and η‖x − y‖ ≤ η²/2L + L/2·‖x − y‖² above. With
κ = L/λ, the method with momentum (1 − q)/(1 + q), q = 1/(2√κ), shrinks the potential
V = J(x) − J* + λ/4·‖z − Θ*‖² in every step: V′ ≤ (1 − q)·V + δ, as in the exact case, with δ once. So after
K steps J(x) − J* ≤ L·R²·e^(−qK) + δ/q, R being any number with R² ≥ 2(J(0) − J*)/λ, and

    ‖x − Θ*‖² ≤ 2κR²·e^(−K/2√κ) + 6√κ·η²/λ².

The first term is at most γ²/4λ² for K = 2√κ·ln(8κR²λ²/γ²), the second if γ ≥ η·√(24√κ), which
:func:`reachable` sees to. Rounding the point to float64 moves it by 2⁻⁵³·R, also allowed for: in all γ/λ.

Rounding. Points are held in two words (:func:`_sum`, :func:`_product`), about 106 bits, so only two things
are rounded: the slope of a row, to a few units of 2⁻⁵³ (where a slope is steep in the score, the second word
of the score is used), and the sum of the slopes over the rows, which NumPy takes in pairs. Together,
η ≤ 2⁻⁵³·(40·n·lipschitz + 4λR + 4·tilt).

γ is public, so n in it is :data:`ROWS`. For more rows than that the claim rests on rounding errors not
all pointing the same way; if they are independent, it holds up to the square of that.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.estimators.linear.losses import HuberHinge, Loss, Softmax
from tacit.estimators.linear.newton import minimise
from tacit.estimators.linear.rows import BLOCK, ScaledRows

__all__ = ["certified", "reachable"]

Array = NDArray[np.float64]
Pair = tuple[Array, Array]
"""A number in two words, the second at most half a unit in the last place of the first."""

UNIT = 2.0**-53
ROWS = 100_000
"""Rows whose rounding, all in one direction, :func:`reachable` allows for; at random, the square of that."""
SURE_STEPS, SURE_ROWS = 10**8, 1_000
"""Penalties are refused for which a thousand rows may take more steps than this in the second attempt."""
SPLIT = 2.0**27 + 1
PIECE = 256
"""Rows whose slopes are summed by one product of matrices."""


def reachable(loss: Loss, penalty: float, tilt: float, least: float, most: float) -> float:
    """γ: a gradient above ``least`` that can be certified, from public facts alone.

    Refused, before anything is charged, where γ would exceed ``most``, or where the second attempt would take
    too many steps to be carried out.

    Newton's method stops, at best, where float64 does: a score xᵀΘ is rounded by about 2⁻⁵³‖Θ‖, a slope by
    ``curvature`` times that, and the sum of slopes by as much for each of the rows.
    """
    radius = _radius(loss, ROWS, penalty, tilt)
    newton = UNIT * ROWS * (loss.lipschitz + loss.curvature * (2 * tilt / penalty + radius))
    eta = UNIT * (40 * ROWS * loss.lipschitz + 4 * penalty * radius + 4 * tilt)
    condition = 1 + ROWS * loss.curvature / penalty
    found = max(least, newton, eta * math.sqrt(24 * math.sqrt(condition)), 4 * UNIT * penalty * radius)
    few = 1 + SURE_ROWS * loss.curvature / penalty
    steps = _steps(few, _radius(loss, SURE_ROWS, penalty, tilt) * penalty / found)
    if found > most or steps > SURE_STEPS:
        raise InvalidValue(
            "C", 1 / penalty, "smaller, or corner larger, for a minimum that float64 can find",
            "Leave C out so that it is chosen.",
        )  # fmt: skip
    return found


def certified(loss: Loss, rows: ScaledRows, penalty: Array, tilt: Array, tolerance: float) -> Array:
    """Θ within ``tolerance``/min(penalty) of the minimum, for all rows; ``tolerance`` is reachable."""
    found = minimise(loss, rows, penalty, tilt, tolerance / 2)
    with np.errstate(all="ignore"):
        gradient = _Gradient(loss, rows, penalty, tilt)
        if np.isfinite(found).all():
            fast, error = gradient.fast(found)
            if _norm(fast) + error <= tolerance:
                return found
            if _norm(gradient((found, np.zeros_like(found)))) <= tolerance / 2:
                return found
        return _descended(gradient, tolerance)


def _descended(gradient: _Gradient, tolerance: float) -> Array:
    """The second attempt: so many steps of accelerated gradient descent, fewer if it is certified earlier."""
    least, largest = float(gradient.penalty.min()), gradient.smoothness()
    condition = largest / least
    radius = _radius(gradient.loss, len(gradient.rows), least, _norm(gradient.tilt))
    length = (1 - 1e-12) / (2 * largest)
    q = (1 - 1e-12) / (2 * math.sqrt(condition))
    momentum = (1 - q) / (1 + q)
    nothing = np.zeros_like(gradient.tilt)
    last: Pair = (nothing, nothing)
    point = last
    for _ in range(_steps(condition, radius * least / tolerance)):
        slope = gradient(point)
        if _norm(slope) <= tolerance / 2:
            return point[0]
        moved = _added(point, (-length * slope, nothing))
        away = _added(moved, (-last[0], -last[1]))
        high, low = _product(np.full_like(away[0], momentum), away[0])
        last, point = moved, _added(moved, (high, low + momentum * away[1]))
    return last[0]


def _steps(condition: float, distance: float) -> int:
    """K: steps after which ``distance``, R in units of γ/λ, has shrunk to ½, for this condition number."""
    return math.ceil(2 * math.sqrt(condition) * math.log(8 * condition * max(distance, 1.0) ** 2)) + 1


def _radius(loss: Loss, rows: int, penalty: float, tilt: float) -> float:
    """R, with R² ≥ 2(J(0) − J*)/λ: J(0) = n·ℓ(0), and J* ≥ −‖tilt‖²/2λ since losses are not negative."""
    zero = float(loss.value(np.zeros((1, loss.outputs)), np.ones((1, loss.outputs)))[0])
    start = max(zero, (1 + math.log(loss.outputs)) * loss.outputs)
    return math.sqrt(2 * rows * start / penalty + (tilt / penalty) ** 2)


def _norm(values: Array) -> float:
    found = math.sqrt(float(np.square(values).sum()))
    return found if math.isfinite(found) else math.inf


class _Gradient:
    """∇J at a point in two words, to within η."""

    def __init__(self, loss: Loss, rows: ScaledRows, penalty: Array, tilt: Array) -> None:
        self.loss, self.rows, self.penalty, self.tilt = loss, rows, penalty[:, None], tilt

    def smoothness(self) -> float:
        """L: the largest eigenvalue of any Hessian is at most that."""
        squares = sum(float(np.square(x).sum()) for x, _ in self.rows.blocks())
        return (float(self.penalty.max()) + self.loss.curvature * squares) * (1 + 1e-9)

    def __call__(self, point: Pair) -> Array:
        total = self.penalty * point[0] + self.penalty * point[1] + self.tilt
        for x, y, w in self.rows.weighted():
            slopes = w * self._slopes(_scores(x, point), y)
            for output in range(slopes.shape[1]):
                terms = np.ascontiguousarray((x * slopes[:, output : output + 1]).T)
                total[:, output] += terms.sum(axis=1)
        return np.asarray(total)

    def fast(self, theta: Array) -> tuple[Array, float]:
        """∇J in float64, and a bound of its error, for all rows and in whatever order products are summed.

        A score of d products is off by at most (d + 4)·2⁻⁵³‖Θ‖, a slope by ``curvature`` times that and a few
        units; a sum of m numbers by m·2⁻⁵³ of the sum of their sizes, so it is taken in short pieces.
        """
        total = self.penalty * theta + self.tilt
        count = blocks = 0
        for x, y, w in self.rows.weighted():
            slopes = w * self.loss.slope(x @ theta, y)
            whole = len(x) // PIECE * PIECE
            pieces = x[:whole].reshape(-1, PIECE, x.shape[1]).transpose(0, 2, 1)
            total = total + (pieces @ slopes[:whole].reshape(-1, PIECE, slopes.shape[1])).sum(axis=0)
            total = total + x[whole:].T @ slopes[whole:]
            count, blocks = count + len(x), blocks + 1
        length, summed = _norm(theta), 2 * PIECE + BLOCK / PIECE + 2 * blocks + 18
        each = summed * self.loss.lipschitz + self.loss.curvature * ((len(theta) + 4) * length + 4)
        rest = float(self.penalty.max()) * length + _norm(self.tilt)
        return total, UNIT * (count * each + (4 + 2 * blocks) * rest)

    def _slopes(self, scores: Pair, targets: Array) -> Array:
        high, low = scores
        if isinstance(self.loss, HuberHinge):
            slack = (1 - targets * high) - targets * low
            corner = self.loss.corner
            return np.asarray(-targets * np.clip((slack + corner) / (2 * corner), 0.0, 1.0))
        if isinstance(self.loss, Softmax):
            largest = high.argmax(axis=1)[:, None]
            high = (high - np.take_along_axis(high, largest, 1)) + (low - np.take_along_axis(low, largest, 1))
        return self.loss.slope(high, targets)


def _scores(x: Array, point: Pair) -> Pair:
    """xᵀΘ, feature by feature, in two words."""
    total = rest = np.zeros((len(x), point[0].shape[1]))
    for j in range(x.shape[1]):
        value = np.broadcast_to(x[:, j : j + 1], total.shape)
        high, low = _product(value, np.broadcast_to(point[0][j], total.shape))
        total, lost = _sum(total, high)
        rest = rest + (low + lost + value * point[1][j])
    return _sum(total, rest)


def _added(one: Pair, other: Pair) -> Pair:
    high, low = _sum(one[0], other[0])
    return _sum(high, low + (one[1] + other[1]))


def _sum(a: Array, b: Array) -> Pair:
    """a + b as its rounding and what rounding lost, exactly (Knuth)."""
    high = a + b
    part = high - a
    return high, (a - (high - part)) + (b - part)


def _product(a: Array, b: Array) -> Pair:
    """a·b as its rounding and what rounding lost, exactly (Dekker)."""
    high = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2


def _halves(a: Array) -> Pair:
    scaled = SPLIT * a
    first = scaled - (scaled - a)
    return first, a - first
