"""evaluate_rows: the same figures as evaluate, and rows that are read once they are paid for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression as Plain
from sklearn.linear_model import LogisticRegression as PlainLogistic
from sklearn.pipeline import make_pipeline

from tacit import Budget, Column, Ledger, Schema, Unit
from tacit.data.preprocessor import Preprocessor
from tacit.errors import BudgetExceeded, InvalidValue, TacitError
from tacit.estimators import LogisticRegression
from tacit.evaluation import evaluate, evaluate_rows, register_rowwise, rowlocal

X = np.random.default_rng(3).uniform(-1, 1, (300, 2))
Y = (X[:, 0] > 0).astype(int)
SEX = np.where(X[:, 1] > 0, "F", "M")
WHO = np.arange(300) // 2


@pytest.fixture(scope="module")
def model() -> Any:
    return PlainLogistic().fit(X, Y)


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with Ledger.open(tmp_path / "study.db", budget=Budget(1.0)) as opened:
        yield opened


@pytest.mark.parametrize("public", [False, True])
def test_it_says_what_evaluate_says(public: bool, model: Any) -> None:
    paid: dict[str, Any] = {"public": True} if public else {"epsilon": 0.7}
    common = {**paid, "random_state": 4, "label": "a test", "rows_per_unit": 1}
    one = evaluate(model, X, Y, groups={"sex": (SEX, ["F", "M"])}, units=WHO, **common)
    two = evaluate_rows(
        model, lambda: (X, Y, WHO, {"sex": SEX}), groups={"sex": ["F", "M"]}, units=True, **common
    )
    assert one.to_dict() == two.to_dict()
    assert evaluate(model, X, Y, **common, population=300) == evaluate_rows(
        model, lambda: (X, Y, None, None), **common, population=300
    )


def test_public_targets_of_a_regressor_bound_themselves() -> None:
    model = Plain().fit(X, X[:, 0])
    assert evaluate_rows(model, lambda: (X, X[:, 0], None, None), public=True).figures["r2"] > 0.99
    with pytest.raises(InvalidValue, match="target_bounds"):
        evaluate_rows(model, lambda: pytest.fail("read"), epsilon=1.0)


def test_rows_are_read_once_and_after_the_charge(model: Any, ledger: Ledger) -> None:
    seen = []

    def read() -> Any:
        seen.append([entry.label for entry in ledger.entries()])
        return X, Y, None, None

    made = evaluate_rows(model, read, epsilon=0.8, ledger=ledger, label="hold-out")
    assert seen == [["hold-out"]]
    assert made.guarantee is not None
    assert made.guarantee.epsilon == ledger.spent().epsilon == 0.8
    with pytest.raises(BudgetExceeded):
        evaluate_rows(model, read, epsilon=0.8, ledger=ledger)
    assert len(seen) == 1


def test_a_reader_that_fails_has_been_paid_for(model: Any, ledger: Ledger) -> None:
    def read() -> Any:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        evaluate_rows(model, read, epsilon=0.8, ledger=ledger)
    assert ledger.spent().epsilon == 0.8


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"relation": "replace_one"}, "add_remove"),
        ({"units": True}, "The ledger protects one row"),
        ({"bins": 3}, "even"),
        ({"population": -1}, "population"),
        ({"units": True, "population": 3}, "left out"),
        ({"groups": {"sex": []}}, "categories"),
        ({"epsilon": None}, "exactly one"),
    ],
)
def test_bad_questions_are_refused_uncharged_and_unread(
    options: dict[str, Any], problem: str, model: Any, ledger: Ledger
) -> None:
    with pytest.raises(TacitError, match=problem):
        evaluate_rows(
            model, lambda: pytest.fail("read"), **{"epsilon": 0.5, "ledger": ledger, **options}
        )
    assert not list(ledger.entries())


def test_models_that_cannot_answer_are_refused_uncharged(ledger: Ledger) -> None:
    broken = PlainLogistic().fit(X, Y)
    broken.coef_ = np.ones((1, 5))
    schema = Schema({"age": Column("integer", bounds=(0, 99)), "ill": Column("boolean")})
    piped = make_pipeline(Preprocessor(schema, target="ill"), broken)
    for each, problem in ((broken, "no answer"), (piped, "2 columns of the model")):
        with pytest.raises(TacitError, match=problem):
            evaluate_rows(each, lambda: pytest.fail("read"), epsilon=0.5, ledger=ledger)
    assert not list(ledger.entries())


@pytest.mark.parametrize(
    ("given", "options", "problem"),
    [
        ((X, Y, WHO, None), {}, "units exactly if"),
        ((X, Y, None, None), {"units": True}, "units exactly if"),
        ((X, Y, None, {"sex": SEX}), {}, "labels of"),
        ((X, Y, None, None), {"groups": {"sex": ["F", "M"]}}, "labels of"),
        ((X, Y[:9], None, None), {}, "as many rows as y"),
        ((X[:, :1], Y, None, None), {}, "2 columns of the model"),
        ((X, Y, WHO[:9], None), {"units": True}, "as many as"),
    ],
)
def test_rows_that_are_not_as_declared_are_refused(
    given: Any, options: Any, problem: str, model: Any
) -> None:
    with pytest.raises(InvalidValue, match=problem):
        evaluate_rows(model, lambda: given, epsilon=0.5, **options)


def test_the_unit_is_the_ledgers(model: Any, tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "units.db", budget=Budget(1.0), unit=Unit("person", 2)) as ledger:
        made = evaluate_rows(
            model, lambda: (X, Y, WHO, None), epsilon=0.5, ledger=ledger, units=True, rows_per_unit=2
        )
    assert made.guarantee is not None
    assert made.guarantee.unit == Unit("person", 2)


# ------------------------------------------------------------------------------- the closed table of classes


class Subclass(LogisticRegression):
    """Of a class in the table, but not that class: it may do anything."""

    def decision_function(self, X: Any) -> Any:
        return super().decision_function(X) - np.mean(X)


def private(cls: type[Any]) -> Any:
    return cls(epsilon=5.0, bounds=(-1, 1), classes=[0, 1], random_state=1).fit(X, Y)


def test_only_the_registered_class_itself_is_in_the_table() -> None:
    assert rowlocal.parts_with_products(private(LogisticRegression)) is not None
    assert rowlocal.parts_with_products(private(Subclass)) is None
    for name in ("decision_function", "predict_proba", "_scores"):
        patched = private(LogisticRegression)
        setattr(patched, name, lambda X: X)
        assert rowlocal.parts_with_products(patched) is None
    held = private(LogisticRegression)
    held.coef_ = held.coef_.view(type("Array", (np.ndarray,), {}))
    assert rowlocal.parts_with_products(held) is None


def test_an_unregistered_class_is_asked_one_row_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: without its entry in the table, the same model is one of unknown class."""
    known = evaluate(private(LogisticRegression), X, Y, epsilon=1.0).guarantee
    table = {cls: held for cls, held in rowlocal._registered.items() if cls is not LogisticRegression}
    monkeypatch.setattr(rowlocal, "_registered", table)
    unknown = evaluate(private(LogisticRegression), X[:20], Y[:20], epsilon=1.0).guarantee
    assert known is not None
    assert unknown is not None
    assert not any("keeps nothing" in assumption for assumption in known.assumptions)
    assert any("keeps nothing" in assumption for assumption in unknown.assumptions)


def test_what_is_registered_stays_as_it_is() -> None:
    register_rowwise(LogisticRegression, rowlocal._registered[LogisticRegression])
    with pytest.raises(InvalidValue, match="as registered before"):
        register_rowwise(LogisticRegression, ("coef_",))
    with pytest.raises(InvalidValue, match="a class"):
        register_rowwise(private(LogisticRegression), ("coef_",))  # type: ignore[arg-type]


def test_every_part_of_a_schema_is_known() -> None:
    """A part that is not registered would make every pipeline run one row at a time, which is far slower."""
    parts = Schema({"x": Column("number", bounds=(0, 1))})
    made = [parts, parts["x"], *(getattr(parts, one.name) for one in dataclasses.fields(parts))]
    kinds = {type(value) for value in made if dataclasses.is_dataclass(value)}
    assert len(kinds) >= 5
    assert kinds <= set(rowlocal._registered)
