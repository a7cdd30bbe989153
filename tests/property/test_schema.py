"""The schema: what it accepts, what it refuses and how it says so, and its way through TOML."""

from __future__ import annotations

import copy
import math
import os
import pickle
import stat
import tomllib
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InvalidValue, SourceMissing, TacitError
from tacit.relations import Unit
from tacit.schema import Column, Schema

LARGEST = 2**53
AGE = Column("integer", bounds=(0, 120))

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    [
        '"',
        "\\",
        "a.b",
        "\n",
        "\r\n",
        "\x00",
        "\x7f",
        "\x85",
        "\u2028",
        "'''",
        '"""',
        "# x",
        "=",
        "é",
        "👩‍⚕️",
        "-",
        "_",
    ]
)
names = texts.filter(bool)
integers = st.integers(-LARGEST, LARGEST)
numbers = st.floats(-(2.0**400), 2.0**400)


def pairs(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return st.tuples(values, values).map(sorted).map(tuple).filter(lambda pair: pair[0] < pair[1])


@st.composite
def columns(draw: st.DrawFn) -> Column:
    kind = draw(st.sampled_from(["integer", "number", "category", "boolean", "date", "text"]))
    bounds = categories = other = None
    constants: st.SearchStrategy[Any] = texts
    match kind:
        case "integer" | "number" | "date":
            constants = {"integer": integers, "number": numbers, "date": st.dates()}[kind]
            bounds = draw(st.none() | pairs(constants))
            if bounds is not None:
                constants = constants.filter(lambda value: bounds[0] <= value <= bounds[1]) | st.sampled_from(
                    bounds
                )
                if kind == "integer" and draw(st.booleans()):
                    categories = bounds
                    constants = st.sampled_from(categories)
        case "boolean":
            constants = st.booleans()
        case "category":
            labels = draw(st.sampled_from([texts, integers]))
            categories = draw(st.none() | st.lists(labels, min_size=1, unique=True).map(tuple))
            if categories is not None:
                constants = st.sampled_from(categories)
                if labels is texts:
                    other = draw(st.none() | texts.filter(lambda label: label not in categories))
    return Column(kind, bounds, categories, other, draw(st.none() | constants))


units = st.just(Unit()) | st.builds(Unit, names, st.integers(1, LARGEST))
schemas = st.builds(
    Schema,
    st.dictionaries(names, columns(), min_size=1, max_size=4),
    st.none() | st.integers(0, LARGEST),
    units,
)


@given(schemas)
def test_toml_and_copies_keep_everything(schema: Schema) -> None:
    text = schema.to_toml()
    for other in (
        Schema.from_toml(text),
        Schema.from_toml(text.replace("\n", "\r\n")),
        Schema.of(tomllib.loads(text)),
        Schema.of(schema),
        copy.deepcopy(schema),
        pickle.loads(pickle.dumps(schema)),
    ):
        assert other == schema
        assert hash(other) == hash(schema)
        assert list(other) == list(schema)
        assert repr(other) == repr(schema)  # also tells 1 from 1.0 and from True
    assert all(character.isprintable() or character == "\n" for character in text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts | st.dates() | st.datetimes(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    ),
    st.sampled_from(
        ["type", "bounds", "categories", "other", "missing", "column", "columns", "population", "unit"]
    ),
    st.sampled_from(["integer", "number", "category", "boolean", "date", "text"]),
)
def test_anything_at_all_is_a_schema_or_an_invalid_value(value: Any, place: str, kind: str) -> None:
    column: dict[str, Any] = {"type": kind}
    document: dict[str, Any] = {"columns": {"c": column}}
    if place in ("columns", "population", "unit"):
        document[place] = value
    elif place == "column":
        document["columns"]["c"] = value
    else:
        column[place] = value
    try:
        schema = Schema.of(document)
    except InvalidValue:
        return
    assert Schema.from_toml(schema.to_toml()) == schema


def test_the_canonical_forms() -> None:
    assert repr(Column("number", bounds=[0, Fraction(1, 2)], missing=0)) == repr(
        Column("number", bounds=(0.0, 0.5), missing=0.0)
    )
    assert Column("integer", bounds=(np.int32(3), np.int64(4))).bounds == (3, 4)
    assert type(Column("integer", bounds=(np.int32(3), 4)).bounds[0]) is int  # type: ignore[index]
    assert Column("boolean").categories == (False, True)
    assert Column("boolean", categories=(False, True)) == Column("boolean")
    assert Column("integer", categories=(3, 1)).bounds is None
    assert Column("date", bounds=("2020-01-31", date(2021, 1, 1))).bounds == (
        date(2020, 1, 31),
        date(2021, 1, 1),
    )
    assert Column("integer", bounds=(-LARGEST, LARGEST)).bounds == (-LARGEST, LARGEST)
    assert Column("number", bounds=(-(2.0**400), 2**400)).bounds == (-(2.0**400), 2.0**400)
    assert Column("category", categories=("a",), other="rest", missing="rest").missing == "rest"
    schema = Schema.from_toml("columns.d = {type = 'date', bounds = ['2020-01-31', 2021-01-01]}")
    assert schema["d"].bounds == (date(2020, 1, 31), date(2021, 1, 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"type": "float"},
            "type must be one of integer, number, category, boolean, date, text, got 'float'",
        ),
        ({"type": "integers"}, "Did you mean 'integer'?"),
        ({"type": None}, "type must be one of"),
        ({"type": ["integer"]}, "type must be one of"),
        ({"type": "integer", "bounds": (90, 17)}, "bounds must be ordered, lower first, got (90, 17)"),
        ({"type": "integer", "bounds": (17, 17)}, "ordered, lower first, got (17, 17). Widen them."),
        ({"type": "integer", "bounds": (0, LARGEST + 1)}, "bounds must be at most 2**53"),
        (
            {"type": "integer", "bounds": (-LARGEST - 1, 0)},
            "bounds must be a whole number, -9007199254740992",
        ),
        ({"type": "integer", "bounds": (0, 1.5)}, "bounds must be a whole number"),
        ({"type": "integer", "bounds": (0, True)}, "bounds must be a whole number"),
        ({"type": "integer", "bounds": 5}, "bounds must be two values, [lower, upper], got 'int'"),
        ({"type": "integer", "bounds": "05"}, "bounds must be two values"),
        ({"type": "integer", "bounds": {0, 5}}, "bounds must be two values"),
        ({"type": "integer", "bounds": (1, 2, 3)}, "two values, [lower, upper], got '3 values'"),
        ({"type": "integer", "categories": (1, "2")}, "categories must be a whole number"),
        (
            {"type": "integer", "categories": (1, 9), "bounds": (0, 5)},
            "categories must be within the bounds [0, 5]",
        ),
        ({"type": "integer", "categories": (1, 9), "missing": 2}, "missing must be one of the categories"),
        ({"type": "integer", "bounds": (0, 5), "missing": 6}, "missing must be within the bounds [0, 5]"),
        ({"type": "integer", "missing": "none"}, "missing must be a whole number"),
        ({"type": "integer", "other": "x"}, "other must be left out of a column of integer"),
        ({"type": "number", "bounds": (0, math.nan)}, "bounds must be a finite number, got nan"),
        ({"type": "number", "bounds": (-math.inf, 0)}, "bounds must be a finite number, got -inf"),
        ({"type": "number", "bounds": (0, 10**400)}, "bounds must be a finite number"),
        ({"type": "number", "bounds": (0, 2.0**401)}, "at most 2**400 in size"),
        ({"type": "number", "bounds": (False, True)}, "bounds must be a finite number, got False"),
        ({"type": "number", "bounds": (2**53, 2**53 + 1)}, "ordered, lower first"),
        ({"type": "number", "bounds": (-0.0, 0.0)}, "ordered, lower first"),
        ({"type": "number", "categories": (1.0,)}, "categories must be left out of a column of number"),
        ({"type": "number", "missing": math.nan}, "missing must be a finite number"),
        (
            {"type": "category", "bounds": (0, 1)},
            "left out of a column of category, got (0, 1). It is for: integer",
        ),
        ({"type": "category", "categories": ()}, "categories must be one value or more"),
        ({"type": "category", "categories": "ab"}, "categories must be a list of values, got 'str'"),
        ({"type": "category", "categories": ("a", "b", "a")}, "categories must be named once each, got 'a'"),
        ({"type": "category", "categories": ("a", 1)}, "categories must be all text or all whole numbers"),
        ({"type": "category", "categories": (True, False)}, "categories must be a whole number"),
        ({"type": "category", "categories": (1.5,)}, "categories must be a whole number"),
        ({"type": "category", "categories": ("\ud800",)}, "text that UTF-8 can hold"),
        (
            {"type": "category", "categories": ("a",), "other": "a"},
            "other must be a label that is no category",
        ),
        ({"type": "category", "categories": ("a",), "other": 3}, "other must be text"),
        ({"type": "category", "categories": (1, 2), "other": "x"}, "other must be left out unless"),
        ({"type": "category", "other": "x"}, "other must be left out unless"),
        ({"type": "category", "categories": ("a",), "missing": "b"}, "missing must be one of the categories"),
        ({"type": "category", "categories": (1, 2), "missing": "1"}, "missing must be a whole number"),
        ({"type": "boolean", "bounds": (False, True)}, "bounds must be left out of a column of boolean"),
        ({"type": "boolean", "categories": (True,)}, "categories must be left out of a column of boolean"),
        ({"type": "boolean", "missing": 1}, "missing must be true or false"),
        (
            {"type": "date", "bounds": ("2020-13-01", "2021-01-01")},
            "a date such as 2020-01-31, got '2020-13-01'",
        ),
        ({"type": "date", "bounds": (datetime(2020, 1, 1), datetime(2021, 1, 1))}, "a date such as"),
        ({"type": "date", "bounds": (2020, 2021)}, "a date such as"),
        (
            {"type": "date", "bounds": (date(2020, 1, 1), date(2021, 1, 1)), "missing": date.min},
            "within the bounds",
        ),
        ({"type": "text", "categories": ("a",)}, "categories must be left out of a column of text"),
        ({"type": "text", "missing": 3}, "missing must be text"),
        ({"type": "integer", "bound": [0, 5]}, "key of column 'c' must be one of"),
        ({"type": "integer", "bound": [0, 5]}, "Did you mean 'bounds'?"),
        ({"bounds": [0, 5]}, "type must be one of"),
    ],
)
def test_columns_that_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        Schema.of({"columns": {"c": arguments}})
    assert message in str(caught.value).replace(" of column 'c'", "", 1 if "column 'c'" not in message else 0)
    assert "column 'c'" in str(caught.value)
    if {"bound", "type"} & set(arguments) == {"type"}:
        with pytest.raises(InvalidValue, match="must be"):
            Column(**arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns must be one table or more, got None. Write [columns.age]"),
        ("columns = 3", "columns must be one table or more"),
        ("[columns]", "columns must be one table or more"),
        ("[columns]\nage = 'integer'", "column 'age' must be a table, got 'integer'"),
        (
            "[column.age]\ntype = 'integer'",
            "key of the schema must be one of columns, population, unit, csv, about, got 'column'. Did",
        ),
        ("[age]\ntype = 'integer'", "got 'age'. Columns are written [columns.age]."),
        ("[columns.'']\ntype = 'integer'", "name of a column must be text of one character or more, got ''"),
        (
            "population = -1\n[columns.a]\ntype = 'text'",
            "population must be a whole number, 0 or more, got -1",
        ),
        ("population = 1.0\n[columns.a]\ntype = 'text'", "population must be a whole number"),
        ("population = true\n[columns.a]\ntype = 'text'", "population must be a whole number"),
        ("population = 9007199254740993\n[columns.a]\ntype = 'text'", "population must be at most 2**53"),
        ("unit = 'id'\n[columns.a]\ntype = 'text'", "unit must be a Unit"),
        (
            "rows = 5\n[columns.a]\ntype = 'text'",
            "one of columns, population, unit, csv, about, got 'rows'. The public number",
        ),
        ("unit.rows = 2\n[columns.a]\ntype = 'text'", "rows of the unit must be 1 where the unit is a row"),
        ("unit.column = 3\n[columns.a]\ntype = 'text'", "column of the unit must be text"),
        ("unit.column = ''\n[columns.a]\ntype = 'text'", "column of the unit must be text of one character"),
        (
            "unit = {column = 'id', rows = 0}\n[columns.a]\ntype = 'text'",
            "rows of the unit must be a whole number",
        ),
        ("unit = {colum = 'id'}\n[columns.a]\ntype = 'text'", "key of the unit must be one of column, rows"),
        ("[columns.a", "schema must be written in TOML"),
        ("[columns.a]\ntype = 'text'\n[columns.a]\n", "schema must be written in TOML"),
        ("population = " + "9" * 5000, "schema must be written in TOML, got 'an absurd value'"),
        ("x = " + "[" * 5000, "schema must be written in TOML"),
    ],
)
def test_documents_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        Schema.from_toml(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_looking_up_adding_and_replacing() -> None:
    schema = Schema({"age": AGE, "Sex": Column("category")}, population=7, unit=Unit("id", 3))
    assert schema["age"] is AGE
    assert "age" in schema
    assert "ages" not in schema
    with pytest.raises(InvalidValue, match=r"got 'sex'\. Did you mean 'Sex'\?"):
        schema["sex"]
    with pytest.raises(InvalidValue, match="It declares 'age', 'Sex'"):
        schema["zzz"]
    more = schema.with_column("b", Column("boolean")).with_column("age", Column("text"))
    assert list(more) == ["age", "Sex", "b"]
    assert (more.population, more.unit, more["age"].type) == (7, Unit("id", 3), "text")
    assert list(schema) == ["age", "Sex"]


def test_nothing_can_be_changed_afterwards() -> None:
    given_columns = {"age": AGE}
    schema = Schema(given_columns)
    given_columns["sex"] = AGE
    assert list(schema) == ["age"]
    with pytest.raises(TypeError):
        schema.columns["x"] = AGE  # type: ignore[index]
    with pytest.raises(AttributeError):
        schema.population = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    "value", [{}, {"age": "integer"}, {3: AGE}, {"": AGE}, {"\ud800": AGE}, None, [("a", AGE)]]
)
def test_constructor_refuses(value: Any) -> None:
    with pytest.raises(InvalidValue):
        Schema(value)


def test_of_says_what_it_takes() -> None:
    assert Schema.of({"columns": AGE, "rows": AGE}) == Schema({"columns": AGE, "rows": AGE})
    with pytest.raises(InvalidValue, match="from_toml reads text"):
        Schema.of("[columns.age]\ntype = 'integer'")
    with pytest.raises(InvalidValue, match="got 'ndarray'"):
        Schema.of(np.array([[123456]]))  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="got 'ndarray'"):
        Column("integer", bounds=np.array([123456, 654321, 3]))  # type: ignore[arg-type]


def test_files(tmp_path: Path) -> None:
    schema = Schema({"größe": Column("number", bounds=(0, 3))}, population=5)
    path = tmp_path / "s.toml"
    schema.save(path)
    assert Schema.load(path) == Schema.load(str(path)) == Schema.of(path) == schema
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert Schema.load(path) == schema
    other = schema.with_column("b", AGE)
    with pytest.raises(TacitError, match="exists and was left as it is"):
        other.save(path)
    assert Schema.load(path) == schema
    path.chmod(0o600)
    other.save(path, overwrite=True)
    assert Schema.load(path) == other
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    schema.save(link, overwrite=True)
    assert link.is_symlink()
    assert Schema.load(path) == schema
    assert sorted(os.listdir(tmp_path)) == ["link.toml", "s.toml"]


@pytest.mark.parametrize("place", ["no/such/folder.toml", "file/below.toml", "folder"])
def test_places_that_cannot_be_written(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(TacitError, match="cannot be written"):
        Schema({"age": AGE}).save(tmp_path / place, overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.toml"
    Schema({"age": AGE}).save(path)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(TacitError, match="No space left"):
        Schema({"b": AGE}).save(path, overwrite=True)
    assert list(Schema.load(path)) == ["age"]
    assert os.listdir(tmp_path) == ["s.toml"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match=r"cannot be read: No such file.*tacit schema init"):
        Schema.load(tmp_path / "none.toml")
    with pytest.raises(SourceMissing, match="cannot be read"):
        Schema.load(tmp_path)
    for encoding in ("utf-16", "latin-1"):
        (tmp_path / "s.toml").write_text("# é\n[columns.a]\ntype = 'text'", encoding=encoding)
        with pytest.raises(InvalidValue, match="UTF-8"):
            Schema.load(tmp_path / "s.toml")
    (tmp_path / "s.toml").write_text("age,sex\n41,secret\n")
    with pytest.raises(InvalidValue, match=r"written in TOML, got .*line 1") as caught:
        Schema.load(tmp_path / "s.toml")
    assert "secret" not in str(caught.value)
