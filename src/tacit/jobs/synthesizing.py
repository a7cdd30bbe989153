"""A synthetic table, from a file of private rows to a file of rows that were made from noisy counts."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import _validate
from tacit.errors import CannotLearn, InvalidValue, TacitError
from tacit.guarantee import Guarantee
from tacit.jobs import books, files
from tacit.jobs.fitting import PUBLIC
from tacit.jobs.job import Due, Job, Say, silent, warned, whole

if TYPE_CHECKING:
    from tacit.estimators.blocks import TableRows
    from tacit.estimators.synthetic.base import Synthesizer
    from tacit.ledger import Payment
    from tacit.schema import Schema

__all__ = ["SynthesizeJob", "Synthesized", "plan_synthesize", "synthesize"]


@dataclass(frozen=True)
class Synthesized:
    """What was made: a synthetic table, the model that made it, and where both are kept."""

    table: Any
    """A pandas frame of the synthetic rows."""
    model: Any
    guarantee: Guarantee
    path: Path | None
    """The file of the table; another than ``out=`` where that could not be written at last."""
    model_path: Path | None
    """The file of the model; another than ``model_out=`` where that could not be written at last."""


class SynthesizeJob(Job):
    """A synthetic table that is planned: all is public but the rows, which are read inside the charge."""

    def __init__(
        self, source: Any, schema: Schema, model: Synthesizer, payment: Payment, label: str, rows: int | None
    ) -> None:
        self.source, self.schema, self.model, self.payment = source, schema, model, payment
        self.label, self.rows = label, rows
        self.out: Path | None = None
        self.model_out: Path | None = None
        self.overwrite = False
        self.planned = model.plan()
        self._opened: Any = None
        planned, kind = self.planned, self.planned.kind if model.random_state is None else "seeded"
        super().__init__([Due(payment, planned.event, label, planned.epsilon, planned.delta, kind)])

    @property
    def columns(self) -> list[str]:
        """The columns that are read, and made."""
        return list(self.model.columns)

    def find(self, delimiter: str | None, stack: ExitStack) -> None:
        """Find the file and its columns; no row is read."""
        from tacit.data.reading import prepare

        self._opened = prepare(self.source, self.schema, self.columns, delimiter=delimiter)
        stack.callback(self._opened.close)

    def run(self, say: Say = silent, warn: Say = warned) -> Synthesized:
        """Charge, read, fit, save the model, generate, write: no failure loses what was paid for."""
        from tacit import save
        from tacit.data.made import write_frame

        self._opened.require_open()
        for doubt in self.planned.doubts:
            warn(doubt)
        assumptions = (PUBLIC, *self._opened.assumptions)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CannotLearn)  # it was told of already
            with ExitStack() as passes:
                self.model.fit_blocks(
                    len(self.columns), lambda: self._blocks(say, passes), assumptions=assumptions
                )
        if self.model.event_ != self.dues[0].event:
            raise TacitError("The fit did something else than what was planned.", "Please report this.")
        model, dialect, place, table_place = self.model, self.schema.csv, self.model_out, self.out
        if place is not None:
            place = files.kept(
                lambda path, over: save(model, path, overwrite=over), place, self.overwrite, warn
            )
        with files.rescued(lambda path: save(model, path), place, "model.tacit", warn):
            say("Generating rows")
            table = model.sample(self.rows, random_state=model.random_state)
            if table_place is not None:
                table_place = files.kept(
                    lambda path, over: write_frame(table, path, dialect, overwrite=over),
                    table_place, self.overwrite, warn, "synthetic table",
                )  # fmt: skip
        return Synthesized(table, model, model.guarantee_, table_place, place)

    def _blocks(self, say: Say, passes: ExitStack) -> TableRows:
        """The private rows where they are. The estimator calls this inside the charge.

        They are paid for once: the source is closed after these ``passes``.
        """
        passes.callback(self._opened.close)
        say(f"Fitting the {self.label}, block by block")
        return self.model.table_rows(self._opened, self._opened.table)


def plan_synthesize(
    source: Any,
    *,
    schema: Schema | str | os.PathLike[str],
    epsilon: float,
    ledger: books.Place,
    delta: float = 0.0,
    dataset: str = "default",
    method: str = "marginals",
    rows: int | None = None,
    out: str | os.PathLike[str] | None = None,
    model_out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    bins: int | Mapping[str, Any] | None = None,
    transforms: Mapping[str, str] | None = None,
    exclude: Sequence[str] = (),
    rounds: int | None = None,
    label: str | None = None,
    delimiter: str | None = None,
    random_state: int | None = None,
) -> SynthesizeJob:
    """Plan :func:`synthesize`: check what is public, find columns; no row is read, nothing is charged."""
    from tacit.estimators.registry import SYNTHESIZERS
    from tacit.schema import Schema

    name = _validate.choice("method", method, tuple(SYNTHESIZERS))
    _validate.epsilon(epsilon)
    _validate.delta(delta)
    if rows is not None:
        _validate.count("rows", rows, 1)
    known = schema if isinstance(schema, Schema) else Schema.load(schema)
    if delimiter is not None:
        known = replace(known, csv=replace(known.csv, delimiter=delimiter))
    chosen = {option: each for option, each in (("bins", bins), ("rounds", rounds)) if each is not None}
    if name == "histogram" and rounds is not None:
        raise InvalidValue("rounds", rounds, "left out for the histogram", "It chooses no marginals.")
    told = label or "synthetic table"
    with ExitStack() as stack:
        payment = books.agreed(ledger, dataset, unit=known.unit, delta=delta, label=told, stack=stack)
        model = SYNTHESIZERS[name](
            epsilon=epsilon, delta=delta, schema=known, transforms=dict(transforms or {}) or None,
            exclude=list(exclude), relation=str(payment.relation), rows_per_unit=payment.unit.rows,
            ledger=payment.ledger, label=told, random_state=random_state, **chosen,
        )  # fmt: skip
        job = SynthesizeJob(source, known, model, payment, told, rows)
        job.overwrite = overwrite
        if out is not None:
            job.out = Path(out)
            files.writable(job.out, overwrite, source, schema, ledger, model_out)
        if model_out is not None:
            job.model_out = Path(model_out)
            files.writable(job.model_out, overwrite, source, schema, ledger, out)
        job.find(delimiter, stack)
        return job.holding(stack)


@whole(plan_synthesize)
def synthesize(job: SynthesizeJob) -> Synthesized:
    """Make a synthetic table of a file of private rows: charge, then read, then generate.

    ``source`` is a CSV or Parquet file, or a pattern of several, or an Ibis table on DuckDB or Spark, whose
    rows stay on its engine; ``schema`` says what is public about it: all columns need categories or bounds,
    or are left out with ``exclude``. ``method`` is ``"marginals"``
    (:class:`~tacit.estimators.MarginalSynthesizer`) or, for few columns, ``"histogram"``
    (:class:`~tacit.estimators.HistogramSynthesizer`); ``bins``, ``transforms`` and ``rounds`` are theirs.
    The table has ``rows`` rows, or else as many as the schema declares, or as noisy counts tell. It is
    written to ``out``, as Parquet if the name ends so, else as CSV in the dialect of the schema; the model,
    which can make further rows at no cost, to ``model_out``. Guarantee: that of the estimator, under the
    relation and for the unit of the ledger; it covers the table, however it is used.
    """
    return job.run()
