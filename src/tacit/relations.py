"""Who is protected, and from which change: relation, unit, and the sensitivities they imply.

A *relation* says which two datasets count as neighbours:

``add_remove``
    one has all the rows of the other and one unit more; n itself is protected.
``replace_one``
    both have the same number of units and differ in the content of one; n is public.

A *unit* says what "one" means: a row, everything a group (a person, a household) contributed, with a bound on
how many rows that may be, or the label of one row. Label differential privacy (:mod:`tacit.labels`) protects
the label alone: neighbours have the same rows with the same features, and differ in one label. That is a
weaker promise than privacy for rows, so a unit of labels equals no other unit, and only ``replace_one`` goes
with it.

Sensitivity is derived from a public bound and the relation here and nowhere else.

>>> from tacit.relations import Relation, sum_sensitivity
>>> sum_sensitivity(-1.0, 3.0, Relation.ADD_REMOVE), sum_sensitivity(-1.0, 3.0, "replace_one")
(3.0, 4.0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from tacit import _validate
from tacit.errors import InvalidValue

__all__ = [
    "LABEL",
    "Relation",
    "Unit",
    "histogram_sensitivity",
    "norm_sensitivity",
    "relation_for",
    "require_whole_rows",
    "sum_sensitivity",
]


class Relation(StrEnum):
    """The neighbouring relation, ``add_remove`` or ``replace_one``."""

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"

    @classmethod
    def of(cls, value: Relation | str) -> Relation:
        """The relation of this name, or a clear error."""
        try:
            return cls(value)
        except ValueError:
            raise InvalidValue(
                "relation", value, "'add_remove' or 'replace_one'", "See tacit.relations."
            ) from None


@dataclass(frozen=True)
class Unit:
    """What one neighbour adds, removes or replaces: a row, the rows of one person, or the label of one row.

    ``column`` names the unit of each row (``"patient_id"``); ``rows`` bounds how many rows one unit may
    contribute. A plain row is ``Unit()``. ``name`` is what people call one of them (``"patient"``): pages say
    it, and it changes nothing about who is protected.

    ``part="label"`` says that only the label of a row is protected, and its features are not
    (:data:`tacit.relations.LABEL`).

    >>> Unit("patient_id", 3, name="patient") == Unit("patient_id", 3)
    True
    >>> Unit(part="label") == Unit(), str(Unit(part="label"))
    (False, 'label')
    """

    column: str | None = None
    rows: int = 1
    name: str | None = field(default=None, compare=False)
    part: str | None = None

    def __post_init__(self) -> None:
        _validate.count("rows", self.rows, 1)
        if self.column is None and self.rows != 1:
            raise InvalidValue("rows", self.rows, "1 where the unit is a row", "Name a column.")
        if self.name is not None and not (isinstance(self.name, str) and self.name.strip()):
            raise InvalidValue("name", self.name, "a word", "Write Unit(name='patient').")
        if self.part not in (None, "label"):
            raise InvalidValue("part", self.part, "'label', or left out to protect whole rows")
        if self.part is not None and self.column is not None:
            raise InvalidValue(
                "column", self.column, "left out where the label of a row is protected",
                "Nobody may have several labels then: protect whole rows, or keep one label of each.",
            )  # fmt: skip

    def __str__(self) -> str:
        if self.part is not None:
            return self.part if self.name is None else f"{self.part} of one {self.name}"
        if self.column is None:
            return "row" if self.name is None else f"row, which is one {self.name}"
        if self.rows == 1 and self.name == self.column:
            return self.column
        rows = f"at most {self.rows} rows"
        return f"{self.column} ({rows})" if self.name is None else f"{self.name} ({self.column}, {rows})"

    def to_dict(self) -> dict[str, str | int | None]:
        """What ``Unit(**…)`` takes, for JSON; without a name or a part that nobody declared."""
        told = {"name": self.name, "part": self.part}
        declared = {key: value for key, value in told.items() if value is not None}
        return {"column": self.column, "rows": self.rows, **declared}


LABEL = Unit(part="label")
"""The label of one row, whose features are not protected."""


def relation_for(unit: Unit, relation: Relation | str | None = None) -> Relation:
    """The relation, ``add_remove`` unless told; a unit of labels goes with ``replace_one`` alone.

    A label cannot be added or removed while its row stays, and whether the row is there is not protected.

    >>> str(relation_for(Unit())), str(relation_for(LABEL))
    ('add_remove', 'replace_one')
    >>> relation_for(LABEL, "add_remove")
    Traceback (most recent call last):
        ...
    tacit.errors.InvalidValue: relation must be 'replace_one' where the unit is a label, got 'add_remove'. ...
    """
    if unit.part is None:
        return Relation.of(relation or Relation.ADD_REMOVE)
    if relation is not None and Relation.of(relation) is not Relation.REPLACE_ONE:
        raise InvalidValue(
            "relation", str(relation), f"'replace_one' where the unit is a {unit.part}",
            "Rows and features are not protected then, only what a label says: set relation='replace_one'.",
        )  # fmt: skip
    return Relation.REPLACE_ONE


def require_whole_rows(unit: Unit) -> None:
    """Refuse a unit of labels, where whole rows are read."""
    if unit.part is not None:
        raise InvalidValue(
            "unit", str(unit), "a row or the rows of a column: features are read here, and a label alone is "
            "not enough", "Use tacit.labels where only labels are secret.",
        )  # fmt: skip


def sum_sensitivity(lower: float, upper: float, relation: Relation | str) -> float:
    """How far one row can move a sum of values clipped to [lower, upper]."""
    low, high = _validate.finite("lower", lower), _validate.finite("upper", upper)
    if low > high:
        raise InvalidValue("bounds", (lower, upper), "ordered, lower first")
    if Relation.of(relation) is Relation.ADD_REMOVE:
        return max(abs(low), abs(high))
    return high - low


def norm_sensitivity(clip_norm: float, relation: Relation | str) -> float:
    """How far, in the clipping norm, one row can move a sum of vectors of norm ≤ clip_norm."""
    bound = _validate.positive("clip_norm", clip_norm)
    return bound if Relation.of(relation) is Relation.ADD_REMOVE else 2 * bound


def histogram_sensitivity(relation: Relation | str, norm: int = 1) -> float:
    """How far one row can move a vector of counts over disjoint bins, in the ℓ1 or ℓ2 norm."""
    if norm not in (1, 2):
        raise InvalidValue("norm", norm, "1 or 2")
    if Relation.of(relation) is Relation.ADD_REMOVE:
        return 1.0
    return 2.0 if norm == 1 else math.sqrt(2.0)
