"""How a CSV is written is said once, in the schema, and holds for whoever reads the file."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Run, commands
from people import rows
from tacit import Budget, Column, Dialect, Ledger, Schema, jobs, tables
from tacit.data.cleaning import expressions
from tacit.data.cleaning.values import number
from tacit.data.source import connect
from tacit.errors import InvalidValue, SourceMissing

GERMAN = Dialect(";", ",", "cp1252")
COLUMNS = {
    "Größe": Column("number", bounds=(0, 3)),
    "Ort": Column("category", categories=("Köln", "Zürich"), other="€"),
    "n": Column("integer", bounds=(0, 100)),
}
SCHEMA = Schema(COLUMNS, csv=GERMAN)
TEXT = 'Größe;Ort;n\n1,75;Köln;3\n1.75;Zürich;4,0\n"2,5";"Bern; Stadt";\n;Köln;7\n'
EXPECTED = [(1.75, "Köln", 3), (None, "Zürich", 4), (2.5, "€", None), (None, "Köln", 7)]


def write(path: Path, text: str, encoding: str) -> Path:
    content = text.encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


class TestReading:
    @pytest.mark.parametrize("encoding", ["cp1252", "utf-8", "utf-8-sig", "utf-16", "cp1250"])
    @pytest.mark.parametrize("name", ["a.csv", "a.txt.gz"])
    def test_delimiter_decimal_mark_and_encoding(self, tmp_path: Path, encoding: str, name: str) -> None:
        schema = Schema(COLUMNS, csv=Dialect(";", ",", encoding))
        assert rows(write(tmp_path / name, TEXT, encoding), schema) == EXPECTED

    def test_several_files_and_an_override(self, tmp_path: Path) -> None:
        for part in "ab":
            write(tmp_path / f"{part}.csv", TEXT, "cp1252")
        assert sorted(rows(tmp_path / "*.csv", SCHEMA), key=str) == sorted(EXPECTED * 2, key=str)
        bars = write(tmp_path / "bars.csv", TEXT.replace(";", "|"), "cp1252")
        assert rows(bars, SCHEMA, delimiter="|")[0] == EXPECTED[0]

    def test_no_byte_makes_it_fail_or_touches_another_row(self, tmp_path: Path) -> None:
        """DuckDB's own reader of Latin-1 raises on the byte 0x80, which only some data hold."""
        odd = [bytes([byte]) for byte in range(128, 256)]
        path = tmp_path / "a.csv"
        path.write_bytes(b"a;b\n" + b"".join(b"1,5;" + byte + b"\n2,5;x\n" for byte in odd))
        for encoding in ("latin-1", "cp1252", "iso8859-2", "utf-8"):
            schema = Schema({"a": Column("number"), "b": Column("text")}, csv=Dialect(";", ",", encoding))
            found = rows(path, schema)
            assert [row for row in found if row[0] == 2.5] == [(2.5, "x")] * 128
            texts = [row[1] for row in found if row[0] == 1.5]
            assert texts == ([] if encoding == "utf-8" else [one.decode(encoding, "replace") for one in odd])

    def test_the_copy_is_made_when_rows_are_paid_for_and_goes_with_the_source(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.csv", TEXT, "cp1252")
        opened = connect(path, SCHEMA)
        ((folder,),) = opened._connection.con.execute("SELECT current_setting('temp_directory')").fetchall()
        (copy,) = Path(folder).glob("*.csv")
        assert copy.stat().st_size == 0
        opened.run(opened.table)
        assert "Zürich" in copy.read_text(encoding="utf-8")
        opened.close()
        assert not Path(folder).exists()

    def test_the_engine_agrees_with_the_rule_in_memory(self, tmp_path: Path) -> None:
        """Comma and point change places; then the one rule of numbers holds."""
        texts = [
            "1,5",
            "1.5",
            "1.234,5",
            ",5",
            "-1,5e3",
            "1e3",
            "inf",
            " 7 ",
            "1,5,5",
            "x",
            "1,",
            "+,5E-2",
            ".",
        ]
        path = tmp_path / "a.csv"
        path.write_text("x\n" + "\n".join(f'"{text}"' for text in texts) + "\n")
        schema = Schema({"x": Column("number")}, csv=Dialect(decimal=","))
        expected = [number(text.translate(str.maketrans(",.", ".,"))) for text in texts]
        assert [value for (value,) in rows(path, schema)] == expected
        assert sum(value is not None for value in expected) > 5

    def test_text_and_categories_keep_their_commas(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text("x;y\n1,5;a.b\n")
        schema = Schema({"x": Column("category", categories=("1,5",)), "y": Column("text")}, csv=GERMAN)
        assert rows(path, schema) == [("1,5", "a.b")]

    def test_the_assumption_names_the_encoding(self, tmp_path: Path) -> None:
        opened = connect(write(tmp_path / "a.csv", TEXT, "cp1252"), SCHEMA)
        assert opened.assumptions == (
            "the files keep to their format: quotation marks closed, text in cp1252",
        )
        opened.close()


class TestDeclaring:
    def test_a_dialect_goes_through_toml_and_stays_with_a_schema(self) -> None:
        assert Schema.from_toml(SCHEMA.to_toml()) == SCHEMA
        assert "[csv]" not in Schema(COLUMNS).to_toml()
        assert SCHEMA.with_column("z", Column("text")).csv == GERMAN
        assert Dialect(encoding="ISO-8859-1").encoding == Dialect(encoding="latin1").encoding == "latin-1"

    @pytest.mark.parametrize(
        ("line", "told"),
        [
            ("delimiter = ';;'", "delimiter of csv must be one character"),
            ("decimal = ';'", "decimal of csv must be '.' or ','"),
            ("encoding = 'martian'", "encoding of csv must be known"),
            ("encoding = 'rot13'", "encoding of csv must be known"),
            ("quote = 'x'", "key of csv must be one of delimiter, decimal, encoding"),
        ],
    )
    def test_what_is_no_dialect(self, line: str, told: str) -> None:
        with pytest.raises(InvalidValue, match=re.escape(told)):
            Schema.from_toml(f"[csv]\n{line}\n[columns.a]\ntype = 'text'\n")


class TestAdvice:
    @pytest.mark.parametrize(
        ("text", "written", "declared", "told"),
        [
            ("age;sex\n", "utf-8", Dialect(), "One column was found. Is the delimiter ';'?"),
            ("age,sex\n", "utf-8", Dialect(";"), "One column was found. Is the delimiter ','?"),
            ("x;y,age;sex\n", "utf-8", Dialect(), None),
            ("age,sex,ß\n", "utf-16", Dialect(), "Is the encoding utf-16?"),
            ("", "utf-8", Dialect(), "is empty: it has no first line of column names"),
        ],
    )
    def test_a_first_line_that_names_the_columns_in_another_dialect(
        self, tmp_path: Path, text: str, written: str, declared: Dialect, told: str | None
    ) -> None:
        schema = Schema({"age": Column("integer"), "sex": Column("text")}, csv=declared)
        with pytest.raises(SourceMissing, match=re.escape(told or "no first line of column names")):
            connect(write(tmp_path / "a.csv", text, written), schema)

    def test_a_name_in_another_encoding(self, tmp_path: Path) -> None:
        with pytest.raises(SourceMissing, match=r'Is the encoding cp1252\?.*encoding = "cp1252"'):
            connect(write(tmp_path / "a.csv", TEXT, "cp1252"), Schema(COLUMNS, csv=Dialect(";", ",")))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return commands(monkeypatch, capsys)


def people(number: int) -> str:
    draw = np.random.default_rng(5)
    lines = ["Größe;Wohnort;raucht;Gewicht"]
    for _ in range(number):
        size = draw.normal(1.7, 0.1)
        weight = 22 * size**2 + draw.normal(0, 2)
        town, smokes = draw.choice(["Köln", "Zürich"]), draw.choice(["ja", "nein"])
        lines.append(f"{size:.2f};{town};{smokes};{weight:.1f}".replace(".", ","))
    return "\n".join(lines) + "\n"


def test_from_a_semicolon_file_to_a_prediction_with_no_edits_but_bounds(run: Run) -> None:
    """Today's code read nothing of it: one column, no decimal commas, no Latin-1."""
    Path("kunden.csv").write_bytes(people(2000).encode("latin-1"))
    run("schema", "init", "kunden.csv", "--out", "schema.toml").good()
    text = Path("schema.toml").read_text(encoding="utf-8")
    for name, bounds in (("Größe", "[1.2, 2.2]"), ("Gewicht", "[30, 150]")):
        start = text.index(f'[columns."{name}"]' if name == "Größe" else f"[columns.{name}]")
        text = text[:start] + text[start:].replace("# bounds = [?, ?]", f"bounds = {bounds}", 1)
    for labels in ('["Köln", "Zürich"]', '["ja", "nein"]'):
        text = text.replace("\n# categories = [?, ?]", f"\ncategories = {labels}", 1)
    Path("schema.toml").write_text(text, encoding="utf-8")
    Ledger.open("study.db", Budget(epsilon=1000.0)).close()
    run("schema", "check", "schema.toml", "--source", "kunden.csv").good()
    paid = ("--schema", "schema.toml", "--ledger", "study.db")
    asked = ("query", "kunden.csv", "mean(Größe) by Wohnort", "--epsilon", "50", "--format", "json", *paid)
    answers = run(*asked).json["answers"][0]["rows"]
    assert [abs(row["value"] - 1.7) < 0.05 for row in answers] == [True, True]
    options = ("--target", "Gewicht", "--model", "linear", "--epsilon", "100", "--out", "model.tacit")
    run("fit", "kunden.csv", *options, *paid).good()
    Path("neue.csv").write_bytes("Größe;Wohnort;raucht\n1,60;Köln;ja\n1,90;Zürich;nein\n".encode("latin-1"))
    small, large = (float(line) for line in run("predict", "model.tacit", "neue.csv").good().out.split()[1:])
    assert 45 < small < large < 100
    assert large - small > 10
    found = jobs.evaluate("model.tacit", "kunden.csv", ledger="study.db", epsilon=100.0)
    assert found.figures["r2"] > 0.5


def test_a_table_and_a_job_read_by_the_schema_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", TEXT, "cp1252")
    SCHEMA.save(tmp_path / "schema.toml")
    with Ledger.open(tmp_path / "study.db", Budget(1e9)) as ledger:
        with tables.open(path, schema=tmp_path / "schema.toml", ledger=ledger) as table:
            assert table.mean("Größe", epsilon=1e6).value == pytest.approx(2.125, abs=1e-3)
        found = jobs.query(path, ["count() by Ort"], schema=SCHEMA, ledger=ledger, epsilon=1e6)
        assert found.releases[0].value.tolist() == [2, 1, 1]


def test_a_twin_that_forgets_the_decimal_mark_is_noticed(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(expressions, "pointed", lambda value, column, decimal: value)
    assert rows(write(tmp_path / "a.csv", TEXT, "cp1252"), SCHEMA) != EXPECTED


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_file_without_its_byte_order_mark_is_refused_by_a_message(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, "age,sex\n41,F\n", "ascii")
    with pytest.raises(SourceMissing, match="not text in utf-16, as is declared") as refused:
        connect(path, Schema({"age": Column("integer", bounds=(0, 120))}, csv=Dialect(encoding="utf-16")))
    assert refused.value.__cause__ is None
    assert "41" not in str(refused.value).replace(str(tmp_path), "")
