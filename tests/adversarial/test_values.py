"""Values in memory whose classes raise at whatever is done to them, and the rows beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from contract.mends import Scene, mend, replacing
from tacit import Column, Schema
from tacit.data.cleaning import values
from tacit.data.given import declared_matrix, real
from tacit.data.preprocessor import Preprocessor


class Unlookable(type):
    """The type of a class that cannot be put into a set."""

    def __hash__(cls) -> int:
        raise RuntimeError("somebody's value")

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("somebody's value")


class Odd(metaclass=Unlookable):
    """A value of such a class."""


@mend(
    10,
    "a value whose class cannot be looked up",
    twin=replacing(values, "_types_of", lambda given: set(map(type, given))),
    shows=RuntimeError,
)
def class_that_raises(scene: Scene) -> None:
    column: Any = np.array(["2", Odd(), 1], dtype=object)
    assert np.array_equal(real(column), [2, np.nan, 1], equal_nan=True)
    assert np.array_equal(declared_matrix([["2"], [Odd()], [1]], 1).ravel(), [2, np.nan, 1], equal_nan=True)
    schema = Schema(
        {
            "age": Column("integer", bounds=(0, 4), missing=3),
            "sex": Column("category", categories=("1", "2"), other="another"),
            "sick": Column("category", categories=("1", "2")),
        }
    )
    maker = Preprocessor(schema, target="sick")
    rows = dict.fromkeys(schema, column)
    alone = {name: np.array(["2", None, 1], dtype=object) for name in schema}
    found, without = (maker.fit(given).transform(given) for given in (rows, alone))
    assert np.array_equal(found[[0, 2]], without[[0, 2]])
    assert len(maker.target_values(rows)) == 3
