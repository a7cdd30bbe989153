"""Samplers draw what their events say, and noise is what the guarantee says. Seeds are fixed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.randomness import Source
from tacit.training import noise
from tacit.training.noise import normal
from tacit.training.sampling import Fixed, Poisson, Shuffle

LEAST = 1e-6


def _counts(draw: object, steps: int, rows: int) -> np.ndarray:
    counts = np.zeros((steps, rows), dtype=bool)
    for step in range(steps):
        counts[step, draw(step)] = True  # type: ignore[operator]
    return counts


def _accepts_poisson(seen: np.ndarray, rate: float) -> bool:
    """Number in each batch binomial, and pairs of rows independent."""
    steps, rows = seen.shape
    total = stats.binomtest(int(seen.sum()), steps * rows, rate).pvalue > LEAST
    together = int((seen[:, ::2] & seen[:, 1::2]).sum())
    pairs = stats.binomtest(together, steps * (rows // 2), rate * rate).pvalue > LEAST
    sizes = seen.sum(1).var(ddof=1) / (rows * rate * (1 - rate))
    low, high = stats.chi2.ppf([LEAST / 2, 1 - LEAST / 2], steps - 1) / (steps - 1)
    return bool(total and pairs and low < sizes < high)


def test_poisson_batches_are_binomial_and_a_fixed_size_is_not() -> None:
    seen = _counts(Poisson(0.1).draws(Source(5), 200), 2000, 200)
    assert _accepts_poisson(seen, 0.1)
    assert not _accepts_poisson(_counts(Fixed(20, 200).draws(Source(5), 200), 2000, 200), 0.1)
    assert not _accepts_poisson(_counts(Poisson(0.11).draws(Source(5), 200), 2000, 200), 0.1)


def test_rate_one_sees_everything_and_no_rows_nothing() -> None:
    assert Poisson(1.0).draws(Source(1), 7)(0).tolist() == list(range(7))
    assert Poisson(0.5).draws(Source(1), 0)(0).tolist() == []


def test_shuffled_epochs_see_each_row_once() -> None:
    draw = Shuffle(10).draws(Source(3), 300)
    seen = _counts(draw, 30, 300)
    for epoch in range(3):
        assert (seen[10 * epoch : 10 * epoch + 10].sum(0) == 1).all()
    places = seen[:10].argmax(0)
    assert stats.chisquare(np.bincount(places, minlength=10)).pvalue > LEAST
    assert (places != seen[10:20].argmax(0)).any()


def test_fixed_batches_are_uniform() -> None:
    seen = _counts(Fixed(5, 20).draws(Source(4), 20), 4000, 20)
    assert (seen.sum(1) == 5).all()
    assert stats.chisquare(seen.sum(0)).pvalue > LEAST
    together = int((seen[:, ::2] & seen[:, 1::2]).sum())
    assert stats.binomtest(together, 4000 * 10, 5 * 4 / (20 * 19)).pvalue > LEAST


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("count", [1, 2, 7, 300_001])
def test_noise_is_standard_normal(dtype: torch.dtype, count: int) -> None:
    source = Source(9)
    times = max(1, min(4000, 300_000 // count))
    drawn = torch.cat([normal(source, count, dtype) for _ in range(times)]).double().numpy()
    assert stats.kstest(drawn, "norm").pvalue > LEAST
    assert stats.kstest(1.5 * drawn, "norm").pvalue < LEAST
    half = len(drawn) // 2
    for left, right in ((drawn[:-1], drawn[1:]), (drawn[:half], drawn[half : 2 * half])):
        assert stats.pearsonr(left, right).pvalue > LEAST
        assert stats.pearsonr(left**2, right**2).pvalue > LEAST
    assert stats.binomtest(int((abs(drawn) > 4).sum()), len(drawn), 2 * stats.norm.sf(4)).pvalue > LEAST


def test_noise_is_reproducible_only_from_a_seed() -> None:
    assert torch.equal(normal(Source(2), 10, torch.float32), normal(Source(2), 10, torch.float32))
    assert not torch.equal(normal(Source(), 10, torch.float32), normal(Source(), 10, torch.float32))


def _places(drawn: torch.Tensor) -> np.ndarray:
    """Where the radii of pairs lie between the grid's circles, for the smallest: from 0 to ½."""
    pairs = drawn.double().numpy()[: len(drawn) // 2 * 2].reshape(-1, 2, 1 << 14)
    squares = (pairs**2).sum(1).ravel()
    steps = -np.expm1(-squares[squares < 2000 * 2.0**-24] / 2) * 2.0**24
    return abs(steps - np.round(steps))


def test_no_grid_shows_in_pairs_of_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small radii of one Box–Muller draw have few values; those of what is released have not."""

    def distance() -> float:
        drawn = (normal(Source(seed), 1 << 18, torch.float32) for seed in range(40))
        return float(np.mean(np.concatenate([_places(each) for each in drawn])))

    assert 0.2 < distance() < 0.3
    monkeypatch.setattr(noise, "_BLUR", 0.0)
    assert distance() < 0.1


def test_circles_are_closer_than_the_blur() -> None:
    """Within the blur of any pair lie hundreds of circles, in the tail too."""
    least = np.float32(2.0**-24)
    near_one = np.sqrt(-2 * np.log1p(-least * np.arange(1, 2000, dtype=np.float64)))
    assert np.searchsorted(near_one, 2 * noise._BLUR) > 200
    for radius in (0.1, 1.0, 3.0, 6.0, 8.0):
        share = np.float32(np.exp(-(radius**2) / 2))
        gap = radius - np.sqrt(-2 * np.log(np.float64(np.nextafter(share, np.float32(1)))))
        assert abs(gap) < 2 * noise._BLUR / 200
