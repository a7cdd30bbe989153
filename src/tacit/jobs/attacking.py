"""A membership attack on a saved model, or on saved predictions: for whoever holds the data.

The attack needs to know who was in the training data, so that its guesses can be counted. Nothing is charged,
and nothing that it finds may be published: exact numbers about private rows are no release.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._writing import write
from tacit.errors import InvalidValue, SourceMissing, TacitError
from tacit.guarantee import Guarantee
from tacit.jobs.files import spare
from tacit.jobs.opening import named_network, opened_model
from tacit.relations import Unit

if TYPE_CHECKING:
    from tacit.attacks import MembershipScores

__all__ = ["Attacked", "attack"]

Place = str | os.PathLike[str]
LABEL = "label"
"""The column of a file of predictions that names the true class."""


@dataclass(frozen=True)
class Attacked:
    """What an attack found, beside what the guarantee of the model allows."""

    scores: MembershipScores
    guarantee: Guarantee | None
    """The guarantee of the model; None for saved predictions."""
    signal: str
    """What was looked at, in words."""
    left_out: int
    """How many rows could not be scored, since their target was not declared."""
    path: Path | None
    """The page, if one was written."""


def attack(
    model: Place | None,
    *,
    members: Place,
    others: Place,
    out: Place | None = None,
    overwrite: bool = False,
    delimiter: str | None = None,
) -> Attacked:
    """Attack a model with rows that it was fitted to (``members``) and rows that it was not (``others``).

    ``model`` is a file of :func:`fit` or :func:`train`, whose schema reads both files; the score of a row is
    the scaled logit of its true class or, for a regression, minus its squared error (Yeom et al. 2018). With
    None, both files are CSV files of saved predictions of any model: a probability per class, each in a
    column of the class's name, and the true class in the column ``label`` if it is known.
    The page is written to ``out``. It is made from private rows without noise: it is for the curator alone.
    """
    place = None if out is None else Path(out)
    if place is not None:
        spare(place, overwrite, model, members, others)
    if model is None:
        sides = [_saved(Path(each)) for each in (members, others)]
        guarantee, kind, left_out = None, "the confidence of saved predictions", 0
    else:
        look = _looking(model, delimiter)
        kind, guarantee = look.kind, look.guarantee
        found = [look(each) for each in (members, others)]
        sides = [scores for scores, _ in found]
        left_out = sum(number for _, number in found)
    from tacit.attacks import MembershipScores

    for side, name in zip(sides, (members, others), strict=True):
        if not side.size:
            raise TacitError(f"{os.fspath(name)} has no row that can be scored.", "Name a file with rows.")
    result = Attacked(MembershipScores.of(*sides), guarantee, kind, left_out, place)
    if place is not None:
        from tacit.report.attack import attack_page

        name = "saved predictions" if model is None else Path(model).name
        page = attack_page(result.scores, guarantee, name=name, signal=kind, left_out=left_out)
        write(place, page, overwrite=overwrite)
    return result


@dataclass(frozen=True)
class _Looking:
    """A model and how to score the rows of a file with it."""

    model: Any
    maker: Any
    guarantee: Guarantee
    kind: str
    delimiter: str | None

    def __call__(self, source: Place) -> tuple[Any, int]:
        """Scores of the rows of a file, and how many could not be scored."""
        rows, targets = self._rows(source)
        return self._scored(rows, targets) if len(targets) else (np.zeros(0), 0)

    def _rows(self, source: Place) -> tuple[Any, Any]:
        if self.maker is None:
            from tacit.data.examples import Where, find

            shape = self.model.shape
            where = Where(size=shape[1:] if len(shape) == 3 else None, grey=shape[0] == 1, test=True)
            rows, targets = find(Path(source), where).read()
            return rows, np.asarray(targets)
        from tacit.data.reading import prepare, private_rows
        from tacit.jobs.testing import columns_of

        known, columns = replace(self.maker.schema, unit=Unit(), population=None), columns_of(self.maker)
        opened = prepare(source, known, columns, delimiter=self.delimiter)
        frame = private_rows(opened, known, columns)
        return frame, self.maker.target_values(frame)

    def _scored(self, rows: Any, targets: Any) -> tuple[Any, int]:
        from tacit.attacks import loss_threshold, signal
        from tacit.data.given import places

        if not hasattr(self.model, "predict_proba"):
            told, truth = (np.asarray(each, dtype=float) for each in (self.model.predict(rows), targets))
            errors = (told - truth) ** 2
            known = np.isfinite(errors)
            return loss_threshold(errors[known]) if known.any() else np.zeros(0), int((~known).sum())
        where = places(np.asarray(targets), list(self.model.classes_))
        chances = np.asarray(self.model.predict_proba(rows), dtype=float)
        known = (where >= 0) & np.isfinite(chances).all(axis=1)
        scores = signal(chances[known], where[known]) if known.any() else np.zeros(0)
        return scores, int((~known).sum())


def _looking(path: Place, delimiter: str | None) -> _Looking:
    from tacit.models import guarantee_of

    fitted, maker = opened_model(path)
    model = fitted if maker is not None else named_network(fitted, Path(path))
    kind = "the scaled logit of the true class" if hasattr(model, "predict_proba") else "the squared error"
    return _Looking(model, maker, guarantee_of(fitted), kind, delimiter)


def _saved(path: Path) -> Any:
    """Signals of saved predictions: a CSV with a probability per class, and the true class if it is known."""
    from tacit.attacks import signal

    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}."
        raise SourceMissing(problem, "Name a CSV file of predictions.") from None
    if not rows:
        return np.zeros(0)
    classes = [name for name in rows[0] if name != LABEL]
    try:
        table = np.array([[float(row[name]) for name in classes] for row in rows])
    except (TypeError, ValueError):
        needed = "numbers, apart from the column label"
        raise InvalidValue(str(path), "words", needed, "Write one probability per class.") from None
    if LABEL not in rows[0]:
        return signal(table)
    if unknown := {row[LABEL] for row in rows} - set(classes):
        raise InvalidValue("label", f"{len(unknown)} other words", f"one of the columns {classes}")
    return signal(table, np.array([classes.index(row[LABEL]) for row in rows]))
