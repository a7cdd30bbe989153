"""Privacy amplification by shuffling: what many local reports cost once nobody knows whose is whose.

Let e = e^ε₀ and E = e^ε. Each of n people applies the same ε₀-private local randomizer R to a value of their
own, and only the multiset of the n reports is seen. Neighbours are two values x₀ and x₁ of one person; the
values of the others are fixed, and known to the attacker.

**Reduction to three labels** (Feldman, McMillan and Talwar 2021, 2023). Write R₀, R₁ for the laws of the
two reports, and Rᵢ for that of another person. With α·(e − 1) the total variation of R₀ and R₁, let α(e −
1)·Q₀ = (R₀ − R₁)₊, α(e − 1)·Q₁ = (R₁ − R₀)₊, and S the rest, R₀ = αe·Q₀ + α·Q₁ + S and R₁ = α·Q₀ + αe·Q₁ +
S. Since R₀, R₁ ≤ e·Rᵢ, every Rᵢ is at least α·Q₀ + α·Q₁ + S/e. So the multiset of reports is a function of
how many reports were drawn from Q₀, Q₁ and S. Compared with n draws from the laws of the others, the
likelihoods of these counts (a, b, c) are ae + b + ce and a + be + ce, over n. Hence

    δ(ε) ≤ E[(ξ₁ + … + ξₙ)₊]/n, with independent ξ = e − E, 1 − eE, e(1 − E) and 0,

taken with probabilities α, α, (1 − α(e+1))/e and the rest. Its mean is 1 − E for every α, and in the convex
order ξ is largest for the largest α, 1/(e+1), where c = 0. This is the bound for a general randomizer. It
is symmetric: exchanging x₀ and x₁ exchanges a and b.

**Randomized response among k categories.** Here p = 1/(e + k − 1) and Rᵢ is at least p on every category,
so the others supply draws of the k − 2 further categories, for which both likelihoods are 1: ξ = e − E, 1 −
eE and 1 − E with probabilities p, p and (k − 2)p (the privacy blanket of Balle, Bell, Gascón and Nissim
2019). For k = 2 both bounds are the same.

**Computation.** With N = a + b, a is Binomial(N, ½), and the expectation over a is two binomial tails
(:func:`_given_counts`). The counts N and c are cut into blocks. For real c and M ≤ N, Ψ(N, c) = E[X₊ | N,
c] has Ψ(N, c)/N ≤ Ψ(M, cM/N)/M, because X is an average over the sets of M of the N draws; and Ψ falls with
c. So the smallest N and c of a block, with c·M/N in place of c, bound all of it, and no tail is dropped.
Tails of float64 are enlarged by their rounding error.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc

from tacit import events

Array = NDArray[np.float64]

EXACT = 500
"""Up to this many values of N are blocks of their own; a tenth as many where there is c, and of c."""
WIDTH = 0.2
"""Width of a block of N in standard deviations; the blocks of c are five times as wide."""
TAIL_ERROR = 2e-14
"""Relative error allowed for a tail of Binomial(N, ½), times √N + 5. At most a fifth of it was found, by
quadrature with 50 digits up to N = 10¹² and 30 standard deviations."""
WEIGHT_ERROR = 1e-8
"""Relative error allowed for the probability of a block."""
MOST = 10**10
"""More reports than this are counted as so many: a batch hides no less when others join it."""
LARGEST_LOCAL = 100.0
"""Above this ε₀ nobody's report hides another's: the cost is that of the local randomizer."""
FEW = 8
"""Up to this many ε are evaluated one by one; more are read from chords between dots."""
CHUNK = 1 << 18
TINY = 1e-290
"""Below this, δ is known by the logarithm of a Chernoff bound."""


def _local(event: events.Shuffled) -> tuple[float, int, int]:
    """ε₀, the categories of the randomizer (2 stand for a general one), and the number of reports."""
    inner = event.event
    categories = inner.categories if isinstance(inner, events.RandomizedResponse) else 2
    return inner.epsilon, categories, min(event.reports, MOST)


def profile(event: events.Shuffled, epsilon: Array) -> Array:
    """δ(ε) at every ε ≥ 0, the same in both directions, from above."""
    loss, categories, reports = _local(event)
    if epsilon.size <= FEW or loss > LARGEST_LOCAL:
        return _profile(loss, categories, reports, epsilon)
    at, deltas, _ = _dots(loss, categories, reports)
    inside = np.minimum(epsilon, loss)
    return np.where(epsilon < loss, np.interp(np.expm1(inside), np.expm1(at), deltas), 0.0)


def divergence(event: events.Shuffled, orders: Array) -> Array:
    """The Rényi divergence at every order, from above.

    For a profile that is the same in both directions, E e^{(α−1)L} − 1 is
    α(α−1)·∫ (e^{(α−1)ε} + e^{−αε})·δ(ε) dε over ε ≥ 0. Between two dots, δ is below its chord in e^ε, and
    the convex weight below its chord in ε, so each piece is a product of two straight lines.
    """
    loss, categories, reports = _local(event)
    if loss > LARGEST_LOCAL:
        return np.full(orders.shape, loss)
    at, _, logs = _dots(loss, categories, reports)
    gap = np.diff(at)
    bent = gap / -np.expm1(-gap)
    high, low = np.log(gap) + logs[1:], np.log(gap * bent) + _log_gap(logs[:-1], logs[1:])
    a = orders[:, None]
    weight = np.logaddexp((a - 1) * at, -a * at)
    start, end = weight[:, :-1], weight[:, 1:]
    pieces = np.logaddexp(
        high + np.logaddexp(start, end) - math.log(2),
        low + np.logaddexp(start - math.log(3), end - math.log(6)),
    )
    log_excess = np.logaddexp.reduce(pieces, axis=1) + np.log(orders * (orders - 1))
    moment = np.where(log_excess > -30, np.logaddexp(0.0, log_excess), np.exp(np.minimum(log_excess, 0.0)))
    return np.asarray(np.minimum(moment * (1 + WEIGHT_ERROR) / (orders - 1), loss))


@lru_cache(maxsize=64)
def _dots(loss: float, categories: int, reports: int) -> tuple[Array, Array, Array]:
    """Increasing ε from 0 to ε₀, dense where most of the loss lies, with δ there and ln δ."""
    spread = 2.6 * float(_profile(loss, categories, reports, np.zeros(1))[0])
    if 12 * spread > loss / 2:
        at = np.linspace(0.0, loss, 401)
    else:
        at = np.concatenate([np.linspace(0.0, 12 * spread, 300), np.geomspace(12 * spread, loss, 100)[1:]])
    deltas = np.minimum.accumulate(_profile(loss, categories, reports, at))
    with np.errstate(divide="ignore"):
        logs = np.where(deltas > TINY, np.log(deltas), _chernoff(loss, categories, reports, at))
    logs[-1] = -math.inf
    return at, deltas, np.minimum.accumulate(logs)


def _chernoff(loss: float, categories: int, reports: int, epsilon: Array) -> Array:
    """ln of an upper bound on δ(ε) that no float underflows: x₊ ≤ e^{θx−1}/θ, so δ ≤ (E e^{θξ})ⁿ/(neθ)."""
    chance = math.exp(-loss) / (1 + (categories - 1) * math.exp(-loss))
    eps = np.minimum(epsilon, loss)[:, None]
    up, down = -np.expm1(eps - loss), np.expm1(eps) - math.expm1(-loss)
    lean = np.expm1(eps) * math.exp(-loss)
    tilt = np.geomspace(1e-3, 1e3, 80)
    growth = chance * (np.expm1(np.minimum(tilt * up, 600.0)) + np.expm1(-tilt * down))
    growth = growth + (categories - 2) * chance * np.expm1(-tilt * lean)
    moment = np.log1p(growth) * (1 + np.sign(growth) * WEIGHT_ERROR)
    rounding = 1e-15 * chance * (np.exp(np.minimum(tilt * up, 600.0)) + 1)
    logs = reports * (moment + rounding) + loss - 1 - np.log(reports * tilt)
    return np.asarray(np.minimum(np.min(logs, axis=1), math.log(TINY)))


def _log_gap(above: Array, below: Array) -> Array:
    """ln(e^above − e^below) for above ≥ below, −∞ where they are equal."""
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = above + np.log(-np.expm1(below - above))
    return np.where(np.isneginf(above), -math.inf, gap)


def _profile(loss: float, categories: int, reports: int, epsilon: Array) -> Array:
    """δ(ε) by the sum over blocks; never above that of one report that is not shuffled."""
    kept = 1 / (1 + (categories - 1) * math.exp(-loss))
    alone = -np.expm1(np.minimum(epsilon - loss, 0.0)) * kept
    if loss > LARGEST_LOCAL or reports == 1:
        return np.asarray(alone)
    counts, ratios, weights = _blocks(loss, categories, reports)
    result = np.empty(epsilon.size)
    rows = max(1, CHUNK // counts.size)
    for first in range(0, epsilon.size, rows):
        part = slice(first, first + rows)
        eps = np.minimum(epsilon[part], loss)[:, None]
        up = -np.expm1(eps - loss)
        down = np.expm1(eps) - math.expm1(-loss)
        lean = ratios * (np.expm1(eps) * math.exp(-loss))
        result[part] = _given_counts(counts, up - lean, down + lean) @ weights
    return np.asarray(np.where(epsilon < loss, np.minimum(kept * result * (1 + WEIGHT_ERROR), alone), 0.0))


def _given_counts(counts: Array, up: Array, down: Array) -> Array:
    """2·E[(a·up − (N − a)·down)₊]/N for a ~ Binomial(N, ½), from above.

    That is up·P(Binomial(N−1, ½) ≥ k−1) − down·P(Binomial(N−1, ½) ≥ k), where k is the smallest a that
    counts.
    """
    share = down / (np.maximum(up, 0.0) + down)
    least = np.minimum(np.floor(counts * share) + 1, counts)
    first = _at_least(least - 1, counts - 1)
    second = _at_least(least, counts - 1)
    error = TAIL_ERROR * (np.sqrt(counts) + 5)
    value = up * first * (1 + error) - down * second * (1 - error)
    return np.where(up > 0, np.maximum(value, 0.0), 0.0)


def _at_least(least: Array, trials: Array | float, rate: float = 0.5) -> Array:
    """P(Binomial(trials, rate) ≥ least)."""
    inside = (least > 0) & (least <= trials)
    a, b = np.where(inside, least, 1.0), np.where(inside, trials - least + 1, 1.0)
    return np.where(inside, betainc(a, b, rate), np.where(least <= 0, 1.0, 0.0))


def _at_most(most: Array, trials: float, rate: float) -> Array:
    """P(Binomial(trials, rate) ≤ most)."""
    inside = (most >= 0) & (most < trials)
    a, b = np.where(inside, most + 1, 1.0), np.where(inside, trials - most, 1.0)
    return np.where(inside, betaincc(a, b, rate), np.where(most < 0, 0.0, 1.0))


@lru_cache(maxsize=64)
def _blocks(loss: float, categories: int, reports: int) -> tuple[Array, Array, Array]:
    """The smallest N of each block, a lower bound of c/N in it, and its probability.

    Probabilities are those of N in proportion to its size: N − 1 is Binomial(n − 1, 2p).
    """
    chance = math.exp(-loss) / (1 + (categories - 1) * math.exp(-loss))
    exact = EXACT if categories == 2 else EXACT // 10
    starts, ends = _cut(reports - 1, 2 * chance, WIDTH, exact)
    weights = _between(starts, ends, reports - 1, 2 * chance)
    if categories == 2:
        return starts + 1, np.zeros_like(starts), weights
    rate = (categories - 2) * chance / (1 - 2 * chance)
    counts, ratios, joint = [], [], []
    for start, end, weight in zip(starts + 1, ends + 1, weights, strict=True):
        others = reports - int(end)
        low, high = _cut(others, rate, 5 * WIDTH, exact, above=3.0)
        counts.append(np.full(low.size, start))
        ratios.append(low / end)
        joint.append(weight * _between(low, high, others, rate))
    return np.concatenate(counts), np.concatenate(ratios), np.concatenate(joint)


def _cut(trials: int, rate: float, width: float, exact: int, above: float = 64.0) -> tuple[Array, Array]:
    """First and last values of blocks that cover 0 … trials.

    Near the mean they are ``width`` standard deviations wide, or single values if there are few (``exact``).
    They grow further out, and the last one begins ``above`` deviations above the mean.
    """
    mean, spread = trials * rate, math.sqrt(trials * rate * (1 - rate))
    step = 1.0 if 16 * spread <= exact else width * spread
    inner = np.arange(mean - 8 * spread, mean + 8 * spread + step, step)
    outer = 8 * spread * np.geomspace(1.0, 8.0, 10)
    edges = np.concatenate([mean - outer, inner, mean + outer])
    edges = np.floor(edges[edges <= mean + above * spread + 1])
    starts = np.unique(np.concatenate([[0.0], np.clip(edges, 0, trials)]))
    return starts, np.append(starts[1:] - 1, float(trials))


def _between(first: Array, last: Array, trials: int, rate: float) -> Array:
    """P(first ≤ Binomial(trials, rate) ≤ last), from whichever tail is the smaller."""
    below = _at_most(last, trials, rate) - _at_most(first - 1, trials, rate)
    above = _at_least(first, trials, rate) - _at_least(last + 1, trials, rate)
    return np.maximum(np.where(first > trials * rate, above, below), 0.0)
