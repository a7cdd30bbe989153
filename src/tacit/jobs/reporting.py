"""Reports, from a saved model and a ledger to a page; no data are needed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tacit._writing import write
from tacit.errors import TacitError
from tacit.jobs.books import Place
from tacit.jobs.files import spare
from tacit.ledger import Ledger

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
    """
    place = Path(out)
    spare(place, overwrite, model, ledger, *compare)
    if _is_ledger(model):
        if ledger is not None or compare:
            raise TacitError(f"{model} is a ledger.", "Leave out ledger= and compare=, which are for models.")
        return _ledger_report(model, place, dataset, responsible, unit_name, overwrite)
    from tacit import load

    fitted, others = load(model), [(load(path), Path(path).name) for path in compare]
    with ExitStack() as stack:
        books: list[Ledger] = []
        if isinstance(ledger, Ledger):
            books = [ledger]
        elif ledger is not None:
            names = [dataset] if dataset else Ledger.datasets_in(ledger)
            books = [stack.enter_context(Ledger.open(ledger, dataset=name)) for name in names]
        write_page(
            place, fitted, Path(model).name, books, others,
            responsible=responsible, unit_name=unit_name, overwrite=overwrite,
        )  # fmt: skip
    return place


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
) -> None:
    """Draw the page about a model and what these ledgers say was spent, and write it."""
    from tacit.report.facts import Facts, Spending
    from tacit.report.model import model_page

    spending = [Spending.of(book) for book in books if book is not None]
    compared = [Facts.of(each, called) for each, called in others]
    facts = Facts.of(model, name, unit_name=unit_name, responsible=responsible)
    write(out, model_page(facts, spending, compared), overwrite=overwrite)
