"""Tallies: predictions on hold-out rows, counted in blocks of fixed cells.

Each row falls into exactly one cell of every block; one cell of each block takes the rows that no figure
uses. The cells are public; only :meth:`Tally.measure` sees rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import is_classifier, is_regressor

from tacit import _validate
from tacit.data import given
from tacit.errors import InvalidValue
from tacit.evaluation import figures as made
from tacit.evaluation.public import (
    NOTHING,
    PublicRows,
    classified,
    few_rows,
    predicted,
    share_difference,
    share_interval,
)
from tacit.evaluation.scoring import Read, Scorer
from tacit.randomness import Source
from tacit.relations import Relation, histogram_sensitivity, sum_sensitivity

__all__ = ["DRAWS", "Tally", "tally_of"]

Array = NDArray[Any]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

DRAWS = 500
"""How often data and noise are simulated to find intervals."""

_STEPS = 2**20
_CONFIDENCE_BINS = 10


@dataclass(frozen=True)
class Tally:
    """The cells that are counted, from public facts alone."""

    kind: str
    classes: tuple[Any, ...]
    bins: int
    scored: str
    """``"probability"``, ``"decision"``, or ``"none"`` where the model only predicts."""
    groups: Mapping[str, tuple[Any, ...]]
    bounds: tuple[float, float] = (0.0, 1.0)

    @property
    def outcomes(self) -> int:
        """How many cells each group has: prediction × class for two classes, else wrong and right."""
        return 4 if self.kind == "two classes" else 2

    @property
    def blocks(self) -> dict[str, int]:
        """The number of cells of each block; the last cell takes the rows that no figure uses."""
        if self.kind == "regression":
            return {"sums": 6}
        if self.kind == "two classes":
            first = {"scores": 2 * self.bins + 1}
        else:
            confident = {"confidence": 2 * _CONFIDENCE_BINS + 1} if self.scored == "probability" else {}
            first = {**confident, "confusion": len(self.classes) ** 2 + 1}
        by_group = {f"by {name}": len(each) * self.outcomes + 1 for name, each in self.groups.items()}
        return {**first, **by_group}

    def sensitivity(self, relation: Relation, norm: int) -> float:
        """How far one row moves the vector of all blocks, in ℓ1 or ℓ2."""
        if self.kind == "regression":
            count = sum_sensitivity(1, 1, relation)
            moves = [count, *[sum_sensitivity(0, 1, relation)] * 4, sum_sensitivity(-1, 1, relation)]
            return _STEPS * (sum(moves) if norm == 1 else math.sqrt(sum(move**2 for move in moves)))
        blocks = len(self.blocks)
        return histogram_sensitivity(relation, norm) * (blocks if norm == 1 else math.sqrt(blocks))

    def scorer(self, model: Any, bounds: Any = None) -> Scorer:
        """How the model scores rows: by probabilities, decisions or predictions, whichever it has first."""
        if self.kind == "regression":
            return Scorer(model, "predict", 1, _numbers(1), bounds)
        count = len(self.classes)
        if self.scored == "probability":
            return Scorer(model, "predict_proba", count, _numbers(count), bounds)
        if self.scored == "decision":
            return Scorer(model, "decision_function", count, _numbers(count) if count > 2 else _odds, bounds)
        return Scorer(model, "predict", count, _votes(self.classes), bounds)

    def measure(
        self,
        model: Any,
        X: Any,
        y: Array,
        labels: Mapping[str, Array],
        keep: Array | None,
        public: bool,
        bounds: Any = None,
    ) -> tuple[Int64, PublicRows]:
        """The exact counts; for public rows also the figures that bins and rounding would make inexact.

        Rows that are not to ``keep`` are left out of every cell. A unit may have any number of them, so not
        even the cell for unused rows may count them.
        """
        keep = np.ones(len(y), dtype=bool) if keep is None else keep
        scores, valid = self.scorer(model, bounds).scores(X, len(y), public)
        scores, valid = scores[keep], valid[keep]
        if self.kind == "regression":
            return self._sums(scores[:, 0], y[keep], valid, public)
        truth = given.places(y[keep], self.classes)
        valid &= (truth >= 0) & np.isfinite(scores).all(axis=1)
        free = NOTHING
        if self.kind == "two classes":
            score = scores[:, 1]
            predicted = (score > 0.5).astype(np.int64)
            bin_of = np.searchsorted(made.edges(self.bins)[1:-1], score, side="left")
            vectors = [_counted(2 * bin_of + truth, valid, 2 * self.bins)]
            outcome = 2 * predicted + truth
            if public:
                free = classified(truth[valid], score[valid], probability=self.scored == "probability")
        else:
            count = len(self.classes)
            predicted = scores.argmax(axis=1)
            outcome = (predicted == truth).astype(np.int64)
            vectors = [_counted(truth * count + predicted, valid, count**2)]
            if self.scored == "probability":
                top = np.clip(np.nan_to_num(scores.max(axis=1, initial=0.0)), 0.0, 1.0)
                place = np.clip(np.ceil(top * _CONFIDENCE_BINS).astype(np.int64) - 1, 0, _CONFIDENCE_BINS - 1)
                vectors.insert(0, _counted(2 * place + outcome, valid, 2 * _CONFIDENCE_BINS))
        for name, categories in self.groups.items():
            group = given.places(labels[name][keep], categories)
            cells = len(categories) * self.outcomes
            vectors.append(_counted(group * self.outcomes + outcome, valid & (group >= 0), cells))
        return np.concatenate(vectors), free

    def _sums(self, answers: Array, y: Array, valid: Array, public: bool) -> tuple[Int64, PublicRows]:
        low, high = self.bounds
        guess, truth = given.real(answers), given.real(y)
        valid = valid & np.isfinite(guess) & np.isfinite(truth)
        guess, truth, width = guess[valid], truth[valid], high - low
        free = predicted(truth, guess) if public and len(truth) > 1 else NOTHING
        truth, guess = np.clip(truth, low, high), np.clip(guess, low, high)
        r, u = np.clip(np.abs(truth - guess) / width, 0, 1), np.clip(2 * ((truth - low) / width) - 1, -1, 1)
        columns = [np.ones_like(r), r, r**2, r**4, u, u**2]
        return np.array([int(np.rint(each * _STEPS).astype(np.int64).sum()) for each in columns]), free

    def split(self, vector: Array) -> dict[str, Float64]:
        """The blocks of a vector by name; axes before the last are repetitions."""
        ends = np.cumsum(list(self.blocks.values()))[:-1]
        scale = _STEPS if self.kind == "regression" else 1
        return dict(zip(self.blocks, np.split(vector / scale, ends, axis=-1), strict=True))

    def with_total(self, vector: Array, population: int) -> Array:
        """The nearest vector whose blocks add up to a public number of rows."""
        if self.kind == "regression":
            return np.array([population * _STEPS, *vector[1:]])
        return np.concatenate(
            [block + (population - block.sum()) / len(block) for block in self.split(vector).values()]
        )

    def figures(self, vector: Array) -> made.Figures:
        """Every figure by name; axes before the last are repetitions."""
        blocks = self.split(vector)
        if self.kind == "regression":
            return made.regression(blocks["sums"], self.bounds[1] - self.bounds[0])
        if self.kind == "two classes":
            found = made.binary(blocks["scores"], self.bins)
            if self.scored != "probability":
                del found["brier"], found["calibration error"]
        else:
            confident = blocks.get("confidence")
            found = made.multiclass(confident, blocks["confusion"], len(self.classes), _CONFIDENCE_BINS)
        for name, categories in self.groups.items():
            found.update(made.group_figures(name, blocks[f"by {name}"], categories, self.outcomes))
        return found

    def limits(self, name: str) -> tuple[float, float]:
        """The range of a figure."""
        if name == "r2":
            return -math.inf, 1.0
        return 0.0, self.bounds[1] - self.bounds[0] if self.kind == "regression" else 1.0

    def simulated(self, vector: Array, noise: Any, source: Source) -> tuple[Float64, Float64]:
        """Counts that may be behind the released ones, and simulated releases from other rows like these."""
        counts = self.kind != "regression"
        truths, samples = [], []
        for block in self.split(vector).values():
            uniforms = source.uniforms(DRAWS * len(block)).reshape(DRAWS, len(block))
            truth, sample = made.simulate(block, uniforms, counts=counts)
            truths.append(truth)
            samples.append(sample)
        scale = 1 if counts else _STEPS
        drawn = np.concatenate(samples, axis=-1) * scale
        if noise is not None:
            drawn = drawn + noise(np.zeros(drawn.shape, dtype=np.int64))
        return np.concatenate(truths) * scale, drawn

    def off_by(self, vector: Array) -> Float64 | None:
        """The calibration error times the number of rows, a seminorm of the counts.

        None where the model has no probabilities.
        """
        blocks = self.split(vector)
        if self.scored != "probability":
            return None
        if self.kind == "two classes":
            return made.off_by(blocks["scores"], self.bins)
        return made.confidence_off_by(blocks["confidence"], _CONFIDENCE_BINS)

    def intervals(
        self, vector: Array, values: Mapping[str, float], truth: Float64, drawn: Float64, confidence: float
    ) -> dict[str, tuple[float, float]]:
        """The confidence interval of each figure, from the released vector and simulations of it."""
        own, centre, draws = (self.figures(each) for each in (vector, truth, drawn))
        found = {}
        for name, value in values.items():
            high = self.limits(name)[1]
            given: tuple[Any, Any, Any] = value, float(centre[name]), draws[name]
            if name == "rmse":
                one, two, three = (signed**2 * np.sign(signed) for signed in given)
                ends = made.interval(one, two, three, confidence, (0.0, high**2))
                found[name] = math.sqrt(ends[0]), math.sqrt(ends[1])
            elif name.endswith(" gap"):
                attribute, what = name.removesuffix(" gap").rsplit(": ", 1)
                keys = [f"{attribute}={category}: {what}" for category in self.groups[attribute]]
                one, two, three = (np.array([each[key] for key in keys]) for each in (own, centre, draws))
                found[name] = made.gap_interval(one, two, three, confidence)
            else:
                found[name] = made.interval(*given, confidence, self.limits(name))
        if self.scored == "probability" and not math.isnan(values["calibration error"]):
            found["calibration error"] = self.calibration(
                vector, values["calibration error"], truth, drawn, confidence
            )
        return found

    def calibration(
        self, vector: Array, value: float, truth: Float64, drawn: Float64, confidence: float
    ) -> tuple[float, float]:
        """The interval of the calibration error, which noise pushes up.

        It is a seminorm of the counts, so that the truth is no less than the figure less the seminorm of the
        error, which simulations tell.
        """
        name = "calibration error"
        centre, draws = (self.figures(each)[name] for each in (truth, drawn))
        low, high = made.interval(value, float(centre), draws, confidence, self.limits(name))
        off = self.off_by(drawn - truth)
        total = float(next(iter(self.split(vector).values()))[:-1].sum())
        radius = float(np.quantile(off, (1 + confidence) / 2)) / total if off is not None else 1.0
        return max(0.0, min(low, value - radius)), high

    def rarest(self, vector: Array) -> float:
        """How many rows the rarer outcome has, on which the calibration error rests: of a class, or wrong."""
        cells = next(iter(self.split(vector).values()))[:-1].reshape(-1, 2)
        return float(cells.sum(axis=0).min())

    def of_public(
        self, vector: Array, values: Mapping[str, float], truth: Float64, drawn: Float64, confidence: float
    ) -> dict[str, tuple[float, float]]:
        """The intervals that exact counts have better ones for than simulations of them."""
        if self.kind == "regression":
            return {}
        found, name = self.shares(vector, confidence), "calibration error"
        if not math.isnan(values.get(name, math.nan)):
            level = few_rows(confidence, self.rarest(vector))
            found[name] = self.calibration(vector, values[name], truth, drawn, level)
        return found

    def shares(self, vector: Array, confidence: float) -> dict[str, tuple[float, float]]:
        """The intervals of shares, from exact counts: accuracy, and the rates and gaps of groups."""
        blocks, ends = self.split(vector), {}
        main = blocks["scores" if self.kind == "two classes" else "confusion"][:-1]
        if self.kind == "two classes":
            cells = main.reshape(self.bins, 2)
            right = float(cells[: self.bins // 2, 0].sum() + cells[self.bins // 2 :, 1].sum())
        else:
            right = float(np.trace(main.reshape(len(self.classes), -1)))
        ends["accuracy"] = share_interval(right, float(main.sum()), confidence)
        for name, categories in self.groups.items():
            table = blocks[f"by {name}"][:-1].reshape(len(categories), self.outcomes)
            rates = [made.rates(counts) for counts in table]
            pairs = [(i, j) for i in range(len(rates)) for j in range(i)]
            for what in rates[0]:
                for category, each in zip(categories, rates, strict=True):
                    ends[f"{name}={category}: {what}"] = share_interval(*each[what], confidence)
                level = 1 - (1 - confidence) / max(len(pairs), 1)
                apart = [share_difference(rates[i][what], rates[j][what], level) for i, j in pairs]
                ends[f"{name}: {what} gap"] = made.gap_of(apart) if apart else (0.0, 0.0)
        return ends

    def by_group(self, figures: Mapping[str, float | None]) -> dict[str, dict[str, dict[str, float | None]]]:
        """The figures of groups by name and category, with the gap of each under ``"gap"``."""
        nested: dict[str, dict[str, dict[str, float | None]]] = {}
        for name, categories in self.groups.items():
            parts = {str(category): f"{name}={category}: " for category in categories}
            parts["gap"] = f"{name}: "
            nested[name] = {
                part: {key.removeprefix(start).removesuffix(" gap"): value
                       for key, value in figures.items() if key.startswith(start)}
                for part, start in parts.items()
            }  # fmt: skip
        return nested


def tally_of(
    model: Any,
    bins: int,
    groups: Mapping[str, Sequence[Any]],
    target_bounds: Any,
    public: Array | None = None,
) -> Tally:
    """The cells for a model and public parameters; ``groups`` are declared categories by name.

    ``public`` are the targets where these are public: a regressor's bounds are taken from them.
    """
    if is_regressor(model):
        if groups:
            raise InvalidValue("groups", sorted(groups), "left out for a regressor")
        return Tally("regression", (), 0, "none", {}, _bounds(target_bounds, public))
    if not is_classifier(model):
        raise InvalidValue("model", type(model).__name__, "a fitted classifier or regressor")
    classes = getattr(model, "classes_", None)
    if classes is None or len(classes) < 2:
        raise InvalidValue(
            "model", type(model).__name__, "fitted, with two classes_ or more", "Call fit first."
        )
    if _validate.count("bins", bins, 2) % 2 or bins > 1000:
        raise InvalidValue("bins", bins, "even and at most 1000", "One half has to be an edge.")
    able = [how for how in ("predict_proba", "decision_function") if hasattr(model, how)]
    scored = (
        {"predict_proba": "probability", "decision_function": "decision"}.get(able[0], "none")
        if able
        else "none"
    )
    declared = {}
    for name, categories in groups.items():
        if isinstance(categories, str) or not len(categories):
            raise InvalidValue(f"categories of {name!r}", categories, "a list of declared categories")
        declared[str(name)] = tuple(categories)
    kind = "two classes" if len(classes) == 2 else "more classes"
    return Tally(kind, tuple(classes), bins, scored, declared)


def _bounds(stated: Any, public: Array | None) -> tuple[float, float]:
    if stated is None and public is not None:
        finite = (values := given.real(public))[np.isfinite(values)]
        return (float(finite.min()), float(finite.max()) + 1e-9) if len(finite) else (0.0, 1.0)
    advice = "They are public knowledge about the target: target_bounds=(0, 100)."
    if stated is None or isinstance(stated, str) or len(stated) != 2:
        raise InvalidValue("target_bounds", stated, "a pair (low, high) for a regressor", advice)
    low, high = (_validate.finite("target_bounds", bound) for bound in stated)
    if not low < high or not math.isfinite(high - low):
        raise InvalidValue("target_bounds", stated, "ordered, low first", advice)
    return low, high


def _numbers(width: int) -> Read:
    """A reader of ``width`` numbers for each row."""

    def read(output: Any, rows: int) -> Float64:
        return given.real(np.ravel(output)).reshape(rows, width)

    return read


def _odds(output: Any, rows: int) -> Float64:
    """One decision for each row, read as log-odds: the probabilities of two classes."""
    decision = given.real(np.ravel(output)).reshape(rows)
    above = np.where(np.isfinite(decision), expit(decision), np.nan)
    return np.column_stack([1 - above, above])


def _votes(classes: tuple[Any, ...]) -> Read:
    """A reader of predictions: 1 for the predicted class, 0 for the others; NaN for an unknown class."""

    def read(output: Any, rows: int) -> Float64:
        labels = output if isinstance(output, np.ndarray) else given.column("predictions", output)
        place = given.places(labels.reshape(rows), classes)
        return np.where(place[:, None] < 0, np.nan, place[:, None] == np.arange(len(classes)))

    return read


def _counted(cells: Array, valid: Array, number: int) -> Int64:
    """The number of rows in each cell, and in one more cell that of the rows that are not valid."""
    return np.bincount(np.where(valid, cells, number), minlength=number + 1).astype(np.int64)
