"""Inversion: what a digit looks like, and the secret attribute of a person, from the answers of a model.

First, Fredrikson, Jha and Ristenpart (2015): the probability of a class of a logistic regression on MNIST
is climbed until an image appears. What appears is what is common to a class, and a private model may know
that: at a large ε and with thousands of images it still shows the digit. Differential privacy protects the
images of one person, and no class of many.

Then Fredrikson et al. (2014) on Adult: somebody who knows all of a person but the marital status asks the
model which status fits the person's income. Against a forest that learned its rows by heart the attack is
right more often about its members than about others: that difference is the harm of being in the data.
Against private models there is no such difference. What they still tell is what is true of everybody,
members or not.

Prints two tables, and writes attack_inversion.png to out/.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from showing import EPSILONS, Array, Labels, adult, arguments, digits, images, printed, saved, title_of
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from tacit import attacks, estimators

SHOWN = (0, 3, 7)
DELTA = 1e-5


def digit_model(X: Array, y: Labels, epsilon: float | None) -> Any:
    """A logistic regression of ten classes."""
    if epsilon is None:
        return LogisticRegression(C=0.05, max_iter=300).fit(X, y)
    norm = np.sqrt(X.shape[1]) / 2
    private = estimators.LogisticRegression(
        epsilon, DELTA, classes=list(range(10)), norm=float(norm), random_state=1
    )
    return private.fit(X, y)


def inverted(model: Any, digit: int, size: int, steps: int) -> Array:
    """The image that the model takes for a digit, found from its answers alone."""

    def score(rows: Array) -> Array:
        return np.asarray(np.log(np.clip(np.asarray(model.predict_proba(rows))[:, digit], 1e-12, 1)))

    found = attacks.invert(score, np.zeros(size * size), steps=steps, rate=0.5, probes=64, seed=1)
    return found.input.reshape(size, size)


def likeness(image: Array, truth: Array) -> float:
    """The correlation of two images; 0 for one that is blank."""
    if image.std() == 0:
        return 0.0
    return float(np.corrcoef(image.ravel(), truth.ravel())[0, 1])


def married(quick: bool) -> list[tuple[str, ...]]:
    """The attack on Adult: how often the secret column is found, of members and of others."""
    X, y, names = adult(400 if quick else 4000)
    half = len(X) // 2
    column = names.index("marital_status=Married-civ-spouse")
    others = [
        place for place, name in enumerate(names) if name.startswith(("marital_status", "relationship"))
    ]
    values = np.unique(X[:, column])
    truth = np.searchsorted(values, X[:, column])
    rest = np.delete(X, [place for place in others if place != column], axis=1)
    place = column - sum(other < column for other in others)
    prior = np.bincount(truth[half:], minlength=2) / half
    rows = []
    for epsilon in EPSILONS:
        if epsilon is None:
            model: Any = RandomForestClassifier(20, bootstrap=False, random_state=0)
        else:
            model = estimators.LogisticRegression(
                epsilon, DELTA, classes=[0, 1], bounds=(-1, 1), random_state=1
            )
        model.fit(rest[:half], y[:half])
        found = attacks.infer_attribute(
            model.predict_proba, rest, y, column=place, values=values, prior=prior
        )
        right = found == truth
        shares = (right[:half].mean(), right[half:].mean(), max(prior))
        rows.append((title_of(epsilon), *(f"{share:.1%}" for share in shares)))
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__, argv)
    pictures, y = digits(300 if given.quick else 4000, large=not given.quick)
    size = pictures.shape[1]
    X = pictures.reshape(len(pictures), -1)
    truth = [pictures[y == digit].mean(axis=0) for digit in SHOWN]
    shown, rows = [truth], []
    for epsilon in EPSILONS:
        model = digit_model(X, y, epsilon)
        found = [inverted(model, digit, size, 20 if given.quick else 120) for digit in SHOWN]
        shown.append(found)
        alike = [likeness(one, other) for one, other in zip(found, truth, strict=True)]
        rows.append((title_of(epsilon), f"{model.score(X, y):.0%}", *(f"{each:.2f}" for each in alike)))
    header = ("model", "accuracy", *(f"likeness of {digit}" for digit in SHOWN))
    printed(f"Model inversion: {len(X)} images of {size} × {size} pixels", header, rows)
    header = ("model", "right about members", "right about others", "without a model")
    printed("Attribute inference on Adult: married or not", header, married(given.quick))
    figure = images(
        [list(row) for row in shown],
        [str(digit) for digit in SHOWN],
        ["mean image", *map(title_of, EPSILONS)],
        about="Model inversion: what each model takes for a digit",
    )
    saved(figure, given.out, "attack_inversion.png")


if __name__ == "__main__":
    main()
