"""Which examples a step sees, and the event that follows from how they are drawn.

The sampler makes the event: each sampler states how its batches are drawn, and turns the event of
one step into that of a run. None of them looks at an example's content. The draws come from
OS entropy and stay secret, which is what amplification rests on. The rows of a batch are put in random
order: :mod:`tacit.training.gradients.sums` says why.

==========  =============================================================  ============================
sampling    a step sees                                                    charged as
==========  =============================================================  ============================
poisson     each example independently with probability ``rate``           Poisson-sampled, each step
shuffle     one part of the data: at the start of an epoch, each example   one release for each epoch
            draws uniformly in which of the epoch's steps it is seen
fixed       a uniform subset of exactly ``batch_size``                     sampled without replacement
cyclic      one part of the data: each example draws once, before the      one release for each epoch, or one
            first step, in which step of every epoch it is seen            in all with correlated noise
ordered     one part of the data, in the order of its rows                 as cyclic
==========  =============================================================  ============================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tacit import events, randomness
from tacit.randomness import Source

RowNumbers = NDArray[np.int64]
"""The places in the data set of the examples of a batch."""
Draw = Callable[[int], RowNumbers]
"""From the number of a step to the rows it sees."""


@dataclass(frozen=True)
class Poisson:
    """Every example is in a batch with probability ``rate``, whatever else is in it.

    Adding an example to the data leaves the draws of all others as they were, so the size of the
    data is no part of the argument and may stay private. A batch may be empty. A step sees
    rate × population examples on average, and no step is left over for a rest of the data: an epoch is as
    many steps as make the expected number of passes nearest to 1.
    """

    rate: float

    def event(self, step: events.Event, steps: int) -> events.Event:
        """``steps`` steps."""
        once = step if self.rate == 1 else events.PoissonSampled(self.rate, step)
        return events.Repeat(once, steps)

    def draws(self, source: Source, rows: int) -> Draw:
        """From the number of a step to the rows it sees, of ``rows`` in all."""
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
        """``steps`` steps, of which an example is seen in one of each epoch begun."""
        return events.Repeat(step, -(-steps // self.per_epoch))

    def draws(self, source: Source, rows: int) -> Draw:
        """From the number of a step to the rows it sees, of ``rows`` in all."""
        epoch, places = -1, np.empty(0, np.int64)

        def draw(step: int) -> RowNumbers:
            nonlocal epoch, places
            if step // self.per_epoch != epoch:
                epoch = step // self.per_epoch
                places = randomness.uniform(source, self.per_epoch, rows)
            return np.flatnonzero(places == step % self.per_epoch)

        return draw


@dataclass(frozen=True)
class Fixed:
    """A uniform subset of exactly ``batch_size`` of ``population`` examples, drawn afresh at every step.

    The relation is replace_one: a replaced example is in the batch or it is not, and where it is, the
    sensitivity of the step is that of replacing one example.
    """

    batch_size: int
    population: int

    def event(self, step: events.Event, steps: int) -> events.Event:
        """``steps`` steps."""
        if self.batch_size == self.population:
            return events.Repeat(step, steps)
        return events.Repeat(events.SampledWithoutReplacement(self.batch_size, self.population, step), steps)

    def draws(self, source: Source, rows: int) -> Draw:
        """From the number of a step to the rows it sees, of ``rows`` in all."""

        def draw(step: int) -> RowNumbers:
            keys = source.words(rows)
            first = np.argpartition(keys, self.batch_size - 1)[: self.batch_size]
            return np.sort(first).astype(np.int64)

        return draw


@dataclass(frozen=True)
class Cyclic(Shuffle):
    """Every example draws once in which of the ``per_epoch`` steps of every epoch it is seen.

    So the steps that see an example are ``per_epoch`` apart, which correlated noise needs
    (:mod:`tacit.training.correlation`). Adding an example moves no other.
    """

    def draws(self, source: Source, rows: int) -> Draw:
        """From the number of a step to the rows it sees, of ``rows`` in all."""
        places = randomness.uniform(source, self.per_epoch, rows)
        return lambda step: np.flatnonzero(places == step % self.per_epoch)


@dataclass(frozen=True)
class Ordered(Shuffle):
    """Every epoch goes through the rows in their own order, in ``per_epoch`` parts of nearly equal size.

    For data whose order is given, such as a stream that is read once. The relation is replace_one: an added
    row would move all rows after it.
    """

    def draws(self, source: Source, rows: int) -> Draw:
        """From the number of a step to the rows it sees, of ``rows`` in all."""

        def draw(step: int) -> RowNumbers:
            place = step % self.per_epoch
            return np.arange(place * rows // self.per_epoch, (place + 1) * rows // self.per_epoch)

        return draw


Sampler = Poisson | Shuffle | Fixed


def disordered(source: Source, draw: Draw) -> Draw:
    """The same draws, each in random order.

    In the order of the data, an added row would shift the places of all rows after it.
    """

    def drawn(step: int) -> RowNumbers:
        rows = draw(step)
        return rows[np.argsort(source.words(len(rows)))]

    return drawn
