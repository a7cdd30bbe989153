"""A CSV file without a line of names: its first line is somebody's row, and no message may quote it.

Every command that opens a table is given such a file, with first lines that come close to the declared names,
repeat a value, hold other delimiters or no text at all. What is printed must be the same for all of them.
"""

from __future__ import annotations

import gzip
from functools import partial
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from commands import Run, commands
from contract.mends import Scene, mend
from tacit import Budget, Column, Ledger, Schema, tables
from tacit.data import files, source
from tacit.data.reading import prepare
from tacit.errors import SourceMissing

SECRET = "Janet"
"""A name that resembles a declared column."""

SCHEMA = """
[columns.jane]
type = "integer"
bounds = [0, 120]
[columns.sex]
type = "category"
categories = ["F", "M"]
"""
FIRST_LINES = {
    "alike": f"{SECRET},sexy,41",
    "case": "JANE,Sex,41",
    "twice": f"{SECRET},{SECRET},41",
    "semicolons": f"{SECRET};F;41",
    "tabs": f"{SECRET}\tF\t41",
    "bars": f"{SECRET}|F|41",
    "quoted": f'"{SECRET}, MD",F,41',
    "short": SECRET,
    "long": ",".join([SECRET, *map(str, range(40))]),
    "numbers": "41,1,7",
    "blank": ",,",
    "empty": "",
    "unclosed": f'"{SECRET},F,41',
    "huge": SECRET * 40_000,
}
BYTES = {"not text": b"Jan\xff,F,41", "zeros": b"Jan\x00et,F,41", "marked": b"\xef\xbb\xbfJanet,F,41"}
LINES = {**{name: line.encode() for name, line in FIRST_LINES.items()}, **BYTES}
COMMANDS = {
    "query": ("query", "rows.csv", "count()", "--epsilon", "0.1"),
    "dry run": ("query", "rows.csv", "count()", "--epsilon", "0.1", "--dry-run"),
    "fit": (
        "fit",
        "rows.csv",
        "--target",
        "sex",
        "--model",
        "logistic",
        "--epsilon",
        "1",
        "--out",
        "model.tacit",
    ),
    "check": ("schema", "check", "schema.toml", "--source", "rows.csv"),
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return prepared(tmp_path, monkeypatch, capsys)


def prepared(folder: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command, in a folder with a schema and a ledger."""
    patch.chdir(folder)
    patch.setenv("COLUMNS", "400")
    Path("schema.toml").write_text(SCHEMA)
    Ledger.open("study.db", Budget(epsilon=3.0, delta=1e-5)).close()
    return commands(patch, capsys)


def told(run: Run, command: str) -> set[tuple[int, str]]:
    """What a command says about all these files."""
    words = COMMANDS[command]
    known = () if command == "check" else ("--schema", "schema.toml", "--ledger", "study.db")
    outcomes = set()
    for line in LINES.values():
        Path("rows.csv").write_bytes(line + b"\n30,M,42\n")
        shown = run(*words, *known)
        outcomes.add((shown.code, shown.out + shown.err))
    return outcomes


def check_alike(outcomes: set[tuple[int, str]]) -> None:
    assert all(SECRET not in text and "41" not in text for _, text in outcomes), outcomes
    assert len(outcomes) == 1, outcomes
    ((code, text),) = outcomes
    assert code in (1, 2)
    assert "jane" in text


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "query"])
def test_no_command_says_anything_about_a_first_row(run: Run, command: str) -> None:
    check_alike(told(run, command))
    with Ledger.open("study.db") as book:
        assert not book.entries()


def test_nor_does_the_library(tmp_path: Path) -> None:
    schema = Schema.from_toml(SCHEMA)
    for ending in ("csv", "csv.gz", "tsv"):
        said = set()
        for line in LINES.values():
            path = tmp_path / f"rows.{ending}"
            content = line + b"\n30,M,42\n"
            path.write_bytes(gzip.compress(content) if ending == "csv.gz" else content)
            for opening in (
                lambda path=path: prepare(path, schema, ["jane", "sex"]),
                lambda path=path: source.connect([path, path], schema),
            ):
                with pytest.raises(SourceMissing) as raised:
                    opening()
                said.add((1, f"{raised.value} {raised.value.args} {vars(raised.value)}"))
        check_alike(said)


def shows_names(patch: pytest.MonkeyPatch) -> None:
    """The twin: names of a CSV are shown like those of a Parquet file."""
    require = source._require
    patch.setattr(source, "_require", lambda names, schema, unnamed=None: require(names, schema))


def complains(patch: pytest.MonkeyPatch) -> None:
    """The twin: a first line without any name gets a message of its own."""
    header = files._header

    def complaining(path: str, delimiter: str) -> tuple[str, ...]:
        names = header(path, delimiter)
        if not any(names):
            raise SourceMissing("The first line names no column.", "Add names, such as jane.", path=path)
        return names

    patch.setattr(files, "_header", complaining)


def quotes_nobody(scene: Scene, command: str) -> None:
    check_alike(told(prepared(scene.path, scene.patch, scene.fixture("capsys")), command))
    with Ledger.open("study.db") as book:
        assert not book.entries()


mend(15, "a message that quotes the first row", twin=shows_names)(partial(quotes_nobody, command="query"))
mend(15, "a message that tells an empty first row", twin=complains)(
    partial(quotes_nobody, command="query")
)


def test_a_proper_first_line_is_read_in_whatever_company(tmp_path: Path) -> None:
    """Columns that nobody declared may be called anything, also twice, or by no text."""
    schema = Schema.from_toml(SCHEMA)
    path = tmp_path / "rows.csv"
    path.write_bytes(b"x,jane,x,\xff,sex,\n1,30,2,3,M,4\n")
    made = source.connect(path, schema)
    assert made.run(made.table.select("jane", "sex")).values.tolist() == [[30, "M"]]
    made.close()


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
def test_the_guarantee_says_what_it_assumes_of_a_frame(tmp_path: Path, frame: object) -> None:
    """One 'x' makes ``pd.read_csv`` store a whole column as text: a frame's types are taken as public."""
    schema = Schema({"age": Column("integer", bounds=(0, 120))})
    with Ledger.open(tmp_path / "study.db", Budget(epsilon=3.0)) as book:
        table = tables.open(frame({"age": [41, 30]}), schema=schema, ledger=book)
        release = table.count(epsilon=1.0)
        table.close()
    assert source.STORED in release.guarantee.assumptions
    assert source.STORED in str(release.guarantee)
    path = tmp_path / "rows.csv"
    path.write_text("age\n41\n")
    with Ledger.open(tmp_path / "other.db", Budget(epsilon=3.0)) as book:
        table = tables.open(path, schema=schema, ledger=book)
        assert source.STORED not in table.count(epsilon=1.0).guarantee.assumptions
        table.close()
