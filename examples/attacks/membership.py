"""Membership inference: who was in the data of a forest?

The likelihood ratio attack (LiRA; Carlini et al. 2022) on Adult. The adversary knows twice as many people
as the model was fitted to, trains shadow models on random halves of them, and asks of each person whether
the attacked model treats that person as the shadow models that had the person do. A forest that learned its
rows by heart gives two in five of
its people away at one false alarm in a hundred; private random trees do not.

Prints a table, and writes attack_membership.png to out/.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from showing import COLOURS, EPSILONS, Array, Labels, adult, arguments, printed, saved, title_of
from sklearn.ensemble import RandomForestClassifier

from tacit import attacks
from tacit.estimators import RandomTrees

FALSE_ALARMS = 0.01


def fitting(X: Array, y: Labels, epsilon: float | None) -> Callable[[NDArray[np.intp]], Any]:
    """A function that fits the model to some of the rows."""

    def fit(places: NDArray[np.intp]) -> Any:
        if epsilon is None:
            model = RandomForestClassifier(20, bootstrap=False, random_state=0)
        else:
            model = RandomTrees(epsilon, classes=[0, 1], bounds=(-1, 1), trees=20)
        return model.fit(X[places], y[places])

    return fit


def attacked(X: Array, y: Labels, epsilon: float | None, shadows: int) -> attacks.MembershipScores:
    """The scores of LiRA against a model of the first half of the rows."""
    half = len(X) // 2
    fit = fitting(X, y, epsilon)

    def told(model: Any) -> Array:
        return attacks.signal(model.predict_proba(X), y)

    seen, inside = attacks.train_shadows(fit, told, examples=len(X), models=shadows, seed=1)
    scores = attacks.lira(told(fit(np.arange(half))), seen, inside, variance="fixed")
    return attacks.MembershipScores.of(scores[:half], scores[half:])


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__, argv)
    X, y, _ = adult(200 if given.quick else 1200)
    found = {each: attacked(X, y, each, 4 if given.quick else 16) for each in EPSILONS}
    rows = [
        (title_of(each), f"{scores.auroc:.2f}", str(scores.found(FALSE_ALARMS)))
        for each, scores in found.items()
    ]
    printed(
        f"LiRA on Adult: a forest, then private random trees, of {len(X) // 2} people",
        ("model", "AUROC", f"found at {FALSE_ALARMS:.0%} of false alarms"),
        rows,
    )
    figure = Figure(figsize=(5, 4.5))
    ax = figure.add_subplot()
    for (each, scores), colour in zip(found.items(), COLOURS, strict=True):
        false, hits = scores.roc
        ax.plot(false, hits, color=colour, label=f"{title_of(each)}, AUROC {scores.auroc:.2f}")
    least = 2 / len(X)
    ax.plot([least, 1], [least, 1], color="#999999", linestyle=":", label="guessing")
    ax.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1))
    ax.set(xlabel="others taken for members", ylabel="members found", title="Membership inference (LiRA)")
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    saved(figure, given.out, "attack_membership.png")


if __name__ == "__main__":
    main()
