"""The preprocessor: what it makes of a table, from the schema alone and row by row."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from tacit import Column, Schema, Unit
from tacit.data.cleaning.values import Values, bounded, codes_of
from tacit.data.features import Known
from tacit.data.preprocessor import Preprocessor
from tacit.errors import InvalidValue, SourceMissing

COLUMNS = {
    "age": Column("integer", bounds=(20, 60)),
    "gain": Column("number", bounds=(0, 100)),
    "sex": Column("category", categories=("Female", "Male"), other="another", missing="Male"),
    "code": Column("integer", categories=(3, 1, 2)),
    "smokes": Column("boolean"),
    "seen": Column("date", bounds=("2020-01-01", "2020-12-31")),
    "income": Column("category", categories=("<=50K", ">50K")),
}
SCHEMA = Schema(COLUMNS)
ROWS = {
    "age": [20, 60, 40, 99],
    "gain": [0.0, 100.0, 50.0, math.nan],
    "sex": ["Female", "Male", "X", None],
    "code": [1, 2, 3, 7],
    "smokes": [True, False, True, False],
    "seen": [datetime.date(2020, 1, 1), datetime.date(2020, 12, 31), None, datetime.date(1999, 1, 1)],
    "income": [">50K", " <=50K ", "?", None],
}
NAMES = (
    "age", "gain", "sex=Female", "sex=Male", "sex=another", "code=3", "code=1", "code=2",
    "smokes=False", "smokes=True", "seen",
)  # fmt: skip
EXPECTED = [
    [-1, -1, 1, 0, 0, 0, 1, 0, 0, 1, -1],
    [1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1],
    [0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0],
    [1, 0, 0, 1, 0, 0, 0, 0, 1, 0, -1],
]
ODD: list[Any] = [
    None, math.nan, math.inf, -math.inf, 0, 1, 2, 3, -1, 1.5, 3.0, 1e300, -0.0, 10**400, 2**53, 2**53 + 2,
    True, False, "", "  ", "1", " 1 ", "1.0", "1e1", "+3", ".5", "5.", "1_000", "0x10", "inf", "-Infinity",
    "nan", "NA", "true", " TRUE", "False", "Female", " Female\t", "female", "Male", "another", "2020-05-05",
    " 2020-05-05T10:00", "2020-05-05 x", "2020-13-45", "05/05/2020", "1999-01-01", Decimal("2"),
    Decimal("2.5"), datetime.date(2020, 6, 1), datetime.datetime(2020, 6, 1, 23, 59), datetime.date(1, 1, 1),
    datetime.datetime(2020, 6, 1, 23, tzinfo=datetime.timezone(datetime.timedelta(hours=-5))),
    b"Female", [1], {}, object(), 1 + 2j, "\ud800", "७", np.float64(2.0), np.int64(3), np.str_("Male"),
    np.datetime64("2020-06-01T10"), np.bool_(True), pd.NA, pd.NaT, pd.Timestamp("2020-06-01 12:00"),
]  # fmt: skip


def maker(**options: Any) -> Preprocessor:
    return Preprocessor(SCHEMA, **{"target": "income", **options})


FRAMES = {
    "mapping": lambda rows: rows,
    "pandas": pd.DataFrame,
    "objects": lambda rows: pd.DataFrame(rows, dtype=object),
    "nullable": lambda rows: pd.DataFrame(rows).convert_dtypes(),
    "categorical": lambda rows: pd.DataFrame(rows).astype({"sex": "category", "code": "category"}),
    "polars": lambda rows: pl.DataFrame(rows, strict=False),
    "array": lambda rows: pd.DataFrame(rows, dtype=object).to_numpy(),
    "lists": lambda rows: [list(row) for row in zip(*rows.values(), strict=True)],
    "features only": lambda rows: pd.DataFrame(rows, dtype=object).drop(columns="income").to_numpy(),
    "another order": lambda rows: pd.DataFrame(rows).iloc[:, ::-1].assign(more=1),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_table_gives_the_same_features(kind: str) -> None:
    made = maker().fit_transform(FRAMES[kind](ROWS))
    assert isinstance(made, Known)
    assert made.dtype == np.float64
    np.testing.assert_allclose(made, EXPECTED, atol=1e-15)


def test_what_is_known_of_the_features_is_known_without_data_and_true_of_them() -> None:
    features = maker().features
    assert features.names == NAMES
    assert features.lower == tuple(0.0 if "=" in name else -1.0 for name in NAMES)
    assert features.norm == math.sqrt(6)
    made = maker().transform(ROWS)
    assert made.features == features
    assert np.linalg.norm(made, axis=1).max() == pytest.approx(math.sqrt(6))


def test_rows_are_shortened_to_the_norm() -> None:
    whole, short = maker().transform(ROWS), maker(norm=2.0).transform(ROWS)
    assert short.features is not None
    assert short.features.norm == 2.0
    lengths = np.linalg.norm(whole, axis=1)
    assert {length > 2.0 for length in lengths} == {True, False} or lengths.min() > 2.0
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), np.minimum(lengths, 2.0))
    np.testing.assert_allclose(short * lengths[:, None], whole * np.minimum(lengths, 2.0)[:, None])
    assert maker(norm=100.0).features.norm == math.sqrt(6)
    np.testing.assert_array_equal(maker(norm=100.0).transform(ROWS), whole)


@pytest.mark.parametrize(
    ("transform", "middle"), [("identity", 10.5), ("log1p", math.sqrt(11) - 1 + 0.5), ("sqrt", 3.0)]
)
def test_transforms(transform: str, middle: float) -> None:
    schema = Schema({"x": Column("number", bounds=(0.5, 10.5), missing=0.5)})
    middle = {"identity": 5.5, "log1p": middle, "sqrt": 3.0}[transform]
    made = Preprocessor(schema, transforms={"x": transform}).transform({"x": [0.5, middle, 10.5, 1e9, None]})
    np.testing.assert_allclose(made[:, 0], [-1, 0, 1, 1, -1], atol=1e-12)


@pytest.mark.parametrize("width", [2.0**-1060, 2.0**401])
def test_extreme_bounds(width: float) -> None:
    lower, upper = (0.0, width) if width < 1 else (-(2.0**400), 2.0**400)
    for transform in ("identity", "log1p", "sqrt"):
        column = Column("number", bounds=(lower, upper))
        made = Preprocessor(Schema({"x": column}), transforms={"x": transform}).transform(
            {"x": [lower, upper, -math.inf, math.inf, math.nan]}
        )
        np.testing.assert_allclose(made[:, 0], [-1, 1, -1, 1, 0])


def read(values: list[Any], column: Column) -> list[Any]:
    stored = np.empty(len(values), dtype=object)
    stored[:] = values
    if column.categories is None:
        return bounded(Values(stored), column).tolist()
    labels = [*column.categories, column.other, None]
    return [labels[code] for code in codes_of(Values(stored), column)]


VARIANTS = [
    COLUMNS["age"],
    Column("integer", bounds=(-5, 5), missing=2),
    COLUMNS["gain"],
    Column("number", bounds=(-0.5, 2.25), missing=1.0),
    COLUMNS["sex"],
    Column("category", categories=("1", "true", "NA", "Female", "2020-06-01", "?"), other="rest"),
    Column("category", categories=("Female", " Male", ""), missing=""),
    Column("category", categories=(2, 1, -1)),
    COLUMNS["code"],
    Column("integer", categories=(0, 3, 2**53), missing=3),
    COLUMNS["smokes"],
    Column("boolean", missing=True),
    COLUMNS["seen"],
    Column("date", bounds=("2020-01-01", "2020-12-31"), missing="2020-03-01"),
]


@pytest.mark.parametrize("place", range(len(VARIANTS)))
def test_no_value_raises_or_changes_another_row(place: int) -> None:
    column = VARIANTS[place]
    alone = [read([value], column)[0] for value in ODD]
    np.testing.assert_equal(read(ODD, column), alone)
    np.testing.assert_equal(read(ODD[::-1] * 2, column), (alone[::-1]) * 2)
    for cut in (slice(0, 16), slice(16, 48), slice(None, None, 3)):
        np.testing.assert_equal(read(ODD[cut], column), alone[cut])


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")
@pytest.mark.parametrize("place", range(len(VARIANTS)))
def test_values_are_read_as_tables_read_them(place: int) -> None:
    """The engine's cleaning is another implementation of the same rules."""
    import ibis
    import pyarrow as pa

    from tacit.data.cleaning.expressions import clean
    from tacit.data.frames import frame_of

    column = VARIANTS[place]
    frame = pd.DataFrame({"x": pd.Series(ODD, dtype=object)})
    source = frame_of(frame)
    assert source is not None
    connection = ibis.duckdb.connect()
    stored = pa.table({"x": source.values(0, column), "row": range(len(ODD))})
    connection.con.register("odd", stored)
    table = connection.table("odd")
    theirs = table.mutate(x=clean(table.x, column)).order_by("row").to_pyarrow()["x"].to_pylist()
    if column.categories is None:
        epoch = datetime.date(1970, 1, 1)
        days = [(value - epoch).days if isinstance(value, datetime.date) else value for value in theirs]
        numbers = [math.nan if value is None else float(value) for value in days]
        np.testing.assert_array_equal(read(ODD, column), numbers)
    else:
        assert read(ODD, column) == theirs


@pytest.mark.parametrize(
    "stored",
    [
        np.array([0, 1, 2, 3, 255], np.uint8), np.array([-1, 0, 1, 3, 2**62], np.int64),
        np.array([0, 3, 2**64 - 1], np.uint64), np.array([0, 1.5, 3, np.nan, np.inf, 2.0**60], np.float32),
        np.array([True, False]), np.array(["1", " 1", "Female", "2020-05-05"]),
        np.array(["2020-05-05", "NaT", "1969-12-31"], "M8[D]"), np.array(["2020-05-05T23", "NaT"], "M8[ns]"),
        np.array([1, 2], "m8[s]"), np.array([1j, 2]), np.array([b"1", b"Female"]),
        np.ma.masked_array([1, 2, 3], [False, True, False]), np.array([1e400, 1], np.longdouble),
    ],
    ids=lambda stored: str(stored.dtype),
)  # fmt: skip
@pytest.mark.usefixtures("untyped")
def test_stored_types_are_read_like_their_values(stored: Any) -> None:
    values = [None if value is np.ma.masked else value for value in stored]
    values = [value if not isinstance(value, np.longdouble) else float(value) for value in values]
    for column in VARIANTS:
        schema = Schema({"x": column})
        one, other = (
            Preprocessor(schema).transform({"x": stored}),
            Preprocessor(schema).transform({"x": values}),
        )
        np.testing.assert_array_equal(one, other, err_msg=str(column))


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_typed_series_are_read_like_their_values(library: str) -> None:
    whole = [1, 3, None, 2**40]
    days = [
        datetime.datetime(2020, 5, 5, 23),
        None,
        datetime.datetime(1960, 1, 1),
        datetime.datetime(2020, 1, 2),
    ]
    texts = ["Female", None, " Male", "3"]
    if library == "pandas":
        series = [
            pd.Series(whole, dtype="Int64"), pd.Series(whole, dtype="float64"), pd.Series(texts),
            pd.Series(texts, dtype="category"), pd.Series(texts, dtype="string"), pd.Series(days),
            pd.Series(days).dt.tz_localize("UTC"), pd.Series([True, None, False], dtype="boolean"),
            pd.Series([1.0, 3.0], dtype="Sparse[float]"), pd.Series(whole, dtype="int64[pyarrow]"),
            pd.Series(texts, dtype="string[pyarrow]"), pd.Series(days).astype("date32[pyarrow]"),
            pd.Series(pd.period_range("2020-01", periods=2)), pd.Series(pd.interval_range(0, 2)),
        ]  # fmt: skip
    else:
        series = [
            pl.Series(whole), pl.Series(texts), pl.Series(texts, dtype=pl.Categorical), pl.Series(days),
            pl.Series([day and day.date() for day in days]), pl.Series([True, None]), pl.Series([None, None]),
            pl.Series(days).dt.replace_time_zone("UTC"), pl.Series([Decimal("1.5"), None]),
        ]  # fmt: skip
    for one in series:
        values = one.to_list() if library == "polars" else [None if pd.isna(v) else v for v in one.tolist()]
        for column in VARIANTS:
            maker = Preprocessor(Schema({"x": column}))
            np.testing.assert_array_equal(
                maker.transform({"x": one}), maker.transform({"x": values}), err_msg=f"{one.dtype} {column}"
            )


def test_the_target_is_read_by_the_same_rules() -> None:
    assert maker().classes == ("<=50K", ">50K")
    assert maker().target_values(ROWS).tolist() == [">50K", "<=50K", None, None]
    age = maker(target="age")
    assert age.classes is None
    assert age.target_bounds == (20.0, 60.0)
    assert age.target_values(ROWS).tolist() == [20.0, 60.0, 40.0, 60.0]
    with pytest.raises(InvalidValue, match="target"):
        maker(target=None).target_values(ROWS)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"target": "incme"}, "Did you mean 'income'"),
        ({"exclude": ["agee"]}, "Did you mean 'age'"),
        ({"exclude": "age"}, r"Write \['age'\]"),
        ({"transforms": {"gian": "log1p"}}, "Did you mean 'gain'"),
        ({"transforms": {"gain": "log"}}, "log1p"),
        ({"transforms": {"sex": "log1p"}}, "has categories"),
        ({"transforms": {"income": "log1p"}}, "makes features"),
        ({"norm": 0}, "norm"),
        ({"norm": math.inf}, "norm"),
        ({"exclude": list(COLUMNS)}, "fewer"),
    ],
)
def test_bad_parameters_are_refused_with_advice(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        maker(**options).fit(ROWS)


@pytest.mark.parametrize(
    ("column", "advice"),
    [
        (Column("text"), "categories"),
        (Column("integer"), "bounds"),
        (Column("number"), "bounds"),
        (Column("date"), "bounds"),
        (Column("category"), "categories"),
    ],
)
def test_columns_about_which_too_little_is_known_are_refused(column: Column, advice: str) -> None:
    schema = SCHEMA.with_column("more", column)
    with pytest.raises(InvalidValue, match=rf"column 'more'.*{advice}.*exclude=\['more'\]"):
        Preprocessor(schema).fit({**ROWS, "more": [1] * 4})
    Preprocessor(schema, exclude=["more"]).fit(ROWS)
    Preprocessor(schema, target="more").fit(ROWS)


def test_the_unit_column_is_no_feature() -> None:
    schema = Schema({**COLUMNS, "who": Column("integer", bounds=(0, 9))}, unit=Unit("who", 2))
    with pytest.raises(InvalidValue, match="unit"):
        Preprocessor(schema).fit({**ROWS, "who": [1] * 4})
    assert len(Preprocessor(schema, exclude=["who"]).fit(ROWS).features.names) > 5
    Preprocessor(Schema(COLUMNS, unit=Unit("who", 2)), exclude=["who"]).fit(ROWS)


def test_two_features_of_one_name_are_refused() -> None:
    columns = {"a": Column("boolean"), "a=True": Column("number", bounds=(0, 1))}
    with pytest.raises(InvalidValue, match="a=True"):
        _ = Preprocessor(Schema(columns)).features


def test_missing_and_repeated_columns() -> None:
    frame = pd.DataFrame(ROWS)
    with pytest.raises(SourceMissing, match=r"no column 'gain'.*Did you mean 'gian'"):
        maker().fit(frame.rename(columns={"gain": "gian"}))
    with pytest.raises(SourceMissing, match="more than one column 'age'"):
        maker().fit(pd.concat([frame, frame[["age"]]], axis=1))
    with pytest.raises(InvalidValue, match="6 columns age, gain"):
        maker().fit(np.zeros((3, 4)))
    for wrong in (np.zeros(3), 5):
        with pytest.raises(InvalidValue, match="X must be"):
            maker().fit(wrong)
    odd = [[1], [1, 2], 3]
    assert maker().fit(odd).transform(odd).tolist() == maker().transform([[None] * 6] * 3).tolist()
    with pytest.raises(InvalidValue, match="as long as the others"):
        maker().transform({**ROWS, "gain": [1.0]})
    with pytest.raises(InvalidValue, match="one value for each row"):
        maker().transform({**ROWS, "gain": np.zeros((4, 2))})


def test_no_rows() -> None:
    for frame in (pd.DataFrame(ROWS).iloc[:0], {name: [] for name in ROWS}, np.empty((0, 7))):
        assert maker(norm=1.0).fit_transform(frame).shape == (0, len(NAMES))


def test_scikit_learn_conventions() -> None:
    one = maker(norm=2.0, transforms={"gain": "sqrt"}, exclude=["code"])
    twin = clone(one)
    assert twin.get_params() == one.get_params()
    one.fit(pd.DataFrame(ROWS))
    assert one.get_params() == twin.get_params()
    assert one.n_features_in_ == 5
    assert list(one.feature_names_in_) == ["age", "gain", "sex", "smokes", "seen"]
    assert list(one.get_feature_names_out()) == list(one.features.names)
    frame = maker().set_output(transform="pandas").fit_transform(pd.DataFrame(ROWS, index=[5, 6, 7, 8]))
    assert list(frame.columns) == list(NAMES)
    assert list(frame.index) == [5, 6, 7, 8]
    y = [0, 1, 0, 1]
    model = make_pipeline(maker(), LogisticRegression()).fit(pd.DataFrame(ROWS), y)
    assert model.predict(pd.DataFrame(ROWS).drop(columns="income")).shape == (4,)


def test_round_trip_through_json() -> None:
    one = maker(norm=2.0, transforms={"gain": "sqrt"}, exclude=("code",))
    again = Preprocessor.from_dict(json.loads(json.dumps(one.to_dict())))
    assert again.to_dict() == one.to_dict()
    assert again.features == one.features
    np.testing.assert_array_equal(again.transform(ROWS), one.transform(ROWS))
    for broken in ({}, {**one.to_dict(), "more": 1}, {**one.to_dict(), "schema": 5}):
        with pytest.raises(InvalidValue):
            Preprocessor.from_dict(broken)
    with pytest.raises(InvalidValue, match="norm"):
        Preprocessor.from_dict({**one.to_dict(), "norm": -1})


def test_describe_names_every_column() -> None:
    text = maker(transforms={"gain": "log1p"}, exclude=["code"], norm=1.5).describe()
    lines = dict(line.split(": ", 1) for line in text.splitlines()[:-1])
    assert list(lines) == ["age", "gain", "sex", "smokes", "seen", "code", "income"]
    assert "log1p" in lines["gain"]
    assert lines["sex"].endswith("missing is 'Male', undeclared is 'another'")
    assert "2020-01-01" in lines["seen"]
    assert lines["code"] == "left out"
    assert lines["income"] == "the target"
    assert text.endswith("shortened to an ℓ2 norm of at most 1.5.")
