"""A membership attack on a saved model, or on saved predictions: for whoever holds the data.

The attack needs to know who was in the training data, so that its guesses can be counted. Nothing is charged,
and nothing that it finds may be published: exact numbers about private rows are no release.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._writing import write
from tacit.errors import InvalidValue, SourceMissing, TacitError
from tacit.guarantee import Guarantee
from tacit.jobs.files import spare
from tacit.jobs.opening import named_network, opened_model
from tacit.jobs.same import digest_of
from tacit.relations import Unit

if TYPE_CHECKING:
    from tacit.attacks import MembershipScores

__all__ = ["Attacked", "attack", "row_scores"]

Place = str | os.PathLike[str]
LABEL = "label"
"""The column of a file of predictions that names the true class, or has the true number."""
PREDICTION = "prediction"
"""The column of a file of predictions that says nothing but what was predicted."""


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
    shared: int
    """How many of the other rows equal a row of the members; 0 for saved predictions, where nobody knows."""
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
    column of the class's name, and the true class in the column ``label`` if it is known. Of a model that
    gives no probabilities, they have the columns ``prediction`` and ``label`` alone: numbers are scored by
    their squared error, words by whether they agree.

    Both files have to hold rows of the same kind, from the same source and time: otherwise the attack tells
    sources apart, and seems stronger than it is. Two files with the same rows are refused.
    The page is written to ``out``. It is made from private rows without noise: it is for the curator alone.
    """
    place = None if out is None else Path(out)
    if place is not None:
        spare(place, overwrite, model, members, others)
    if model is None:
        sides, kind = _saved_sides(Path(members), Path(others), delimiter)
        guarantee = None
    else:
        look = _looking(model, delimiter)
        kind, guarantee = look.kind, look.guarantee
        sides = [look(each) for each in (members, others)]
    from tacit.attacks import MembershipScores

    for side, name in zip(sides, (members, others), strict=True):
        if not side.scores.size:
            raise TacitError(f"{os.fspath(name)} has no row that can be scored.", "Name a file with rows.")
    inside, outside = (Counter(side.rows) for side in sides)
    if digest_of(sides[0].rows) == digest_of(sides[1].rows):
        advice = "Name rows that the model was not fitted to: an attack on members alone finds nothing."
        raise InvalidValue("others=", os.fspath(others), "a file with other rows than members=", advice)
    result = Attacked(
        MembershipScores.of(*(side.scores for side in sides)),
        guarantee,
        kind,
        sum(side.left_out for side in sides),
        0 if model is None else sum(number for row, number in outside.items() if row in inside),
        place,
    )
    if place is not None:
        from tacit.report.attack import attack_page

        page = attack_page(
            result.scores, guarantee, name="saved predictions" if model is None else Path(model).name,
            signal=kind, left_out=result.left_out, shared=result.shared,
        )  # fmt: skip
        write(place, page, overwrite=overwrite)
    return result


def row_scores(model: Any, rows: Any, targets: Any) -> tuple[Any, int]:
    """The scores of rows by the attack that looks at each of them alone, and how many could not be scored.

    A row whose target was not declared, or for which the model gives no finite number, has no score.
    """
    from tacit.attacks import loss_threshold, signal
    from tacit.data.given import places

    if not hasattr(model, "predict_proba"):
        told, truth = np.asarray(model.predict(rows)), np.asarray(targets)
        if told.dtype.kind in "fiu":
            errors = (told.astype(float) - truth.astype(float)) ** 2
            known = np.isfinite(errors)
        else:
            errors, known = (told != truth).astype(float), places(truth, list(model.classes_)) >= 0
        return loss_threshold(errors[known]) if known.any() else np.zeros(0), int((~known).sum())
    where = places(np.asarray(targets), list(model.classes_))
    chances = np.asarray(model.predict_proba(rows), dtype=float)
    known = (where >= 0) & np.isfinite(chances).all(axis=1)
    scores = signal(chances[known], where[known]) if known.any() else np.zeros(0)
    return scores, int((~known).sum())


@dataclass(frozen=True)
class _Side:
    """The scores of a file, how many of its rows have none, and the rows, to be compared with others."""

    scores: Any
    left_out: int
    rows: Sequence[Any]


@dataclass(frozen=True)
class _Looking:
    """A model and how to score the rows of a file with it."""

    model: Any
    maker: Any
    guarantee: Guarantee
    kind: str
    delimiter: str | None

    def __call__(self, source: Place) -> _Side:
        """The scores of the rows of a file."""
        rows, targets = self._rows(source)
        if not len(targets):
            return _Side(np.zeros(0), 0, ())
        contents = map(bytes, rows) if self.maker is None else self.maker.contents(rows)
        seen = list(zip(contents, targets.tolist(), strict=True))
        return _Side(*row_scores(self.model, rows, targets), seen)

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


def _looking(path: Place, delimiter: str | None) -> _Looking:
    from tacit.models import guarantee_of

    fitted, maker = opened_model(path)
    model = fitted if maker is not None else named_network(fitted, Path(path))
    kind = "the scaled logit of the true class"
    if not hasattr(model, "predict_proba"):
        numbers = maker is None or maker.classes is None
        kind = "the squared error" if numbers else "whether the prediction is right"
    return _Looking(model, maker, guarantee_of(fitted), kind, delimiter)


def _saved_sides(members: Path, others: Path, delimiter: str | None) -> tuple[list[_Side], str]:
    """Signals of two files of saved predictions, and what was looked at."""
    tables = [_saved(each, delimiter) for each in (members, others)]
    names = [sorted(header) for header, _ in tables]
    if names[0] != names[1]:
        advice = "Write both files alike: the same classes, and the column label in both or in none."
        raise InvalidValue("others=", os.fspath(others), "a file with the columns of members=", advice)
    if names[0] == sorted((PREDICTION, LABEL)):
        return _predicted(tables)
    which = "true" if LABEL in names[0] else "likeliest"
    kind = f"the scaled logit of the {which} class"
    return [_side(path, *each) for path, each in zip((members, others), tables, strict=True)], kind


def _side(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> _Side:
    """Signals of probabilities by class."""
    from tacit.attacks import signal

    classes = [name for name in header if name != LABEL]
    if len(classes) < 2:
        advice = f"Write one probability per class, or the columns {PREDICTION} and {LABEL} alone."
        needed = "probabilities of two classes or more"
        raise InvalidValue(str(path), f"{len(classes)} classes", needed, advice)
    try:
        table = np.array([[float(row[header.index(name)]) for name in classes] for row in rows])
    except ValueError:
        needed = "numbers, apart from the column label"
        raise InvalidValue(str(path), "words", needed, "Write one probability per class.") from None
    if not rows:
        return _Side(np.zeros(0), 0, ())
    if LABEL not in header:
        return _Side(signal(table), 0, [*map(tuple, table.tolist())])
    labels = [row[header.index(LABEL)] for row in rows]
    if unknown := set(labels) - set(classes):
        raise InvalidValue("label", f"{len(unknown)} other words", f"one of the columns {classes}")
    places = np.array([classes.index(label) for label in labels])
    return _Side(signal(table, places), 0, [*zip(map(tuple, table.tolist()), labels, strict=True)])


def _predicted(tables: Sequence[tuple[Sequence[str], Sequence[Sequence[str]]]]) -> tuple[list[_Side], str]:
    """Signals of predictions without probabilities: squared errors of numbers, agreement of words."""
    from tacit.attacks import loss_threshold

    pairs = [
        [(row[header.index(PREDICTION)], row[header.index(LABEL)]) for row in rows] for header, rows in tables
    ]
    try:
        losses = [[(float(told) - float(truth)) ** 2 for told, truth in side] for side in pairs]
        kind = "the squared error"
    except ValueError:
        losses = [[float(told != truth) for told, truth in side] for side in pairs]
        kind = "whether the prediction is right"
    return [
        _Side(loss_threshold(loss) if loss else np.zeros(0), 0, side)
        for loss, side in zip(losses, pairs, strict=True)
    ], kind


def _saved(path: Path, delimiter: str | None) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a CSV file of predictions."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = [row for row in csv.reader(file, delimiter=delimiter or ",") if row] or [[]]
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}."
        raise SourceMissing(problem, "Name a CSV file of predictions.") from None
    except (UnicodeDecodeError, csv.Error):
        advice = "Write the predictions anew."
        raise InvalidValue(str(path), "no text", "a CSV file in UTF-8", advice) from None
    if len(set(header)) < len(header) or any(len(row) != len(header) for row in rows):
        needed = "as many values in each row as there are names in its header, each name once"
        raise InvalidValue(str(path), "a table of another shape", needed, "Write one column for each class.")
    return header, rows
