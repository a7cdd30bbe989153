"""Pure functions from events to ε, δ and noise parameters. Every answer is a valid upper bound."""

from __future__ import annotations

import math
from collections.abc import Callable

from tacit import _validate, events
from tacit.accounting import composition, pld, rdp
from tacit.accounting.terms import Terms, resolve
from tacit.errors import CalibrationError, InvalidValue, UnsupportedEvent
from tacit.relations import Relation

METHODS: dict[str, Callable[[Terms, float], float]] = {
    "basic": composition.basic,
    "advanced": composition.advanced,
    "optimal": composition.optimal,
    "zcdp": composition.zcdp,
    "moments": composition.moments,
    "rdp": lambda terms, delta: rdp.curve(terms).epsilon(delta),
    "pld": pld.epsilon,
}
"""Every accountant: terms and δ to ε. Names of ``method=``."""

FAILURES = (UnsupportedEvent, ArithmeticError, IndexError, MemoryError, ValueError)
"""What one accountant may raise without taking the answer of the others away."""

NOISE_RANGE = (1e-8, 1e12)
CALIBRATION_TOLERANCE = 1e-5


def epsilon(
    event: events.Event, delta: float, *, relation: Relation | str = "add_remove", method: str = "tightest"
) -> float:
    """The smallest ε known such that ``event`` is (ε, delta)-differentially private.

    ``method`` is one of :data:`METHODS`, or ``"tightest"``, the minimum of those that apply.
    Infinite where no ε exists (Gaussian noise at δ = 0).

    >>> run = events.Repeat(events.PoissonSampled(0.01, events.Gaussian(4.0)), 10_000)
    >>> round(epsilon(run, 1e-5), 3)
    0.947
    """
    terms, dlt = resolve(event, relation), _validate.delta(delta)
    if method == "tightest":
        return min(_those_that_apply(terms, dlt).values(), default=math.inf)
    return METHODS[_validate.choice("method", method, (*METHODS, "tightest"))](terms, dlt)


def compare(
    event: events.Event, delta: float, *, relation: Relation | str = "add_remove"
) -> dict[str, float]:
    """ε by each accountant that applies to ``event`` and certifies a finite ε.

    >>> answers = compare(events.Repeat(events.Gaussian(5.0), 100), 1e-5)
    >>> sorted(answers, key=answers.get)[:2]
    ['pld', 'zcdp']
    """
    answers = _those_that_apply(resolve(event, relation), _validate.delta(delta))
    return {name: value for name, value in answers.items() if math.isfinite(value)}


def delta(
    event: events.Event, epsilon: float, *, relation: Relation | str = "add_remove", method: str = "tightest"
) -> float:
    """The smallest δ known such that ``event`` is (epsilon, δ)-differentially private.

    >>> delta(events.Laplace(2.0), 0.5)
    0.0
    """
    terms, eps = resolve(event, relation), _validate.non_negative("epsilon", epsilon)
    if method != "tightest":
        return _delta(_validate.choice("method", method, (*METHODS, "tightest")), terms, eps, 1.0)
    best = 1.0
    for name in sorted(METHODS, key=("pld", "rdp").__contains__, reverse=True):
        try:
            best = min(best, _delta(name, terms, eps, best))
        except FAILURES:
            continue
    return best


def _delta(name: str, terms: Terms, eps: float, enough: float) -> float:
    """δ by one accountant; where it has to be searched for, only if it is below ``enough``."""
    if name == "pld":
        return pld.delta(terms, eps)
    if name == "rdp":
        return rdp.curve(terms).delta(eps)
    certify = METHODS[name]
    if certify(terms, 0.0) <= eps:
        return 0.0
    high = min(enough, 1 - 1e-12)
    if high <= 0 or certify(terms, high) > eps:
        return 1.0
    low = max(high * 1e-60, math.ulp(0.0))
    while high > low * (1 + 1e-6):
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high:
            break
        low, high = (low, middle) if certify(terms, middle) <= eps else (middle, high)
    return high


def _those_that_apply(terms: Terms, delta: float) -> dict[str, float]:
    """Every accountant that answers. One that fails leaves the question to the others."""
    answers = {}
    for name, certify in METHODS.items():
        try:
            value = certify(terms, delta)
        except FAILURES:
            continue
        if not math.isnan(value):
            answers[name] = value
    return answers


def calibrate(
    make_event: Callable[[float], events.Event],
    *,
    epsilon: float,
    delta: float,
    relation: Relation | str = "add_remove",
) -> float:
    """The smallest noise parameter x for which ``make_event(x)`` is (epsilon, delta)-private.

    ``make_event`` maps a noise parameter to an event that costs less the larger it is. The result
    is within 0.1 % of the best and never overspends: the ε of exactly the returned value was
    computed and found at most ``epsilon``.

    >>> z = calibrate(lambda z: events.Repeat(events.PoissonSampled(256 / 60000, events.Gaussian(z)), 3510),
    ...               epsilon=2.0, delta=1e-5)
    >>> round(z, 2)
    0.84
    """
    target, dlt, rel = _validate.epsilon(epsilon), _validate.delta(delta), Relation.of(relation)
    if not callable(make_event):
        raise InvalidValue("make_event", make_event, "a function from a noise parameter to an event")

    def excess(x: float) -> float:
        spent = tightest(resolve(make_event(x), rel), dlt)
        return math.log(max(spent, 1e-300) / target) if math.isfinite(spent) else 1e3

    low, high = _bracket(excess, target, dlt)
    return _smallest(excess, low, high)


def tightest(terms: Terms, dlt: float) -> float:
    """ε by the tightest accountant, asking only that one where it is known beforehand which it is."""
    loss = rdp.largest_loss(terms)
    if dlt == 0:
        return loss
    if not _has_bounded_range(terms):
        try:
            fixed = any(isinstance(term, events.Approximate) for term, _ in terms)
            added_up = composition.basic(terms, dlt) if fixed else loss
            return min(pld.epsilon(terms, dlt), added_up)
        except FAILURES:
            pass
    return min(_those_that_apply(terms, dlt).values(), default=math.inf)


def _has_bounded_range(terms: Terms) -> bool:
    return any(isinstance(term, events.BoundedRange) for term, _ in terms)


def _bracket(
    excess: Callable[[float], float], target: float, dlt: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """(x, excess) of a parameter that overspends and of one, at most twice as large, that does not."""
    x, value = 1.0, excess(1.0)
    factor = 2.0 if value > 0 else 0.5
    while True:
        other = x * factor
        if not NOISE_RANGE[0] < other < NOISE_RANGE[1]:
            raise CalibrationError(
                f"No noise parameter in {NOISE_RANGE} spends epsilon={target!r} at delta={dlt!r}.",
                "Check that make_event costs less with a larger parameter, and that delta is above "
                "0 where the noise is Gaussian.",
                epsilon=target,
                delta=dlt,
            )
        at_other = excess(other)
        if (at_other > 0) != (value > 0):
            pair = (x, value), (other, at_other)
            return pair if value > 0 else (pair[1], pair[0])
        x, value = other, at_other


def _smallest(excess: Callable[[float], float], low: tuple[float, float], high: tuple[float, float]) -> float:
    """Regula falsi in ln x (Illinois), keeping ``high`` on the private side."""
    (a, fa), (b, fb) = low, high
    kept = 0
    while b / a - 1 > CALIBRATION_TOLERANCE:
        share = min(max(fa / (fa - fb), 0.01), 0.99) if fa < 50 else 0.5
        x = a * math.pow(b / a, share)
        fx = excess(x)
        if fx > 0:
            a, fa = x, fx
            fb, kept = (fb / 2 if kept > 0 else fb), 1
        elif fx > -CALIBRATION_TOLERANCE:
            return x
        else:
            b, fb = x, fx
            fa, kept = (fa / 2 if kept < 0 else fa), -1
    return b


def group(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """What an (ε, δ) guarantee for one unit promises to ``size`` units together.

    (kε, δ·(e^{kε} − 1)/(e^ε − 1)), the sum 1 + e^ε + … + e^{(k−1)ε} that the usual
    k·e^{(k−1)ε} bounds from above.

    >>> eps, dlt = group(0.1, 1e-6, 3)
    >>> round(eps, 10), round(dlt * 1e6, 4)
    (0.3, 3.3266)
    """
    eps, dlt = _validate.non_negative("epsilon", epsilon), _validate.delta(delta)
    k = _validate.count("size", size, 1)
    with_group = k * eps
    if dlt == 0:
        return with_group, 0.0
    try:
        factor = (
            math.fsum([math.exp(i * eps) for i in range(k)])
            if k <= 64
            else (math.expm1(with_group) / math.expm1(eps) if eps > 0 else float(k))
        )
    except OverflowError:
        return with_group, 1.0
    return with_group, min(1.0, dlt * factor)
