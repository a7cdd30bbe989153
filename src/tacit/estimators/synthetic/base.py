"""What synthesizers share: rows are coded by a public schema, and made from what was released."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tacit import _validate
from tacit.data import given
from tacit.errors import InvalidValue
from tacit.estimators.blocks import PrivateRows, TableRows
from tacit.estimators.private import Planned, PrivateEstimator, _Taken
from tacit.estimators.synthetic.domain import Codes, Domain
from tacit.models.description import Description, Pairs
from tacit.randomness import Source
from tacit.schema import Schema

if TYPE_CHECKING:
    from tacit.data.source import PrivateSource
    from tacit.tables import Table

__all__ = ["Synthesizer", "pair_distances"]


class Synthesizer(PrivateEstimator):
    """Base of the synthesizers: ``fit`` reads private rows, ``sample`` makes rows from what it released.

    A subclass sets ``domain_`` and ``population_``, generates cells in :meth:`_generated`, and tells the
    marginals of its model in :meth:`_pair_shares`.
    """

    supervised = False
    fits_tables = True
    schema: Any
    released: ClassVar[tuple[str, ...]] = ("domain_", "population_", "n_features_in_", "feature_names_in_")

    def _domain(self) -> Domain:
        """The public cells of every column."""
        return Domain.of(self.schema, bins=self.bins, transforms=self.transforms, exclude=self.exclude)

    def _declared_width(self) -> int:
        return len(self._domain().attributes)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are synthesized."""
        return self._domain().names

    def plan(self, features: Any = None) -> Planned:
        """What ``fit`` will do and cost, by the schema and the parameters; no data are read."""
        return super().plan(self._declared_width() if features is None else features)

    def fit_table(self, table: Table) -> Any:  # type: ignore[override]
        """Fit to the rows of a private table, where they are: in files, on DuckDB or on Spark.

        As :meth:`PrivateEstimator.fit_table`, but nothing is made of the columns before, and the synthesizer
        itself is returned. Its ``schema`` is the table's, with derived columns, and is left out or has the
        same columns; that of a filtered table declares no population, which would be that of all rows.
        Columns are counted block by block, and the model is that of ``fit`` to the same rows in memory with
        the same ``random_state``, bit by bit.

        >>> import pandas as pd, pathlib, tacit, tempfile
        >>> from tacit.estimators import HistogramSynthesizer
        >>> people = pd.DataFrame({"smokes": [True, False] * 500, "ill": [True, False] * 500})
        >>> schema = tacit.Schema({"smokes": tacit.Column("boolean"), "ill": tacit.Column("boolean")})
        >>> place = pathlib.Path(tempfile.mkdtemp()) / "study.db"
        >>> ledger = tacit.Ledger.open(place, budget=tacit.Budget(1.0))
        >>> with tacit.tables.open(people, schema=schema, ledger=ledger) as table:
        ...     model = HistogramSynthesizer(0.5).fit_table(table)
        >>> model.sample(10).columns.tolist(), ledger.spent().epsilon
        (['smokes', 'ill'], 0.5)
        >>> ledger.close()
        """
        known = replace(table.schema, population=None) if table.conditions else table.schema
        said = self.schema
        if said is not None and dict(Schema.of(said).columns) != dict(known.columns):
            raise InvalidValue("schema", "one of other columns", "left out, or that of the table")
        self.schema = known
        try:
            rows = self.table_rows(table.source, table.expression)
            return self._fit_view(table, self._declared_width(), rows)
        except BaseException:
            self.schema = said
            raise

    def table_rows(self, source: PrivateSource, table: Any) -> TableRows:
        """The rows of a cleaned table on an engine as cells, for :meth:`fit_blocks`; none is read yet."""
        domain = self._domain()

        def block(frame: Any) -> PrivateRows:
            return PrivateRows(domain.codes(frame), None, None)

        return TableRows(source, table, domain.names, block, _named(domain))

    def _taken(self, X: Any, y: Any, units: Any, weights: Any = None) -> _Taken:
        """The cells of the rows, each from that row and the schema alone."""
        domain = self._domain()
        codes = domain.codes(X)
        found = None if units is None else given.column("units", units, len(codes))
        return _Taken(len(domain.names), _named(domain), codes, None, found, (given.STORED,))

    def _declared_population(self) -> int | None:
        """The public number of rows: the parameter, or that of the schema."""
        if self.population is not None:
            return _validate.count("population", self.population, 1)
        known = Schema.of(self.schema).population
        return None if known is None else max(1, known)

    def _generated(self, rows: int, random: np.random.Generator) -> NDArray[np.int64]:
        """The cells of so many rows: (rows, attributes)."""
        raise NotImplementedError

    def sample(self, rows: int | None = None, *, random_state: int | None = None) -> Any:
        """A synthetic table of so many rows, or of as many as ``population_`` says, as a pandas frame.

        It has the columns of the schema, each in its declared type. Post-processing of what was released:
        it may be repeated as often as wanted, and costs nothing.
        """
        from tacit.data.made import made_frame

        check_is_fitted(self, "guarantee_")
        number = max(1, round(self.population_)) if rows is None else _validate.count("rows", rows, 0)
        random = np.random.default_rng(Source().bits(128) if random_state is None else random_state)
        domain = Domain.from_dict(self.domain_)
        codes = self._generated(number, random)
        return made_frame(
            {
                attribute.name: attribute.drawn(codes[:, place], random.random(number))
                for place, attribute in enumerate(domain.attributes)
            },
            domain.schema,
        )

    def _pair_shares(self) -> dict[tuple[int, int], NDArray[np.float64]]:
        """The share of the rows in each cell of every two attributes, as the model has it."""
        raise NotImplementedError

    def dependences(self) -> NDArray[np.float64]:
        """How far every two columns are from independent in the model: total variation, 0 to 1.

        A symmetric matrix in the order of ``feature_names_in_``, made from what was released.
        """
        check_is_fitted(self, "guarantee_")
        found = np.zeros((self.n_features_in_,) * 2)
        for (a, b), table in self._pair_shares().items():
            alone = np.multiply.outer(table.sum(axis=1), table.sum(axis=0))
            found[a, b] = found[b, a] = float(np.abs(table - alone).sum()) / 2
        return found

    def describe(self, names: Sequence[str] | None = None) -> Description:
        """What the fitted model says of itself, with the dependences between its columns."""
        pairs = Pairs(self._names(names), tuple(map(tuple, self.dependences().tolist())))
        return replace(super().describe(names), dependences=pairs)

    def distances(self, X: Any, made: Any = None) -> NDArray[np.float64]:
        """How far the two-way marginals of a synthetic table are from those of X: total variation, 0 to 1.

        NOT PRIVATE: the distances are exact and tell of the rows of X. They are for rows that are public, or
        for the eyes of whoever may see the rows of X. Numbers are compared by the bins of the model. ``made``
        is a synthetic table; left out, one of ``population_`` rows is drawn. The diagonal is about single
        columns.
        """
        check_is_fitted(self, "guarantee_")
        domain = Domain.from_dict(self.domain_)
        tables = [domain.codes(each) for each in (X, self.sample() if made is None else made)]
        return pair_distances(domain.cells, *tables)

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        state, arrays = super()._to_saved()
        state["params"]["schema"] = Schema.of(self.schema)
        return state, arrays

    def _facts(self) -> tuple[tuple[str, str], ...]:
        domain = Domain.from_dict(self.domain_)
        size = math.log10(math.prod(map(float, domain.cells)))
        return (
            ("columns", str(len(domain.names))),
            ("cells", f"{sum(domain.cells)} in single columns, 10^{size:.1f} in all"),
            ("rows", f"{self.population_:.0f}, as declared or released"),
        )


def _named(domain: Domain) -> dict[str, Any]:
    names = np.array(domain.names, dtype=object)
    return {"n_features_in_": len(names), "feature_names_in_": names}


def pair_distances(cells: Sequence[int], first: Codes, second: Codes) -> NDArray[np.float64]:
    """The total variation distance of two coded tables in every two columns; in single ones on the diagonal.

    >>> rows, others = np.array([[0, 0], [1, 1]]), np.array([[0, 1], [1, 0]])
    >>> pair_distances((2, 2), rows, others).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    found = np.zeros((len(cells), len(cells)))
    for a in range(len(cells)):
        for b in range(a, len(cells)):
            one, other = (_shares(each, a, b, cells) for each in (first, second))
            found[a, b] = found[b, a] = float(np.abs(one - other).sum()) / 2
    return found


def _shares(codes: Codes, a: int, b: int, cells: Sequence[int]) -> NDArray[np.float64]:
    flat = codes[:, a].astype(np.int64) * cells[b] + codes[:, b]
    return np.bincount(flat, minlength=cells[a] * cells[b]) / max(len(codes), 1)
