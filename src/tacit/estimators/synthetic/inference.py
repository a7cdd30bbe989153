"""Inference: the graphical model that fits noisy marginals best, with as much entropy as they allow.

The model minimizes Σ_r Σ_c (N·p_r(c) − y_r(c))²/(2σ_r(c)²) − τN·H(p): noisy counts y of variance σ² against
the counts that N rows of the model are expected to have, with a little entropy H that keeps cells that are
mostly noise near what the other marginals imply. Its dual is smooth and has no constraints: over potentials
θ, log Z(θ) − Σ_r ⟨θ_r, y_r/N⟩ + Σ_r ⟨θ_r², τσ_r²/N⟩/2, whose gradient are the marginals of the model less
those that were measured. (McKenna, Sheldon and Miklau 2019 minimize the first term by mirror descent.)

Only released numbers enter: nothing here costs budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from tacit.estimators.synthetic.counting import Marginal
from tacit.estimators.synthetic.junction import JunctionTree, clique_cells

__all__ = ["Measured", "Model"]

Table = NDArray[np.float64]

TEMPERATURE = 0.002
"""τ, the weight of the entropy."""


@dataclass(frozen=True)
class Measured:
    """A marginal with noise."""

    counts: Table
    variance: Table
    """Of the noise, in each cell."""


class Model:
    """The graphical model of measured marginals, and the marginals themselves, to which more are added.

    >>> noisy = Measured(np.array([60.0, 40.0]), np.ones(2))
    >>> model = Model((2, 2), 100.0, {(0,): noisy, (1,): noisy})
    >>> model.fit(100)
    >>> model.pairs()[0, 1].round(2).tolist()
    [[0.36, 0.24], [0.24, 0.16]]
    """

    def __init__(
        self, sizes: tuple[int, ...], population: float, measured: Mapping[Marginal, Measured]
    ) -> None:
        self.sizes, self.population, self.measured = sizes, population, dict(measured)
        self.tree = JunctionTree.of(measured, sizes)
        self.beliefs: list[Table] = []
        self._potentials: dict[Marginal, Table] = {}

    def fit(self, steps: int) -> None:
        """Fit the model to what is measured now, in at most so many steps from where it was."""
        self.tree = JunctionTree.of(self.measured, self.sizes)
        self._potentials = _potentials(self.tree, self.measured, self.population, self._potentials, steps)
        self.beliefs = self.tree.beliefs(self._potentials)

    def cells_with(self, marginal: Marginal) -> int:
        """How many cells the cliques would have, were this marginal measured too."""
        return clique_cells([*self.measured, marginal], self.sizes)

    def pairs(self) -> dict[Marginal, Table]:
        """The shares of all cells of all pairs of attributes."""
        return self.tree.pairs(self.beliefs)


def _potentials(
    tree: JunctionTree,
    measured: Mapping[Marginal, Measured],
    population: float,
    start: Mapping[Marginal, Table],
    steps: int,
) -> dict[Marginal, Table]:
    """The potentials of the best model after at most so many steps from ``start``; zero where it has none."""
    names = list(measured)
    shapes = [measured[name].counts.shape for name in names]
    ends = np.cumsum([0, *(measured[name].counts.size for name in names)])
    shares = np.concatenate([measured[name].counts.ravel() for name in names]) / population
    give = np.concatenate([measured[name].variance.ravel() for name in names]) * TEMPERATURE / population

    def tables(flat: Table) -> dict[Marginal, Table]:
        return {
            name: flat[low:high].reshape(shape)
            for name, shape, low, high in zip(names, shapes, ends, ends[1:], strict=False)
        }

    def dual(flat: Table) -> tuple[float, Table]:
        normalizer, marginals = tree.log_partition(tables(flat))
        slope = np.concatenate([marginals[name].ravel() for name in names]) - shares + give * flat
        return normalizer - float(flat @ shares) + float(flat @ (give * flat)) / 2, slope

    first = np.concatenate([
        np.ravel(start.get(name, np.zeros(shape))) for name, shape in zip(names, shapes, strict=True)
    ])  # fmt: skip
    found = minimize(dual, first, jac=True, method="L-BFGS-B", options={"maxiter": steps, "maxcor": 20})
    return tables(np.asarray(found.x))
