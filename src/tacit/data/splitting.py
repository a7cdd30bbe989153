"""Splitting private rows in two, so that a model is measured on rows that it was not fitted to.

Each row goes to one side by a keyed hash: of its unit, where units are declared, so that nobody is on both
sides; else of its own content, all columns of the schema as they are cleaned. Nothing else decides: not its
place, not how many rows there are, not any other row.

Why that keeps a guarantee, under ``add_remove``. Let two tables differ in one unit. Every other row is on
the same side in both: its side depends on the key, which is drawn without the rows, on public parameters and
on that row (or on its unit, all of whose rows are on one side). So one side is the same in both tables, and
the other differs in that one unit: whatever is private on a table of such rows is as private on a side of it.
What is released from both sides costs at most the sum, which is what a ledger is charged. (No unit is on both
sides, so the larger of the two would do.)

Under ``replace_one`` a row that is replaced by another may change sides; each side then has a row more or
less, which noise for a replaced row does not cover: refused.

How many rows a side has is private, and is as near to the share as chance has it: the declared population
times the share is what is expected, and is all that is public. No noise depends on it.

Rows with the same content are on the same side. If only a few different rows occur, the sides are uneven and
unlike each other: declare a column that tells rows apart (a number of the record, say), and exclude it from
the features, or declare the unit. The key is drawn anew for every split, so nobody can choose values for a
row that put it on a side, and two splits of the same table are different ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tacit.errors import InvalidValue, TacitError
from tacit.randomness import Source
from tacit.relations import Relation

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from tacit.data.source import PrivateSource

__all__ = ["SPLIT", "Side", "Split", "keyed_hash"]

SPLIT = "the table was split by a keyed hash of each row or unit, drawn without the rows"
"""An assumption of whatever was fitted to or measured on a side."""
_SEPARATOR = "\x1f"
_DIGITS = 16
"""Hexadecimal digits of the hash that decide."""


@dataclass(frozen=True)
class Split:
    """A share of the rows set aside by a keyed hash.

    >>> import pandas as pd
    >>> from tacit.data.reading import prepare, private_rows
    >>> from tacit.schema import Column, Schema
    >>> schema = Schema({"age": Column("integer", bounds=(0, 1000))})
    >>> people, split = pd.DataFrame({"age": range(1000)}), Split.drawn(0.2, seed=1)
    >>> sizes = [len(private_rows(people, schema, ["age"], side=side)) for side in (split.rest, split.test)]
    >>> sizes
    [797, 203]
    """

    share: float
    """The expected share of the rows in the smaller part, ``test``."""
    key: str = field(repr=False)
    """What the hash is keyed with: secret, and good for one split."""

    def __post_init__(self) -> None:
        share = self.share
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1:
            advice = "Write 0.2 for a fifth of the rows."
            raise InvalidValue("test_share", share, "above 0 and below 1", advice)

    @classmethod
    def drawn(cls, share: float, seed: int | None = None) -> Split:
        """A split with a fresh key, or with one that follows from a seed, for tests."""
        key = f"{Source().bits(128):032x}"
        if seed is not None:
            key = hashlib.sha256(f"split {seed}".encode()).hexdigest()[:32]
        return cls(share, key)

    def require(self, relation: Relation) -> None:
        """Refuse a relation under which a row may change sides."""
        if relation is not Relation.ADD_REMOVE:
            raise TacitError(
                f"A split by hash keeps a guarantee under add_remove, not under {relation}: a row that is "
                "replaced may change sides.",
                "Use a ledger with relation='add_remove', or two files and test=.",
            )

    @property
    def test(self) -> Side:
        """The share that is set aside."""
        return Side(self, True)

    @property
    def rest(self) -> Side:
        """All other rows."""
        return Side(self, False)


@dataclass(frozen=True)
class Side:
    """One side of a split."""

    split: Split
    aside: bool
    """Whether it is the share that was set aside."""

    def expected(self, population: int | None) -> int | None:
        """How many rows are expected on this side, from the declared number; the true number is private."""
        share = self.split.share if self.aside else 1 - self.split.share
        return None if population is None else max(1, round(population * share))

    def of(self, source: PrivateSource) -> ir.Table:
        """The rows of the cleaned table that are on this side, by an expression that the engine runs."""
        aside = self._hash(source) < f"{int(self.split.share * 16**_DIGITS):0{_DIGITS}x}"
        return source.table.filter(aside if self.aside else ~aside)

    def _hash(self, source: PrivateSource) -> ir.Value:
        from tacit.data.source import RAW, STATE, UNIT

        table = source.table
        names = [UNIT]
        if UNIT not in table.columns:
            names = [name for name in table.columns if not name.startswith((RAW, STATE))]
        return keyed_hash(self.split.key, [table[name] for name in names]).left(_DIGITS)


def keyed_hash(key: str, values: Sequence[ir.Value]) -> ir.StringValue:
    """A hash of cleaned values of each row with a secret key, in hexadecimal digits."""
    import ibis

    text = ibis.literal(key)
    for value in values:
        text = text + _SEPARATOR + _written(value)
    return text.hexdigest("sha256")


def _written(value: ir.Value) -> ir.StringValue:
    """A cleaned value as text that tells a missing value from every other."""
    import ibis

    return ibis.ifelse(value.isnull(), "-", ibis.literal("+") + value.cast("string"))
