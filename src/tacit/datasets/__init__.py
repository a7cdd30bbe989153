"""Data that come with the package, for examples and first steps: Adult, from the census of 1994.

Becker and Kohavi, "Adult", UCI Machine Learning Repository, 1996, https://doi.org/10.24432/C5XW20; licensed
under CC BY 4.0. What was changed is in the README beside this file.

>>> files = adult()
>>> files.train.name, files.test.name, files.schema.name
('adult_train.csv.gz', 'adult_test.csv.gz', 'adult.toml')
>>> from tacit.schema import Schema
>>> Schema.load(files.schema)["income"].categories
('<=50K', '>50K')
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Files", "adult"]

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Files:
    """Where a data set is: rows to fit, rows to test on, and what is publicly known about both."""

    train: Path
    test: Path
    schema: Path


def adult() -> Files:
    """Adult: 32,561 and 16,281 people, 13 attributes, and whether they earn over 50,000 dollars a year."""
    return Files(_HERE / "adult_train.csv.gz", _HERE / "adult_test.csv.gz", _HERE / "adult.toml")
