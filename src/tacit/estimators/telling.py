"""What a habit of scikit-learn's users does to a guarantee, said once in a process.

``score``, ``cross_val_score`` and ``GridSearchCV`` compute exact numbers from rows. Whether those rows are
private is not known here; that the numbers are covered by no guarantee, if they are, is.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from tacit.errors import BudgetExceeded, NotCovered

__all__ = ["refused_copy", "tell_once", "telling"]

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
