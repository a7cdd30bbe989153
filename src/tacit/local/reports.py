"""Reports in a file: a CSV with one report in each line, and beside it what the collector has to know.

The file ``reports.csv`` has one column, named after the column that was randomized. ``reports.csv.toml``
names the oracle, ε and the categories, all of them public; the estimate needs nothing else. A report is
written as

``category``
    the name of the category, by randomized response;
``number``
    a whole number, by local hashing and Hadamard response;
``hex``
    the bytes of a row of bits in hexadecimal digits, by unary encodings and subset selection: category c is
    bit c % 8 of byte c // 8.

What is in the file was randomized before, so reading, counting and estimating it costs no budget. A file of
reports that people sent may hold anything: bytes that are no text, a quotation mark that is never closed.
Such a line costs its own report, and no other.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit._toml import literal
from tacit._writing import write
from tacit.errors import InvalidValue, SourceMissing, TacitError
from tacit.guarantee import NOISE_KINDS
from tacit.local.bits import width
from tacit.local.oracle import FrequencyOracle
from tacit.local.recommending import ORACLES
from tacit.local.response import RandomizedResponse
from tacit.local.subset import SubsetSelection
from tacit.local.unary import OptimizedUnary, SymmetricUnary

if TYPE_CHECKING:
    from tacit.local.release import Frequencies

__all__ = ["METHODS", "Reports", "description_of", "method_of", "require_writable"]


def method_of(kind: type[FrequencyOracle]) -> str:
    """The name of an oracle on the command line and in files.

    >>> method_of(RandomizedResponse)
    'randomized-response'
    """
    name = kind.__name__
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")


METHODS: dict[str, type[FrequencyOracle]] = {method_of(kind): kind for kind in ORACLES}
"""The oracles whose reports can be written to a file."""

ROWS = (OptimizedUnary, SymmetricUnary, SubsetSelection)
"""The oracles whose reports are rows of bits."""

_BESIDE = ".toml"
_OWN = ("column", "method", "reports_are", "noise")
_LONGEST = 2**31 - 1


def description_of(path: str | os.PathLike[str]) -> Path:
    """Where the description of a file of reports is: beside it, with .toml after its name.

    >>> description_of("reports.csv").name
    'reports.csv.toml'
    """
    return Path(os.fspath(path) + _BESIDE)


@dataclass(frozen=True)
class Reports:
    """The reports of many people about one column, as ``oracle.randomize`` made them, or as a file held them.

    Guarantee: that of the oracle, for every person who sent one report. Everything here is post-processing.
    ``unreadable`` is the number of lines that hold no report of this oracle; they count as refused.

    >>> import tempfile, tacit
    >>> oracle = tacit.local.OptimizedUnary(categories=["red", "green", "blue"], epsilon=2.0, random_state=1)
    >>> reports = Reports(oracle, oracle.randomize(["red"] * 700 + ["blue"] * 300), "colour")
    >>> path = Path(tempfile.mkdtemp()) / "reports.csv"
    >>> reports.save(path)
    >>> path.read_text().splitlines()[:3]
    ['colour', '02', '00']
    >>> Reports.load(path).estimate().value.round(1).tolist()
    [0.7, -0.0, 0.3]
    """

    oracle: FrequencyOracle
    values: NDArray[Any]
    column: str = "report"
    unreadable: int = 0
    noise: str = ""
    """The kind of noise of the reports: that of the oracle, unless a file says otherwise."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", self.noise or self.oracle.noise)

    def __len__(self) -> int:
        return len(self.values)

    def estimate(self) -> Frequencies:
        """The frequencies of all categories among those who reported."""
        if not len(self):
            raise InvalidValue("reports", "none", "at least one that the mechanism can make")
        found = self.oracle.estimate(self.values)
        found.refused += self.unreadable
        found.guarantee = replace(found.guarantee, noise=self.noise)
        return found

    def texts(self) -> list[str]:
        """Each report as it is written to a file."""
        if _kind(self.oracle) == "category":
            names = _names(self.oracle)
            return [names[code] for code in self.values.tolist()]
        if _kind(self.oracle) == "hex":
            return [row.tobytes().hex() for row in self.values]
        return [str(code) for code in self.values.tolist()]

    @classmethod
    def of_texts(cls, oracle: FrequencyOracle, texts: Iterable[str], column: str = "report") -> Reports:
        """Reports from the column of a file; a text that is none is left out and counted, never an error."""
        read = _reader(oracle)
        items = list(texts)
        found = [report for report in map(read, items) if report is not None]
        values: NDArray[Any]
        if _kind(oracle) == "hex":
            values = np.frombuffer(b"".join(found), dtype=np.uint8).reshape(len(found), width(oracle.size))
        else:
            values = np.array(found, dtype=np.int64)
        return cls(oracle, values, column, len(items) - len(found))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the CSV file, and its description beside it.

        An old description is removed before its reports are replaced: an interruption leaves reports
        without a description, which are refused, and never with that of other reports.
        """
        require_writable(self.oracle)
        texts, beside = self.texts(), description_of(path)
        delicate = any("\r" in text for text in (self.column, *_names(self.oracle)))
        delicate = delicate or self.column.startswith("\ufeff")
        stream = io.StringIO()
        writer = csv.writer(
            stream, lineterminator="\n", quoting=csv.QUOTE_ALL if delicate else csv.QUOTE_MINIMAL
        )
        writer.writerow([self.column])
        writer.writerows([text] for text in texts)
        if beside.exists() and not overwrite:
            advice = "Name another file, or add overwrite=True."
            raise TacitError(f"{os.fspath(beside)!r} exists and was left as it is.", advice, path=beside)
        if overwrite:
            with suppress(OSError):
                beside.unlink()
        write(path, stream.getvalue(), overwrite=overwrite)
        write(beside, self._description(), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Reports:
        """Read a file of reports and its description; further columns are allowed, and not read."""
        oracle, column, noise = _described(description_of(path))
        try:
            with (
                Path(path).open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream,
                _long_fields(),
            ):
                texts = _column(stream, column, _reader(oracle), os.fspath(path))
        except (OSError, csv.Error):
            raise SourceMissing(
                f"{os.fspath(path)} cannot be read as a CSV file in UTF-8.", "Check the name of the file."
            ) from None
        return replace(cls.of_texts(oracle, texts, column), noise=noise)

    def _description(self) -> str:
        told = "# How the reports in the CSV file beside this one were made. All of this is public."
        facts: dict[str, Any] = {
            "column": self.column,
            "method": method_of(type(self.oracle)),
            "reports_are": _kind(self.oracle),
            "noise": self.noise,
            **_parameters(self.oracle),
        }
        return "\n".join([told, *(f"{name} = {literal(value)}" for name, value in facts.items())]) + "\n"


def require_writable(oracle: FrequencyOracle) -> None:
    """Refuse categories that a file cannot hold, or that would be written alike; all of them are public.

    >>> require_writable(RandomizedResponse(categories=[1, "1"], epsilon=1.0))
    Traceback (most recent call last):
    ...
    tacit.errors.InvalidValue: categories must be different when written as text, got (1, '1'). ...
    """
    if isinstance(oracle.categories, int):
        return
    named = _plain(oracle.categories)
    for name in named:
        text = isinstance(name, str) and name.encode("utf-8", "replace").decode() == name
        if not text and not isinstance(name, bool | int | float | date):
            raise InvalidValue(
                "categories", type(name), "texts in UTF-8, numbers, truth values or dates, to be in a file",
                "Declare categories of one of these types.",
            )  # fmt: skip
    if _kind(oracle) == "category" and len(set(_names(oracle))) < len(named):
        raise InvalidValue(
            "categories", oracle.categories, "different when written as text",
            "Declare all of them as text, or all as numbers.",
        )  # fmt: skip


def _plain(categories: Iterable[Any]) -> tuple[Any, ...]:
    """The categories with the values of Python in place of those of NumPy."""
    return tuple(each.item() if isinstance(each, np.generic) else each for each in categories)


def _column(stream: TextIO, column: str, read: Callable[[str], Any], path: str) -> list[str]:
    """The texts of one column of a CSV file, one for each line that may hold a report."""
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in stream:
            taken.append(line)
            yield line

    records = csv.reader(lines())
    header = next(records, [])
    if column not in header:
        raise InvalidValue(
            "column", column, f"in the first line of {path}",
            "The first line names the columns; one of them holds the reports.",
        )  # fmt: skip
    place, texts = header.index(column), []
    taken.clear()
    for record in records:
        found = [record]
        if len(taken) > 1 and (place >= len(record) or read(record[place]) is None):
            found = [next(csv.reader([line]), []) for line in taken]
        texts += [each[place] if place < len(each) else "" for each in found]
        taken.clear()
    return texts


@contextmanager
def _long_fields() -> Iterator[None]:
    """Read fields of any length: those of a unary encoding are long, and so may those of others be."""
    before = csv.field_size_limit(_LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _parameters(oracle: FrequencyOracle) -> dict[str, Any]:
    """The public parameters of an oracle."""
    made = [each.name for each in dataclasses.fields(oracle) if each.init and each.name != "random_state"]
    found = {name: getattr(oracle, name) for name in made}
    if not isinstance(oracle.categories, int):
        found["categories"] = _plain(oracle.categories)
    return found


def _kind(oracle: FrequencyOracle) -> str:
    """How the reports of an oracle are written."""
    if isinstance(oracle, RandomizedResponse):
        return "category"
    return "hex" if isinstance(oracle, ROWS) else "number"


def _names(oracle: FrequencyOracle) -> list[str]:
    """The categories as text: truth values as in CSV files, numbers in digits."""
    named = range(oracle.size) if isinstance(oracle.categories, int) else _plain(oracle.categories)
    return [str(name).lower() if isinstance(name, bool) else str(name) for name in named]


def _reader(oracle: FrequencyOracle) -> Any:
    """A function from one text to a report, None where it is not written like one."""
    kind = _kind(oracle)
    if kind == "category":
        return {name: code for code, name in enumerate(_names(oracle))}.get
    size = width(oracle.size)

    def number(text: str) -> int | None:
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None

    def row(text: str) -> bytes | None:
        try:
            found = bytes.fromhex(text)
        except ValueError:
            return None
        return found if len(found) == size else None

    return row if kind == "hex" else number


def _described(path: Path) -> tuple[FrequencyOracle, str, str]:
    """The oracle, the name of the column and the kind of noise in a description."""
    try:
        facts = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SourceMissing(
            f"{path}, which says how the reports were made, is not there.",
            "tacit local randomize writes it beside the reports; keep both together.",
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise SourceMissing(
            f"{path} is no description of reports.", "Restore it as tacit local randomize wrote it."
        ) from None
    return _oracle(path, facts)


def _oracle(path: Path, facts: Mapping[str, Any]) -> tuple[FrequencyOracle, str, str]:
    for name in ("column", "method", "noise", "epsilon", "categories"):
        if name not in facts:
            raise InvalidValue(name, "nothing", f"in {path}", "Restore the file as it was written.")
    if not isinstance(facts["column"], str):
        raise InvalidValue("column", facts["column"], "a name")
    kind = METHODS[_validate.choice("method", facts["method"], tuple(METHODS))]
    parameters = {name: value for name, value in facts.items() if name not in _OWN}
    allowed = [each.name for each in dataclasses.fields(kind) if each.init and each.name != "random_state"]
    for name in parameters:
        if name not in allowed:
            raise InvalidValue(f"key of {path}", name, "one of " + ", ".join((*_OWN, *allowed)))
    return kind(**parameters), facts["column"], _validate.choice("noise", facts["noise"], NOISE_KINDS)
