"""The rows of a table as the examples of a network: found by their columns, read inside the charge.

Everything about an example follows from the schema: its features come from a
:class:`~tacit.data.preprocessor.Preprocessor`, its class from the declared categories of the target, its
number from the bounds of the target. An example whose target is missing or not declared adds nothing.

Whom a run protects: an example is a row or, if the schema names a unit with one row each, one row of a unit,
chosen at random and blind to the rows. DP-SGD clips and samples by example. So units of several rows are
refused: their rows would be clipped one by one, and a unit would move the sum by more than the clip_norm that
the noise is made for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.errors import InvalidValue
from tacit.jobs import testing
from tacit.relations import Relation, Unit

if TYPE_CHECKING:
    from tacit.data.preprocessor import Preprocessor

__all__ = ["RowExamples", "check_unit"]


def check_unit(unit: Unit) -> None:
    """Refuse units of several rows."""
    if unit.rows != 1:
        raise InvalidValue(
            "rows_per_unit", unit.rows, "1 for a network, which is trained by example",
            f"Declare rows = 1 for the unit in the schema: of each {unit.column} one row, chosen at random, "
            "is used. Or make one row of the rows of each, or use tacit fit, which takes several.",
        )  # fmt: skip


@dataclass
class RowExamples:
    """Rows of which only the names and types of columns were looked at, as the examples of a run."""

    name: str
    maker: Preprocessor
    relation: Relation
    seed: int | None = None
    opened: Any = None
    test: testing.RowTest | None = None
    """A test that must be on other rows, which is told what rows these are."""
    _content: tuple[Any, Any] | None = field(default=None, repr=False)
    classes: tuple[str, ...] = ()
    """No folders by class."""

    def find(self, stack: Any) -> None:
        """Find the file and its columns; no row is read."""
        from tacit.data.reading import prepare

        self.opened = prepare(self.name, self.maker.schema, self.columns)
        stack.callback(self.opened.close)

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return testing.columns_of(self.maker)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of one example: how many features it has; none for a text."""
        return () if self.of_text else (len(self.maker.features.names),)

    @property
    def of_text(self) -> bool:
        """Whether an example is one text, and not a row of features."""
        from tacit.data.texts import TextColumn

        return isinstance(self.maker, TextColumn)

    @property
    def known(self) -> str:
        """What is taken as public, in words."""
        return "what the schema says of their columns"

    def check(self) -> None:
        """Refuse a source that was closed."""
        self.opened.require_open()

    @property
    def private_rows(self) -> int:
        """How many examples there are: counted where that is public, and otherwise once they are paid for."""
        if self._content is None and self.relation is Relation.REPLACE_ONE:
            return self._counted()
        return len(self.read()[1])

    def _counted(self) -> int:
        from tacit.data.reading import UNIT

        table = self.opened.table
        count = table[UNIT].nunique() if UNIT in table.columns else table.count()
        return int(self.opened.run(table.aggregate(rows=count))["rows"].iloc[0])

    def read(self) -> tuple[Any, Any]:
        """Features or texts, and labels or numbers. PRIVATE: the run calls this inside the charge, once."""
        if self._content is None:
            self._content = self._read()
        return self._content

    def _read(self) -> tuple[Any, Any]:
        from tacit.data.given import column, places
        from tacit.data.reading import UNIT, private_rows
        from tacit.data.units import bounded_units
        from tacit.randomness import Source
        from tacit.training.networks.tabular import declared_target, scaled

        maker = self.maker
        frame = private_rows(self.opened, maker.schema, self.columns)
        if self.test is not None:
            self.test.fitted_to = testing.digest(frame, maker)
        if UNIT in frame.columns:
            kept = bounded_units(column("units", frame[UNIT]), 1, Source(self.seed))
            frame = frame[kept].reset_index(drop=True)
        classes, bounds = declared_target(maker)
        targets = maker.target_values(frame)
        found = places(targets, classes) if bounds is None else scaled(targets, bounds).astype(np.float32)
        made = maker.transform(frame)
        return (made if self.of_text else np.asarray(made, dtype=np.float32)), found
