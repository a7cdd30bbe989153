"""Reports, from a saved model and a ledger to a page; no data are needed."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit._writing import write
from tacit.audit import AuditResult
from tacit.errors import InvalidValue, SourceMissing, TacitError
from tacit.jobs.books import Place
from tacit.jobs.files import spare
from tacit.ledger import Ledger
from tacit.relations import Unit

if TYPE_CHECKING:
    from tacit.report.pairs import Closeness

__all__ = ["report", "write_page"]


def report(
    model: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    ledger: Place | None = None,
    dataset: str | None = None,
    compare: Sequence[str | os.PathLike[str]] = (),
    responsible: str | None = None,
    unit_name: str | None = None,
    against: str | os.PathLike[str] | None = None,
    against_public: bool = False,
    curator: bool = False,
    delimiter: str | None = None,
    audits: Sequence[str | os.PathLike[str]] = (),
    overwrite: bool = False,
) -> Path:
    """Write a page about a saved model, and return its file: guarantee, cost, utility, coefficients.

    Where ``model`` is a ledger, a file or a database URL, the page is about that: who is protected, what was
    released when, what it cost, what remains, and whether the record holds.

    ``ledger`` lists what was charged to it, or to one ``dataset`` of it; ``compare`` names files of other
    models of the same target, whose utility is drawn against ε. ``responsible`` names the person or office
    that answers for the data, and ``unit_name`` what people call one of those who are protected
    (``"patient"``); left out, both are what the schema of the model declares. Nothing else is read: whatever
    the page shows about the data was charged when it was measured, or was measured on public rows.

    Of a synthesizer, ``against`` names rows that its rows are compared with, pair of columns by pair. The
    distances are exact: the rows have to be public, with ``against_public``, or with ``curator`` the page is
    NOT PRIVATE, for the eyes of whoever may see the rows, and says so.

    ``audits`` names files of audits, as ``tacit audit --format json`` prints them, which the page shows.
    """
    place = Path(out)
    spare(place, overwrite, model, ledger, against, *compare, *audits)
    if against is None and (against_public or curator):
        raise InvalidValue("against", None, "given with against_public or curator")
    if against is not None and against_public == curator:
        advice = "Distances are exact: add against_public=True for public rows, or curator=True for you."
        raise InvalidValue("against", os.fspath(against), "declared public, or for the curator", advice)
    if _is_ledger(model):
        if ledger is not None or compare or audits or against is not None:
            raise TacitError(f"{model} is a ledger.", "Leave out ledger= and compare=, which are for models.")
        return _ledger_report(model, place, dataset, responsible, unit_name, overwrite)
    from tacit import load

    fitted, others = load(model), [(load(path), Path(path).name) for path in compare]
    close = None if against is None else _closeness(fitted, model, against, against_public, delimiter)
    with ExitStack() as stack:
        books: list[Ledger] = []
        if isinstance(ledger, Ledger):
            books = [ledger]
        elif ledger is not None:
            names = [dataset] if dataset else Ledger.datasets_in(ledger)
            books = [stack.enter_context(Ledger.open(ledger, dataset=name)) for name in names]
        write_page(
            place, fitted, Path(model).name, books, others,
            responsible=responsible, unit_name=unit_name, overwrite=overwrite, closeness=close,
            audits=[_audit_of(each) for each in audits],
        )  # fmt: skip
    return place


def _audit_of(path: str | os.PathLike[str]) -> AuditResult:
    """The audit in a file of JSON."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}."
        raise SourceMissing(problem, "Name the file of an audit.") from None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidValue("audit", os.fspath(path), "a file that tacit audit --format json printed")
    return AuditResult.from_dict(found)


def _closeness(
    fitted: Any,
    model: str | os.PathLike[str],
    against: str | os.PathLike[str],
    public: bool,
    delimiter: str | None,
) -> Closeness:
    """How far the rows of a synthesizer are from those of a file, exactly."""
    from tacit.data.reading import private_rows
    from tacit.models.description import Pairs
    from tacit.report.pairs import Closeness

    if not hasattr(fitted, "distances"):
        raise InvalidValue("model", os.fspath(model), "one that tacit synthesize wrote, to use against=")
    known, columns = replace(fitted.schema, unit=Unit()), tuple(fitted.feature_names_in_.tolist())
    found = fitted.distances(private_rows(against, known, columns, delimiter=delimiter))
    return Closeness(Pairs(columns, tuple(map(tuple, found.tolist()))), public)


def _is_ledger(place: str | os.PathLike[str]) -> bool:
    """Whether this is a database URL, or a file of the database that ledgers are kept in."""
    if "://" in str(place):
        return True
    try:
        with open(place, "rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def _ledger_report(
    location: str | os.PathLike[str],
    out: Path,
    dataset: str | None,
    responsible: str | None,
    unit_name: str | None,
    overwrite: bool,
) -> Path:
    from tacit.report.ledger import Verification, ledger_page

    names = [dataset] if dataset else Ledger.datasets_in(location)
    with ExitStack() as stack:
        books = [stack.enter_context(Ledger.open(location, dataset=name)) for name in names]
        checked = Verification.of(books[0])
        page = ledger_page(books, checked, responsible=responsible, unit_name=unit_name)
        write(out, page, overwrite=overwrite)
    if checked.problem is not None:
        warnings.warn(f"{checked.problem} The page says so.", UserWarning, stacklevel=3)
    return out


def write_page(
    out: Path,
    model: Any,
    name: str,
    books: Iterable[Ledger | None],
    others: Iterable[tuple[Any, str]] = (),
    *,
    responsible: str | None = None,
    unit_name: str | None = None,
    overwrite: bool,
    closeness: Closeness | None = None,
    audits: Sequence[AuditResult] = (),
) -> None:
    """Draw the page about a model and what these ledgers say was spent, and write it."""
    from tacit.report.facts import Facts, Spending
    from tacit.report.model import model_page

    spending = [Spending.of(book) for book in books if book is not None]
    compared = [Facts.of(each, called) for each, called in others]
    facts = Facts.of(model, name, unit_name=unit_name, responsible=responsible)
    write(out, model_page(facts, spending, compared, closeness, audits), overwrite=overwrite)
