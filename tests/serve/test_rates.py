"""Nobody may ask too often, fill the queue, or try tokens: 429, from what the caller itself has done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from serve.conftest import Study, TestClient
from tacit.errors import InvalidValue, ServiceRefused
from tacit.serve import worker
from tacit.serve.actions import asking
from tacit.serve.http.application import application
from tacit.serve.rates import RETRY_AFTER, Rate
from tacit.serve.service import Place

FIT = {"model": "naive-bayes", "target": "income", "epsilon": 0.01}


def called(study: Study, client: TestClient, name: str | None) -> Any:
    token = "wrong" if name is None else study.tokens[name]
    return client.get("/api/v1/me", headers={"Authorization": f"Bearer {token}"})


def test_a_token_is_used_so_often_in_a_minute(make_study: Callable[..., Study]) -> None:
    study = make_study(rate=3)
    client = TestClient(application(study.service, hosts=()))
    assert [called(study, client, "ada").status_code for _ in range(5)] == [200, 200, 200, 429, 429]
    refused = called(study, client, "ada")
    assert refused.headers["retry-after"] == str(RETRY_AFTER)
    assert "3 times in a minute" in refused.json()["error"]["problem"]
    assert called(study, client, "bob").status_code == 200


def test_an_address_is_refused_that_tries_tokens(make_study: Callable[..., Study]) -> None:
    """But not whoever was recognised: behind a proxy all have one address."""
    study = make_study(failures=3)
    client = TestClient(application(study.service, hosts=()))
    assert called(study, client, "ada").status_code == 200
    codes = [called(study, client, None).status_code for _ in range(5)]
    assert codes == [401, 401, 401, 429, 429]
    assert called(study, client, None).headers["retry-after"] == str(RETRY_AFTER)
    assert called(study, client, "ada").status_code == 200
    assert called(study, client, "bob").status_code == 429


def test_an_analyst_has_so_many_jobs_that_wait(make_study: Callable[..., Study]) -> None:
    study = make_study(queue=2)
    for name in ("ada", "bob"):
        study.grant(name, models=["naive-bayes"])
    for _ in range(2):
        asking.start(study.service, study.ada, "people", "fit", FIT)
    with pytest.raises(ServiceRefused, match="2 jobs that wait") as refused:
        asking.start(study.service, study.ada, "people", "fit", FIT, "key")
    assert refused.value.status == 429
    asking.start(study.service, study.bob, "people", "fit", FIT)
    asking.ask(study.service, study.ada, "people", {"questions": ["count()"], "epsilon": 0.01})
    assert worker.once(study.service)
    asking.start(study.service, study.ada, "people", "fit", FIT, "key")


def test_a_job_that_has_ended_counts_until_the_tick(make_study: Callable[..., Study]) -> None:
    """Otherwise the queue tells when it has ended."""
    study = make_study(queue=1, tick=1e6)
    study.grant(models=["naive-bayes"])
    asking.start(study.service, study.ada, "people", "fit", FIT)
    assert worker.once(study.service)
    with pytest.raises(ServiceRefused, match="1 jobs that wait"):
        asking.start(study.service, study.ada, "people", "fit", FIT)


def test_limits_are_whole_numbers(make_study: Callable[..., Study], tmp_path: Any) -> None:
    with pytest.raises(InvalidValue, match="rate"):
        Place(tmp_path, rate=-1)
    many = Rate(1)
    assert all(many.take(f"name {number}") for number in range(10_100))
    assert len(many._buckets) == 10_000
