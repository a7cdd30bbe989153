"""Membership inference: was this example in the training data?

An attack turns what can be seen of a model into a score for each example, higher for those that look like
members. What can be seen is a *signal*, one number per example: mostly the scaled logit of the true class,
ln p − ln(1 − p), which is nearly normal (Carlini et al. 2022). Signals come as arrays, so that an attack
needs no model, only predictions that somebody saved.

===========================  ===========================================================================
:func:`signal`               from saved predictions, with or without labels, to signals
:func:`loss_threshold`       members have small losses (Yeom et al. 2018); needs nothing else
:func:`shadow_attack`        an attack model learns from shadow models what members look like (Shokri 2017)
:func:`lira`                 likelihood ratio of each example's own signals (Carlini et al. 2022)
:func:`rmia`                 the example against many others (Zarifzadeh, Liu and Shokri 2024)
===========================  ===========================================================================

The last three need shadow models: models trained by the adversary on data whose membership is known.
:func:`train_shadows` makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from tacit import _validate
from tacit.errors import InvalidValue

__all__ = ["lira", "loss_threshold", "rmia", "shadow_attack", "signal", "train_shadows"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_LEAST = 1e-12
"""Probabilities that are divided by, or that an attack model sees, are kept this far from 0 and 1."""
_TINY = 1e-30
"""The least probability in a scaled logit. Networks that learned an example by heart leave far less than
1e-12 to the other classes, and how much less tells members apart."""
_ROUNDED = 1e-3
"""Probabilities of an example may add up to 1 but for this much per class: saved ones are rounded."""
_LEAST_SPREAD = 1e-6
"""No standard deviation of signals is taken to be smaller."""


def signal(probabilities: ArrayLike, labels: ArrayLike | None = None) -> Array:
    """One number per example from predicted ``probabilities`` (examples, classes).

    With ``labels``, the place of the true class of each example, the scaled logit of its probability,
    ln p − ln(sum over the other classes); without them, that of the largest probability. Probabilities of one
    class alone may be given as a vector. Numbers outside of [0, 1], and rows that do not add up to 1, are
    refused: logits and columns that are no classes would make a weak attack that looks like protection.

    >>> signal([[0.9, 0.1], [0.5, 0.5]], [0, 1]).round(3).tolist()
    [2.197, 0.0]
    >>> signal([[1.0, 1e-20]], [0]).round(1).tolist()
    [46.1]
    """
    table = np.asarray(probabilities, dtype=np.float64)
    if table.ndim not in (1, 2) or not table.size:
        raise InvalidValue("probabilities", table.shape, "of shape (examples, classes)")
    if not np.isfinite(table).all():
        raise InvalidValue("probabilities", "NaN or infinite", "finite")
    if (table < 0).any() or (table > 1 + _ROUNDED).any():
        advice = "Turn logits into probabilities first, by a softmax."
        raise InvalidValue("probabilities", "negative or above 1", "in [0, 1]", advice)
    if table.ndim == 1:
        return np.asarray(np.log(np.maximum(table, _TINY)) - np.log(np.maximum(1 - table, _TINY)))
    if (np.abs(table.sum(axis=1) - 1) > min(_ROUNDED * table.shape[1], 0.05)).any():
        needed = "such that each row adds up to 1"
        advice = "Give one column for each class of the model, and no other column."
        raise InvalidValue("probabilities", "rows with another sum", needed, advice)
    if labels is None:
        places = table.argmax(axis=1)
    else:
        places = np.asarray(labels)
        if places.shape != (len(table),) or places.dtype.kind not in "iu":
            raise InvalidValue("labels", places.shape, "the place of the true class, one per example")
        if places.min() < 0 or places.max() >= table.shape[1]:
            raise InvalidValue("labels", "outside of the classes", f"0 to {table.shape[1] - 1}")
    own = np.arange(len(table)), places
    others = table.copy()
    others[own] = 0.0
    return np.asarray(np.log(np.maximum(table[own], _TINY)) - np.log(np.maximum(others.sum(axis=1), _TINY)))


def loss_threshold(losses: ArrayLike) -> Array:
    """Scores of the simplest attack: the smaller the loss, the more likely a member.

    >>> loss_threshold([0.1, 2.0]).tolist()
    [-0.1, -2.0]
    """
    return -_table("losses", losses, 1)


def train_shadows(
    train: Callable[[NDArray[np.intp]], Any],
    signals: Callable[[Any], ArrayLike],
    *,
    examples: int,
    models: int,
    seed: int,
    progress: Callable[[int], None] | None = None,
) -> tuple[Array, Mask]:
    """Train ``models`` shadow models and return their signals and who was in: (models, examples) each.

    ``train(indices)`` trains a model on those of ``examples`` examples, ``signals(model)`` returns a signal
    for every example. Models come in pairs with opposite halves, so that every example is in half of them.
    ``progress`` is called with the number of models trained so far.

    >>> told = lambda model: [float(i in model) for i in range(4)]
    >>> seen, inside = train_shadows(set, told, examples=4, models=6, seed=1)
    >>> inside.sum(axis=0).tolist(), bool((seen == inside).all())
    ([3, 3, 3, 3], True)
    """
    count, pairs = _validate.count("examples", examples, 2), _validate.count("models", models, 2)
    if pairs % 2:
        raise InvalidValue("models", models, "even, since halves come in pairs")
    generator = np.random.default_rng(_validate.count("seed", seed))
    inside = np.zeros((models, count), dtype=bool)
    for first in range(0, models, 2):
        half = generator.permutation(count)[: count // 2]
        inside[first, half] = True
        inside[first + 1] = ~inside[first]
    found = np.empty((models, count))
    for place in range(models):
        seen = _table("signals of a shadow model", signals(train(np.flatnonzero(inside[place]))), 1)
        if seen.size != count:
            raise InvalidValue("signals of a shadow model", seen.size, f"one for each of {count} examples")
        found[place] = seen
        if progress is not None:
            progress(place + 1)
    return found, inside


def lira(
    target: ArrayLike,
    shadows: ArrayLike,
    inside: ArrayLike,
    *,
    variance: str,
    mode: str = "online",
) -> Array:
    """The likelihood ratio attack (Carlini et al. 2022, "Membership inference … from first principles").

    ``target`` has the signal of each example in the attacked model, ``shadows`` those in each shadow model
    (models, examples), ``inside`` whether the example was in its training data. Signals of one example are
    taken as normal, once where it was in and once where it was out; the score is the logarithm of the ratio
    of both densities at the target's signal (``mode="online"``), or how far above those of models without
    the example it lies (``"offline"``, which needs no model with it).
    ``variance`` is ``"each"``, estimated for every example, or ``"fixed"``, one for all of them, which is
    better where there are few shadow models (16 of them: 7.0 % against 2.4 % found at 0.1 % false alarms).
    ``"each"`` needs every example in two shadow models or more, and outside of two.

    >>> rng = np.random.default_rng(1)
    >>> inside = rng.random((16, 200)) < 0.5
    >>> shadows = rng.normal(size=(16, 200)) + 2 * inside
    >>> member = rng.random(200) < 0.5
    >>> scores = lira(rng.normal(size=200) + 2 * member, shadows, inside, variance="fixed")
    >>> bool(scores[member].mean() > scores[~member].mean() + 1)
    True
    """
    seen, rest, mask = _signals(target, shadows, inside)
    how = _validate.choice("variance", variance, ("each", "fixed"))
    online = _validate.choice("mode", mode, ("online", "offline")) == "online"
    out_mean, out_spread = _normal(rest, ~mask, how)
    if not online:
        return np.asarray(-log_ndtr(-(seen - out_mean) / out_spread))
    in_mean, in_spread = _normal(rest, mask, how)
    return np.asarray(
        _log_density(seen, in_mean, in_spread) - _log_density(seen, out_mean, out_spread), dtype=np.float64
    )


def rmia(
    target: ArrayLike,
    shadows: ArrayLike,
    inside: ArrayLike,
    *,
    population: ArrayLike,
    population_shadows: ArrayLike,
    ratio: float = 2.0,
    mode: str = "online",
    offline_share: float = 0.3,
) -> Array:
    """The relative attack (Zarifzadeh, Liu and Shokri 2024): the example against a population.

    All arrays hold probabilities of the true class, in (0, 1]: of each example in the attacked model
    (``target``) and in the shadow models (``shadows``, with ``inside``), and of other examples of the same
    kind, none of them in the attacked model (``population``, ``population_shadows``). The score of x is the
    share of z for which [p(x | model) / p(x)] ÷ [p(z | model) / p(z)] is at least ``ratio``, p(x) being the
    mean over shadow models: over those with and those without x (``mode="online"``), or, from those without
    it alone, ½·((1 + a)·p + 1 − a) with a = ``offline_share``, which lies in [0, 1]. No shadow model was
    fitted to the population, so that p(z) is found from them in the same way. Examples with an equal share
    are ordered by p(x | model) / p(x), which moves a score by less than 1 / len(population).
    """
    seen, rest, mask = _signals(target, shadows, inside)
    others, their = _table("population", population, 1), _table("population_shadows", population_shadows, 2)
    if their.shape[1] != others.size:
        raise InvalidValue("population_shadows", their.shape, f"(models, {others.size})")
    given = {"target": seen, "shadows": rest, "population": others, "population_shadows": their}
    for name, each in given.items():
        if (each < 0).any() or (each > 1 + _ROUNDED).any():
            raise InvalidValue(name, "negative or above 1", "probabilities of the true class, in (0, 1]")
    _validate.positive("ratio", ratio)
    known = _validate.probability("offline_share", offline_share)
    online = _validate.choice("mode", mode, ("online", "offline")) == "online"
    usual, usual_others = _mean(rest, ~mask), their.mean(axis=0)
    if online:
        usual = (usual + _mean(rest, mask)) / 2
    else:
        usual, usual_others = (((1 + known) * each + 1 - known) / 2 for each in (usual, usual_others))
    ours = seen / np.maximum(usual, _LEAST)
    theirs = np.sort(others / np.maximum(usual_others, _LEAST))
    beaten = np.searchsorted(theirs, ours / ratio, side="right")
    return np.asarray((beaten + ours / (1 + ours)) / (theirs.size + 1))


def shadow_attack(
    features: ArrayLike,
    labels: ArrayLike,
    shadow_features: ArrayLike,
    shadow_labels: ArrayLike,
    inside: ArrayLike,
    *,
    attack_model: Any = None,
) -> Array:
    """The attack of Shokri et al. 2017: a classifier that learned from shadow models what members look like.

    ``features`` are predictions of the attacked model (examples, classes) and ``labels`` the places of the
    true classes; ``shadow_features`` (rows, classes), ``shadow_labels`` and ``inside`` are all predictions
    of all shadow models below each other, and whether the row was a member. Per class, ``attack_model``, by
    default scikit-learn's logistic regression, is fitted to the predictions in falling order and to the
    true class's probability. An example of a class on which all shadow rows, or none, are members scores the
    share of members among all shadow rows.
    """
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression

    table, told = _table("features", features, 2), np.asarray(labels)
    rows, classes = _table("shadow_features", shadow_features, 2), np.asarray(shadow_labels)
    member = np.asarray(inside, dtype=bool)
    if rows.shape[1] != table.shape[1] or len(rows) != classes.size or len(rows) != member.size:
        needed = "one row with a label and a membership each, of as many classes as the features"
        raise InvalidValue("shadow_features", rows.shape, needed)
    for name, given, count in (("labels", told, len(table)), ("shadow_labels", classes, len(rows))):
        whole = given.shape == (count,) and given.dtype.kind in "iu"
        if not whole or given.min() < 0 or given.max() >= table.shape[1]:
            needed = "the places of the true classes, one per row"
            raise InvalidValue(name, f"{given.dtype} of shape {given.shape}", needed)
    model = LogisticRegression(max_iter=1000) if attack_model is None else attack_model
    scores = np.full(len(table), member.mean())
    for label in np.unique(told):
        own, shadow = told == label, classes == label
        if len(np.unique(member[shadow])) < 2:
            continue
        fitted = clone(model).fit(_attacked(rows[shadow], classes[shadow]), member[shadow])
        scores[own] = fitted.predict_proba(_attacked(table[own], told[own]))[:, 1]
    return scores


def _attacked(table: Array, labels: NDArray[Any]) -> Array:
    """What an attack model sees of a prediction: logits in falling order, and that of the true class."""
    kept = np.clip(table, _LEAST, 1 - _LEAST)
    logits = np.log(kept) - np.log1p(-kept)
    return np.column_stack([-np.sort(-logits, axis=1), logits[np.arange(len(table)), labels]])


def _normal(signals: Array, mask: Mask, variance: str) -> tuple[Array, Array]:
    """Mean and standard deviation of each example's signals where ``mask`` holds."""
    count = mask.sum(axis=0)
    mean = _mean(signals, mask)
    squares = np.where(mask, (signals - mean) ** 2, 0.0).sum(axis=0)
    if variance == "each" and (count < 2).any():
        advice = 'Train more shadow models, or use variance="fixed".'
        raise InvalidValue("inside", "one shadow model for an example", "two or more, in and out", advice)
    if variance == "fixed":
        spread = np.full(mean.shape, np.sqrt(squares.sum() / max((count - 1).clip(0).sum(), 1)))
    else:
        spread = np.sqrt(squares / np.maximum(count - 1, 1))
    return mean, np.maximum(spread, _LEAST_SPREAD)


def _mean(signals: Array, mask: Mask) -> Array:
    count = mask.sum(axis=0)
    if (count == 0).any():
        raise InvalidValue("inside", "all alike for an example", "both in and out of some shadow model")
    return np.asarray(np.where(mask, signals, 0.0).sum(axis=0) / count)


def _log_density(values: Array, mean: Array, spread: Array) -> Array:
    return np.asarray(-np.log(spread) - 0.5 * ((values - mean) / spread) ** 2)


def _signals(target: ArrayLike, shadows: ArrayLike, inside: ArrayLike) -> tuple[Array, Array, Mask]:
    seen, rest = _table("target", target, 1), _table("shadows", shadows, 2)
    mask = np.asarray(inside)
    if mask.dtype != bool or mask.shape != rest.shape or rest.shape[1] != seen.size:
        needed = f"booleans of shape (models, {seen.size}), as shadows"
        raise InvalidValue("inside", f"{mask.dtype} of shape {mask.shape}", needed)
    return seen, rest, mask


def _table(name: str, values: ArrayLike, dimensions: int) -> Array:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidValue(name, type(values), "numbers") from None
    if found.ndim != dimensions or not found.size:
        raise InvalidValue(name, f"of shape {found.shape}", f"an array of {dimensions} dimensions")
    if not np.isfinite(found).all():
        raise InvalidValue(name, "NaN or infinite", "finite")
    return found
