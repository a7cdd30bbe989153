"""Both executions of the rule of cleaning make the same of every value: arrays in memory, and DuckDB.

A guarantee rests on it: a fit clips in memory to bounds that a table clips to in the engine. Values are
compared as each stored type that both can hold, under every type of column, with bounds, categories,
``missing`` and ``other``. Broken twins show that a rule that differs anywhere would be noticed.
"""

from __future__ import annotations

import datetime
import itertools
import math
import random
import struct
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from engines import Maker
from tacit.data import frames
from tacit.data.cleaning import expressions, values
from tacit.data.cleaning.rule import BLANKS, kind_of
from tacit.data.cleaning.values import Values, bounded, category, codes_of
from tacit.data.given import real
from tacit.data.source import connect
from tacit.schema import Column, Schema

pytestmark = pytest.mark.usefixtures("untyped")
"""All that can be read is compared, also what is refused by its stored type and comes in CSV files only."""

MANY = 1500
EPOCH = datetime.date(1970, 1, 1)
COLUMNS = [
    Column("integer"),
    Column("integer", bounds=(-5, 40)),
    Column("integer", bounds=(-(2**53), 2**53), missing=7),
    Column("integer", categories=(0, 3, 12, -1, 2**53 - 1), missing=3),
    Column("number"),
    Column("number", missing=2.5),
    Column("number", bounds=(-0.5, 1e3)),
    Column("number", bounds=(5e-324, 2.0**400), missing=1.0),
    Column("boolean"),
    Column("boolean", missing=False),
    Column("date"),
    Column("date", bounds=("1969-12-31", "2020-02-29")),
    Column("date", bounds=("0001-01-02", "9999-12-30"), missing="2000-01-01"),
    Column("category"),
    Column("category", categories=("1", "true", "NA", " x", "x", "ä", "2020-02-29", "-3"), other="rest"),
    Column("category", categories=("0", "x", ""), missing="x"),
    Column("category", categories=("false", "1e3", "12"), other="rest", missing="rest"),
    Column("category", categories=(1, 0, -3, 12)),
    Column("category", categories=(2, 12), missing=2),
    Column("text"),
    Column("text", missing="none"),
]
"""Every type, with and without bounds, categories, ``other`` and ``missing``."""


def texts(draw: random.Random) -> list[str]:
    signs, points = ("", "+", "-", "--", "+-"), ("", ".", "..", ",")
    exponents = ("", "e", "e5", "E-3", "e+02", "e400", "e-400", "e1.5", "d", "f", "_0", "x")
    fixed = [
        "", "nan", "NaN", "-nan", "NA", "NULL", "None", "inf", "-Inf", "+INFINITY", "infinit", "infinity0",
        "1_000", "0x10", "0b1", "1e", "e5", ".", "-.", "1'000", "1 000", "१२", "１", "²", "½", "∞", "−1",
        "1\u00a0", "\u20031", "\ufeff1", "true", "TRUE", "False", "tRuE", "yes", "t", "ﬀalse", "on", "x",
        " x", "x ", "ä", "a\u0308", "\x00", "1\x00", "\x1c1", "\x1f", "\x85", "a\nb", "2020-02-29",
        "2019-02-29", "2020-02-29T23:59", "2020-02-29 x", "2020-02-29x", "2020-2-9", "02020-02-29",
        "0000-01-01", "0001-01-01", "9999-12-31", "10000-01-01", "-2020-01-01", "2020-13-01", "2020-00-10",
        "2020/02/29", "20200229", "２020-02-29", "epoch", "now", "today", "infinity", "9007199254740992",
        "9007199254740993", "-9007199254740993", "9007199254740991.5", "1e308", "1.7976931348623159e308",
        "4.9e-324", "2.4e-324", "0." + "0" * 400 + "1", "1" * 400, "-0", "-0.0", "00012", "12.0", "+12",
        "1e3", "{}", "[1]", "'1'", '"1"', "1;", "%", "\U0001f600", "١", "1e99999", "1e-99999",
    ]  # fmt: skip
    made = fixed + [mark + word for mark in BLANKS + "\u00a0\u3000" for word in fixed[:40]]
    made += [word + mark for mark in BLANKS + "\u00a0\x1c" for word in fixed[40:]]
    for _ in range(MANY):
        digits = "".join(draw.choices("0123456789", k=draw.choice((0, 1, 2, 3, 17, 40))))
        more = "".join(draw.choices("0123456789", k=draw.choice((0, 0, 1, 5, 20))))
        word = draw.choice(signs) + digits + draw.choice(points) + more + draw.choice(exponents)
        made.append(
            draw.choice(("", "", " ", "\t\n", "\v", "\u00a0"))
            + word
            + draw.choice(("", "", " ", "\f", "\r\n"))
        )
        year, month, day = draw.randrange(0, 10100), draw.randrange(0, 14), draw.randrange(0, 33)
        made.append(
            f"{year:04}-{month:02}-{day:02}" + draw.choice(("", "", " ", "T00", " 25:00", "Z", "+01"))
        )
        made.append(repr(floats(draw, 1)[0]))
        made.append(
            "".join(
                draw.choices("01 \t.-+eE_infatrueINFTRUExyzäß\u2003\u0130\u212a𝟏", k=draw.randrange(1, 7))
            )
        )
    return made


def floats(draw: random.Random, many: int = MANY) -> list[float]:
    fixed = [
        0.0,
        -0.0,
        1.0,
        0.5,
        -0.5,
        12.0,
        math.nan,
        math.inf,
        -math.inf,
        5e-324,
        -5e-324,
        2.0**53,
        2.0**53 - 1,
    ]
    fixed += [
        2.0**53 + 2,
        -(2.0**53),
        2.0**63,
        -(2.0**63),
        2.0**400,
        1.7976931348623157e308,
        1e-310,
        39.999999999999996,
    ]
    bits = [struct.unpack("<d", draw.randbytes(8))[0] for _ in range(many)]
    near = [draw.randrange(-60, 60) + draw.choice((0.0, 0.5, 1e-15, -1e-15)) for _ in range(many)]
    return (fixed if many > 1 else []) + bits + near


def integers(draw: random.Random) -> list[int]:
    edges = [
        sign * (2**power + step)
        for sign in (1, -1)
        for power in (0, 7, 31, 52, 53, 62)
        for step in (-1, 0, 1)
    ]
    near = [draw.randrange(-60, 60) for _ in range(MANY)]
    return [*edges, 2**63 - 1, -(2**63), *near, *(draw.randrange(-(2**63), 2**63) for _ in range(MANY))]


def decimals(draw: random.Random, digits: int, scale: int) -> list[Decimal]:
    made = [Decimal(draw.randrange(-(10**digits) + 1, 10**digits)).scaleb(-scale) for _ in range(MANY)]
    return made + [Decimal(draw.randrange(-60, 60)) for _ in range(MANY) if digits - scale > 1]


def objects(draw: random.Random) -> list[Any]:
    zone = datetime.timezone(datetime.timedelta(hours=-5, minutes=-30))
    moments = [
        datetime.datetime(2020, 2, 29, 23, 59, tzinfo=zone), datetime.datetime.min, datetime.datetime.max,
        datetime.datetime(1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=9))),
        datetime.datetime(9999, 12, 31, 23, tzinfo=zone), pd.Timestamp("1677-09-21T00:12:44"), pd.NaT,
        pd.Timestamp("2020-02-29", tz="Asia/Tokyo"), datetime.time(1), datetime.timedelta(1),
        np.timedelta64(3, "D"), np.datetime64("2020-02-29"), np.datetime64("20200-01-01"),
        np.datetime64("-5000-01-01T00"), np.datetime64("NaT"),
        np.datetime64("1969-12-31T23:59:59.999999999"), datetime.date.min, datetime.date.max,
        datetime.date(2020, 2, 29),
    ]  # fmt: skip
    numbers = [
        10**400, -(10**400), 2**53 - 1, 2**64, Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity"),
        Decimal("1e1000000"), Decimal("1e-1000000"), Decimal("12.00000000000000000001"),
        Decimal("9007199254740991.4"), Decimal("-0"), Fraction(24, 2), Fraction(1, 3), 1 + 0j, 12 + 1j,
        np.float32(0.1), np.float16(1), np.int8(-3), np.uint64(2**64 - 1), np.longdouble("12"),
        np.longdouble("1e4000"), np.bool_(True), np.complex128(3), np.str_("12"), np.bytes_(b"1"),
    ]  # fmt: skip
    others = [
        None,
        pd.NA,
        b"1",
        [1],
        [],
        {},
        (),
        {1},
        object(),
        int,
        uuid.UUID(int=7),
        "a\ud800",
        "\udfff1",
        Ellipsis,
    ]
    mixed: list[Any] = [
        *texts(draw)[:600],
        *floats(draw)[:300],
        *integers(draw)[:300],
        True,
        False,
        *decimals(draw, 30, 15)[:99],
    ]
    return moments + numbers + others + mixed


def days(draw: random.Random) -> list[int]:
    first, last = (each.toordinal() - EPOCH.toordinal() for each in (datetime.date.min, datetime.date.max))
    beyond = [first - 1, last + 1, first, last, -(10**6), 5 * 10**6]
    return (
        beyond
        + [draw.randrange(first, last) for _ in range(MANY)]
        + [draw.randrange(-9, 20000) for _ in range(MANY)]
    )


def _arrow(kind: pa.DataType, numbers: Sequence[int], width: str) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.array(numbers, width))])


def _micros(draw: random.Random) -> list[int]:
    day = 86_400_000_000
    return [n * day + draw.choice((0, 1, -1, day - 1, day // 2)) for n in days(draw)] + [
        -(2**63) + 1,
        2**62,
        2**63 - 1,
    ]


Stored = tuple[Any, np.ndarray[Any, Any], Sequence[Any]]
"""The values for the engine, those for memory, and how to name each in a message."""


def _object_array(given: Sequence[Any]) -> np.ndarray[Any, Any]:
    array = np.empty(len(given), dtype=object)
    for i, value in enumerate(given):
        array[i] = value
    return array


def _numpy(given: Any, dtype: Any) -> Stored:
    with np.errstate(all="ignore"):
        array = np.array(given, dtype)
    return pa.array(array, from_pandas=False), array, given


def _decimal(digits: int, scale: int) -> Callable[[random.Random], Stored]:
    def make(draw: random.Random) -> Stored:
        made = [*decimals(draw, digits, scale), None]
        return pa.array(made, pa.decimal128(digits, scale)), _object_array(made), made

    return make


def _text(draw: random.Random) -> Stored:
    made = [*texts(draw), None]
    return pa.array(made, pa.string()), _object_array(made), made


def _date(draw: random.Random) -> Stored:
    made = days(draw)
    return _arrow(pa.date32(), made, "i4"), np.array(made, "M8[D]"), made


def _time(draw: random.Random) -> Stored:
    made = _micros(draw)
    return _arrow(pa.timestamp("us"), made, "i8"), np.array(made, "i8").view("M8[us]"), made


def _objects(draw: random.Random) -> Stored:
    made = objects(draw)
    return pd.Series(made, dtype=object), _object_array(made), made


STORED: dict[str, Callable[[random.Random], Stored]] = {
    "text": _text,
    "objects": _objects,
    "float64": lambda draw: _numpy(floats(draw), "f8"),
    "float32": lambda draw: _numpy(floats(draw), "f4"),
    "int64": lambda draw: _numpy(integers(draw), "i8"),
    "int8": lambda draw: _numpy(range(-128, 128), "i1"),
    "uint64": lambda draw: _numpy([n % 2**64 for n in integers(draw)], "u8"),
    "boolean": lambda draw: _numpy([True, False], "?"),
    "date": _date,
    "timestamp": _time,
    "decimal(5, 2)": _decimal(5, 2),
    "decimal(18, 9)": _decimal(18, 9),
    "decimal(38, 20)": _decimal(38, 20),
    "decimal(38, 0)": _decimal(38, 0),
}


def in_memory(stored: np.ndarray[Any, Any], column: Column) -> list[Any]:
    """What arrays become; dates as days since 1970, missing values as None."""
    if column.categories is not None:
        labels = [*column.categories, column.other, None]
        return [labels[code] for code in codes_of(Values(stored), column)]
    if kind_of(column) == "text":
        read = values.reader("text")
        return [category(column, read(value)) for value in _iterated(stored)]
    return [None if math.isnan(number) else number for number in bounded(Values(stored), column).tolist()]


def _iterated(stored: np.ndarray[Any, Any]) -> list[Any]:
    """The values one by one; days beyond Python's years have no text."""
    if stored.dtype.kind != "M":
        return list(stored)
    return [day if isinstance(day, datetime.date) else None for day in stored.astype("M8[D]").tolist()]


def in_engine(stored: Any, columns: Sequence[Column], keep: Maker | None = None) -> list[list[Any]]:
    """What a column becomes under each declaration on DuckDB, in a frame or in a table of its own."""
    named = {f"x{i}": column for i, column in enumerate(columns)}
    data = dict.fromkeys(named, stored)
    frame = pd.DataFrame(data) if isinstance(stored, pd.Series) else pa.table(data)
    source = connect(frame if keep is None else keep(frame), Schema(named))
    found = source.run(source.table.select(*named))
    source.close()
    listed = [[None if pd.isna(value) else value for value in found[name].tolist()] for name in named]
    return [[_as_days(value) for value in each] for each in listed]


def _as_days(value: Any) -> Any:
    return (value - EPOCH).days if isinstance(value, datetime.date) else value


def accepted(stored: Any) -> list[Column]:
    """The columns that values of this stored type may be declared as."""
    if isinstance(stored, pd.Series):
        return COLUMNS
    kind = expressions.dt.DataType.from_pyarrow(stored.type)
    return [column for column in COLUMNS if expressions.accepts(kind, column)]


def disagreements(name: str, keep: Maker | None = None) -> list[str]:
    """Where the two executions differ over values of this stored type."""
    stored, array, given = STORED[name](random.Random(f"agreement {name}"))
    columns = accepted(stored)
    different = []
    for column, theirs in zip(columns, in_engine(stored, columns, keep), strict=True):
        ours = in_memory(array, column)
        for value, one, other in zip(given, ours, theirs, strict=True):
            if one != other or isinstance(one, str) != isinstance(other, str):
                different.append(f"{value!r} as {column}: {one!r} in memory, {other!r} in the engine")
    return different


@pytest.mark.parametrize("name", STORED)
def test_memory_and_engine_agree(name: str) -> None:
    assert disagreements(name)[:20] == []


@pytest.mark.parametrize("name", [name for name in STORED if name != "objects"])
def test_memory_agrees_with_tables_that_the_engine_keeps(name: str, duckdb_maker: Maker) -> None:
    assert disagreements(name, duckdb_maker)[:20] == []


@pytest.mark.parametrize("name", ["text", "float64", "int64", "decimal(18, 9)", "decimal(38, 0)"])
def test_memory_agrees_with_tables_on_spark(name: str, spark_maker: Maker) -> None:
    assert disagreements(name, spark_maker)[:20] == []


def test_at_least_ten_thousand_values_were_compared() -> None:
    number = sum(
        len({repr(v) for v in STORED[name](random.Random(f"agreement {name}"))[2]}) for name in STORED
    )
    assert number >= 10_000
    covered = set(
        itertools.chain.from_iterable(accepted(STORED[name](random.Random(1))[0]) for name in STORED)
    )
    assert covered == set(COLUMNS)


def test_denormals_are_kept_to_the_last_bit() -> None:
    tiny = np.array([5e-324, -5e-324, 2.2250738585072014e-308, 1e-310])
    (found,) = in_engine(pa.array(tiny), [Column("number", bounds=(-1, 1))])
    assert found == tiny.tolist() == in_memory(tiny, Column("number", bounds=(-1, 1)))


def test_what_callers_hand_over_is_read_by_the_same_rule() -> None:
    for given in (texts(random.Random(5)), objects(random.Random(5))):
        alone = [value for value in given if not isinstance(value, (list, tuple))]
        handed = real(alone)
        expected = in_memory(_object_array(alone), Column("number"))
        assert [None if math.isnan(number) else number for number in handed.tolist()] == expected
    assert np.isnan(real(["1_000", "१२", "１", "nan", b"1"])).all()


def _unpatterned(value: Any) -> float | None:
    return float(value) if isinstance(value, (str, int, float)) else None


def _clipped_after_nan(found: Any, lower: Any, upper: Any, missing: Any = None) -> Any:
    return found.clip(lower, upper) if missing is None else found.clip(lower, upper).fill_null(missing)


TWINS: dict[str, tuple[str, Any, str, Any]] = {
    "numbers as Python reads them": ("text", values, "number", _unpatterned),
    "blanks as Python strips them": ("text", values, "BLANKS", None),
    "digits as the engine reads them": (
        "text",
        expressions,
        "_number",
        lambda text, engine: text.try_cast("float64"),
    ),
    "whole numbers one too far": ("int64", values, "LARGEST", 2**53 + 1),
    "whole numbers too far in the engine": ("float64", expressions, "LARGEST", 2**53 + 2),
    "missing as a bound": ("float64", expressions, "clip", _clipped_after_nan),
    "rounded instead of cut": ("float64", np, "floor", np.rint),
    "local time": ("objects", values, "day", lambda value: value.date() if hasattr(value, "date") else None),
    "words of other languages": (
        "text",
        values,
        "_TRUTH",
        {"true": True, "1": True, "yes": True, "false": False, "0": False},
    ),
    "days of the year 0": ("text", expressions, "DAY", "[0-9]{4}-[0-9]{2}-[0-9]{2}x?"),
    "decimals as Arrow converts them": (
        "decimal(18, 9)",
        frames,
        "cast",
        lambda found, wanted, **_: found.cast(wanted, safe=False),
    ),
    "bounds that are wider": ("decimal(38, 0)", values, "limits", lambda column: (-math.inf, math.inf)),
}


@pytest.mark.parametrize("twin", TWINS)
def test_a_broken_twin_is_noticed(twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, module, attribute, broken = TWINS[twin]
    monkeypatch.setattr(module, attribute, broken)
    if attribute in ("number", "day"):
        monkeypatch.setattr(values, "_READERS", {**values._READERS, attribute: broken})
    assert disagreements(name)
