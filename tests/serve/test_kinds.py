"""Every kind of job: training runs, tests on rows set aside, measurements; each charged once."""

from __future__ import annotations

from typing import Any

import pytest

from serve.conftest import Study
from serve.test_redraws import released
from tacit import jobs, load
from tacit.errors import BudgetExceeded, InvalidValue, ServiceRefused
from tacit.evaluation import Evaluation
from tacit.serve import worker
from tacit.serve.actions import asking
from tacit.serve.http.bodies import Training

TRAIN = {
    "architecture": "linear", "target": "income", "epsilon": 0.5, "delta": 1e-7, "population": 2000,
    "epochs": 2, "batch_size": 500,
}  # fmt: skip
FIT = {"model": "naive-bayes", "target": "income", "epsilon": 0.3}


def done(study: Study, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """A job carried out; how it stands."""
    number = asking.start(study.service, study.ada, "people", kind, body)["id"]
    assert worker.once(study.service)
    return asking.see_request(study.service, study.ada, number)


def test_a_network_is_trained(study: Study, one_thread: None) -> None:
    study.grant(models=["network"], delta=1e-6)
    plan = asking.plan(study.service, study.ada, "people", "train", TRAIN)
    assert (plan["fits"], plan["cost"]["delta"]) == (True, 1e-7)
    assert study.entries() == 0
    seen = done(study, "train", TRAIN)
    assert (seen["state"], seen["result"]["files"]) == ("done", ["model.safetensors"])
    place = asking.downloaded(study.service, study.ada, seen["id"], "model.safetensors")
    assert load(place).guarantee_.epsilon <= 0.5
    assert (study.entries(), seen["result"]["entries"]) == (1, [seen["entry"]])
    with study.service.ledger("people") as ledger:
        (entry,) = ledger.entries()
    assert entry.work is not None
    assert entry.work.run.endswith(seen["id"])


def test_a_training_run_that_is_killed_is_repeated(study: Study, one_thread: None) -> None:
    """From the first step: the same weights, and no second charge."""
    study.grant(models=["network"], delta=1e-6)
    first, second = released(study, "train", TRAIN, own_grant=False)
    assert first == second
    assert study.entries() == 1


def test_a_network_is_what_a_grant_allows_by_name(study: Study) -> None:
    study.grant(models=["naive-bayes"], delta=1e-6)
    for kind, body in (("train", TRAIN), ("evaluate", {"request": "0" * 32, "epsilon": 0.1})):
        with pytest.raises(ServiceRefused, match="does not allow the model"):
            asking.start(study.service, study.ada, "people", kind, body)


def test_what_a_training_run_may_not_be(study: Study) -> None:
    study.grant(models=["network"], delta=1e-6)
    for change, match in (
        ({"architecture": "resnet"}, "architecture"),
        ({"epochs": 10_000.0, "batch_size": 1}, "steps"),
        ({"target": "wage"}, "wage"),
    ):
        with pytest.raises(InvalidValue, match=match):
            asking.start(study.service, study.ada, "people", "train", {**TRAIN, **change})
    with pytest.raises(BudgetExceeded):
        asking.start(study.service, study.ada, "people", "train", {**TRAIN, "epsilon": 3.0})
    assert Training.model_validate({"kind": "train", **TRAIN, "epochs": 2.0}).architecture == "linear"
    assert study.entries() == 0


def test_a_fit_with_a_test_is_charged_for_both(study: Study) -> None:
    study.grant(models=["naive-bayes"])
    body = {**FIT, "test_share": 0.3, "test_epsilon": 0.2, "groups_by": ["sex"]}
    assert asking.plan(study.service, study.ada, "people", "fit", body)["cost"]["epsilon"] == 0.5
    seen = done(study, "fit", body)
    found = Evaluation.from_dict(seen["result"]["evaluation"])
    assert found.accuracy is not None
    assert 0 <= found.accuracy <= 1
    assert (study.entries(), study.spent(), len(seen["result"]["entries"])) == (2, 0.5, 2)
    with pytest.raises(BudgetExceeded):
        asking.start(study.service, study.ada, "people", "fit", {**body, "test_epsilon": 0.9})
    assert str(study.service.data) not in str(seen)


def test_a_test_that_others_have_left_no_budget_for(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model was paid for, and is released without its test."""
    study.grant(models=["naive-bayes"])
    bob = study.grant("bob", epsilon=4.0)
    genuine = jobs.fitting.testing.RowTest.run  # type: ignore[attr-defined]

    def late(self: Any, *given: Any) -> Any:
        body = {"questions": ["count()"], "epsilon": 3.6, "grant": bob}
        asking.ask(study.service, study.bob, "people", body)
        return genuine(self, *given)

    monkeypatch.setattr(jobs.fitting.testing.RowTest, "run", late)  # type: ignore[attr-defined]
    seen = done(study, "fit", {**FIT, "test_share": 0.3, "test_epsilon": 0.2})
    assert (seen["state"], seen["result"]["files"]) == ("done", ["model.tacit"])
    assert "did not suffice for the test" in seen["result"]["notes"][0]
    assert len(seen["result"]["entries"]) == 1


def test_a_model_is_measured_on_the_rows(study: Study) -> None:
    study.grant(models=["naive-bayes", "evaluation"])
    made = done(study, "fit", FIT)
    seen = done(study, "evaluate", {"request": made["id"], "epsilon": 0.2})
    assert (seen["state"], seen["result"]["files"], study.spent()) == ("done", [], 0.5)
    found = Evaluation.from_dict(seen["result"]["evaluation"])
    assert found.accuracy is not None
    assert 0 <= found.accuracy <= 1
    study.grant("bob", models=["evaluation"])
    for number in (made["id"], seen["id"], "f" * 32):
        who = study.bob if number == made["id"] else study.ada
        with pytest.raises(InvalidValue, match="a request of yours that has made a model"):
            asking.start(study.service, who, "people", "evaluate", {"request": number, "epsilon": 0.1})
