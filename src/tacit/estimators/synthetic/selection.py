"""Selection: which two columns the model describes worst, chosen by the exponential mechanism.

The score of a pair is the ℓ1 distance between its exact counts and those that the model expects, less what
the noise of its measurement is expected to be (McKenna, Mullins, Sheldon and Miklau 2022). The model and the
noise are public. So one row more moves a score by at most 1, one replaced by another by 2, and a unit of k
rows by k times that. Expected counts are rounded to whole numbers first: scores are whole, and their
differences exact.

The candidates depend on public facts only: all pairs that were not measured yet and that keep the junction
tree small.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tacit.estimators.synthetic.counting import Marginal
from tacit.estimators.synthetic.inference import Model
from tacit.estimators.synthetic.prices import Round
from tacit.randomness import Source

__all__ = ["chosen_pair", "scores"]


def chosen_pair(
    each: Round, model: Model, tables: Mapping[Marginal, NDArray[np.int64]], largest: int, source: Source
) -> Marginal | None:
    """The pair that is measured next, None where no further one fits; ``tables`` are PRIVATE counts."""
    candidates = [pair for pair in tables if pair not in model.measured and model.cells_with(pair) <= largest]
    if not candidates:
        return None
    found = scores(model, {pair: tables[pair] for pair in candidates}, float(each.noise.deviation))
    return candidates[dataclasses.replace(each.choice, random_state=source)(found)]


def scores(
    model: Model, tables: Mapping[Marginal, NDArray[np.int64]], deviation: float
) -> NDArray[np.int64]:
    """How much worse than a measurement the model describes each pair: whole numbers. PRIVATE."""
    expected = model.pairs()
    found = []
    for pair, counts in tables.items():
        rows = np.rint(expected[pair] * model.population).astype(np.int64)
        noise = round(math.sqrt(2 / math.pi) * deviation * counts.size)
        found.append(int(np.abs(counts - rows).sum()) - noise)
    return np.array(found, dtype=np.int64)
