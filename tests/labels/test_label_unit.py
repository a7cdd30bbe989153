"""The unit "label" is kept apart from rows: in units, guarantees, ledgers, files, pages and commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.linear_model import Ridge
from typer.testing import CliRunner

import tacit
from tacit import Budget, Ledger, Relation, Schema, Unit, events
from tacit.cli import app
from tacit.errors import InvalidValue, TacitError
from tacit.estimators import LogisticRegression
from tacit.guarantee import Guarantee
from tacit.labels import LabelPrivateClassifier, LabelPrivateRegressor
from tacit.ledger import Payment
from tacit.ledger.budget import Terms
from tacit.relations import LABEL
from tacit.report.ledger import Verification, ledger_page
from tacit.report.membership import Tradeoff, in_words
from tacit.schema import Column

X = np.linspace(-1, 1, 40)[:, None]
Y = (X[:, 0] > 0).astype(int)


@pytest.fixture
def labels(tmp_path: Path) -> Any:
    with Ledger.open(tmp_path / "labels.db", Budget(2.0), unit=LABEL) as ledger:
        yield ledger


@pytest.fixture
def rows(tmp_path: Path) -> Any:
    with Ledger.open(tmp_path / "rows.db", Budget(2.0), relation="replace_one") as ledger:
        yield ledger


def test_a_label_is_no_row() -> None:
    assert Unit() != LABEL != Unit("patient_id", 1)
    assert str(LABEL) == "label"
    assert str(Unit(part="label", name="patient")) == "label of one patient"
    assert Unit(**LABEL.to_dict()) == LABEL


def test_units_of_rows_are_stored_as_they_always_were() -> None:
    assert Unit().to_dict() == {"column": None, "rows": 1}
    assert Unit("id", 2, name="man").to_dict() == {"column": "id", "rows": 2, "name": "man"}
    assert "part" not in Guarantee(1.0, 0.0, events.Pure(1.0)).to_json()
    assert "part" not in Terms(Budget(1.0), Relation.ADD_REMOVE, Unit()).to_json()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Unit(part="features"),
        lambda: Unit("patient_id", 2, part="label"),
        lambda: Guarantee(1.0, 0.0, events.Pure(1.0), Relation.ADD_REMOVE, LABEL),
        lambda: Payment.agreed(None, relation="add_remove", unit=LABEL),
        lambda: Schema({"age": Column("integer", bounds=(0, 9))}, unit=LABEL),
    ],
)
def test_what_goes_with_no_label_is_refused(make: Any) -> None:
    with pytest.raises(InvalidValue):
        make()


def test_a_guarantee_of_labels_says_what_it_leaves_out() -> None:
    guarantee = Guarantee(1.0, 0.0, events.Pure(1.0), Relation.REPLACE_ONE, LABEL)
    assert "replace_one of one label; the features are not protected" in guarantee.statement()
    again = Guarantee.from_json(guarantee.to_json())
    assert again == guarantee
    assert again != Guarantee(1.0, 0.0, events.Pure(1.0), Relation.REPLACE_ONE)


def test_a_ledger_of_labels_reopens_with_its_unit(tmp_path: Path) -> None:
    place = tmp_path / "labels.db"
    with Ledger.open(place, Budget(1.0), unit=LABEL) as ledger:
        assert ledger.relation is Relation.REPLACE_ONE
    with Ledger.open(place) as ledger:
        assert ledger.unit == LABEL
        assert ledger.spent().unit == LABEL
        assert ledger.verify()
    with pytest.raises(TacitError):
        Ledger.open(place, unit=Unit())
    with pytest.raises(InvalidValue):
        Ledger.open(tmp_path / "other.db", Budget(1.0), unit=LABEL, relation="add_remove")
    assert not (tmp_path / "other.db").exists()


FITS = (
    LabelPrivateClassifier(Plain(), classes=[0, 1]),
    LabelPrivateRegressor(Ridge(), target_bounds=(0, 1)),
)


@pytest.mark.parametrize("made", FITS, ids=lambda made: type(made).__name__)
def test_labels_are_not_charged_to_a_ledger_of_rows(made: Any, rows: Any) -> None:
    model = clone(made).set_params(ledger=rows)
    with pytest.raises(TacitError, match="The ledger protects one row, not one label"):
        model.fit(X, Y)
    assert not rows.entries()


def test_rows_are_not_charged_to_a_ledger_of_labels(labels: Any, tmp_path: Path) -> None:
    schema = Schema({"age": Column("integer", bounds=(0, 9))})
    data = tmp_path / "rows.csv"
    data.write_text("age\n1\n")
    plain = LogisticRegression(classes=[0, 1], norm=1.0, random_state=1)
    charged = [
        lambda: plain.set_params(ledger=labels, relation="replace_one").fit(X, Y),
        lambda: plain.set_params(ledger=labels, relation="add_remove").fit(X, Y),
        lambda: tacit.tables.open(data, schema=schema, ledger=labels),
        lambda: tacit.evaluate(
            plain.set_params(ledger=None).fit(X, Y), X, Y, epsilon=0.5, ledger=labels, relation="replace_one"
        ),
        lambda: Payment.agreed(labels, unit=Unit()),
        lambda: Payment.agreed(labels, unit=Unit("unit", 1), named=False),
    ]
    for charge in charged:
        with pytest.raises(TacitError, match="The ledger protects one label"):
            charge()
    with pytest.raises(InvalidValue):
        tacit.tables.open(data, schema=schema, ledger=labels, unit=LABEL)
    assert not labels.entries()


def test_a_plan_of_training_takes_no_label() -> None:
    pytest.importorskip("torch")
    from tacit.training import Plan

    with pytest.raises(InvalidValue, match="Use tacit"):
        Plan(population=10, batch_size=2, epochs=1, clip_norm=1.0, epsilon=1.0, delta=1e-3, unit=LABEL)


def test_a_fit_is_charged_to_a_ledger_of_labels(labels: Any) -> None:
    model = LabelPrivateClassifier(Plain(), 0.5, method="response", classes=[0, 1], ledger=labels).fit(X, Y)
    assert [entry.event for entry in labels.entries()] == [events.RandomizedResponse(0.5, 2)]
    assert model.guarantee_.unit == labels.unit == LABEL
    page = ledger_page([labels], Verification.of(labels))
    assert "the label of one row, and nothing else; the features are not protected" in page
    assert "a suspected label of one given row is the true one" in page
    assert "was in the data" not in page


def test_a_page_of_a_model_speaks_of_labels() -> None:
    guarantee = Guarantee(1.0, 0.0, events.Pure(1.0), Relation.REPLACE_ONE, LABEL, "seeded")
    words = " ".join(in_words(guarantee, Tradeoff.of(guarantee)))
    assert words.startswith("THE NOISE OF THIS MODEL WAS SEEDED")
    assert "Only labels are protected" in words
    assert "73.2%" in words


def test_the_command_makes_and_shows_a_ledger_of_labels(tmp_path: Path) -> None:
    place, run = str(tmp_path / "labels.db"), CliRunner()
    made = run.invoke(app, ["ledger", "init", place, "--epsilon", "1", "--protect", "label"])
    assert made.exit_code == 0, made.output
    assert "under replace_one of one label; the features are not protected." in made.output
    shown = run.invoke(app, ["ledger", "show", place])
    assert "replace_one of one label; the features are not protected" in " ".join(shown.output.split())
    told = json.loads(run.invoke(app, ["ledger", "show", place, "--format", "json"]).output)
    assert told["datasets"][0]["unit"] == {"column": None, "rows": 1, "part": "label"}
    for wrong in (["--protect", "features"], ["--protect", "label", "--relation", "add_remove"]):
        refused = run.invoke(app, ["ledger", "init", str(tmp_path / "x.db"), "--epsilon", "1", *wrong])
        assert refused.exit_code != 0
        assert not (tmp_path / "x.db").exists()
