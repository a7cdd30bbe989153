"""A fit, from a file of private rows to a saved model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import _validate
from tacit.errors import CannotLearn, InvalidValue, TacitError
from tacit.guarantee import Guarantee
from tacit.jobs import books, files, testing
from tacit.jobs.job import Due, Job, Say, called, silent, warned, whole
from tacit.jobs.same import refuse_same_file

if TYPE_CHECKING:
    from tacit.data.preprocessor import Preprocessor
    from tacit.data.splitting import Side
    from tacit.estimators.blocks import TableRows
    from tacit.estimators.private import Planned, PrivateEstimator
    from tacit.evaluation import Evaluation
    from tacit.ledger import Payment
    from tacit.schema import Schema

__all__ = ["FitJob", "Fitted", "declared_target", "fit", "plan_fit"]

PUBLIC = "what the schema says was known without the data"


@dataclass(frozen=True)
class Fitted:
    """What a fit made: a pipeline with its guarantee, how good it is, and where it is kept."""

    model: Any
    guarantee: Guarantee
    evaluation: Evaluation | None
    """Its figures on the rows of ``test=``, if there were any."""
    path: Path | None
    """The file of the model; another than ``out=`` where that could not be written at last."""


class FitJob(Job):
    """A fit that is planned: everything about it is public but the rows, which are read inside the charge."""

    def __init__(
        self,
        source: Any,
        maker: Preprocessor,
        estimator: Any,
        payment: Payment,
        label: str,
        test: testing.RowTest | None = None,
        side: Side | None = None,
    ) -> None:
        self.source = source
        self.side = side
        """The part of the rows that is fitted to, where another is set aside for the test."""
        self.maker = maker
        self.estimator = estimator
        self.planned = _planned(estimator, maker)
        self.payment = payment
        self.label = label
        self.test = test
        self.out: Path | None = None
        self.overwrite = False
        self._opened: Any = None
        planned, kind = self.planned, self.planned.kind if estimator.random_state is None else "seeded"
        due = Due(payment, planned.event, label, planned.epsilon, planned.delta, kind)
        super().__init__([due, None if test is None else test.due("the test")])

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return testing.columns_of(self.maker)

    def find(self, delimiter: str | None, stack: ExitStack) -> None:
        """Find the files and their columns; no row is read."""
        from tacit.data.reading import prepare

        columns = self.columns if self.side is None else list(self.maker.schema)
        self._opened = prepare(self.source, self.maker.schema, columns, delimiter=delimiter)
        stack.callback(self._opened.close)
        if self.test is not None:
            self.test.find(delimiter, stack)

    def run(self, say: Say = silent, warn: Say = warned) -> Fitted:
        """Charge, read, fit, save; then test, and save the figures too: no failure loses the paid model."""
        from tacit import save

        test = self.test
        for opened in (self._opened, None if test is None else test.opened):
            if opened is not None:
                opened.require_open()
        if test is not None and test.others:
            refuse_same_file(called(self.source), test.source)
        for doubt in self.planned.doubts:
            warn(doubt)
        model = self._fitted(say)
        place, found = self.out, None
        if place is not None:
            place = files.kept(
                lambda path, over: save(model, path, overwrite=over), place, self.overwrite, warn
            )
        if test is not None:
            with files.rescued(lambda path: save(model, path), place, "model.tacit", warn):
                found = test.run(model, say)
        if place is not None and found is not None:
            tests = [found]
            place = files.kept(
                lambda path, _: save(model, path, overwrite=True, evaluations=tests), place, True, warn
            )
        return Fitted(model, self.estimator.guarantee_, found, place)

    def _fitted(self, say: Say) -> Any:
        """Charge, read, fit: a pipeline with its guarantee."""
        from sklearn.pipeline import Pipeline

        from tacit.data.splitting import SPLIT

        maker = self.maker
        assumptions = (PUBLIC, *self._opened.assumptions)
        if self.side is not None:
            assumptions = (*assumptions, SPLIT)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CannotLearn)  # it was told of already
            if self.estimator._fits_tables() and self.test is None:
                with ExitStack() as passes:
                    self.estimator.fit_blocks(
                        maker.features, lambda: self._blocks(say, passes), assumptions=assumptions
                    )
            else:
                self.estimator.fit_rows(maker.features, lambda: self._read(say), assumptions=assumptions)
        if self.estimator.event_ != self.dues[0].event:
            raise TacitError("The fit did something else than what was planned.", "Please report this.")
        return Pipeline([("preprocessor", maker), ("model", self.estimator)])

    def _blocks(self, say: Say, passes: ExitStack) -> TableRows:
        """The private rows where they are, for an estimator that passes over them block by block.

        They are paid for once: the source is closed after these ``passes``.
        """
        from tacit.estimators.blocks import TableRows

        maker = self.maker
        maker.fit(dict.fromkeys(maker.columns, ()))
        say(f"Fitting the {self.label}, block by block")
        passes.callback(self._opened.close)
        table = self._opened.table if self.side is None else self.side.of(self._opened)
        return TableRows.prepared(self._opened, table, maker)

    def _read(self, say: Say) -> tuple[Any, Any, Any]:
        """The private rows: features, targets and units. The estimator calls this inside the charge."""
        from tacit.data.reading import UNIT, private_rows

        say("Reading the rows")
        maker = self.maker
        frame = private_rows(self._opened, maker.schema, self.columns, side=self.side)
        if self.test is not None:
            self.test.fitted_to = testing.digest(frame, maker)
        matrix = maker.fit(frame).transform(frame)
        say(f"Fitting the {self.label}")
        targets = None if maker.target is None else maker.target_values(frame)
        return matrix, targets, frame[UNIT] if UNIT in frame.columns else None


def plan_fit(
    source: Any,
    *,
    schema: Schema | str | os.PathLike[str],
    target: str | None = None,
    model: str,
    epsilon: float,
    ledger: books.Place,
    delta: float = 0.0,
    dataset: str = "default",
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    noise: str | None = None,
    n_clusters: int | None = None,
    n_components: int | None = None,
    interval_share: float = 0.0,
    buy_population: bool = False,
    norm: float | None = None,
    transforms: Mapping[str, str] | None = None,
    exclude: Sequence[str] = (),
    test: str | os.PathLike[str] | None = None,
    test_epsilon: float | None = None,
    test_public: bool = False,
    test_dataset: str | None = None,
    groups_by: Sequence[str] = (),
    label: str | None = None,
    delimiter: str | None = None,
    random_state: int | None = None,
    test_share: float | None = None,
) -> FitJob:
    """Plan :func:`fit`: check what is public, find columns and noise; no row is read, nothing is charged."""
    from tacit.data.preprocessor import Preprocessor
    from tacit.data.splitting import Split
    from tacit.estimators.registry import ESTIMATORS
    from tacit.schema import Schema

    name = _validate.choice("model", model, tuple(ESTIMATORS))
    _validate.epsilon(epsilon)
    _validate.delta(delta)
    _check_target(name, ESTIMATORS[name], target, test is not None or test_share is not None)
    testing.check_options(test, test_epsilon, test_public, test_dataset, groups_by, test_share)
    split = None if test_share is None else Split.drawn(test_share, random_state)

    known = schema if isinstance(schema, Schema) else Schema.load(schema)
    excluded = list(exclude)
    if known.unit.column in known.columns:
        excluded.append(str(known.unit.column))
    maker = Preprocessor(known, target=target, norm=norm, transforms=transforms or None, exclude=excluded)
    groups = testing.declared(groups_by, known)
    told = label or (f"{name} model" if target is None else f"{name} model of {target}")
    with ExitStack() as stack:
        payment = books.agreed(ledger, dataset, unit=known.unit, delta=delta, label=told, stack=stack)
        chosen: dict[str, Any] = {
            "noise": noise, "interval_share": interval_share or None,
            "n_clusters": n_clusters, "n_components": n_components,
        }  # fmt: skip
        chosen["population"] = "dp" if buy_population else known.population
        if split is not None:
            split.require(payment.relation)
            if not buy_population:
                chosen["population"] = split.rest.expected(known.population)
        estimator = ESTIMATORS[name](
            epsilon=epsilon, delta=delta, relation=str(payment.relation), rows_per_unit=payment.unit.rows,
            ledger=payment.ledger, label=told, random_state=random_state,
            **declared_target(name, maker), **_chosen(name, ESTIMATORS[name], chosen),
        )  # fmt: skip
        if not isinstance(source, str | os.PathLike):
            estimator._require_tables()
            if test is not None or test_share is not None:
                advice = (
                    "Measure the model on rows in a file, or export these to Parquet files and fit to those."
                )
                raise InvalidValue("test", "given", "left out, where the rows stay on an engine", advice)
        trial = None
        if split is not None:
            about = f"test of the {told}, on a share of {split.share:g} set aside"
            trial = testing.RowTest(
                payment, called(source), test_epsilon, about, random_state, False, maker, groups,
                side=split.test,
            )  # fmt: skip
        elif test is not None:
            other = payment
            if test_epsilon is not None:
                other = books.another(payment, ledger, test_dataset, unit=known.unit, stack=stack)
            others = test_epsilon is None or other is not payment
            about = f"test of the {told}"
            trial = testing.RowTest(
                other, os.fspath(test), test_epsilon, about, random_state, others, maker, groups
            )
        rest = None if split is None else split.rest
        job = FitJob(source, maker, estimator, payment, told, trial, rest)
        if out is not None:
            job.out, job.overwrite = Path(out), overwrite
            files.writable(job.out, overwrite, source, schema, ledger, test)
        job.find(delimiter, stack)
        return job.holding(stack)


@whole(plan_fit)
def fit(job: FitJob) -> Fitted:
    """Fit a private model to a file of private rows, or to a table on an engine: charge, then read.

    ``source`` is a CSV or Parquet file, or a pattern of several, or an Ibis table on DuckDB or Spark. The
    rows of a table stay on its engine, and are passed over block by block: a model that needs more than sums
    and counts of them is refused, and so is a test. ``schema`` says what is public about the rows:
    categories become one feature each, numbers are scaled by their bounds. ``model`` is a
    name of :data:`tacit.estimators.ESTIMATORS`: a classifier for a target with declared categories, a
    regression for one with bounds, or ``"kmeans"`` or ``"pca"`` without a target, which ``n_clusters`` and
    ``n_components`` belong to.
    ``interval_share`` is the part of ε that buys intervals of the coefficients, and ``buy_population`` buys
    the number of rows where it is not public. The model is written to ``out``, if that is given.

    ``test`` names rows of others to measure the model on: private ones with ``test_epsilon``, charged to
    ``test_dataset`` of the ledger or to the same, public ones with ``test_public``; ``groups_by`` names
    columns by whose groups to measure too. ``test_share`` sets a share of the rows of ``source`` aside
    instead, by a keyed hash of each row or unit (:mod:`tacit.data.splitting`), and measures on those with
    ``test_epsilon``, charged to the same budget. A fit and a test that cannot both be paid are refused before
    anything is charged. Guarantee: that of the estimator, under the relation and for the unit of the
    ledger.
    """
    return job.run()


def _check_target(name: str, kind: type[PrivateEstimator], target: str | None, tested: bool) -> None:
    """Refuse a target where there is none to predict, and the lack of one where there is."""
    if kind.supervised and target is None:
        raise InvalidValue("target", None, f"a column for {name}", "Name the column to predict.")
    if not kind.supervised and target is not None:
        advice = "To make no feature of the column, exclude it."
        raise InvalidValue("target", target, f"left out for {name}, which predicts no column", advice)
    if not kind.supervised and tested:
        raise InvalidValue("test", "given", f"left out for {name}, which has no target to be measured by")


def _chosen(name: str, kind: type[PrivateEstimator], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, each of which the estimator must have."""
    known = kind().get_params()
    found = {option: value for option, value in given.items() if value is not None}
    for option in ("interval_share", "noise", "n_clusters", "n_components"):
        if option in found and option not in known:
            raise InvalidValue(option, found[option], f"left out for {name}")
    if found.get("population") == "dp" and not kind.buys_population:
        raise InvalidValue("buy_population", True, f"left out for {name}", "It buys no number of rows.")
    return {option: value for option, value in found.items() if option in known}


def declared_target(name: str, maker: Preprocessor) -> dict[str, Any]:
    """What the schema declares of the target: classes for a classifier, bounds for a regressor."""
    from sklearn.base import is_classifier

    from tacit.estimators.registry import ESTIMATORS

    if maker.target is None:
        return {}
    column, target = maker.schema[maker.target], f"target {maker.target!r}"
    if "task" in ESTIMATORS[name]().get_params():
        if maker.classes is not None:
            return {"task": "classification", "classes": list(maker.classes)}
        if maker.target_bounds is not None:
            return {"task": "regression", "target_bounds": maker.target_bounds}
        advice = "Declare its categories or its bounds in the schema."
        raise InvalidValue(target, column.type, f"declared with categories or bounds, for {name}", advice)
    classifiers = [other for other, each in ESTIMATORS.items() if is_classifier(each())]
    if name in classifiers:
        if maker.classes is None:
            regressions = " or ".join(
                other for other, each in ESTIMATORS.items() if each.supervised and other not in classifiers
            )
            advice = f"Declare its categories in the schema, or fit a {regressions} model to a number."
            raise InvalidValue(target, column.type, f"declared with categories, for {name}", advice)
        return {"classes": list(maker.classes)}
    if maker.target_bounds is None:
        advice = f"Declare its bounds in the schema, or fit a {' or '.join(classifiers)} model to categories."
        raise InvalidValue(target, column.type, f"a number with declared bounds, for {name}", advice)
    return {"target_bounds": maker.target_bounds}


def _planned(estimator: Any, maker: Preprocessor) -> Planned:
    try:
        planned: Planned = estimator.plan(maker.features)
    except InvalidValue as error:
        name, value, requirement = (getattr(error, part) for part in ("name", "value", "requirement"))
        if name != "population":
            raise
        advice = "Declare population in the schema if the number is public, or add buy_population=True."
        raise InvalidValue("number of rows", value, requirement, advice) from None
    return planned
