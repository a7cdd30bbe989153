"""A grant is revoked before a charge or after it, and never in between, on both databases."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from serve.conftest import Study
from tacit.errors import ServiceRefused
from tacit.ledger.book import Book
from tacit.ledger.ledger import Ledger
from tacit.serve import worker
from tacit.serve.actions import asking, holdings

COUNT = {"questions": ["count()"], "epsilon": 0.01}
FIT = {"model": "naive-bayes", "target": "income", "epsilon": 0.1}


def revoked_just_before_the_charge(study: Study, patch: pytest.MonkeyPatch) -> None:
    """A question whose grant is revoked when everything was looked at, and nothing charged yet."""
    grant, genuine = study.grant(models=["naive-bayes"]), Book.charge
    done: list[str] = []

    def charge(*given: Any, **options: Any) -> Any:
        if not done:
            done.append(holdings.revoke_grant(study.service, study.curator, grant)["id"])
        return genuine(*given, **options)

    patch.setattr(Book, "charge", charge)
    asking.ask(study.service, study.ada, "people", COUNT)


def test_the_grant_is_looked_up_in_the_transaction(anywhere: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServiceRefused, match="has ended before") as refused:
        revoked_just_before_the_charge(anywhere, monkeypatch)
    assert (refused.value.status, anywhere.entries()) == (403, 0)
    assert not anywhere.service.seeds.kept()


def test_a_twin_that_looks_before_is_caught(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """It charges for a grant that was revoked."""
    genuine = Ledger.within

    def unchecked(self: Ledger, allowance: Any, *, check: Any = None, shared: bool = False) -> Ledger:
        return genuine(self, allowance, shared=shared)

    monkeypatch.setattr(Ledger, "within", unchecked)
    revoked_just_before_the_charge(study, monkeypatch)
    assert study.entries() == 1


def test_a_job_whose_grant_is_revoked_while_it_is_planned(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant, genuine = study.grant(models=["naive-bayes"]), Book.charge
    number = asking.start(study.service, study.ada, "people", "fit", FIT)["id"]

    def charge(*given: Any, **options: Any) -> Any:
        holdings.revoke_grant(study.service, study.curator, grant)
        return genuine(*given, **options)

    monkeypatch.setattr(Book, "charge", charge)
    assert worker.once(study.service)
    seen = asking.see_request(study.service, study.ada, number)
    assert (seen["state"], seen["result"]["error"]["status"], study.entries()) == ("refused", 403, 0)
    assert not (study.service.place.home / "work" / number).exists()


def test_a_race_of_charges_with_the_end_of_their_grant(anywhere: Study) -> None:
    """Whoever is told that the grant is revoked finds no later charge."""
    study, grant = anywhere, anywhere.grant()
    begun, told = threading.Event(), []

    def ask() -> None:
        for _ in range(40):
            try:
                asking.ask(study.service, study.ada, "people", COUNT)
            except ServiceRefused as error:
                told.append(error.status)
                return
            begun.set()

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for one in threads:
        one.start()
    assert begun.wait(120)
    holdings.revoke_grant(study.service, study.curator, grant)
    then = study.entries()
    for one in threads:
        one.join(120)
    assert study.entries() == then
    assert set(told) <= {403, 404}
    assert len(told) == 3
