"""Requests made from the OpenAPI description: whatever is sent, the service does not fail."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from serve.conftest import Study, made
from tacit.serve.http.application import application
from tacit.serve.http.routes import PREFIX
from tacit.serve.service import Place

schemathesis = pytest.importorskip("schemathesis")

TOGETHER = 10_000
"""Requests in all, of the long run."""
STATED = (400, 401, 402, 403, 404, 405, 408, 409, 413, 422)


def sent(study: Study, each: int) -> int:
    """Send generated requests, so many to each route as each of three callers; returns how many they were."""
    count = 0
    app = application(study.service, hosts=())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        description = schemathesis.openapi.from_asgi(f"{PREFIX}/openapi.json", app)
    for found in description.get_all_operations():
        operation = found.ok()
        if (operation.method.upper(), operation.path) == ("DELETE", f"{PREFIX}/session"):
            continue  # it would end the token that all others are sent with

        @settings(
            max_examples=each, deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def send(case: Any) -> None:
            nonlocal count
            for user in ("curator", "ada", "eve"):
                if "{name}" in case.path and count % 2:
                    case.path_parameters["name"] = "people"
                headers = {"Authorization": f"Bearer {study.tokens[user]}"}
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    answer = case.call(headers={**dict(case.headers or {}), **headers})
                count += 1
                assert answer.status_code < 400 or answer.status_code in STATED, answer.text
                assert str(study.service.place.home) not in answer.text

        send()
    return count


@pytest.fixture
def generous(folder: Path) -> Any:
    study = made(Place(folder / "home", rate=0, queue=0, failures=0), (1e5, 0.5))
    study.grant(epsilon=1e5, delta=0.5, models=["naive-bayes", "histogram"])
    yield study
    study.service.close()


def test_a_few_hundred_requests(generous: Study) -> None:
    assert 200 < sent(generous, 4) < 1000
    with generous.service.ledger("people") as ledger:
        ledger.verify()


@pytest.mark.audit
def test_ten_thousand_requests(generous: Study) -> None:
    each = int(os.environ.get("REQUESTS_EACH", "200"))
    assert sent(generous, each) >= TOGETHER
    with generous.service.ledger("people") as ledger:
        ledger.verify()
