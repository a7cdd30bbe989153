"""What a habit of scikit-learn's users does to a guarantee, said once in a process.

``score``, ``cross_val_score`` and ``GridSearchCV`` compute exact numbers from rows. Whether those rows are
private is not known here; that the numbers are covered by no guarantee, if they are, is.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from sklearn.base import BaseEstimator

from tacit.errors import BudgetExceeded, NotCovered

__all__ = ["Telling", "refused_copy", "tell_once", "telling"]

SCORES = (
    "Scores on private rows, whether by score(), cross_val_score or GridSearchCV, are computed without "
    "noise: no guarantee covers them, and no ledger is charged for them. Score on public rows, or evaluate "
    "privately with tacit.evaluate(model, X, y, epsilon=...). This is said once in each process."
)
NOT_CHARGED = "The fits of a search are charged nowhere either, unless the estimator has a ledger=."
SEARCH = (
    "Cross-validation and grid search pay for every fit anew. tacit.estimators.PrivateSearch searches a grid "
    "for the price of about two fits; or give each fit a smaller epsilon=, or search on public rows."
)

_told: set[str] = set()


def tell_once(charged: bool) -> None:
    """Warn, once in a process, that scores on private rows are not covered."""
    if "scores" not in _told:
        _told.add("scores")
        text = SCORES if charged else f"{SCORES} {NOT_CHARGED}"
        warnings.warn(text, NotCovered, stacklevel=4)


def telling(score: Callable[..., Any]) -> Callable[..., Any]:
    """The same ``score``, which warns before the first number it computes."""

    @functools.wraps(score)
    def scored(self: Any, *arguments: Any, **options: Any) -> Any:
        tell_once(charged=True)
        return score(self, *arguments, **options)

    scored._tells = True  # type: ignore[attr-defined]
    return scored


def refused_copy(refused: BudgetExceeded) -> BudgetExceeded:
    """The refusal of a charge for a copy of an estimator, which names the way to a private search."""
    fields = {name: value for name, value in vars(refused).items() if name not in ("problem", "next_step")}
    return BudgetExceeded(refused.problem, f"{refused.next_step} {SEARCH}", **fields)


class Telling(BaseEstimator):  # type: ignore[misc]
    """Base of estimators that read private data: its ``score`` warns, and a copy knows that it is one."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Have ``score``, where a mixin brings one, say that no guarantee covers it."""
        super().__init_subclass__(**options)
        score = getattr(cls, "score", None)
        if score is not None and not hasattr(score, "_tells"):
            cls.score = telling(score)

    def __sklearn_clone__(self) -> Any:
        """A copy that is not fitted, with the same ledger, which knows that it is a copy."""
        made = super().__sklearn_clone__()
        made._copied = True
        return made

    def _forget(self) -> None:
        """Drop what an earlier fit set: its event paid for none of this one, and this one for none of it.

        A fit that fails midway leaves nothing either. One that the ledger refuses leaves the model as it was.
        """
        for name in [each for each in vars(self) if each.endswith("_") and not each.startswith("_")]:
            delattr(self, name)
        self.__dict__.pop("_evaluations", []).clear()
