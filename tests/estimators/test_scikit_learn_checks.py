"""scikit-learn's own checks, for every estimator of the registry, but for those that privacy rules out.

A new estimator is checked as soon as it is registered and has a case in the battery, whose parameters are
taken. If it fails a check, the reason belongs into EXEMPT, or, for one class alone, into EXEMPT_OF.
"""

from __future__ import annotations

from typing import Any

from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from contract.test_estimator_battery import FITS
from tacit.estimators import ESTIMATORS, PrivateSearch

CHECKED = {**ESTIMATORS, "search": PrivateSearch}
"""Every estimator by name: those of the registry, and the search, which has no name on the command line."""

NOT_READ = "what the data hold does not decide whether fit raises"
EXEMPT = {
    "check_estimators_nan_inf": f"{NOT_READ}: a value that is not finite is missing",
    "check_supervised_y_no_nan": f"{NOT_READ}: a row without a target contributes nothing",
    "check_estimators_empty_data_messages": f"{NOT_READ}: no rows are rows like any others",
    "check_all_zero_sample_weights_error": f"{NOT_READ}: rows without weight are rows like any others",
    "check_dtype_object": f"{NOT_READ}: an entry that is no number is missing",
    "check_classifiers_classes": "classes are declared, and the check brings others",
    "check_classifiers_train": "classes are declared, and the check brings a third",
    "check_class_weight_classifiers": "classes are declared, and the check weighs a third",
    "check_classifiers_regression_target": "classes are declared; any other label contributes nothing",
    "check_sample_weight_equivalence_on_dense_data":
        "weights are clipped to a public bound, 1 here, and the check brings weights up to 5",
}  # fmt: skip
"""Checks that fail, with the reason."""
EXEMPT_OF: dict[str, dict[str, str]] = {
    "kmeans": {"check_clustering": "labels_ would hold one number for each private row"},
}
"""The same for one name of the registry."""
TOLD: dict[str, dict[str, Any]] = {
    name: {"norm": 20.0, "bounds": None, "population": None}
    for name in ("logistic", "svc", "linear", "ridge")
}
"""Parameters other than those of the battery, for the rows of the checks."""
LARGE = 1e4
"""ε so large that the checks see what they look for."""


def checked(name: str) -> Any:
    """An estimator as the checks fit it: the parameters of its first case, next to no noise, and a seed."""
    fit = next(each for each in FITS.values() if each.kind is CHECKED[name])
    params = fit.model(1e-6, LARGE, random_state=1).get_params(deep=False)
    params |= {"target_bounds": (-10, 10)} if "target_bounds" in params else {}
    return CHECKED[name](**{**params, **TOLD.get(name, {})})


def exempt(estimator: Any) -> dict[str, str]:
    name = next(name for name, kind in CHECKED.items() if kind is type(estimator))
    return EXEMPT | EXEMPT_OF.get(name, {})


CASED = [name for name, kind in CHECKED.items() if any(fit.kind is kind for fit in FITS.values())]
"""Names of the registry that have a case in the battery, which fails for any other."""


@parametrize_with_checks([checked(name) for name in CASED], expected_failed_checks=exempt)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_no_check_is_listed_that_is_not_run() -> None:
    run = {
        getattr(check, "func", check).__name__
        for name in CASED
        for _, check in estimator_checks_generator(checked(name), legacy=True)
    }
    assert set(EXEMPT) <= run
