"""What ``tacit schema init`` writes, the reader reads; and what it leaves open is not taken for a value."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from commands import Run, commands
from tacit.errors import InvalidValue
from tacit.jobs import curator_check
from tacit.schema import Column, Schema

ZOO = {
    "yes/no": ["yes", "No", "YES", "no "],
    "y/n": ["y", "N", "Y", "n"],
    "t/f": ["T", "f", "t", "F"],
    "true/false": ["TRUE", "False", "true", "FALSE"],
    "zero or one": ["0", "1", "1", "0"],
    "only yes": ["yes", "yes", "yes", "yes"],
    "ja/nein": ["ja", "nein", "ja", "ja"],
    "yes and 1": ["yes", "1", "0", "no"],
    "whole": ["1", "-2", " 3", "+4"],
    "zeros first": ["007", "01", "2", "3"],
    "points": ["1.5", ".5", "-2.", "1e3"],
    "commas": ["1,5", ",5", "-2,25", "3"],
    "thousands": ["1.234,5", "1,234.5", "1 000", "1_000"],
    "not finite": ["inf", "-Infinity", "1", "2"],
    "hexadecimal": ["0x10", "0x1F", "0b1", "12"],
    "large": ["9007199254740993", "1", "-9007199254740993", "7"],
    "gaps": ["1", "NA", "", "3"],
    "gaps of dates": ["2020-01-01", "n/a", "?", ""],
    "days": ["2020-01-31", "2020-02-29", "1999-12-31", "0001-01-01"],
    "no day": ["2020-02-30", "2020-01-31", "2020-01-01", "2020-01-01"],
    "times": ["2020-01-31 10:00", "2020-01-31T11:59:00Z", "2020-01-31", "2020-01-31 00:00"],
    "our days": ["31.12.2020", "1.2.2020", "31.12.2020", "1.1.1999"],
    "their days": ["12/31/2020", "1/2/2020", "12/31/2020", "1/1/1999"],
    "clock": ["10:30", "23:59:59", "00:00", "10:30"],
    "words": ["a", "b; c", 'd "e"', "ä"],
    "nothing": ["", " ", "", ""],
    "a list": ["[1]", "{}", "[1, 2]", "()"],
}
GAPS = {"na", "n/a", "?", "-", "nan", "null", "none"}
MARKS = (",", ";", "\t", "|")
spellings = st.lists(
    st.sampled_from(sorted({word for words in ZOO.values() for word in words} | {"7,5", "7.5", "T", "NULL"})),
    min_size=4,
    max_size=4,
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return commands(monkeypatch, capsys)


def csv_text(columns: dict[str, list[str]], mark: str) -> str:
    def quoted(value: str) -> str:
        return '"' + value.replace('"', '""') + '"' if set(value) & {mark, '"'} else value

    lines = [list(columns), *zip(*columns.values(), strict=True)]
    return "".join(mark.join(map(quoted, line)) + "\n" for line in lines)


def with_bounds(template: str) -> Schema:
    """The template, with bounds filled in and nothing else."""
    days = "bounds = [0001-01-01, 9999-12-31]"
    text = re.sub(r"# bounds = \[\?, \?\](?= +# dates)", days, template)
    return Schema.from_toml(text.replace("# bounds = [?, ?]", f"bounds = [{-(2**53)}, {2**53}]"))


def check_read(run: Run, columns: dict[str, list[str]], mark: str, encoding: str) -> Schema:
    Path("x.csv").write_bytes(csv_text(columns, mark).encode(encoding))
    run("schema", "init", "x.csv", "--out", "x.toml", "--overwrite").good()
    schema = with_bounds(Path("x.toml").read_text(encoding="utf-8"))
    found = curator_check("x.csv", schema)
    assert found.rows == 4
    for name, (missing, outside, unread) in found.columns.items():
        blank = sum(not value.strip() for value in columns[name])
        gaps = sum(value.strip().lower() in GAPS for value in columns[name])
        infinite = sum("inf" in value.lower() for value in columns[name])
        assert missing == blank, (name, columns[name], schema[name])
        assert unread <= (gaps if schema[name].type != "category" else 0), (name, columns[name], schema[name])
        assert outside <= infinite + ("large" in name) * 2, (name, columns[name], schema[name])
    return schema


@pytest.mark.parametrize(("mark", "encoding"), [(";", "latin-1")])
def test_every_column_of_the_zoo_is_read(run: Run, mark: str, encoding: str) -> None:
    schema = check_read(run, ZOO, mark, encoding)
    assert schema.csv.delimiter == mark
    types = {name: column.type for name, column in schema.columns.items()}
    for name in ("yes/no", "y/n", "t/f", "true/false", "yes and 1"):
        assert types[name] == "boolean"
    for name in (
        "our days",
        "their days",
        "clock",
        "ja/nein",
        "only yes",
        "thousands",
        "no day",
        "hexadecimal",
    ):
        assert types[name] == "category", name
    assert [types[name] for name in ("zero or one", "whole", "gaps", "zeros first")] == ["integer"] * 4
    assert [types[name] for name in ("days", "times", "gaps of dates")] == ["date"] * 3


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spellings, spellings, st.sampled_from(MARKS))
@example(["yes", "1", "NULL", "no"], ["7,5", "1.5", "1", ""], ";")
def test_every_mixture_is_read(run: Run, one: list[str], other: list[str], mark: str) -> None:
    check_read(run, {"first": one, "second": other}, mark, "utf-8")


def test_the_decimal_mark_is_that_of_most_numbers(run: Run) -> None:
    numbers = [f"{random.Random(i).uniform(0, 9):.3f}" for i in range(4)]
    for mark in ".,":
        columns = {"x": [number.replace(".", mark) for number in numbers], "y": ["1", "2", "3", "4"]}
        schema = check_read(run, columns, ";", "utf-8")
        assert (schema.csv.decimal, schema["x"].type, schema["y"].type) == (mark, "number", "integer")


@pytest.mark.parametrize(
    ("left", "told"),
    [
        ("[columns.age]\ntype = 'integer'\nbounds = [?, ?]", "bounds of column 'age' must be filled in"),
        ("[columns.age]\ntype = 'integer'\nbounds = [0, ?]  # years", "bounds of column 'age'"),
        ("[columns.'a b']\ntype = 'category'\ncategories = [?, ?]", "categories of column 'a b'"),
        ('[columns."a b"]\ntype = "category"\ncategories = ["x",\n  ?]', "categories of column 'a b'"),
        ("[columns.a]\ntype = 'category'\ncategories = ['?', '?']", "categories of column 'a'"),
        ("[columns.a]\ntype = 'integer'\nbounds = ['?', 9]", "bounds of column 'a'"),
        ("[columns.a]\ntype = 'date'\nmissing = ?", "missing of column 'a'"),
        ("[columns.a]\ntype = ?", "type of column 'a'"),
        ("population = ?\n[columns.a]\ntype = 'text'", "population must be filled in"),
        ("population = '?'\n[columns.a]\ntype = 'text'", "population must be filled in"),
        ("[unit]\ncolumn = ?\nrows = 3\n[columns.a]\ntype = 'text'", "column of the unit"),
        ("[unit]\ncolumn = '?'\nrows = 3\n[columns.a]\ntype = 'text'", "column of the unit"),
        ("[unit]\ncolumn = 'a'\nrows = ?\n[columns.a]\ntype = 'text'", "rows of the unit"),
        ("[csv]\ndelimiter = ?\n[columns.a]\ntype = 'text'", "delimiter of csv"),
    ],
)
def test_a_question_mark_left_in_a_template_is_named(left: str, told: str) -> None:
    with pytest.raises(InvalidValue, match=re.escape(told)) as caught:
        Schema.from_toml(left)
    assert "?" in str(caught.value.value)
    assert "in place of the ?" in str(caught.value)


def test_a_question_mark_may_be_a_category_or_a_constant() -> None:
    """Adult writes ? for what is not known."""
    text = "[columns.a]\ntype = 'category'\ncategories = ['?', 'x']\nmissing = '?'"
    assert Schema.from_toml(text)["a"] == Column("category", categories=("?", "x"), missing="?")


def test_a_template_of_which_everything_is_uncommented_names_what_is_open(run: Run) -> None:
    Path("x.csv").write_text("a,b\n1,x\n")
    run("schema", "init", "x.csv", "--out", "x.toml").good()
    text = Path("x.toml").read_text()
    for line in re.findall(r"^# [a-z]+ = .*\?.*$|^# \[(?:unit|about)\]$", text, flags=re.MULTILINE):
        open_line = text.replace(line, line.removeprefix("# "), 1)
        if line not in ("# [unit]", "# [about]"):
            Path("y.toml").write_text(open_line)
            shown = run("schema", "check", "y.toml")
            assert shown.code == 2
            assert "must be filled in" in shown.err


def test_who_checks_a_csv_is_told_how_to_count_what_does_not_fit(run: Run) -> None:
    Path("x.csv").write_text("a,b\n1,x\n")
    Path("x.toml").write_text("[columns.b]\ntype = 'number'\nbounds = [0, 1]\n")
    assert "A CSV states no types" in run("schema", "check", "x.toml", "--source", "x.csv").good().out
    shown = run("schema", "check", "x.toml", "--source", "x.csv", "--curator").good().out
    assert "A CSV states no types" not in shown
    assert "1 (100.0%)" in shown
