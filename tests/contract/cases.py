"""Every case in the registry. Whatever comes to make a release adds one here."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import gammainc, ndtr

from contract import registry
from contract.registry import Case, Claiming, Make, Noise, Pair, register
from tacit import audit, events, mechanisms
from tacit.errors import InvalidValue
from tacit.randomness import Source

SECRET = float(registry.SECRET)
NAN, INF = math.nan, math.inf
BAD_PARAMETERS: dict[str, tuple[Any, ...]] = {
    "epsilon": (0, 0.0, -1.0, NAN, INF, -INF, "1", None, True, [1.0]),
    "delta": (-1e-9, 1.0, 1.5, NAN, INF, "0", None, True),
    "sensitivity": (0, -1, NAN, INF, "1", None, True, [1.0]),
    "scale": (0.0, -1.0, NAN, INF, "1", True),
    "noise_multiplier": (0.0, -1.0, NAN, INF, "1", True),
    "calibration": ("best", None, 1),
    "monotone": ("yes", 1, None),
    "norm": (3, 0, "two", None, True, INF),
    "threshold": (NAN, INF, "0", None),
    "hits": (0, -1, 1.5, True, None),
    "answers": (-0.1, 1.0, NAN, "half", None),
    "categories": (1, 0, -3, 2.5, None, (), ("a",), ("a", "a"), ([], []), "ab", (NAN, 1.0)),
    "random_state": (-1, 1.5, "seed", True),
}
BAD_NUMBERS: tuple[Any, ...] = (
    NAN,
    INF,
    -INF,
    "text",
    None,
    1j,
    True,
    object(),
    {"a": 1},
    [SECRET, NAN],
    [SECRET, -INF],
    [[SECRET], [1.0, 2.0]],
    [SECRET, None],
    np.array([True, False]),
    np.array([SECRET], dtype=np.complex128),
    np.array([SECRET], dtype=np.longdouble),
)


def bad_inputs(
    kind: Callable[..., Any], good: dict[str, Any], calls: tuple[Any, ...]
) -> tuple[tuple[str, Callable[[], Any], type[Exception]], ...]:
    """Each parameter of ``good`` made bad in turn, and each bad value the mechanism may be called with."""
    made = tuple(
        (f"{name}={value!r}", partial(kind, **{**good, name: value}), InvalidValue)
        for name in (*good, "random_state")
        for value in BAD_PARAMETERS[name]
    )
    return made + tuple((f"call({v!r:.40})", partial(_call, kind, good, v), InvalidValue) for v in calls)


def _call(kind: Callable[..., Any], good: dict[str, Any], value: Any) -> Any:
    return kind(**good, random_state=1)(value)


def rows(make: Make, data: Any, runs: int, seed: int | None) -> np.ndarray:
    """Independent runs in one call, for noise that is independent and of one scale in all coordinates.

    Each row is then one release of ``data``, at the sensitivity that ``data`` alone has.
    """
    return np.asarray(make(seed)(np.broadcast_to(np.asarray(data), (runs, *np.shape(data)))))


def calls(make: Make, data: Any, runs: int, seed: int | None) -> np.ndarray:
    """Independent runs, one call each."""
    mechanism = make(seed)
    return np.array([mechanism(data) for _ in range(runs)])


def lives(make: Make, queries: list[float], runs: int, seed: int | None) -> np.ndarray:
    """Which query passes first, or none, for one new object each run."""
    source = Source(seed)
    return np.array([_first_positive(make(source), queries) for _ in range(runs)])


def _first_positive(mechanism: Any, queries: list[float]) -> int:
    return next((i for i, query in enumerate(queries) if mechanism(query)), len(queries))


def both_ways(zero: Any) -> Callable[[Make, int, int | None], np.ndarray]:
    """Noise around ``zero``: most of it drawn as one array, some of it one number at a time."""

    def draw(make: Make, runs: int, seed: int | None) -> np.ndarray:
        alone = calls(make, zero, min(runs // 2, 1000), seed)
        other = None if seed is None else seed + 1000
        return np.concatenate([rows(make, zero, runs, other), alone]).astype(float)

    return draw


def of_calls(data: Any, statistic: Callable[[np.ndarray], np.ndarray]) -> Any:
    """A statistic of each of many calls."""
    return lambda make, runs, seed: statistic(calls(make, data, runs, seed)).astype(float)


def claiming(event: events.Event, make: Make) -> Make:
    """A maker whose mechanisms claim ``event`` whatever they do."""
    return lambda random_state: Claiming(make(random_state), event)


def laplace_cdf(x: np.ndarray, scale: float) -> np.ndarray:
    return np.where(
        x < 0, 0.5 * np.exp(np.minimum(x, 0) / scale), 1 - 0.5 * np.exp(-np.maximum(x, 0) / scale)
    )


def steps_cdf(weights: Callable[[np.ndarray], np.ndarray], reach: int) -> Callable[[np.ndarray], np.ndarray]:
    """The distribution function of integers with these weights on −reach … reach."""
    total = np.cumsum(weights(np.arange(-reach, reach + 1.0)))
    return lambda x: np.concatenate([[0.0], total / total[-1]])[
        np.clip(np.floor(x) + reach + 1, 0, 2 * reach + 1).astype(int)
    ]


def chances_cdf(chances: Any) -> Callable[[np.ndarray], np.ndarray]:
    """The distribution function of the index of one of ``chances``."""
    total = np.concatenate([[0.0], np.cumsum(chances)])
    return lambda x: total[np.clip(np.floor(x) + 1, 0, total.size - 1).astype(int)]


def additive(
    name: str,
    kind: Callable[..., Any],
    good: dict[str, Any],
    *,
    event: events.Event,
    less: dict[str, Any],
    pair: Pair,
    noise: Noise,
    delta: float = 0.0,
    data: Any = 1.0,
    bad_calls: tuple[Any, ...] = BAD_NUMBERS,
    bad: dict[str, Any] | None = None,
) -> None:
    """Register a mechanism, with a twin that has two thirds of its noise by the parameters ``less``."""

    def make(random_state: Any) -> Any:
        return kind(**good, random_state=random_state)

    def twin(random_state: Any) -> Any:
        return kind(**{**good, **less}, random_state=random_state)

    register(
        Case(
            name=name,
            event=event,
            delta=delta,
            make=make,
            broken=claiming(event, twin),
            data=data,
            pair=pair,
            noise=noise,
            bad_inputs=bad_inputs(kind, {**good, **(bad or {})}, bad_calls),
        )
    )


def identity(x: np.ndarray) -> np.ndarray:
    return x.astype(float)


additive(
    "laplace",
    mechanisms.Laplace,
    {"sensitivity": 1.0, "epsilon": 1.0},
    event=events.Laplace(1.0),
    less={"sensitivity": 2 / 3},
    pair=Pair(1.0, 0.0, identity, rows),
    noise=Noise(both_ways(0.0), laplace_cdf),
)

QUARTERS = np.full(4, 0.25)


def quarters_loss(x: np.ndarray) -> np.ndarray:
    return np.round((np.abs(x) - np.abs(x - QUARTERS)).sum(axis=1), 9)


additive(
    "laplace_vector",
    mechanisms.Laplace,
    {"sensitivity": 1.0, "scale": 1.0},
    event=events.Laplace(1.0),
    less={"scale": 2 / 3},
    pair=Pair(QUARTERS, np.zeros(4), quarters_loss, rows),
    noise=Noise(of_calls(np.zeros(4), np.ravel), laplace_cdf, 2000),
    data=QUARTERS,
)

additive(
    "gaussian",
    mechanisms.Gaussian,
    {"sensitivity": 2.0, "noise_multiplier": 1.0},
    event=events.Gaussian(1.0),
    delta=0.05,
    less={"sensitivity": 4 / 3},
    pair=Pair(2.0, 0.0, identity, rows),
    noise=Noise(both_ways(0.0), lambda x, factor: ndtr(x / (2 * factor))),
)

HALVES = np.full(4, 0.5)
CALIBRATED = mechanisms.Gaussian(sensitivity=1.0, epsilon=1.0, delta=0.05).event

additive(
    "gaussian_calibrated_vector",
    mechanisms.Gaussian,
    {"sensitivity": 1.0, "epsilon": 1.0, "delta": 0.05},
    event=CALIBRATED,
    delta=0.05,
    less={"sensitivity": 2 / 3},
    pair=Pair(HALVES, np.zeros(4), lambda x: x.sum(axis=1), rows),
    noise=Noise(
        of_calls(np.zeros(4), np.ravel),
        lambda x, factor: ndtr(x / factor / CALIBRATED.noise_multiplier),
        2000,
    ),
    data=HALVES,
    bad={"calibration": "analytic"},
)


def norm_noise(norm: Any, dimension: int, scale: float) -> Noise:
    """‖noise‖ has a Gamma distribution, of shape ``dimension``, for each of the norms."""
    return Noise(
        of_calls(np.zeros(dimension), partial(np.linalg.norm, ord=norm, axis=1)),
        lambda x, factor: gammainc(dimension, np.maximum(x, 0) / (factor * scale)),
        2000,
    )


def norm_loss(norm: Any, value: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    def loss(x: np.ndarray) -> np.ndarray:
        return np.linalg.norm(x, norm, axis=1) - np.linalg.norm(x - value, norm, axis=1)

    return loss


BAD_VECTORS = (*BAD_NUMBERS, 1.0, 3)

for order, corner, threshold, epsilon, runs, charged in (
    (1, [1.0, 0.0], 1 - 1e-6, 1.0, 40_000, events.Laplace(1.0)),
    (2, [1.0, 0.0], 0.75, 2.0, 8000, events.Pure(2.0)),
    ("inf", [1.0, 1.0], 1 - 1e-6, 1.0, 6000, events.Pure(1.0)),
):
    numpy_order = np.inf if order == "inf" else order
    additive(
        f"norm_{order}",
        mechanisms.Norm,
        {"sensitivity": 1.0, "epsilon": epsilon, "norm": order},
        event=charged,
        less={"sensitivity": 2 / 3},
        pair=Pair(
            np.array(corner),
            np.zeros(2),
            norm_loss(numpy_order, np.array(corner)),
            rows if order == 1 else calls,
            (runs, runs),
            audit.Fixed(threshold),
        ),
        noise=norm_noise(numpy_order, 3, 1 / epsilon),
        data=np.array(corner),
        bad_calls=BAD_VECTORS,
    )



def wishart_cdf(x: np.ndarray, scale: float) -> np.ndarray:
    """Of an entry on the diagonal of 3 × 3 noise: the sum of two independent Laplace variables."""
    far = np.abs(x) / scale
    tail = (2 + far) / 4 * np.exp(-far)
    return np.where(x < 0, tail, 1 - tail)


def only_entry_loss(x: np.ndarray) -> np.ndarray:
    """1 × 1 noise is Laplace noise."""
    return np.abs(x[:, 0, 0]) - np.abs(x[:, 0, 0] - 1)


additive(
    "wishart",
    mechanisms.Wishart,
    {"sensitivity": 1.0, "epsilon": 1.0},
    event=events.Pure(1.0),
    less={"sensitivity": 2 / 3},
    pair=Pair(np.eye(1), np.zeros((1, 1)), only_entry_loss, calls, (40_000, 40_000), audit.Fixed(1 - 1e-6)),
    noise=Noise(of_calls(np.zeros((3, 3)), lambda x: x[:, 0, 0]), wishart_cdf, 6000),
    data=np.eye(2),
    bad_calls=(*BAD_VECTORS, [1.0, 2.0], np.zeros((2, 3)), np.zeros((0, 0))),
)

BAD_INTEGERS = (*BAD_NUMBERS, 1.5, 1.0, [1, 2.5], np.array([SECRET]))

additive(
    "discrete_laplace",
    mechanisms.DiscreteLaplace,
    {"sensitivity": 1, "epsilon": 1.0},
    event=events.Pure(1.0),
    less={"epsilon": 1.5},
    pair=Pair(1, 0, identity, rows),
    noise=Noise(
        both_ways(0), lambda x, factor: steps_cdf(lambda k: np.exp(-np.abs(k) / factor), 100)(np.asarray(x))
    ),
    data=1,
    bad_calls=BAD_INTEGERS,
)

additive(
    "discrete_gaussian",
    mechanisms.DiscreteGaussian,
    {"sensitivity": 9.0, "noise_multiplier": 1.0},
    event=events.ZeroConcentrated(0.5),
    delta=0.05,
    less={"sensitivity": 6.0},
    pair=Pair(9, 0, identity, rows),
    noise=Noise(
        both_ways(0),
        lambda x, factor: steps_cdf(lambda k: np.exp(-(k**2) / (162 * factor**2)), 300)(np.asarray(x)),
    ),
    data=9,
    bad_calls=BAD_INTEGERS,
)

CANDIDATES = np.where(np.arange(21) == 0, 0.5, -0.5)
"""One score against twenty, all as far as one unit can move them: −CANDIDATES is a neighbour."""

BAD_SCORES = (*BAD_NUMBERS, 1.0, [], [[1.0, 2.0], [3.0, 4.0]])


def selecting(
    name: str, kind: Callable[..., Any], event: events.Event, first: Callable[[float], float]
) -> None:
    """Register a selection at ε = 3; ``first(x)`` is how often the better of two scores wins, x being
    the gap between them times ε/2, in sensitivities.
    """
    additive(
        name,
        kind,
        {"sensitivity": 1.0, "epsilon": 3.0, "monotone": False},
        event=event,
        less={"epsilon": 4.5},
        pair=Pair(
            CANDIDATES,
            -CANDIDATES,
            lambda chosen: (chosen == 0).astype(float),
            calls,
            (2000, 6000),
            audit.Fixed(1.0),
        ),
        noise=Noise(
            of_calls([2 / 3, 0.0], identity),
            lambda x, factor: chances_cdf([first(1 / factor), 1 - first(1 / factor)])(np.asarray(x)),
            6000,
        ),
        data=CANDIDATES,
        bad_calls=BAD_SCORES,
    )


selecting("exponential", mechanisms.Exponential, events.BoundedRange(3.0), lambda x: 1 / (1 + math.exp(-x)))
selecting("permute_and_flip", mechanisms.PermuteAndFlip, events.Pure(3.0), lambda x: 1 - math.exp(-x) / 2)
selecting(
    "report_noisy_max",
    mechanisms.ReportNoisyMax,
    events.Pure(3.0),
    lambda x: 1 - math.exp(-x) * (1 + x / 2) / 2,
)


def sparse_chances(queries: list[float], threshold: float, epsilon: float, factor: float) -> np.ndarray:
    """How often each query is the first to pass, and none, by integrating over the threshold's noise."""
    first = epsilon / (1 + 2 ** (2 / 3))
    scale, query_scale = factor / first, factor * 2 / (epsilon - first)
    points, step = np.linspace(threshold - 40 * scale, threshold + 40 * scale, 40_001, retstep=True)
    left = np.exp(-np.abs(points - threshold) / scale) / (2 * scale) * step
    chances = []
    for query in queries:
        below = laplace_cdf(points - query, query_scale)
        chances.append(float((left * (1 - below)).sum()))
        left = left * below
    return np.array([*chances, left.sum()]) / (sum(chances) + left.sum())


SPARSE_IN, SPARSE_OUT = [0.0] * 5 + [1.0], [1.0] * 5 + [0.0]
"""Five queries that stay below the threshold and one that passes, all as unlikely as a unit can make it."""
SPARSE_LEVELS = [-1.0, -1.0, 0.4, 1.0]

additive(
    "sparse_vector",
    mechanisms.SparseVector,
    {"sensitivity": 1.0, "epsilon": 2.5, "threshold": 0.4, "hits": 1, "monotone": False, "answers": 0.0},
    event=events.Pure(2.5),
    less={"epsilon": 3.75},
    pair=Pair(
        SPARSE_IN,
        SPARSE_OUT,
        lambda first: (first == 5).astype(float),
        lives,
        (7000, 18_000),
        audit.Fixed(1.0),
    ),
    noise=Noise(
        lambda make, runs, seed: lives(make, SPARSE_LEVELS, runs, seed).astype(float),
        lambda x, factor: chances_cdf(sparse_chances(SPARSE_LEVELS, 0.4, 2.5, factor))(np.asarray(x)),
        3000,
    ),
    bad_calls=(*BAD_NUMBERS, [1.0], [], np.zeros(2)),
)


SURE = 1e6
"""A query that passes the threshold but for a probability under e^−1000."""


def sparse_answers(make: Make, data: float, runs: int, seed: int | None) -> np.ndarray:
    """The noisy value of a query that is sure to pass, for one new object each run."""
    source = Source(seed)
    return np.array([make(source)(data) for _ in range(runs)])


additive(
    "sparse_vector_answers",
    mechanisms.SparseVector,
    {"sensitivity": 1.0, "epsilon": 1.0, "threshold": 0.0, "answers": 31 / 32},
    event=events.Pure(1.0),
    less={"epsilon": 1.5},
    pair=Pair(SURE + 1, SURE, identity, sparse_answers, (3000, 3000), audit.Fixed(SURE + 1)),
    noise=Noise(
        lambda make, runs, seed: sparse_answers(make, SURE, runs, seed) - SURE,
        lambda x, factor: laplace_cdf(x, factor * 32 / 31),
        3000,
    ),
)


def response_chances(factor: float) -> np.ndarray:
    odds = np.array([math.exp(1 / factor), 1.0, 1.0])
    return odds / odds.sum()


additive(
    "randomized_response",
    mechanisms.RandomizedResponse,
    {"epsilon": 1.0, "categories": 3},
    event=events.RandomizedResponse(1.0, 3),
    less={"epsilon": 1.5},
    pair=Pair(1, 0, lambda x: (x == 1).astype(float), rows, rule=audit.Fixed(1.0)),
    noise=Noise(both_ways(0), lambda x, factor: chances_cdf(response_chances(factor))(np.asarray(x))),
    data=[0, 1, 2],
    bad_calls=(3, -1, "1", NAN, None, 0.5, SECRET, [0, 3], [0, SECRET], [[0], [1, 2]], {}, object()),
)

SAMPLED = events.PoissonSampled(0.01, events.Gaussian(1.1))
RENYI = events.Renyi((2.0, 4.0, 16.0), (0.1, 0.25, 1.0))

for label, alone in {
    "gaussian": events.Gaussian(1.1),
    "laplace": events.Laplace(2.0),
    "pure": events.Pure(0.3),
    "approximate": events.Approximate(0.3, 1e-8),
    "only_delta": events.Approximate(0.0, 2e-6),
    "zero_concentrated": events.ZeroConcentrated(0.02),
    "bounded_range": events.BoundedRange(0.3),
    "randomized_response": events.RandomizedResponse(0.5, 10),
    "renyi": RENYI,
    "objective_perturbation": events.ObjectivePerturbation(4.0, 0.05),
    "objective_perturbation_of_classes": events.ObjectivePerturbation(6.0, 0.0, 9),
    "poisson_sampled_gaussian": SAMPLED,
    "poisson_sampled_laplace": events.PoissonSampled(0.1, events.Laplace(1.0)),
    "poisson_sampled_response": events.PoissonSampled(0.1, events.RandomizedResponse(1.0, 4)),
    "poisson_sampled_composition": events.PoissonSampled(
        0.05, events.Compose((events.Gaussian(2.0), events.Repeat(events.Gaussian(3.0), 2)))
    ),
    "sampled_without_replacement": events.SampledWithoutReplacement(10, 1000, events.Gaussian(2.0)),
    "whole_population": events.SampledWithoutReplacement(10, 10, events.Laplace(2.0)),
    "parallel": events.Parallel((events.Gaussian(2.0), events.Laplace(3.0), events.Laplace(3.0))),
    "parallel_of_sampled": events.Parallel(
        (events.PoissonSampled(0.1, events.Laplace(2.0)), events.Pure(0.4))
    ),
    "one_of": events.OneOf((events.Gaussian(2.0), events.Laplace(3.0), events.Pure(0.4))),
    "best_of_geometric": events.BestOf(events.Laplace(9.0), 1.0, 0.1),
    "best_of_logarithmic": events.BestOf(events.Repeat(SAMPLED, 20), 0.0, 0.03),
    "best_of_failing": events.BestOf(events.Approximate(0.2, 1e-9), -0.5, 0.01),
    "best_of_poisson": events.BestOfPoisson(events.OneOf((events.Gaussian(6.0), events.Pure(0.2))), 5.0),
    "shuffled": events.Shuffled(events.Pure(2.0), 300),
    "shuffled_response": events.Shuffled(events.RandomizedResponse(1.0, 4), 40),
    "shuffled_sample": events.SampledWithoutReplacement(30, 300, events.Shuffled(events.Pure(1.0), 30)),
    "repeat": events.Repeat(events.Laplace(5.0), 3),
    "repeat_of_repeat": events.Repeat(events.Repeat(events.Gaussian(6.0), 2), 3),
    "compose": events.Compose((events.Gaussian(4.0), events.Laplace(5.0), events.BoundedRange(0.1))),
    "training_run": events.Compose((events.Repeat(SAMPLED, 20), events.Pure(0.05))),
    "everything": events.Compose(
        (
            events.Repeat(events.Parallel((events.Laplace(4.0), events.ZeroConcentrated(0.01))), 2),
            events.Approximate(0.1, 1e-9),
            RENYI,
        )
    ),
}.items():
    register(Case(name=f"event_{label}", event=alone))
