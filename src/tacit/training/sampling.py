"""Which examples a step sees, and the event that makes of the step.

The sampler makes the event: each sampler states how its batches are drawn, and turns the event of
one step into that of a run. None of them looks at an example's content. The draws come from
OS entropy and stay secret, which is what amplification rests on. The rows of a batch are put in random
order: :mod:`tacit.training.gradients.sums` says why.

==========  ==========================================================  ============================
sampling    a step sees                                                 charged as
==========  ==========================================================  ============================
poisson     each example independently with probability ``rate``        Poisson-sampled, each step
shuffle     the examples that drew this step, one step for each, epoch  one release for each epoch
fixed       a uniform subset of exactly ``batch_size``                  sampled without replacement
==========  ==========================================================  ============================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tacit import events, randomness
from tacit.randomness import Source

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Poisson:
    """Every example is in a batch with probability ``rate``, whatever else is in it.

    Adding an example to the data leaves the draws of all others as they were, so the size of the
    data is no part of the argument and may stay private. A batch may be empty.
    """

    rate: float

    def event(self, step: events.Event, steps: int) -> events.Event:
        """``steps`` steps."""
        once = step if self.rate == 1 else events.PoissonSampled(self.rate, step)
        return events.Repeat(once, steps)

    def draws(self, source: Source, rows: int) -> Callable[[int], Rows]:
        """From the number of a step to the examples it sees."""
        chance = Fraction(self.rate)
        return lambda step: np.flatnonzero(randomness.bernoulli(source, chance, rows))


@dataclass(frozen=True)
class Shuffle:
    """Every example is in one of the ``per_epoch`` batches of an epoch, drawn uniformly and afresh.

    Batches have about, not exactly, equal sizes (balls and bins: Chua et al. 2025), so that adding an
    example moves no other. Within an epoch the batches are disjoint, and an epoch costs what one
    step costs; no amplification is claimed for the order being secret.
    """

    per_epoch: int

    def event(self, step: events.Event, steps: int) -> events.Event:
        """``steps`` steps, of which an example sees one in each epoch begun."""
        return events.Repeat(step, -(-steps // self.per_epoch))

    def draws(self, source: Source, rows: int) -> Callable[[int], Rows]:
        """From the number of a step to the examples it sees."""
        epoch, places = -1, np.empty(0, np.int64)

        def draw(step: int) -> Rows:
            nonlocal epoch, places
            if step // self.per_epoch != epoch:
                epoch = step // self.per_epoch
                places = randomness.uniform(source, self.per_epoch, rows)
            return np.flatnonzero(places == step % self.per_epoch)

        return draw


@dataclass(frozen=True)
class Fixed:
    """A uniform subset of exactly ``batch_size`` of ``population`` examples, afresh at every step.

    A replaced example is in the batch or not; the sensitivity inside is that of replacing one.
    """

    batch_size: int
    population: int

    def event(self, step: events.Event, steps: int) -> events.Event:
        """``steps`` steps."""
        if self.batch_size == self.population:
            return events.Repeat(step, steps)
        return events.Repeat(events.SampledWithoutReplacement(self.batch_size, self.population, step), steps)

    def draws(self, source: Source, rows: int) -> Callable[[int], Rows]:
        """From the number of a step to the examples it sees."""

        def draw(step: int) -> Rows:
            keys = source.words(rows)
            first = np.argpartition(keys, self.batch_size - 1)[: self.batch_size]
            return np.sort(first).astype(np.int64)

        return draw


Sampler = Poisson | Shuffle | Fixed


def disordered(source: Source, draw: Callable[[int], Rows]) -> Callable[[int], Rows]:
    """The same draws, each in random order: in the order of the data, a row would move all after it."""

    def drawn(step: int) -> Rows:
        rows = draw(step)
        return rows[np.argsort(source.words(len(rows)))]

    return drawn
