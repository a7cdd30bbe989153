"""Questions as text: what they mean, what is refused, and that nothing else can happen."""

from __future__ import annotations

import datetime
import inspect
import re
from dataclasses import fields, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import ibis
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tacit import Budget, tables
from tacit.data.engine.rowwise import rowwise
from tacit.data.source import connect
from tacit.errors import InvalidValue
from tacit.randomness import Source as RandomSource
from tacit.relations import Relation
from tacit.schema import Column, Schema
from tacit.tables import Table, questions
from tacit.tables.cells.noise import Context
from tacit.tables.language.condition import Literal, Name, Operation, to_ibis
from tacit.tables.language.grammar import MAX_DEPTH, MAX_LENGTH, Parser, condition_of
from tacit.tables.questions import (
    CATALOGUE,
    Bounds,
    Correlation,
    Count,
    CountUnits,
    Covariance,
    Crosstab,
    Histogram,
    Keys,
    Mean,
    Median,
    Quantile,
    Question,
    Std,
    Sum,
    Top,
    Variance,
    parse,
)

SCHEMA = Schema(
    {
        "age": Column("integer", bounds=(17, 90)),
        "hours": Column("number", bounds=(0.0, 100.0)),
        "sex": Column("category", categories=("Female", "Male"), other="another"),
        "code": Column("category", categories=(1, 2, 3)),
        "zip": Column("category"),
        "smoker": Column("boolean"),
        "admitted": Column("date", bounds=(datetime.date(2020, 1, 1), datetime.date(2024, 12, 31))),
        "note": Column("text"),
        "native-country": Column("category", categories=("Cuba", "India", "O'Brien's")),
        "by": Column("integer"),
    }
)
ROWS = ibis.memtable(
    pa.table(
        {
            "row": [0, 1, 2, 3],
            "age": [20, 40, 60, None],
            "hours": [10.0, 40.0, None, 0.0],
            "sex": ["Female", "Male", "another", None],
            "code": [1, 2, 3, None],
            "zip": ["10001", "10002", "", None],
            "smoker": [True, False, True, None],
            "admitted": [*map(datetime.date.fromisoformat, ("2020-01-01", "2021-06-30", "2024-01-01")), None],
            "note": ["a", "b", "it's", None],
            "native-country": ["Cuba", "India", "O'Brien's", None],
            "by": [1, 2, 3, None],
        }
    )
)


@cache
def table() -> Table:
    """The rows as a table whose questions are only planned."""
    source = connect(ROWS.drop("row").to_pandas(), SCHEMA)
    context = Context(Relation.ADD_REMOVE, SCHEMA.unit, RandomSource(1), None, concentrated=False)
    ledger: Any = SimpleNamespace(budget=Budget(1.0, 0.5))
    return Table(source, source.table, SCHEMA, ledger, context)


def asked(text: str) -> Question:
    """The question that a text asks, once it was put to a batch, which checks it against the schema."""
    question = parse(text)
    label = table().batch(epsilon=1.0, delta=0.1).ask(question).label
    assert label.isprintable()
    assert 0 < len(label) <= 200
    return question


def kept(condition: str) -> list[int]:
    """The rows that a condition keeps, as it is translated and as it is checked to be row-by-row."""
    translated = to_ibis(condition_of(condition), SCHEMA, condition)
    found = [
        sorted(ROWS.filter(where).row.to_pyarrow().to_pylist())
        for where in (translated, rowwise(translated, ROWS))
    ]
    assert found[0] == found[1]
    return found[0]


DAYS = datetime.date(2020, 1, 1), datetime.date(2022, 1, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count()", Count()),
        ("count() by sex, code", Count(by=["sex", "code"])),
        ("count_units()", CountUnits()),
        ("Mean( hours )BY sex", Mean("hours", by="sex")),
        ("sum('hours')", Sum("hours")),
        ("variance(age, bounds=(0, 1e2))", Variance("age", bounds=(0, 100.0))),
        ("std(age, bounds=[-1, +.5])", None),
        ("std(age, bounds=[-1, .5])", Std("age", bounds=(-1, 0.5))),
        ("mean(age, bounds='dp')", Mean("age", bounds="dp")),
        ("mean(age, bounds = dp, weight=2)", Mean("age", bounds="dp", weight=2)),
        ("quantile(age, 0.25)", Quantile("age", 0.25)),
        ("quantile(age, q=[0.25, 0.5]) by sex", Quantile("age", [0.25, 0.5], by="sex")),
        ("median(hours)", Median("hours")),
        ("median(hours, confidence=None)", Median("hours", confidence=None)),
        ("histogram(age)", Histogram("age")),
        ("histogram(age, 20)", Histogram("age", 20)),
        ("histogram(age, [17, 30, 50, 90])", Histogram("age", [17, 30, 50, 90])),
        ("crosstab(sex, code)", Crosstab(["sex", "code"])),
        ("crosstab([sex, code], margins=true)", Crosstab(("sex", "code"), margins=True)),
        ("covariance(age, hours)", Covariance(["age", "hours"])),
        ("correlation(age, hours)", Correlation(["age", "hours"])),
        ("keys(zip)", Keys("zip")),
        ("top(sex, 5)", Top("sex", 5)),
        ("bounds(hours)", Bounds("hours")),
        ('count() by "native-country"', Count(by="native-country")),
        ("sum(`by`)", Sum("by")),
        ("histogram(admitted, ['2020-01-01', '2022-01-01'])", Histogram("admitted", DAYS)),
    ],
)
def test_a_question_is_a_value(text: str, expected: Any) -> None:
    if expected is None:
        with pytest.raises(InvalidValue):
            parse(text)
    else:
        assert parse(text) == expected


def test_every_form_shown_is_itself_a_question() -> None:
    for name, kind in CATALOGUE.items():
        assert parse(kind.usage()).name == name
        assert type(parse(kind.usage())) is kind


def test_questions_are_equal_if_they_mean_the_same() -> None:
    question = parse(" mean(hours)  by sex where age >= 40 ")
    assert question == parse('mean("hours") by `sex` where age >= 40')
    assert question == Mean("hours", by=("sex",), where=" age >= 40")
    assert question != Mean("hours", by="sex", where="age >= 41")
    assert question != Std("hours", by="sex", where="age >= 40")
    assert question.written == "mean(hours) by sex where age >= 40"
    assert hash(question) == hash(parse("mean(hours) by sex where age >= 40"))
    assert parse("count() where age > 1 by sex") == parse("count() by sex where age > 1")
    expression = ibis._.age > 1
    assert Count(where=expression) == Count(where=expression)
    assert Count(where=expression) != Count(where=ibis._.age > 1)
    assert Count(where=expression) != Count(where="age > 1")
    assert str(Count(where=expression)) == "count() where (_.age > 1)"


def test_options_that_a_text_leaves_out_have_the_defaults_given() -> None:
    assert parse("median(age)", confidence=0.8) == Median("age", confidence=0.8)
    assert parse("median(age, confidence=0.9)", confidence=0.8) == Median("age", confidence=0.9)
    assert parse("median(age, confidence=None)", confidence=0.8) == Median("age", confidence=None)
    assert parse("mean(age)", confidence=0.8) == Mean("age")


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("age >= 40", [1, 2]),
        ("age = 40", [1]),
        ("age <> 40", [0, 2]),
        ("18 <= age < 60", [0, 1]),
        ("30 < age > 50", [2]),
        ("age >= 40 and hours > 10 or sex == 'Female'", [0, 1]),
        ("age >= 40 AND (hours > 10 OR sex = 'Female')", [1]),
        ("not age >= 40", [0]),
        ("not not age >= 40", [1, 2]),
        ("age is None", [3]),
        ("age is not null and hours is null", [2]),
        ("sex in ('Female', 'another')", [0, 2]),
        ("sex not in ['Female']", [1, 2]),
        ("code in (1, 3)", [0, 2]),
        ("code = 2", [1]),
        ("zip = ''", [2]),
        ("smoker", [0, 2]),
        ("not smoker", [1]),
        ("smoker = False", [1]),
        ("smoker and age > 20", [2]),
        ("admitted >= '2021-06-30'", [1, 2]),
        ("'2021-01-01' <= admitted < '2022-01-01'", [1]),
        ("admitted in ('2020-01-01', '2024-01-01')", [0, 2]),
        ("note == 'it''s'", [2]),
        ("\"native-country\" in ('O''Brien''s')", [2]),
        ("age + 2 * 10 - 1 > 58", [1, 2]),
        ("-age < -30", [1, 2]),
        ("age / 2 = 20", [1]),
        ("(age + hours) * 2 >= 160", [1]),
        ("hours / age > 0.6", [1]),
        ("age - 10 - 10 = 20", [1]),
        ("`by` >= 3", [2]),
        ("age > hours", [0]),
        ("(age > 30) = (hours > 30)", [0, 1]),
    ],
)
def test_conditions_keep_the_rows_they_describe(condition: str, rows: list[int]) -> None:
    assert asked(f"count() where {condition}").where == condition
    assert kept(condition) == rows


def test_long_alternatives_stay_shallow() -> None:
    assert len(kept(" or ".join(f"age={n}" for n in range(150)))) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a statistic, such as mean(age)"),
        ("   ", "It starts with one of: count"),
        ("12", "continued at character 1 ('12') with the name of a statistic"),
        ("mean", "continued at its end with an opening parenthesis, as in mean(column)"),
        ("mean(", "at its end with a column or a value"),
        ("mean(hours", "at its end with a comma or ')'"),
        ("mean(hours) wher age > 3", "at character 13 ('wher') with 'by', 'where' or its end"),
        ("mean(hours) by sex by code", "at character 20 ('by') with 'where' or its end"),
        ("maen(hours)", "Did you mean mean(column)? It starts with one of"),
        ("avg(hours)", "Did you mean mean(column)?"),
        ("frobnicate(hours)", "It starts with one of: count, count_units"),
        ("mean()", "of the form mean(column), got 'mean()'"),
        ("mean(age, hours)", "It takes column (a column), bounds ('dp' or [low, high]), weight (a number)."),
        ("mean(age, foo=2)", "of the form mean(column)"),
        ("mean(age, bounds=1)", "of the form mean(column)"),
        ("mean(age, bounds=[1])", "of the form mean(column)"),
        ("mean(age, bounds='d', bounds='dp')", "of the form mean(column)"),
        ("mean(age, column=age)", "of the form mean(column)"),
        ("mean(3)", "of the form mean(column)"),
        ("count(age)", "of the form count()"),
        ("quantile(age)", "of the form quantile(column, 0.25)"),
        ("quantile(age, True)", "of the form quantile(column, 0.25)"),
        ("histogram(age, [])", "of the form histogram(column, 20)"),
        ("histogram(age, 2.5)", "of the form histogram(column, 20)"),
        ("top(sex, 2.5)", "of the form top(column, 5)"),
        ("crosstab(sex)", "of the form crosstab(column, other)"),
        ("top(sex, 1) by sex", "without 'by', as top has no groups"),
        ("mean(agge)", "Did you mean 'age'?"),
        ("count() by agge", "Did you mean 'age'?"),
        ("count() by native-country", "goes in double quotes"),
        ("count() by 3", "a column to group by"),
        ("mean(by)", "A column of this name goes in double quotes"),
        ("count() where", "at its end with a column or a value"),
        ("count() where age", "age is a number: compare it with something"),
        ("count() where 3", "3 is a number: compare it"),
        ("count() where True", "True is true or false: compare it"),
        ("count() where 1 = 1", "about columns"),
        ("count() where 3 in (3, 4)", "about columns"),
        ("count() where 3 is None", "about columns"),
        ("count() where agge > 3", "Did you mean 'age'?"),
        ("count() where age > 'x'", "age is a number; 'x' is text"),
        ("count() where 'x' < age", "like with like"),
        ("count() where smoker = 1", "1 is a number"),
        ("count() where smoker > False", "without an order of true and false"),
        ("count() where age = None", "is None"),
        ("count() where age in (None)", "is None"),
        ("count() where note + 1 > 2", "calculated from numbers where '+' stands"),
        ("count() where -note = 1", "calculated from numbers where '-' stands"),
        ("count() where (age > 1) + 1 > 2", "calculated from numbers"),
        ("count() where age > 1 / 0", "without division by zero"),
        ("count() where age > 1e200 * 1e200", "too large"),
        ("count() where age > 9007199254740993", "too large"),
        ("count() where age > 1e999", "a number that is not as large"),
        ("count() where admitted > '2020-13-01'", "dates written as 'YYYY-MM-DD'"),
        ("count() where admitted > '20200101'", "dates written as 'YYYY-MM-DD'"),
        ("count() where admitted > 2020", "like with like"),
        ("count() where sex = 'female'", "Did you mean 'Female'?"),
        ("count() where 'x' != sex", "They are 'Female', 'Male', 'another'"),
        ("count() where code in (1, 7)", "7 is not one"),
        ('count() where sex = "Female"', "text goes in single quotes"),
        ("count() where sex in (Female)", "Text goes in single quotes"),
        ("count() where sex in 'Female'", "with a list"),
        ("count() where sex in ()", "at character 23 (')') with a value"),
        ("count() where sex not 'Female'", "with 'in'"),
        ("count() where age is 3", "with None"),
        ("count() where age between 3 and 4", "Write low <= column <= high"),
        ("count() where sex = 'Female", "not closed"),
        ("count() where (age > 3", "a closing parenthesis"),
        ("count() where age ** 2 > 1", "at character 20 ('*')"),
        ("count() where age % 2 = 1", "('%')"),
        ("count() where age > 3; drop", "(';')"),
        ("count() where abs(age) > 3", "Functions cannot be called there"),
        ("count() where age.max() > 3", "Attributes cannot be read there"),
        ("count() where age[0] > 3", "Subscripts are not understood there"),
        ("count() where lambda x: x", "at character 22 ('x')"),
        ("count() where __import__('os').system('true')", "Functions cannot be called there"),
        ("count() where age > 3 & age < 9", "Write: and."),
        ("count() where “age” > 3", "straight quotation marks"),
        ("count() where \x00", "character 15"),
        ("count() where note = '\x00'", "printable text"),
        ("count() where " + "(" * 40 + "age > 1" + ")" * 40, f"nested at most {MAX_DEPTH} deep"),
        ("count() where " + "not " * 40 + "age > 1", f"nested at most {MAX_DEPTH} deep"),
        ("count() where " + "-" * 40 + "age > 1", f"nested at most {MAX_DEPTH} deep"),
        ("count() where " + "+".join(["age"] * 40) + " > 1", f"nested at most {MAX_DEPTH} deep"),
        ("histogram(age, " + "[" * 40 + "1" + "]" * 40 + ")", f"nested at most {MAX_DEPTH} deep"),
        ("count()" + " " * MAX_LENGTH, f"at most {MAX_LENGTH} characters"),
    ],
)
def test_what_is_refused_says_where_and_what_to_write(text: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=re.escape(message)):
        asked(text)


def test_only_text_is_parsed() -> None:
    for wrong in (None, 3, b"count()", ["count()"]):
        with pytest.raises(InvalidValue):
            parse(wrong)  # type: ignore[arg-type]


WORDS = (
    "== != <= and or not in is None True by where lambda 'Female' '2020-01-01' 0 1e5 1e999 .5 dp bounds= é ٣"
)
PIECES = st.sampled_from(
    [
        *CATALOGUE,
        *SCHEMA,
        *"()[],.'\"`=<>+-*/!;:&|~%\\ \n\t\x00\ud800",
        *WORDS.split(),
        '"native-country"',
        "mean(age) by sex where ",
        "9" * 30,
    ]
)


@settings(max_examples=600, deadline=None)
@given(
    st.one_of(
        st.text(max_size=60), st.lists(PIECES, max_size=25).map("".join), st.lists(PIECES).map(" ".join)
    )
)
@example("count() where " + "9" * 1900 + " > age")
def test_any_text_is_a_question_or_an_invalid_value(text: str) -> None:
    try:
        question = asked(text)
    except InvalidValue as error:
        str(error)
    else:
        assert parse(str(question)) == question
        if question.where is not None:
            assert rowwise(to_ibis(condition_of(question.where), SCHEMA, ""), ROWS).type().is_boolean()


NAMES = st.sampled_from(["age", "hours", "by"]).map(lambda name: Name(name))
NUMBERS = st.one_of(st.integers(0, 99), st.floats(0, 99)).map(Literal)
VALUES = st.recursive(
    st.one_of(NAMES, NUMBERS),
    lambda inner: st.builds(lambda s, a, b: Operation(s, (a, b)), st.sampled_from("+-*"), inner, inner),
    max_leaves=6,
)
COMPARED = st.builds(
    lambda s, a, b: Operation(s, (a, b)), st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), VALUES, VALUES
)
CONDITIONS = st.recursive(
    COMPARED,
    lambda inner: st.one_of(
        inner.map(lambda part: Operation("not", (part,))),
        st.builds(lambda s, *parts: Operation(s, parts), st.sampled_from(["and", "or"]), inner, inner, inner),
    ),
    max_leaves=8,
)


def written(tree: Any) -> str:
    if isinstance(tree, Name):
        return f'"{tree.name}"'
    if isinstance(tree, Literal):
        return repr(tree.value)
    parts = [f"({written(part)})" for part in tree.parts]
    return f"not {parts[0]}" if tree.symbol == "not" else f" {tree.symbol} ".join(parts)


@settings(max_examples=200, deadline=None)
@given(CONDITIONS)
def test_what_is_written_is_read_back(tree: Operation) -> None:
    assert Parser(written(tree)).disjunction() == tree


# ------------------------------------------------------------------------------ values and their texts

COLUMN_NAMES = st.one_of(
    st.sampled_from(["age", "by", "where", "dp", "weight", "None", "native-country", 'a"b', "x`y", "é"]),
    st.text(min_size=1, max_size=8).filter(str.isprintable),
)
SEVERAL = st.lists(COLUMN_NAMES, min_size=2, max_size=4, unique=True)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
ENDS = st.one_of(st.integers(-(10**6), 10**6), FINITE, st.dates())
FRACTIONS = st.floats(0.0, 1.0, exclude_min=True, exclude_max=True)
WEIGHTS = st.floats(1e-6, 1e6)
WHERE = st.one_of(st.none(), CONDITIONS.map(written))
COMMON = {"where": WHERE, "weight": WEIGHTS}
GROUPED = {"by": st.one_of(st.none(), st.lists(COLUMN_NAMES, max_size=3, min_size=1, unique=True)), **COMMON}
LIMITS = st.one_of(st.none(), st.just("dp"), st.tuples(ENDS, ENDS))
ONE = {"column": COLUMN_NAMES, "bounds": LIMITS, **GROUPED}
CONFIDENCES = st.one_of(st.none(), FRACTIONS)
VALUES_OF: dict[type[Question], dict[str, Any]] = {
    Count: GROUPED,
    CountUnits: COMMON,
    **{kind: dict(ONE) for kind in (Sum, Mean, Variance, Std)},
    Median: {**ONE, "confidence": CONFIDENCES},
    Quantile: {
        **ONE,
        "q": st.one_of(FRACTIONS, st.lists(FRACTIONS, min_size=1, max_size=3, unique=True)),
        "confidence": CONFIDENCES,
    },
    Histogram: {
        "column": COLUMN_NAMES,
        "edges": st.one_of(st.none(), st.integers(1, 99), st.lists(ENDS, min_size=1, max_size=4)),
        **GROUPED,
    },
    Crosstab: {
        "columns": st.one_of(COLUMN_NAMES, COLUMN_NAMES.map(lambda name: [name]), SEVERAL),
        "margins": st.booleans(),
        **GROUPED,
    },
    **{kind: {"columns": SEVERAL, "bounds": LIMITS, **COMMON} for kind in (Covariance, Correlation)},
    **{kind: {"column": COLUMN_NAMES, **COMMON} for kind in (Keys, Bounds)},
    Top: {"column": COLUMN_NAMES, "k": st.integers(1, 999), **COMMON},
}
ANY_QUESTION = st.sampled_from(list(VALUES_OF)).flatmap(lambda kind: st.builds(kind, **VALUES_OF[kind]))


def test_every_field_of_every_question_is_drawn() -> None:
    assert set(VALUES_OF) == set(CATALOGUE.values())
    for kind, drawn in VALUES_OF.items():
        assert {one.name for one in fields(kind)} - {"label", "written"} == set(drawn)


@settings(max_examples=500, deadline=None)
@given(ANY_QUESTION)
def test_the_text_of_a_question_is_read_back_as_the_question(question: Question) -> None:
    text = str(question)
    if len(text) > MAX_LENGTH:
        return
    assert parse(text) == question
    assert str(parse(text)) == text


def test_a_text_that_forgets_an_option_is_not_read_back() -> None:
    """The property above can fail: each option that is left out makes another question."""
    question = Quantile("age", [0.5, 0.9], by="sex", bounds=(0, 1), confidence=0.5, where="age > 1", weight=2)
    defaults = {"by": None, "bounds": None, "confidence": 0.95, "where": None, "weight": 1}
    for name, default in defaults.items():
        assert parse(str(replace(question, **{name: default}))) != question


# ---------------------------------------------------------------------------------- methods made of questions


@pytest.mark.parametrize("name", CATALOGUE)
def test_methods_have_the_parameters_of_their_questions_and_say_what_they_promise(name: str) -> None:
    kind = CATALOGUE[name]
    asked_of = {one.name for one in fields(kind)} - {"written", "weight"}
    for owner, terms in ((tables.Table, {"epsilon", "delta"}), (tables.Batch, {"weight"})):
        method = getattr(owner, name)
        parameters = inspect.signature(method).parameters
        assert set(parameters) - {"self"} == asked_of | terms
        assert all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in parameters.values())
        for promise in ("Relation: ", "Sensitivity", "vent", "ethod: " if name != "std" else "method: "):
            assert promise in method.__doc__, f"{name}: {promise}"
        for term in terms:
            assert f"\n{term}\n" in method.__doc__
    assert inspect.signature(tables.Table.mean).parameters["epsilon"].default is inspect.Parameter.empty


def test_a_method_that_does_not_repeat_its_question_is_refused() -> None:
    from tacit.tables.asking import asks

    with pytest.raises(TypeError, match="Top has the fields"):

        @asks(Top)
        def top(self: Any, column: str, *, epsilon: float, where: Any = None, label: Any = None) -> Any: ...


def test_texts_and_expressions_keep_the_same_rows() -> None:
    from tacit.tables.cells.measure import measure

    def rows(view: Table, where: Any = None) -> int:
        batch = view.batch(epsilon=1.0)
        batch.count(where=where)
        (cells,) = measure(
            view.source, view.expression, view.unit, batch._asked[0].statistic.measurements()
        )
        return int(cells.sum())

    text, expression = "age >= 40 and sex = 'Male'", (ibis._.age >= 40) & (ibis._.sex == "Male")
    assert rows(table()) == 4
    assert rows(table(), text) == rows(table(), expression) == 1
    assert rows(table().filter(text)) == rows(table().filter(expression)) == 1
    assert rows(table().filter("age >= 40", ibis._.sex == "Male")) == 1
    assert rows(table().filter("age >= 40"), "sex = 'Male' or sex = 'Female'") == 1


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("age >", "where must be continued at its end"),
        ("agge > 3", "Did you mean 'age'?"),
        ("sex = 'female'", "Did you mean 'Female'?"),
        ("age > 1 by sex", "continued at character 9 ('by') with an operator or its end"),
        ("", "where must be continued"),
        ("age", "compare it with something"),
    ],
)
def test_a_text_that_is_no_condition_is_refused(where: str, message: str) -> None:
    for ask in (lambda: table().batch(epsilon=1.0).count(where=where), lambda: table().filter(where)):
        with pytest.raises(InvalidValue, match=re.escape(message)):
            ask()


def test_labels_name_every_condition() -> None:
    view = table().filter("age >= 40 or hours > 3")
    batch = view.batch(epsilon=1.0)
    assert batch.count().label == "count() where age >= 40 or hours > 3"
    assert batch.count(where="code = 1").label == "count() where (age >= 40 or hours > 3) and code = 1"
    assert batch.count(where=ibis._.code == 1, label="n").label == (
        "n where (age >= 40 or hours > 3) and (_.code == 1)"
    )
    assert batch.ask("count() where code = 1").label == "count() where code = 1 and (age >= 40 or hours > 3)"
    assert batch.ask("mean(hours, weight=2)").label == "mean(hours, weight=2) where age >= 40 or hours > 3"
    assert batch.mean("hours", weight=2).label == "mean(hours) where age >= 40 or hours > 3"
    assert table().batch(epsilon=1.0).count(where=ibis._.age > 3, label="n").label == "n where (_.age > 3)"


def test_questions_can_be_read_without_an_engine() -> None:
    import subprocess
    import sys

    code = "import sys, tacit.tables.questions; print(*{'ibis', 'pandas', 'duckdb'} & set(sys.modules))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == ""
    assert tables.questions is questions
