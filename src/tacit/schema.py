"""What is publicly known about a table: its columns, their bounds and categories, whom a row belongs to.

Whatever a schema says is taken as known to everyone before the data are seen, and costs no
budget. So it must come from a codebook, a form, a law or common sense, never from the rows: an
upper bound read off the data *is* the largest value somebody has, and anything scaled by it gives
that person away. Ages lie in [0, 120] whether or not anybody is 120. Bounds that are too wide cost
accuracy, too narrow ones distort (values are clipped to them), neither costs privacy. What is not
known may be left out, and bought with budget later.

A schema is written in TOML:

>>> schema = Schema.from_toml('''
... population = 32561                     # the public number of rows; private if left out
...
... [csv]                                  # how CSV files are written; as here if left out
... delimiter = ","
... decimal = "."
... encoding = "utf-8"
...
... [about]                                # optional, for the pages of reports
... data = "Register of the Northern Hospital, 2020 to 2024"
... responsible = "Data office, data@hospital.example"
...
... [unit]                                 # whom to protect; a single row if left out
... column = "patient_id"
... rows = 3                               # the most rows that one of them may have
... name = "patient"                       # what people call one of them
...
... [columns.age]
... type = "integer"
... bounds = [17, 90]
...
... [columns.sex]
... type = "category"
... categories = ["Female", "Male"]
... other = "another"                      # where undeclared values are counted
...
... [columns.admitted]
... type = "date"
... bounds = [2020-01-01, 2024-12-31]
... ''')
>>> schema["age"].bounds
(17, 90)
>>> Schema.from_toml(schema.to_toml()) == schema
True
>>> schema["agge"]
Traceback (most recent call last):
...
tacit.errors.InvalidValue: column must be declared in the schema, got 'agge'. Did you mean 'age'?
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tacit import _validate
from tacit._dialect import Dialect
from tacit._toml import key, left_open, literal, quoted
from tacit._writing import write
from tacit.errors import InvalidValue, SourceMissing
from tacit.relations import Unit, require_whole_rows

__all__ = ["About", "Column", "Dialect", "Schema"]

LARGEST = 2**53
"""The largest whole number that may be declared: up to here each is itself in float64."""

_ALLOWED = {
    "integer": ("bounds", "categories", "missing"),
    "number": ("bounds", "missing"),
    "category": ("categories", "other", "missing"),
    "boolean": ("categories", "missing"),
    "date": ("bounds", "missing"),
    "text": ("missing",),
}


@dataclass(frozen=True)
class Column:
    """What is publicly known about one column. Nothing here may be read from the data.

    ``type``
        ``"integer"``, ``"number"``, ``"category"``, ``"boolean"``, ``"date"``, or ``"text"`` for
        free text and identifiers.
    ``bounds``
        Of an integer (at most 2⁵³ in size), a number (at most 2⁴⁰⁰) or a date (or ISO text):
        (lower, upper), lower < upper. Values outside are clipped.
    ``categories``
        Of a category (all text, or all whole numbers) or an integer: the values there may be, in
        the order in which results list them. A boolean has (False, True).
    ``other``
        Beside text categories: the label under which undeclared values are counted. Without it,
        rows with such values are left out.
    ``missing``
        A constant, within bounds and among the categories (or ``other``), that stands in for
        missing values. Without it, such rows are left out of statistics on the column.

    >>> Column("number", bounds=(0, 250)).bounds
    (0.0, 250.0)
    >>> Column("integer", bounds=(90, 17))
    Traceback (most recent call last):
    ...
    tacit.errors.InvalidValue: bounds must be ordered, lower first, got (90, 17).
    """

    type: str
    bounds: tuple[Any, Any] | None = None
    categories: tuple[Any, ...] | None = None
    other: str | None = None
    missing: object | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.type, str) or self.type not in _ALLOWED:
            kinds = "one of " + ", ".join(_ALLOWED)
            raise InvalidValue("type", self.type, kinds, hint_of(self.type, _ALLOWED))
        for name in ("bounds", "categories", "other", "missing"):
            value = getattr(self, name)
            if value is not None and name not in _ALLOWED[self.type]:
                able = "It is for: " + ", ".join(kind for kind in _ALLOWED if name in _ALLOWED[kind]) + "."
                raise InvalidValue(name, value, f"left out of a column of {self.type}", able)
            if value is not None or (self.type, name) == ("boolean", "categories"):
                object.__setattr__(self, name, getattr(self, f"_checked_{name}")())

    def _checked_bounds(self) -> tuple[Any, Any]:
        if len(given := _listed("bounds", self.bounds, "two values, [lower, upper]")) != 2:
            raise InvalidValue("bounds", f"{len(given)} values", "two values, [lower, upper]")
        lower, upper = (_value(self.type, "bounds", value) for value in given)
        if lower >= upper:
            advice = "Widen them." if lower == upper else ""
            raise InvalidValue("bounds", self.bounds, "ordered, lower first", advice)
        return lower, upper

    def _checked_categories(self) -> tuple[Any, ...]:
        if self.type == "boolean":
            if self.categories not in (None, (False, True)):
                raise InvalidValue("categories", self.categories, "left out of a column of boolean")
            return False, True
        if not (given := _listed("categories", self.categories, "a list of values")):
            raise InvalidValue("categories", given, "one value or more", "If they are unknown, leave it out.")
        worded = {isinstance(value, str) for value in given} if self.type == "category" else {False}
        if len(worded) > 1:
            raise InvalidValue("categories", self.categories, "all text or all whole numbers")
        kind = "text" if True in worded else "integer"
        values = tuple(_value(kind, "categories", value) for value in given)
        value, times = Counter(values).most_common(1)[0]
        if times > 1:
            raise InvalidValue("categories", value, "named once each", "Take out the repetition.")
        for value in values:
            self._within_bounds("categories", value)
        return values

    def _checked_other(self) -> str:
        if self.categories is None or not isinstance(self.categories[0], str):
            raise InvalidValue("other", self.other, "left out unless categories are listed, as text")
        label = _text("other", self.other)
        if label in self.categories:
            raise InvalidValue("other", label, "a label that is no category itself", "Choose another label.")
        return label

    def _checked_missing(self) -> object:
        coded = self.categories is not None and not isinstance(self.categories[0], str)
        kind = self.type if self.type != "category" else "integer" if coded else "text"
        constant = _value(kind, "missing", self.missing)
        self._within_bounds("missing", constant)
        if self.categories is not None and constant not in (*self.categories, self.other):
            raise InvalidValue("missing", self.missing, "one of the categories")
        return constant

    def _within_bounds(self, name: str, value: Any) -> None:
        if self.bounds is not None and not self.bounds[0] <= value <= self.bounds[1]:
            raise InvalidValue(name, value, f"within the bounds [{self.bounds[0]}, {self.bounds[1]}]")


@dataclass(frozen=True)
class About:
    """What reports say of a table in words: which ``data`` it holds, and who is ``responsible`` for them."""

    data: str | None = None
    responsible: str | None = None

    def __post_init__(self) -> None:
        for part in fields(self):
            if (value := getattr(self, part.name)) is not None:
                _text(f"{part.name} in [about]", value, 1)


@dataclass(frozen=True)
class Schema:
    """The public knowledge about a table: columns in order, its population, the unit, how its CSV is written.

    ``columns`` cannot be changed afterwards. ``population`` is the public number of rows; with
    ``None`` it is private. ``unit`` says whom to protect; its column need not be declared. ``csv`` is the
    :class:`Dialect` of CSV files with these columns, and holds wherever one of them is read.
    ``about`` has words for the pages of reports.

    >>> schema = Schema({"age": Column("integer", bounds=(0, 120))}, population=1000)
    >>> list(schema.with_column("smoker", Column("boolean")))
    ['age', 'smoker']
    """

    columns: Mapping[str, Column] = field(hash=False)
    population: int | None = None
    unit: Unit = field(default_factory=Unit)
    csv: Dialect = field(default_factory=Dialect)
    about: About = field(default_factory=About)

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise InvalidValue("columns", type(self.columns).__name__, "names with a Column each")
        for name, column in self.columns.items():
            _text("name of a column", name, 1)
            if not isinstance(column, Column):
                raise InvalidValue(f"column {name!r}", type(column).__name__, "a Column")
        object.__setattr__(self, "columns", MappingProxyType({str(k): v for k, v in self.columns.items()}))
        if self.population is not None:
            object.__setattr__(self, "population", _whole("population", self.population, 0))
        if not isinstance(self.unit, Unit):
            raise InvalidValue("unit", self.unit, "a Unit", "Write Unit('patient_id', rows=3).")
        require_whole_rows(self.unit)
        if self.unit.name is not None:
            _text("name of the unit", self.unit.name)
        if self.unit.column is not None:
            whom, rows = _text("column of the unit", self.unit.column, 1), self.unit.rows
            made = Unit(whom, _whole("rows of the unit", rows, 1), self.unit.name)
            object.__setattr__(self, "unit", made)
        if not isinstance(self.about, About):
            raise InvalidValue("about", self.about, "an About", "Write About(responsible='Data office').")
        if not isinstance(self.csv, Dialect):
            raise InvalidValue("csv", self.csv, "a Dialect", "Write Dialect(delimiter=';', decimal=',').")

    def __getitem__(self, name: str) -> Column:
        if name not in self.columns:
            known = f"It declares {', '.join(map(repr, self.columns)):.200}."
            raise InvalidValue("column", name, "declared in the schema", hint_of(name, self.columns) or known)
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __reduce__(self) -> tuple[type[Schema], tuple[Any, ...]]:
        _, *others = (getattr(self, part.name) for part in fields(self))
        return Schema, (dict(self.columns), *others)

    def with_column(self, name: str, column: Column) -> Schema:
        """A new schema with one column more, or with the column of this name replaced."""
        return replace(self, columns={**self.columns, name: column})

    @classmethod
    def of(cls, value: Schema | str | os.PathLike[str] | Mapping[str, Any]) -> Schema:
        """A schema from a schema, the path of a TOML file, or a mapping (laid out like the file, or
        simply with a ``Column`` for each name).

        >>> Schema.of({"age": Column("integer")}) == Schema.of({"columns": {"age": {"type": "integer"}}})
        True
        """
        if isinstance(value, Schema):
            return value
        if isinstance(value, Mapping):
            plain = value and all(isinstance(column, Column) for column in value.values())
            return cls(value) if plain else _from_document(value)
        if isinstance(value, (str, os.PathLike)) and "\n" not in str(value):
            return cls.load(value)
        kinds = "a Schema, the path of a TOML file, or a mapping"
        raise InvalidValue("schema", type(value).__name__, kinds, "Schema.from_toml reads text.")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a TOML file."""
        try:
            text = Path(path).read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InvalidValue("schema", os.fspath(path), "UTF-8 text", "Name a TOML file.") from None
        except OSError as error:
            problem = f"The schema {os.fspath(path)!r} cannot be read: {error.strerror}."
            advice = "Make a template with: tacit schema init data.csv --out schema.toml"
            raise SourceMissing(problem, advice, path=path) from None
        return cls.from_toml(text)

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """The schema that this TOML text describes; unknown keys are refused."""
        try:
            document = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            if (place := left_open(text)) is not None:
                raise InvalidValue(*place, "filled in", _FILL_IN) from None
            where = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "an absurd value"
            raise InvalidValue("schema", where, "written in TOML", "tacit.schema has an example.") from None
        return _from_document(document)

    def to_toml(self) -> str:
        """The schema as TOML text, from which ``from_toml`` makes an equal schema."""
        lines = [] if self.population is None else [f"population = {self.population}", ""]
        words = [(part.name, getattr(self.about, part.name)) for part in fields(About)]
        if told := [f"{name} = {quoted(value)}" for name, value in words if value is not None]:
            lines += ["[about]", *told, ""]
        whom = [] if self.unit.column is None else [
            f"column = {quoted(self.unit.column)}", f"rows = {self.unit.rows}"
        ]  # fmt: skip
        whom += [] if self.unit.name is None else [f"name = {quoted(self.unit.name)}"]
        if whom:
            lines += ["[unit]", *whom, ""]
        if self.csv != Dialect():
            lines += [
                "[csv]",
                *(f"{part.name} = {quoted(getattr(self.csv, part.name))}" for part in fields(Dialect)),
                "",
            ]
        for name, column in self.columns.items():
            lines.append(f"[columns.{key(name)}]")
            for part in fields(Column):
                value = getattr(column, part.name)
                if value is not None and (column.type, part.name) != ("boolean", "categories"):
                    lines.append(f"{part.name} = {literal(value)}")
            lines.append("")
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a TOML file, all of it or nothing; an existing one only with ``overwrite``."""
        write(path, self.to_toml(), overwrite=overwrite)


def _from_document(document: Mapping[str, Any]) -> Schema:
    known = ("columns", "population", "unit", "csv", "about")
    if "rows" in document:
        advice = "The public number of rows is called population: write population = 32561."
        raise InvalidValue("key of the schema", "rows", "one of " + ", ".join(known), advice)
    _known_keys("the schema", document, known, "Columns are written [columns.age].")
    columns, unit, csv = document.get("columns"), document.get("unit", {}), document.get("csv", {})
    if not isinstance(columns, Mapping) or not columns:
        raise InvalidValue("columns", columns, "one table or more", "Write [columns.age] and its type.")
    if isinstance(unit, Mapping):
        _known_keys("the unit", unit, ("column", "rows", "name"))
        _filled_in("the unit", unit)
        with _about("the unit"):
            unit = Unit(**unit)
    if isinstance(csv, Mapping):
        _known_keys("csv", csv, [part.name for part in fields(Dialect)])
        with _about("csv"):
            csv = Dialect(**csv)
    about = document.get("about", {})
    if isinstance(about, Mapping):
        _known_keys("about", about, [part.name for part in fields(About)])
        _filled_in("about", about)
        about = About(**about)
    if document.get("population") == "?":
        raise InvalidValue("population", "?", "filled in", _FILL_IN)
    declared = {name: _column(name, entry) for name, entry in columns.items()}
    return Schema(declared, document.get("population"), unit, csv, about)


def _column(name: str, entry: Any) -> Column:
    if isinstance(entry, Column):
        return entry
    where = f"column {name!r}"
    if not isinstance(entry, Mapping):
        raise InvalidValue(where, entry, "a table", 'Write [columns.age] and, below, type = "integer".')
    _known_keys(where, entry, [part.name for part in fields(Column)])
    _filled_in(where, entry)
    with _about(where):
        return Column(**{"type": None, **entry})


def _known_keys(where: str, entry: Mapping[str, Any], known: Sequence[str], advice: str = "") -> None:
    for name in entry:
        if name not in known:
            hint = hint_of(name, known) or advice
            raise InvalidValue(f"key of {where}", name, "one of " + ", ".join(known), hint)


_FILL_IN = "Write what is publicly known in place of the ?, or take the line out."


def _filled_in(where: str, entry: Mapping[str, Any]) -> None:
    """Refuse a "?" in place of a value. It may be a constant, and a category among others."""
    for name, value in entry.items():
        listed = value if isinstance(value, (list, tuple)) else [value]
        unknown = [one == "?" for one in listed if isinstance(one, str)]
        if any(unknown) and name not in ("missing", "other") and (name != "categories" or all(unknown)):
            raise InvalidValue(f"{name} of {where}", "?", "filled in", _FILL_IN)


@contextmanager
def _about(where: str) -> Iterator[None]:
    """Errors name the part of the schema that they are about."""
    try:
        yield
    except InvalidValue as error:
        name, value, requirement = (getattr(error, part) for part in ("name", "value", "requirement"))
        raise InvalidValue(f"{name} of {where}", value, requirement, error.next_step) from None


def hint_of(name: object, known: Iterable[str]) -> str:
    by_lower = {word.lower(): word for word in known}
    close = [by_lower[word] for word in difflib.get_close_matches(str(name).lower(), by_lower)]
    return f"Did you mean {' or '.join(map(repr, close))}?" if close else ""


def _listed(name: str, value: Any, requirement: str) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise InvalidValue(name, type(value).__name__, requirement)
    return list(value)


def _value(kind: str, name: str, value: Any) -> Any:
    """One bound, category or constant, in the canonical form of its kind."""
    if kind == "integer":
        return _whole(name, value)
    if kind == "text":
        return _text(name, value)
    if kind == "boolean" and not isinstance(value, bool):
        raise InvalidValue(name, value, "true or false")
    if kind == "number" and abs(value := _validate.finite(name, value)) > 2.0**400:
        raise InvalidValue(name, value, "at most 2**400 in size")
    if kind == "date":
        with suppress(TypeError, ValueError):
            value = date.fromisoformat(value)
        if isinstance(value, datetime) or not isinstance(value, date):
            raise InvalidValue(name, value, "a date such as 2020-01-31")
    return value


def _whole(name: str, value: Any, minimum: int = -LARGEST) -> int:
    if (number := _validate.count(name, value, minimum)) > LARGEST:
        raise InvalidValue(name, value, "at most 2**53")
    return number


def _text(name: str, value: Any, least: int = 0) -> str:
    if not isinstance(value, str) or len(value) < least:
        raise InvalidValue(name, value, "text of one character or more" if least else "text")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidValue(name, value, "text that UTF-8 can hold")
    return str(value)
