"""``tacit schema`` as its users run it; above all, that it shows no value of a row."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from tacit.cli.schema import app
from tacit.cli.wording import as_options
from tacit.errors import InvalidValue, TacitError
from tacit.relations import Unit
from tacit.schema import About, Column, Schema

SECRETS = ("Zaphod", "4711.25", "8150815", "1952-03-11", "Trillian", "42-42", "hush")
TABLE = """age,income,name,born,seen at,alive,zip.code,"we""ird",empty
8150815,4711.25,Zaphod,1952-03-11,1952-03-11 10:00:00,true,042-42,hush,
3,1.5,Trillian,1981-01-02,2020-01-01 10:00:00,false,01234,hush,
"""
TYPES = {
    "age": "integer",
    "income": "number",
    "name": "category",
    "born": "date",
    "seen at": "date",
    "alive": "boolean",
    "zip.code": "category",
    'we"ird': "category",
    "empty": "category",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("data.csv").write_text(TABLE)
    return tmp_path


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    if isinstance(result.exception, TacitError):
        raise result.exception
    assert result.exit_code == code, result.output
    assert not [secret for secret in SECRETS if secret in result.output]
    return result.output


def refused(*arguments: str) -> str:
    with pytest.raises(TacitError) as caught:
        run(*arguments)
    message = str(caught.value)
    assert not [secret for secret in SECRETS if secret in message]
    assert "\n" not in message
    assert caught.value.next_step
    return message


def parquet(path: str, columns: str) -> None:
    with duckdb.connect() as engine:
        engine.execute(f"COPY (SELECT {columns}) TO '{path}' (FORMAT parquet)")


def test_a_template_names_columns_and_types_and_nothing_else() -> None:
    text = run("init", "data.csv")
    schema = Schema.from_toml(text)
    assert {name: column.type for name, column in schema.columns.items()} == TYPES
    assert all(column in (Column(column.type), Column("boolean")) for column in schema.columns.values())
    assert schema.population is None
    assert schema.unit == Unit()
    assert "GUESSED FROM VALUES" in text
    assert "curator" in text


def test_a_template_can_be_filled_in() -> None:
    text = run("init", "data.csv")
    text = text.replace("# population = ?\n\n# Whom", "population = 100\n\n# Whom")
    text = text.replace("# [unit]\n# column = ?\n# rows = ?", '[unit]\ncolumn = "name"\nrows = 3')
    text = text.replace("# name = ?", 'name = "guest"').replace("# [about]", "[about]")
    text = text.replace("# data = ?", 'data = "Guests"')
    text = text.replace("# responsible = ?", 'responsible = "Office"')
    text = text.replace("\n# categories = [?, ?]", '\ncategories = ["a", "b"]')
    text = re.sub(r"# bounds = \[\?, \?\](?= +# dates)", "bounds = [2020-01-01, 2021-01-01]", text)
    text = text.replace("# bounds = [?, ?]", "bounds = [0, 9]")
    schema = Schema.from_toml(text)
    assert (schema.population, schema.unit) == (100, Unit("name", 3))
    assert (schema.unit.name, schema.about) == ("guest", About("Guests", "Office"))
    assert schema["age"].bounds == (0, 9)
    assert schema["seen at"].bounds is not None
    assert schema["zip.code"].categories == ("a", "b")


def test_parquet_types_come_from_the_file() -> None:
    parquet(
        "p.parquet",
        "81::utinyint AS small, 8150815 AS big, 4711.25::decimal(9,2) AS exact, 4711.25::real AS rough,"
        "'Zaphod' AS name, uuid() AS id, timestamptz '1952-03-11 10:00Z' AS moment, "
        "date '1952-03-11' AS born, true AS yes, ['hush'] AS listed, {'hush': 'hush'} AS nested, "
        "'hush'::blob AS raw",
    )
    text = run("init", "p.parquet")
    found = {name: column.type for name, column in Schema.from_toml(text).columns.items()}
    assert found == {
        "small": "integer",
        "big": "integer",
        "exact": "number",
        "rough": "number",
        "name": "category",
        "id": "text",
        "moment": "date",
        "born": "date",
        "yes": "boolean",
    }
    assert "GUESSED" not in text
    assert '"listed" is left out' in text
    assert '"nested" is left out: a schema cannot describe STRUCT.' in text
    assert '"raw" is left out' in text


def test_other_sources() -> None:
    Path("semi.txt").write_text("a;b\n4711,25;Zaphod\n")
    assert list(Schema.from_toml(run("init", "semi.txt", "--delimiter", ";"))) == ["a", "b"]
    Path("tabs.tsv").write_text("a\tb\n1\tZaphod\n")
    assert list(Schema.from_toml(run("init", "tabs.tsv", "--delimiter", r"\t"))) == ["a", "b"]
    with gzip.open("z.csv.gz", "wt") as file:
        file.write(TABLE)
    assert list(Schema.from_toml(run("init", "z.csv.gz"))) == list(TYPES)
    for number in range(3):
        Path(f"part-{number}.csv").write_text("\ufeffgröße,b\n1,2\n", encoding="utf-8")
    assert list(Schema.from_toml(run("init", "part-*.csv"))) == ["größe", "b"]
    Path("part[1]'s.csv").write_text("a,b\n1,2\n")
    assert list(Schema.from_toml(run("init", "part[1]'s.csv"))) == ["a", "b"]
    Path("index.csv").write_text(",a\n8150815,1\n")
    assert list(Schema.from_toml(run("init", "index.csv"))) == ["a"]
    Path("odd\nname\x1b.csv").write_text('"a\nb","x # y",[z]\n1,2,3\n')
    assert list(Schema.from_toml(run("init", "odd\nname\x1b.csv"))) == ["a\nb", "x # y", "[z]"]
    Path("names.csv").write_text("a,b\n")
    assert list(Schema.from_toml(run("init", "names.csv"))) == ["a", "b"]
    Path("years.csv").write_text("2019,2020\n8150815,1\n")
    assert "looks like values" in refused("init", "years.csv")
    assert list(Schema.from_toml(run("init", "years.csv", "--header"))) == ["2019", "2020"]


@pytest.mark.parametrize(
    "first",
    [
        "8150815,x",
        "Zaphod,4711.25",
        "Zaphod,1952-03-11",
        "Zaphod@hush.org,x",
        "true,Zaphod",
        "Zaphod,-3e7",
        "Zaphod,10:30",
    ],
)
def test_a_first_line_of_values_is_not_shown(first: str) -> None:
    Path("x.csv").write_text(f"{first}\n1,2\n")
    assert "looks like values" in refused("init", "x.csv")


def test_rows_never_pass_for_the_line_of_names() -> None:
    """A sniffer that looks for the widest table takes the first row here."""
    Path("x.csv").write_text("a,b\nZaphod,1,2\nTrillian,3,4\n")
    refused("init", "x.csv")
    Path("x.csv").write_text("# a remark\na,b\nZaphod,1\nTrillian,3\n")
    refused("init", "x.csv")
    Path("x.csv").write_text("Zaphod,hush,Zaphod\n1,2,3\n")
    assert "Columns 1 and 3" in refused("init", "x.csv")


def test_sources_that_are_refused() -> None:
    assert "There is no file at none.csv" in refused("init", "none.csv")
    assert "There is no file at none*.csv" in refused("init", "none*.csv")
    Path("folder").mkdir()
    assert "folder is a folder. Name its files: folder/*.parquet" in refused("init", "folder")
    Path("x.csv").write_text("")
    assert "x.csv is empty" in refused("init", "x.csv")
    Path("x.csv").write_text("\n\n")
    assert "no line of column names" in refused("init", "x.csv")
    Path("x.csv").write_bytes(b"PK\x03\x04\xff\x00Zaphod")
    assert "neither a CSV of text nor Parquet" in refused("init", "x.csv")
    Path("x.csv.gz").write_text(TABLE)
    assert "neither a CSV" in refused("init", "x.csv.gz")
    Path("x.csv").write_text('a,b\n"Zaphod\n1,hush"x",2\n')
    assert "cannot be read as CSV" in refused("init", "x.csv")
    Path("x.csv").write_text("a;b\nZaphod;2\n")
    told = as_options(refused("init", "x.csv", "--delimiter", ","), {"delimiter"})
    assert "no ',', but it has ';'. Add --delimiter ';'." in told
    Path("x.csv").write_text("age,Age\nZaphod,2\n")
    assert "Columns 1 and 2 of x.csv have the same name" in refused("init", "x.csv")
    Path("x.parquet").write_text(TABLE)
    assert "not a Parquet file" in refused("init", "x.parquet")
    Path("x.parquet").write_bytes(b"PAR1 Zaphod PAR1")
    assert "cannot be read as Parquet" in refused("init", "x.parquet")
    parquet("x.parquet", "['hush'] AS a")
    assert "no column that a schema can describe" in refused("init", "x.parquet")
    for delimiter in ("", ";;", '"', "\n"):
        assert "delimiter must be one character" in refused("init", "data.csv", "--delimiter", delimiter)


def test_files_are_not_overwritten_unasked() -> None:
    assert "tacit schema check s.toml" in run("init", "data.csv", "--out", "s.toml")
    written = Path("s.toml").read_text(encoding="utf-8")
    assert written == run("init", "data.csv")
    Path("s.toml").write_text("mine")
    assert "add overwrite=True" in refused("init", "data.csv", "--out", "s.toml")
    assert Path("s.toml").read_text() == "mine"
    run("init", "data.csv", "--out", "s.toml", "--overwrite")
    assert Path("s.toml").read_text(encoding="utf-8") == written
    assert "cannot be written" in refused("init", "data.csv", "--out", "no/s.toml")


def test_check_shows_what_is_known_and_what_is_open() -> None:
    Schema(
        {
            "age": Column("integer", bounds=(17, 90), missing=40),
            "income": Column("number"),
            "sex": Column("category", categories=("Female", "[b]Male"), other="another"),
            "region": Column("category"),
            "code": Column("integer", categories=tuple(range(100, 130))),
            "\x1b[31m": Column("text"),
        },
        population=32561,
        unit=Unit("patient", 3),
    ).save("s.toml")
    shown = run("check", "s.toml")
    for part in (
        "from 17 to 90",
        "counts as 40",
        "Female, [b]Male; others as another",
        "107, … (30)",
        "Number of rows: 32,561, public.",
        "Protects: one patient (at most 3 rows).",
        "Without bounds: income.",
        "Without categories: region.",
    ):
        assert part in shown
    assert "\x1b" not in shown
    Schema({"age": Column("integer", bounds=(0, 9))}).save("t.toml")
    shown = run("check", "t.toml")
    assert "private, not declared" in shown
    assert "Without" not in shown


def test_check_compares_names_with_a_source() -> None:
    Schema({"age": Column("integer"), "zip.code": Column("text")}, unit=Unit("name")).save("s.toml")
    assert "data.csv has every declared column. Columns that are not declared, and are never read: 6." in run(
        "check", "s.toml", "--source", "data.csv"
    )
    parquet("p.parquet", "1 AS AGE, 'Zaphod' AS name, 'Trillian' AS hush")
    result = CliRunner().invoke(app, ["check", "s.toml", "--source", "p.parquet"])
    assert result.exit_code == 1
    assert 'p.parquet lacks age, zip.code. "age" is spelled "AGE" there.' in result.output
    assert "hush" not in result.output
    Path("x.csv").write_text("Zaphod,8150815\n1,2\n")
    assert "x.csv lacks" in run("check", "s.toml", "--source", "x.csv", code=1)
    assert "There is no file" in refused("check", "s.toml", "--source", "none.csv")


def test_check_refuses_what_is_no_schema() -> None:
    assert "cannot be read: No such file" in refused("check", "none.toml")
    assert "written in TOML" in refused("check", "data.csv")
    Path("s.toml").write_text("[columns.age]\ntype = 'integer'\nbounds = [9, 0]\n")
    with pytest.raises(
        InvalidValue, match=r"bounds of column 'age' must be ordered, lower first, got \[9, 0\]"
    ):
        run("check", "s.toml")


def test_the_command_line_loads_no_engine() -> None:
    code = "import sys, tacit.cli.schema; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"ibis", "duckdb", "pandas"} & set(loaded)
