"""Questions as text: what they mean, what is refused, and that nothing else can happen."""

from __future__ import annotations

import datetime
import re
from typing import Any

import ibis
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tacit.data.engine.rowwise import rowwise
from tacit.errors import InvalidValue
from tacit.schema import Column, Schema
from tacit.tables.language.condition import Literal, Name, Operation
from tacit.tables.language.grammar import MAX_DEPTH, MAX_LENGTH, Parser
from tacit.tables.language.question import STATISTICS, Question, ask, parse

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


class Recorder:
    """Stands in for a batch: remembers the last call."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: (name, arguments, options)


def asked(text: str) -> Any:
    name, arguments, options = ask(Recorder(), text, SCHEMA)
    label = options.pop("label")
    assert label.isprintable()
    assert 0 < len(label) <= 200
    return name, arguments, options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count()", ("count", (), {})),
        ("count() by sex, code", ("count", (), {"by": ["sex", "code"]})),
        ("count_units()", ("count_units", (), {})),
        ("Mean( hours )BY sex", ("mean", ("hours",), {"by": ["sex"]})),
        ("sum('hours')", ("sum", ("hours",), {})),
        ("variance(age, bounds=(0, 1e2))", ("variance", ("age",), {"bounds": (0, 100.0)})),
        ("std(age, bounds=[-1, +.5])", None),
        ("std(age, bounds=[-1, .5])", ("std", ("age",), {"bounds": (-1, 0.5)})),
        ("mean(age, bounds='dp')", ("mean", ("age",), {"bounds": "dp"})),
        ("mean(age, bounds = dp, weight=2)", ("mean", ("age",), {"bounds": "dp", "weight": 2})),
        ("quantile(age, 0.25)", ("quantile", ("age", 0.25), {})),
        ("quantile(age, q=[0.25, 0.5]) by sex", ("quantile", ("age", (0.25, 0.5)), {"by": ["sex"]})),
        ("median(hours)", ("median", ("hours",), {})),
        ("median(hours, interval=None)", ("median", ("hours",), {"interval": None})),
        ("histogram(age)", ("histogram", ("age",), {})),
        ("histogram(age, 20)", ("histogram", ("age", 20), {})),
        ("histogram(age, [17, 30, 50, 90])", ("histogram", ("age", (17, 30, 50, 90)), {})),
        ("crosstab(sex, code)", ("crosstab", (("sex", "code"),), {})),
        ("crosstab([sex, code], margins=true)", ("crosstab", (("sex", "code"),), {"margins": True})),
        ("covariance(age, hours)", ("covariance", (("age", "hours"),), {})),
        ("correlation(age, hours)", ("correlation", (("age", "hours"),), {})),
        ("keys(zip)", ("keys", ("zip",), {})),
        ("top(sex, 5)", ("top", ("sex", 5), {})),
        ("bounds(hours)", ("bounds", ("hours",), {})),
        ('count() by "native-country"', ("count", (), {"by": ["native-country"]})),
        ("sum(`by`)", ("sum", ("by",), {})),
        (
            "histogram(admitted, ['2020-01-01', '2022-01-01'])",
            ("histogram", ("admitted", (datetime.date(2020, 1, 1), datetime.date(2022, 1, 1))), {}),
        ),
    ],
)
def test_a_question_calls_its_method(text: str, expected: Any) -> None:
    if expected is None:
        with pytest.raises(InvalidValue):
            asked(text)
    else:
        assert asked(text) == expected


def test_every_form_shown_is_itself_a_question() -> None:
    for name, form in STATISTICS.items():
        assert parse(form.usage).name == name


def test_questions_are_equal_if_they_mean_the_same() -> None:
    question = parse(" mean(hours)  by sex where age >= 40 ")
    assert question == parse('mean("hours") by `sex` where age >= 40')
    assert question == Question("mean", ("hours",), {}, ("sex",), "age >= 40")
    assert question.text == "mean(hours) by sex where age >= 40"
    assert question.columns == ("hours", "sex")
    assert hash(question) == hash(parse("mean(hours) by sex where age >= 40"))
    assert parse("count() where age > 1 by sex") == parse("count() by sex where age > 1")


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
    _, _, options = asked(f"count() where {condition}")
    for where in (options["where"], rowwise(options["where"], ROWS)):
        kept = ROWS.filter(where).row.to_pyarrow()
        assert sorted(kept.to_pylist()) == rows


def test_long_alternatives_stay_shallow() -> None:
    _, _, options = asked("count() where " + " or ".join(f"age={n}" for n in range(150)))
    assert ROWS.filter(options["where"]).to_pyarrow().num_rows == 3


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
        ("crosstab(sex)", "of the form crosstab(column, column)"),
        ("histogram(age) by sex", "without 'by', as histogram has no groups"),
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
        *STATISTICS,
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
        _, _, options = asked(text)
    except InvalidValue as error:
        str(error)
    else:
        if "where" in options:
            assert rowwise(options["where"], ROWS).type().is_boolean()


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
