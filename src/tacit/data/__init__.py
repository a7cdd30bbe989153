"""Where private rows come from, and how one value of them is cleaned.

The road of a value, with the module for each step::

    CSV, Parquet ── files ──┐
    frames ──────── frames ─┼─▶ source ─▶ cleaning.expressions ──▶ a cleaned table in the engine
    Ibis tables ─── engine ─┘                                        │              │
                                                       reading ◀─────┘              └─▶ tacit.tables
                                                          │
                                                          ▼
    frames, arrays, lists of rows ──────────▶ columns ─▶ cleaning.values ─▶ preprocessor ─▶ a matrix and
                                                                                            its features
    matrices, labels, units as handed over ─▶ given ────▶ units ─────────────────────────▶ estimators
    images and arrays to train on ──────────▶ examples ──────────────────────────────────▶ training

One rule says what a value becomes, :mod:`tacit.data.cleaning.rule`. It is carried out in an engine and in
memory, and both must agree. Everything is row by row and total: what a row becomes depends on that row and on
public facts, and no value raises. Names, types and shapes are public and looked at first. Rows are read
later, once they are paid for; nothing here adds noise to them.

Other rooms import from the modules, or the names below from here; a module is loaded when it is first used.

>>> from tacit import data
>>> from tacit.schema import Column, Schema
>>> known = Schema({"age": Column("integer", bounds=(20, 60)), "smokes": Column("boolean")})
>>> data.Preprocessor(known).transform({"age": [20, "40", 99], "smokes": ["?", "Yes", 0]}).tolist()
[[-1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.data.features import Features, Known, box, known
    from tacit.data.preprocessor import Preprocessor
    from tacit.data.reading import prepare, private_rows
    from tacit.data.source import UNIT, PrivateSource, connect
    from tacit.data.units import bounded_units, unit_numbers

__all__ = [
    "UNIT",
    "Features",
    "Known",
    "Preprocessor",
    "PrivateSource",
    "bounded_units",
    "box",
    "connect",
    "known",
    "prepare",
    "private_rows",
    "unit_numbers",
]

_HOME = {
    **dict.fromkeys(("Features", "Known", "box", "known"), "features"),
    "Preprocessor": "preprocessor",
    **dict.fromkeys(("prepare", "private_rows"), "reading"),
    **dict.fromkeys(("UNIT", "PrivateSource", "connect"), "source"),
    **dict.fromkeys(("bounded_units", "unit_numbers"), "units"),
}


def __getattr__(name: str) -> Any:
    """Modules are imported on first use: some of them need Ibis, pandas or scikit-learn."""
    if name in _HOME:
        return getattr(import_module(f"tacit.data.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tacit.data' has no attribute {name!r}")
