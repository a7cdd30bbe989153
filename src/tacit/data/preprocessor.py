"""Preprocessor: from a table to a matrix of features, by what its schema declares and nothing else.

What becomes of a row depends on that row and on the schema. No mean, no extreme and no list of categories
is taken from the data, so the step costs no budget, and what is known of its output (names, bounds,
norm) is known before any data are seen. Values are cleaned by :mod:`tacit.data.cleaning.rule`, as in tables:

==========================================  =====================================================
column                                      features
==========================================  =====================================================
categories declared, or boolean             one per category, in order, and one for ``other``: 0 or 1
integer, number or date, bounds declared    one: clipped, transformed, scaled to [−1, 1]
anything else, or the unit's column         refused, unless it is the target or excluded
==========================================  =====================================================

A missing value is the ``missing`` constant if there is one, else a row of zeros or the middle of the scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from tacit import _validate
from tacit.data.arithmetic import lengths
from tacit.data.cleaning.values import Values, bounded, bounds_of, codes_of
from tacit.data.columns import Columns
from tacit.data.features import Features, Known, known
from tacit.errors import InvalidValue
from tacit.schema import Column, Schema, hint_of

__all__ = ["TRANSFORMS", "Preprocessor"]

Array = NDArray[Any]
Float64 = NDArray[np.float64]

TRANSFORMS: Mapping[str, Callable[[Any], Any]] = {
    "identity": np.asarray,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
}
"""What may be done to (value − lower) before it is scaled; each is 0 at 0 and increasing."""

_INVERSES: Mapping[str, Callable[[Any], Any]] = {
    "identity": np.asarray,
    "log1p": np.expm1,
    "sqrt": np.square,
}


class Preprocessor(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """One-hot categories and scaled numbers, by public knowledge alone; a scikit-learn transformer.

    ``schema`` is a :class:`tacit.Schema`, the path of one, or a mapping. The ``target`` and the columns to
    ``exclude`` make no features and need not be in X. ``transforms`` names what is done to a number before
    scaling, ``{"capital_gain": "log1p"}``: ``"log1p"`` or ``"sqrt"`` of value − lower, or
    ``"identity"``. Rows longer than ``norm`` in ℓ2 are shortened to it.

    X is a pandas or polars frame or a mapping of arrays, read by name, or a 2-D array whose columns are those
    of the schema in order, all of them or all that make features.

    Guarantee: none needed. Nothing is read from the data, so the event is empty, and a row's features depend
    on no other row: what an estimator promises about its input it promises about the table. No value raises.
    The result is a matrix that carries its :class:`~tacit.data.features.Features`: bounds, and a
    norm of at most √(columns), since each column adds at most 1 to the square of a row.

    >>> schema = Schema({"age": Column("integer", bounds=(20, 60)),
    ...                  "sex": Column("category", categories=("Female", "Male"))})
    >>> maker = Preprocessor(schema)
    >>> maker.features.names, maker.features.upper
    (('age', 'sex=Female', 'sex=Male'), (1.0, 1.0, 1.0))
    >>> maker.fit_transform({"age": [30, 99, None], "sex": ["Male", " Female", "?"]}).tolist()
    [[-0.5, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """

    def __init__(
        self,
        schema: Any,
        *,
        target: str | None = None,
        norm: float | None = None,
        transforms: Mapping[str, str] | None = None,
        exclude: Sequence[str] = (),
    ) -> None:
        self.schema = schema
        self.target = target
        self.norm = norm
        self.transforms = transforms
        self.exclude = exclude

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters and the names of the columns. Nothing else of X is looked at."""
        plan = self.require(X)
        self.n_features_in_ = len(plan.used)
        self.feature_names_in_ = np.array(plan.used, dtype=object)
        return self

    def require(self, X: Any) -> _Plan:
        """Refuse X by the names and types of its columns; its values are not looked at."""
        plan = self._plan()
        Columns(X, plan.schema, plan.used)
        return plan

    def transform(self, X: Any) -> Known:
        """The features of every row, float64, with the facts about them."""
        plan = self._plan()
        columns = Columns(X, plan.schema, plan.used)
        matrix = np.zeros((columns.number, len(plan.features.names)))
        start = 0
        for block in plan.blocks:
            block.fill(matrix, start, columns[block.name])
            start += len(block.names)
        if plan.features.norm is not None and self.norm is not None:
            _shorten(matrix, plan.features.norm)
        return known(matrix, plan.features)

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Known:
        """As :meth:`fit`, then :meth:`transform`."""
        made: Known = super().fit_transform(X, y, **fit_params)
        return made

    @property
    def features(self) -> Features:
        """What is known of the output before any data are seen."""
        return self._plan().features

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that make features."""
        return self._plan().used

    def scaled(self, column: str) -> tuple[float, float, str] | None:
        """Lower and upper bound and transform of a column that is scaled to [−1, 1]; None for any other."""
        for block in self._plan().blocks:
            if block.name == column and not block.one_hot:
                return (*bounds_of(block.column), block.transform)
        return None

    def unscaled(self, column: str, values: Any) -> Float64:
        """Numbers from −1 to 1 in the units of the column that was scaled so; of any other, as they are.

        >>> maker = Preprocessor({"gain": Column("integer", bounds=(0, 99))}, transforms={"gain": "log1p"})
        >>> maker.unscaled("gain", [-1, 0, 1]).round(6).tolist()
        [0.0, 9.0, 99.0]
        """
        found = np.asarray(values, dtype=np.float64)
        scaled = self.scaled(column)
        if scaled is None:
            return found
        lower, upper, transform = scaled
        top = float(TRANSFORMS[transform](np.float64(upper) - lower))
        return np.asarray(lower + _INVERSES[transform]((found + 1) / 2 * top), dtype=np.float64)

    def in_units(self, column: str, value: float | str) -> float | str:
        """One scaled number as people write it: in the units of the column, or as a date."""
        if isinstance(value, str) or self.scaled(column) is None:
            return value
        found = float(self.unscaled(column, value))
        if self._plan().schema[column].type == "date":
            return str(np.datetime64(0, "D") + np.timedelta64(math.ceil(found), "D"))
        return found

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """The declared classes of the target, ``other`` last; None for a number."""
        column = self._target()
        if column.categories is None:
            return None
        return (*column.categories, *([] if column.other is None else [column.other]))

    @property
    def target_bounds(self) -> tuple[float, float] | None:
        """The declared bounds of a numeric target, a date in days since 1970; None where there are none."""
        column = self._target()
        return None if column.bounds is None or column.categories is not None else bounds_of(column)

    def target_values(self, X: Any) -> Array:
        """The target of every row, read by the same rules; None, or NaN for numbers, where there is none."""
        column = self._target()
        schema, name = Schema.of(self.schema), str(self.target)
        values = Columns(X, schema, (name,))[name]
        if self.classes is not None:
            labels = np.empty(len(self.classes) + 1, dtype=object)
            labels[:] = [*self.classes, None]
            return np.asarray(labels[codes_of(values, column)])
        return bounded(values, column)

    def contents(self, X: Any) -> list[bytes]:
        """The features of every row as bytes: rows that a model sees alike have the same."""
        return [bytes(row) for row in self.transform(X) + 0.0]

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names of the features; ``input_features`` is ignored, the schema knows them."""
        return np.array(self._plan().features.names, dtype=object)

    def describe(self) -> str:
        """What is done with each column, in words. All of it is public.

        >>> schema = Schema({"gain": Column("number", bounds=(0, 1e5)), "smokes": Column("boolean")})
        >>> print(Preprocessor(schema, transforms={"gain": "log1p"}).describe())
        gain: clipped to [0, 100000], log1p of value − lower, scaled to [−1, 1]; missing is the middle
        smokes: 2 features, one per category; missing or undeclared is all zeros
        Rows have an ℓ2 norm of at most 1.414.
        """
        plan = self._plan()
        lines = [f"{block.name}: {block.describe()}" for block in plan.blocks]
        left_out = [name for name in plan.schema if name not in plan.used]
        lines += [f"{name}: {'the target' if name == self.target else 'left out'}" for name in left_out]
        verb = "are shortened to" if self.norm is not None else "have"
        return "\n".join([*lines, f"Rows {verb} an ℓ2 norm of at most {plan.features.norm:.4g}."])

    def to_dict(self) -> dict[str, Any]:
        """The parameters in JSON's terms, the schema as TOML."""
        return {
            "schema": Schema.of(self.schema).to_toml(),
            "target": self.target,
            "norm": None if self.norm is None else float(self.norm),
            "transforms": None if self.transforms is None else dict(self.transforms),
            "exclude": list(self.exclude),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """A preprocessor of the parameters that :meth:`to_dict` gave, checked."""
        rest = {name: value for name, value in data.items() if name != "schema"}
        try:
            made = cls(Schema.from_toml(data["schema"]), **rest)
        except (KeyError, TypeError, AttributeError):
            raise InvalidValue("preprocessor", sorted(data), "as to_dict() makes it") from None
        plan = made._plan()
        made.n_features_in_ = len(plan.used)
        made.feature_names_in_ = np.array(plan.used, dtype=object)
        return made

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return self.to_dict(), {}

    @classmethod
    def _from_saved(cls, state: dict[str, Any], arrays: dict[str, Array]) -> Self:
        return cls.from_dict(state)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags

    def _target(self) -> Column:
        if self.target is None:
            raise InvalidValue("target", None, "a column", "Write Preprocessor(schema, target='income').")
        return Schema.of(self.schema)[self.target]

    def _plan(self) -> _Plan:
        schema = Schema.of(self.schema)
        if isinstance(self.exclude, str) or not isinstance(self.exclude, Iterable):
            raise InvalidValue("exclude", self.exclude, "a list of columns", f"Write [{self.exclude!r}].")
        left_out = set(self.exclude) | ({self.target} if self.target is not None else set())
        for name in left_out - {schema.unit.column}:
            schema[name]
        used = tuple(name for name in schema if name not in left_out)
        if not used:
            raise InvalidValue("schema", list(schema), "left with a feature", "Exclude fewer columns.")
        transforms = dict(self.transforms or {})
        for name in transforms:
            if name not in used:
                hint = hint_of(name, used) or f"Those that make features are {', '.join(used):.200}."
                raise InvalidValue("key of transforms", name, "a column that makes features", hint)
        blocks = tuple(_Block.of(schema, name, transforms.get(name)) for name in used)
        names = [feature for block in blocks for feature in block.names]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidValue("name of a feature", twice, "made by one column only", "Rename a column.")
        norm = math.sqrt(len(blocks))
        if self.norm is not None:
            norm = min(norm, _validate.positive("norm", self.norm))
        lower = tuple(0.0 if block.one_hot else -1.0 for block in blocks for _ in block.names)
        columns = tuple(block.name for block in blocks for _ in block.names)
        features = Features(tuple(names), lower, (1.0,) * len(names), norm, columns)
        return _Plan(schema, used, blocks, features)


@dataclass(frozen=True)
class _Block:
    """The features that one column makes."""

    name: str
    column: Column
    transform: str
    names: tuple[str, ...]

    @property
    def one_hot(self) -> bool:
        """Whether there is a feature for each category."""
        return self.column.categories is not None

    @classmethod
    def of(cls, schema: Schema, name: str, transform: str | None) -> _Block:
        column, where = schema[name], f"column {name!r}"
        drop = f"or leave it out: exclude=[{name!r}]."
        if name == schema.unit.column:
            raise InvalidValue(where, "the unit's column", "no feature", f"Leave it out: exclude=[{name!r}].")
        if column.type == "text":
            raise InvalidValue(where, "text", "of a type with bounds or categories", f"Declare some, {drop}")
        if column.categories is not None:
            if transform is not None:
                raise InvalidValue(f"transform of {where}", transform, "left out, it has categories")
            values = (*column.categories, *([] if column.other is None else [column.other]))
            return cls(name, column, "identity", tuple(f"{name}={value}" for value in values))
        if column.bounds is None:
            lacking = "categories" if column.type == "category" else "bounds"
            advice = f"Add public {lacking} to the schema, {drop}"
            raise InvalidValue(where, None, f"declared with {lacking}", advice)
        _validate.choice(f"transform of {where}", transform or "identity", tuple(TRANSFORMS))
        return cls(name, column, transform or "identity", (name,))

    def fill(self, matrix: Float64, start: int, values: Values) -> None:
        """Write the features of all rows into the matrix, from this place on."""
        if self.one_hot:
            codes = codes_of(values, self.column)
            rows = np.flatnonzero(codes >= 0)
            matrix[rows, start + codes[rows]] = 1.0
            return
        lower, upper = bounds_of(self.column)
        change = TRANSFORMS[self.transform]
        numbers = change(bounded(values, self.column) - lower)
        numbers /= float(change(np.float64(upper) - lower))
        numbers *= 2.0
        numbers -= 1.0
        np.clip(numbers, -1.0, 1.0, out=numbers)
        np.nan_to_num(numbers, copy=False, nan=0.0)
        matrix[:, start] = numbers

    def describe(self) -> str:
        """What is done, without the column's name."""
        missing, other = self.column.missing, self.column.other
        if self.one_hot:
            absent, undeclared = (_fate(constant, "all zeros") for constant in (missing, other))
            rest = f"missing is {absent}, undeclared is {undeclared}"
            rest = f"missing or undeclared is {absent}" if absent == undeclared else rest
            return f"{len(self.names)} features, one per category; {rest}"
        low, high = (
            f"{bound:.6g}" if isinstance(bound, float) else bound for bound in self.column.bounds or ()
        )
        step = "" if self.transform == "identity" else f" {self.transform} of value − lower,"
        return (
            f"clipped to [{low}, {high}],{step} scaled to [−1, 1]; missing is {_fate(missing, 'the middle')}"
        )


@dataclass(frozen=True)
class _Plan:
    schema: Schema
    used: tuple[str, ...]
    blocks: tuple[_Block, ...]
    features: Features


def _fate(constant: Any, otherwise: str) -> str:
    return otherwise if constant is None else f"'{constant}'" if isinstance(constant, str) else str(constant)


def _shorten(matrix: Float64, norm: float) -> None:
    """Scale rows longer than ``norm`` down to it, in place."""
    matrix *= (norm / np.maximum(lengths(matrix), norm))[:, None]
