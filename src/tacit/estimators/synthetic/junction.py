"""Junction trees: exact marginals of a graphical model whose potentials are tables over few attributes.

A model is a sum of tables θ, one for each measured marginal, in the exponent: P(x) ∝ exp(Σ θ_r(x_r)). Its
attributes are grouped into cliques such that each table fits into one, and the cliques form a tree in which
all that hold an attribute are connected; messages along the tree give the marginals of every clique
(Lauritzen and Spiegelhalter 1988; Koller and Friedman 2009, chapter 10).

Tables are in the order of their attributes. Nothing here sees a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tacit.estimators.synthetic.counting import Marginal

__all__ = ["JunctionTree", "clique_cells", "summed"]

Table = NDArray[np.float64]


@dataclass(frozen=True)
class JunctionTree:
    """Cliques, the parent of each (−1 for the first), which comes before it, and what they share.

    >>> tree = JunctionTree.of([(0, 1), (1, 2)], (2, 2, 2))
    >>> tree.cliques, tree.parents, tree.separators
    (((0, 1), (1, 2)), (-1, 0), ((), (1,)))
    >>> tree.beliefs({(0, 1): np.log([[0.4, 0.1], [0.1, 0.4]])})[1].sum(axis=1).round(3).tolist()
    [0.5, 0.5]
    """

    sizes: tuple[int, ...]
    cliques: tuple[Marginal, ...]
    parents: tuple[int, ...]
    separators: tuple[Marginal, ...]

    @classmethod
    def of(cls, marginals: Iterable[Marginal], sizes: Sequence[int]) -> JunctionTree:
        """A tree whose cliques hold all of these marginals, and every attribute."""
        cliques = _cliques(marginals, sizes)
        order, parents = [0], [-1]
        separators: list[Marginal] = [()]
        left = set(range(1, len(cliques)))
        while left:
            best = max(
                (len(set(cliques[a]) & set(cliques[b])), -a, -place)
                for a in left
                for place, b in enumerate(order)
            )
            chosen, place = -best[1], -best[2]
            shared = tuple(sorted(set(cliques[chosen]) & set(cliques[order[place]])))
            order.append(chosen)
            parents.append(place)
            separators.append(shared)
            left.remove(chosen)
        return cls(
            tuple(sizes), tuple(cliques[each] for each in order), tuple(parents), tuple(separators)
        )

    def home(self, marginal: Marginal) -> int | None:
        """The first clique that holds a marginal, None if none does."""
        wanted = set(marginal)
        return next((i for i, clique in enumerate(self.cliques) if wanted <= set(clique)), None)

    def beliefs(self, potentials: Mapping[Marginal, Table]) -> list[Table]:
        """The marginal of every clique."""
        return [np.exp(each) for each in self._log_beliefs(potentials)[0]]

    def _log_beliefs(self, potentials: Mapping[Marginal, Table]) -> tuple[list[Table], float]:
        """The logarithms of the cliques' marginals, and of the normalizing constant."""
        tables = [np.zeros([self.sizes[place] for place in clique]) for clique in self.cliques]
        for marginal, table in potentials.items():
            home = self.home(marginal)
            if home is None:
                raise ValueError("a potential outside of all cliques")
            tables[home] += _spread(table, marginal, self.cliques[home])
        upward: list[Table] = [np.zeros(())] * len(tables)
        for i in range(len(tables) - 1, 0, -1):
            upward[i] = _log_summed(tables[i], self.cliques[i], self.separators[i])
            parent = self.parents[i]
            tables[parent] = tables[parent] + _spread(upward[i], self.separators[i], self.cliques[parent])
        normalizer = float(_log_summed(tables[0], self.cliques[0], ()))
        tables[0] = tables[0] - normalizer
        for i in range(1, len(tables)):
            parent = self.parents[i]
            down = _log_summed(tables[parent], self.cliques[parent], self.separators[i]) - upward[i]
            tables[i] = tables[i] + _spread(down, self.separators[i], self.cliques[i])
        return tables, normalizer

    def log_partition(
        self, potentials: Mapping[Marginal, Table]
    ) -> tuple[float, dict[Marginal, Table]]:
        """The logarithm of the normalizing constant, and its gradient: the marginals of the potentials."""
        logs, normalizer = self._log_beliefs(potentials)
        beliefs = [np.exp(each) for each in logs]
        return normalizer, {marginal: self.marginal(beliefs, marginal) for marginal in potentials}

    def marginal(self, beliefs: Sequence[Table], marginal: Marginal) -> Table:
        """A marginal that one clique holds."""
        home = self.home(marginal)
        if home is None:
            raise ValueError("a marginal outside of all cliques")
        return summed(beliefs[home], self.cliques[home], marginal)

    def pairs(self, beliefs: Sequence[Table]) -> dict[Marginal, Table]:
        """The marginals of all pairs of attributes, also of those that no clique holds.

        From a clique that holds the first attribute, its joint distribution with every other clique is
        found along the tree: P(a, C) = P(a, S) P(C)/P(S), where S separates C from what was found before.
        """
        near: list[list[tuple[int, Marginal]]] = [[] for _ in self.cliques]
        for i in range(1, len(self.cliques)):
            near[i].append((self.parents[i], self.separators[i]))
            near[self.parents[i]].append((i, self.separators[i]))
        found: dict[Marginal, Table] = {}
        for first in range(len(self.sizes)):
            start = self.home((first,))
            if start is None:
                raise ValueError("an attribute outside of all cliques")
            reached = [(start, -1, beliefs[start], self.cliques[start])]
            while reached:
                here, before, joint, held = reached.pop()
                for other in held:
                    if other > first and (first, other) not in found:
                        found[first, other] = summed(joint, held, (first, other))
                for there, shared in near[here]:
                    if there != before:
                        reached.append(self._carried(beliefs, first, (joint, held), there, here, shared))
        return found

    def _carried(
        self,
        beliefs: Sequence[Table],
        first: int,
        known: tuple[Table, Marginal],
        there: int,
        here: int,
        shared: Marginal,
    ) -> tuple[int, int, Table, Marginal]:
        """The joint distribution of an attribute and the next clique."""
        clique = self.cliques[there]
        if first in clique:
            return there, here, beliefs[there], clique
        wide = tuple(sorted({first, *shared}))
        both = tuple(sorted({first, *clique}))
        with_first = _spread(summed(*known, wide), wide, both)
        alone = _spread(summed(beliefs[there], clique, shared), shared, both)
        share = np.divide(with_first, alone, out=np.zeros(np.broadcast_shapes(with_first.shape, alone.shape)),
                          where=alone > 0)  # fmt: skip
        return there, here, share * _spread(beliefs[there], clique, both), both


def clique_cells(marginals: Iterable[Marginal], sizes: Sequence[int]) -> int:
    """The number of cells of all cliques of the tree that holds these marginals.

    >>> clique_cells([(0, 1), (1, 2)], (2, 3, 4)), clique_cells([(0, 1), (1, 2), (0, 2)], (2, 3, 4))
    (18, 24)
    """
    return sum(math.prod(sizes[place] for place in clique) for clique in _cliques(marginals, sizes))


def summed(table: Table, held: Marginal, wanted: Marginal) -> Table:
    """The sum of a table over all attributes but those that are wanted."""
    axes = tuple(axis for axis, place in enumerate(held) if place not in wanted)
    return np.asarray(table.sum(axis=axes)) if axes else table


def _log_summed(table: Table, held: Marginal, wanted: Marginal) -> Table:
    axes = tuple(axis for axis, place in enumerate(held) if place not in wanted)
    if not axes:
        return table
    top = table.max(axis=axes, keepdims=True)
    return np.asarray(np.log(np.exp(table - top).sum(axis=axes)) + top.reshape([
        size for axis, size in enumerate(table.shape) if axis not in axes
    ]))  # fmt: skip


def _spread(table: Table, held: Marginal, wanted: Marginal) -> Table:
    """A table over ``held``, shaped to be added to one over ``wanted``."""
    sizes = dict(zip(held, table.shape, strict=True))
    return table.reshape([sizes.get(place, 1) for place in wanted])


def _cliques(marginals: Iterable[Marginal], sizes: Sequence[int]) -> list[Marginal]:
    """The largest cliques after attributes were eliminated, that with the smallest clique first."""
    near: dict[int, set[int]] = {place: set() for place in range(len(sizes))}
    for marginal in marginals:
        for a, b in combinations(marginal, 2):
            near[a].add(b)
            near[b].add(a)
    found: list[set[int]] = []
    cost = {place: math.prod(sizes[other] for other in (place, *near[place])) for place in near}
    while near:
        _, chosen = min((cost[place], place) for place in near)
        around = near.pop(chosen)
        for a in around:
            near[a] |= around - {a}
            near[a].discard(chosen)
            cost[a] = math.prod(sizes[other] for other in (a, *near[a]))
        clique = around | {chosen}
        if not any(clique <= other for other in found):
            found.append(clique)
    return [tuple(sorted(clique)) for clique in sorted(found, key=lambda each: sorted(each))]
