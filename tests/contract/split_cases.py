"""A release from one side of a split: as private as from the whole table, if no other row decides on a side.

The rows alternate between two kinds. The twin splits by the number of the row: one row more in front moves
every row to the other side. The neighbours differ by row 3, which is of the kind that is counted, on the
side where it is counted.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from contract.registry import Case, Pair, register
from tacit import audit, mechanisms
from tacit.data.reading import private_rows
from tacit.data.splitting import Split
from tacit.errors import InvalidValue, TacitError
from tacit.relations import Relation
from tacit.schema import Column, Schema

SCHEMA = Schema({"number": Column("integer", bounds=(0, 10_000)), "kind": Column("integer", bounds=(0, 1))})
SPLIT = Split.drawn(0.5, seed=3)
ROWS = 40


@cache
def on_the_side(first: int, by_place: bool) -> int:
    """How many rows of the first kind are on one side of the table of the rows from ``first`` on."""
    numbers = np.arange(first, ROWS)
    whole = pd.DataFrame({"number": numbers, "kind": numbers % 2})
    if by_place:
        return int(whole.iloc[::2].kind.sum())
    return int(private_rows(whole, SCHEMA, ["number", "kind"], side=SPLIT.rest)["kind"].sum())


class CountOfASide:
    """A noisy count of the rows of one kind, on one side."""

    def __init__(self, random_state: Any, by_place: bool = False) -> None:
        self._noise = mechanisms.Laplace(1.0, epsilon=1.0, random_state=random_state)
        self.event, self.noise, self.by_place = self._noise.event, self._noise.noise, by_place

    def __call__(self, first: int) -> float:
        return float(self._noise(float(on_the_side(first, self.by_place))))


def run(make: Any, first: int, runs: int, seed: Any) -> np.ndarray:
    made = make(seed)
    exact = on_the_side(first, made.by_place)
    return np.asarray(made._noise(np.full(runs, float(exact))))


register(
    Case(
        name="count_of_a_side",
        event=CountOfASide(1).event,
        make=CountOfASide,
        broken=partial(CountOfASide, by_place=True),
        data=0,
        pair=Pair(3, 4, np.asarray, run, (20_000, 20_000), audit.Split(seed=0)),
        bad_inputs=(
            ("share 0", lambda: Split.drawn(0.0), InvalidValue),
            ("share 1", lambda: Split.drawn(1.0), InvalidValue),
            ("replaced rows", lambda: SPLIT.require(Relation.REPLACE_ONE), TacitError),
        ),
        covers=frozenset({"Split"}),
        left_out={"noise": "it is that of Laplace, which has a case of its own"},
    )
)
