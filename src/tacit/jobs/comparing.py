"""Privacy against utility, attacks and fairness: many fits to rows that are public.

A comparison fits every model at every ε several times and measures each fit exactly. On private rows that
would cost the sum of all fits, and nothing would cover the exact measurements. So the rows have to be public:
a benchmark, an old release, synthetic rows.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import _validate
from tacit._writing import write
from tacit.errors import InvalidValue, TacitError
from tacit.jobs import testing
from tacit.jobs.attacking import row_scores
from tacit.jobs.files import spare
from tacit.jobs.fitting import declared_target
from tacit.jobs.job import Say, silent

if TYPE_CHECKING:
    from tacit.schema import Schema

__all__ = ["Compared", "Measured", "compare"]

Place = str | os.PathLike[str]
MAIN = ("auroc", "accuracy", "r2")
"""The first of these that a model has is its utility."""
ATTACKED = 5000
"""At most so many rows of each side, drawn at random, are attacked."""


@dataclass(frozen=True)
class Measured:
    """One fit: which model, at which ε, with which seed, how good, and how well it is attacked."""

    model: str
    epsilon: float
    """Infinite for a fit without noise."""
    seed: int
    utility: float
    attack_auroc: float
    members_found: float
    """The share of members found where 1 % of the others are taken for members."""
    allowed: float
    """The most that any attack finds there, by the guarantee."""
    gaps: dict[str, float] = field(default_factory=dict)
    """By column, the largest difference of the utility's figure between two of its groups."""


@dataclass(frozen=True)
class Compared:
    """All fits, what their utility is called, and the page."""

    figure: str
    fits: tuple[Measured, ...]
    delta: float
    path: Path | None

    def summary(self) -> list[dict[str, Any]]:
        """For each model and ε the mean of every figure over fits, and the deviation of the utility."""
        keys = list(dict.fromkeys((each.model, each.epsilon) for each in self.fits))
        rows = []
        for model, epsilon in keys:
            own = [each for each in self.fits if (each.model, each.epsilon) == (model, epsilon)]
            utility = [each.utility for each in own]
            gaps = {name: float(np.mean([each.gaps[name] for each in own])) for name in own[0].gaps}
            rows.append({
                "model": model, "epsilon": epsilon, "fits": len(own), "utility": float(np.mean(utility)),
                "deviation": float(np.std(utility, ddof=1)) if len(own) > 1 else None,
                "attack_auroc": float(np.mean([each.attack_auroc for each in own])),
                "members_found": float(np.mean([each.members_found for each in own])),
                "allowed": own[0].allowed, "gaps": gaps,
            })  # fmt: skip
        return rows


def compare(
    source: Place,
    test: Place,
    *,
    schema: Schema | Place,
    target: str,
    models: Sequence[str],
    epsilons: Sequence[float],
    public: bool,
    delta: float = 0.0,
    seeds: int = 3,
    groups_by: Sequence[str] = (),
    out: Place | None = None,
    overwrite: bool = False,
    delimiter: str | None = None,
    say: Say = silent,
) -> Compared:
    """Fit ``models`` (names of :data:`tacit.estimators.ESTIMATORS`) to ``source`` at each of ``epsilons``.

    Each fit is measured on ``test``: AUROC, accuracy or r², the same by the groups of ``groups_by``, and a
    membership attack that tells the rows of ``source`` from those of ``test`` (:func:`attack`), which have to
    be other rows of the same kind. Models that can be fitted without noise are, for comparison. ``seeds`` is
    how many fits there are of each kind. The page is written to ``out``.

    ``public=True`` states that all rows are public. Nothing is charged and nothing here is private: noise is
    seeded, so that a comparison can be repeated.
    """
    from tacit.data.preprocessor import Preprocessor
    from tacit.estimators.registry import ESTIMATORS
    from tacit.schema import Schema

    if public is not True:
        raise TacitError(
            "A comparison measures many fits exactly, which no guarantee covers.",
            "State that the rows are public (public=True, --public). On private rows, fit one model with "
            "test_epsilon= (--test-epsilon).",
        )
    names = [_validate.choice("model", name, tuple(ESTIMATORS)) for name in models]
    costs = sorted({_validate.epsilon(epsilon) for epsilon in epsilons})
    times = _validate.count("seeds", seeds, 1)
    if not names or not costs:
        raise InvalidValue("models", names, "one model or more, at one ε or more")
    known = schema if isinstance(schema, Schema) else Schema.load(schema)
    place = None if out is None else Path(out)
    if place is not None:
        spare(place, overwrite, source, test, schema if not isinstance(schema, Schema) else None)
    maker = Preprocessor(known, target=target)
    groups = testing.declared(groups_by, known)
    declared = {name: declared_target(name, maker) for name in names}
    rows, others = (_read(each, known, maker, groups, delimiter) for each in (source, test))
    if rows.digest == others.digest:
        advice = "Name rows that no model is fitted to: on the same rows an attack finds nothing."
        raise InvalidValue("test=", os.fspath(test), "a file with other rows than the first", advice)
    fits: list[Measured] = []
    figure = ""
    for name in names:
        kind = ESTIMATORS[name]
        for epsilon in [*costs, *([math.inf] if kind.fits_without_noise else [])]:
            for seed in range(times if math.isfinite(epsilon) else 1):
                say(f"{name} at ε = {epsilon:g}, fit {seed + 1}")
                options = {"population": len(rows.targets)} if "population" in kind().get_params() else {}
                model = kind(epsilon=epsilon, delta=delta, random_state=seed, **declared[name], **options)
                model.fit(rows.matrix, rows.targets)
                figure, measured = _measured(model, rows, others, maker, groups)
                fits.append(Measured(name, epsilon, seed, **measured))
    found = Compared(figure, tuple(fits), delta, place)
    if place is not None:
        from tacit.report.tradeoff import tradeoff_page

        write(place, tradeoff_page(found.summary(), figure, delta, Path(source).name), overwrite=overwrite)
    return found


@dataclass(frozen=True)
class _Rows:
    matrix: Any
    targets: Any
    labels: dict[str, tuple[Any, Sequence[Any]]]
    digest: str


def _read(source: Place, known: Any, maker: Any, groups: Sequence[str], delimiter: str | None) -> _Rows:
    from dataclasses import replace

    from tacit.data.reading import private_rows
    from tacit.relations import Unit

    columns = list(dict.fromkeys([*testing.columns_of(maker), *groups]))
    plain = replace(known, unit=Unit(), population=None)
    frame = private_rows(source, plain, columns, delimiter=delimiter)
    if not len(frame):
        raise TacitError(f"{os.fspath(source)} has no rows.", "Name a file with rows.")
    labels: dict[str, tuple[Any, Sequence[Any]]] = {}
    for name in groups:
        by = type(maker)(plain, target=name)
        labels[name] = (by.target_values(frame), list(by.classes or ()))
    matrix = maker.fit(frame).transform(frame)
    return _Rows(matrix, maker.target_values(frame), labels, testing.digest(frame, maker))


def _measured(
    model: Any, rows: _Rows, others: _Rows, maker: Any, groups: Sequence[str]
) -> tuple[str, dict[str, Any]]:
    """The name of the utility, and the figures of a fit."""
    from tacit.attacks import MembershipScores
    from tacit.evaluation import evaluate
    from tacit.report.membership import Tradeoff

    found = evaluate(
        model, others.matrix, others.targets, public=True, groups=others.labels or None,
        target_bounds=maker.target_bounds,
    )  # fmt: skip
    figure = next(name for name in MAIN if name in found.figures)

    def scores(side: _Rows) -> Any:
        few = np.random.default_rng(0).permutation(len(side.targets))[:ATTACKED]  # files may be sorted
        return row_scores(model, side.matrix[few], np.asarray(side.targets)[few])[0]

    attack = MembershipScores.of(scores(rows), scores(others))
    by = "accuracy" if "accuracy" in found.figures else figure
    gaps = {name: float(found.figures.get(f"{name}: {by} gap") or 0.0) for name in groups}
    return figure, {
        "utility": float(found.figures[figure] or 0.0),
        "attack_auroc": attack.auroc,
        "members_found": attack.found(0.01).rate,
        "allowed": Tradeoff.of_membership(model.guarantee_).power(0.01),
        "gaps": gaps,
    }
