"""Extraction: a copy of a model from its answers, which differential privacy does not prevent.

A logistic regression is a system of equations: features + 1 answers with probabilities give all of its
weights (Tramèr et al. 2016). A forest that answers with labels alone is imitated by another model that is
trained on its answers. Both succeed whether or not the attacked model is private. Privacy protects the
people in the training data; a stolen copy of a private model is as private as the model. Who wants to
protect the model has to limit the questions, or what is answered. Here fewer questions copy
the private trees than the forest.

Prints two tables, and writes attack_extraction.png to out/.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from showing import EPSILONS, Array, adult, arguments, lines, printed, saved, title_of
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from tacit import attacks, estimators
from tacit.errors import InvalidValue

DELTA = 1e-6
Draw = Callable[[int, np.random.Generator], Array]


def imitated(model: Any, draw: Draw, questions: int, unseen: Array) -> float:
    """How often a forest that is trained on so many answers of the model agrees with it on unseen people."""
    told = np.asarray(model.predict(unseen))
    try:
        copy = attacks.distil(
            model.predict, RandomForestClassifier(50, random_state=0), draw, questions=questions, seed=1
        ).model
    except InvalidValue:  # the model gives one answer to all: so does its copy
        return float((told == model.predict(draw(1, np.random.default_rng(1)))).mean())
    return float((np.asarray(copy.predict(unseen)) == told).mean())


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__, argv)
    X, y, _ = adult(400 if given.quick else 6000)
    half, asked_until = len(X) // 2, 3 * len(X) // 4
    unseen = X[asked_until:]
    budgets = (40, 80) if given.quick else (50, 100, 200, 400, 800)

    def draw(count: int, generator: np.random.Generator) -> Array:
        """Questions about people whom the adversary knows, none of them in the training data."""
        return np.asarray(X[generator.integers(half, asked_until, count)])

    solved = []
    for epsilon in EPSILONS:
        if epsilon is None:
            linear: Any = LogisticRegression(max_iter=1000)
            trees: Any = RandomForestClassifier(20, random_state=0)
        else:
            public: dict[str, Any] = {"classes": [0, 1], "bounds": (-1, 1), "random_state": 1}
            linear = estimators.LogisticRegression(epsilon, DELTA, **public)
            trees = estimators.RandomTrees(epsilon, **public)
        linear.fit(X[:half], y[:half])
        trees.fit(X[:half], y[:half])
        copy = attacks.solve_linear(linear.predict_proba, features=X.shape[1], kind="probability", lower=-1.0)
        same = (copy.decision(X[half:])[:, 0] > 0) == (linear.predict(X[half:]) == 1)
        agrees = [imitated(trees, draw, budget, unseen) for budget in budgets]
        solved.append((title_of(epsilon), f"{linear.score(X[half:], y[half:]):.1%}", str(copy.questions),
                       f"{same.mean():.2%}", agrees))  # fmt: skip
    printed(
        "Equation solving: a logistic regression on Adult",
        ("model", "accuracy", "questions", "copy agrees"),
        [row[:4] for row in solved],
    )
    printed(
        "Distillation: trees that answer with labels, on people that the copy never asked about",
        ("model", *(f"{budget} questions" for budget in budgets)),
        [(row[0], *(f"{each:.0%}" for each in row[4])) for row in solved],
    )
    figure = Figure(figsize=(5.5, 4))
    ax = figure.add_subplot()
    lines(ax, list(budgets), [row[4] for row in solved], [row[0] for row in solved])
    ax.set(xscale="log", xlabel="questions", ylabel="copy agrees with the trees")
    ax.set_xticks(list(budgets), [str(budget) for budget in budgets])
    ax.minorticks_off()
    ax.set_title("Extraction works with and without privacy")
    saved(figure, given.out, "attack_extraction.png")


if __name__ == "__main__":
    main()
