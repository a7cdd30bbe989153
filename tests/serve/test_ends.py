"""How things end: grants, tokens and requests, and what may be told of it when."""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from serve.conftest import Study, TestClient
from tacit.errors import InvalidValue, LedgerCorrupted, ServiceRefused
from tacit.serve import carrying, worker
from tacit.serve.access import identified
from tacit.serve.actions import asking, auditing, holdings, people
from tacit.serve.http.application import application
from tacit.serve.service import Service
from tacit.serve.store import requests

FIT = {"model": "naive-bayes", "target": "income", "epsilon": 0.5}
COUNT = {"questions": ["count()"], "epsilon": 0.1}


def started(study: Study) -> tuple[str, str]:
    """A grant, and a fit that waits to be charged to it."""
    grant = study.grant(models=["naive-bayes", "marginals"])
    return grant, str(asking.start(study.service, study.ada, "people", "fit", FIT)["id"])


def test_a_revoked_grant_pays_for_nothing_that_waits(study: Study) -> None:
    grant, number = started(study)
    holdings.revoke_grant(study.service, study.curator, grant)
    assert worker.once(study.service)
    seen = asking.see_request(study.service, study.ada, number)
    assert (seen["state"], seen["result"]["error"]["status"], study.entries()) == ("refused", 403, 0)


def test_a_grant_that_has_expired_pays_for_nothing_that_waits(study: Study) -> None:
    study.grant(models=["naive-bayes"], days=1.0)
    number = asking.start(study.service, study.ada, "people", "fit", FIT)["id"]
    assert worker.once(replace(study.service, clock=lambda: time.time() + 86500))
    with study.service.database.read() as connection:
        held = requests.find(connection, number)
    assert held is not None
    assert (held.state, study.entries()) == ("refused", 0)


def test_what_was_paid_for_is_answered_though_the_grant_was_revoked(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is killed after the charge: the next one owes the release."""

    class Killed(BaseException):
        pass

    def killed(*given: Any) -> Any:
        raise Killed

    grant, number = started(study)
    with monkeypatch.context() as patch:
        patch.setattr(carrying, "_end", killed)
        with pytest.raises(Killed):
            worker.once(study.service)
    assert study.entries() == 1
    holdings.revoke_grant(study.service, study.curator, grant)
    later = replace(study.service, clock=lambda: time.time() + 2 * requests.LEASE)
    assert worker.once(later)
    assert asking.see_request(later, study.ada, number)["state"] == "done"
    assert study.entries() == 1


def test_a_request_that_was_cancelled_is_not_charged_by_the_next_worker(study: Study) -> None:
    """Cancelled while a worker held it that was killed before the charge."""
    _, number = started(study)
    with study.service.database.write() as connection:
        assert requests.next_claim(connection, study.service.now() - 2 * requests.LEASE) is not None
    asking.cancel_request(study.service, study.ada, number)
    assert not worker.once(study.service)
    assert asking.see_request(study.service, study.ada, number)["state"] == "cancelled"
    assert study.entries() == 0


def test_a_release_that_cannot_be_stored_is_not_drawn_again(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise noise is drawn until it can be stored: another distribution than what was paid for."""
    study.grant()
    drawn: list[float] = []

    def infinite(*given: Any) -> dict[str, Any]:
        drawn.append(math.inf)
        return {"answers": [{"rows": [{"value": math.inf}]}]}

    monkeypatch.setattr(carrying, "_answers", infinite)
    for later in (0, 2 * requests.LEASE):
        service = replace(study.service, clock=lambda by=later: time.time() + by)
        with pytest.raises(ServiceRefused, match="could not be computed"):
            asking.ask(service, study.ada, "people", COUNT, "key")
    assert (len(drawn), study.entries()) == (1, 1)


def test_the_number_of_synthetic_rows_is_public(study: Study) -> None:
    """As many rows as the noisy count says may not fit into memory: then the noise decides who is killed."""
    study.grant(models=["marginals"])
    body = {"epsilon": 1e-7, "bins": 2}
    for act in (asking.plan, asking.start):
        with pytest.raises(InvalidValue, match="rows must be given"):
            act(study.service, study.ada, "people", "synthesize", body)
    assert asking.start(study.service, study.ada, "people", "synthesize", {**body, "epsilon": 0.5, "rows": 5})


def test_a_model_that_was_written_elsewhere_is_not_told_of(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full: what is rescued elsewhere is named by a note, with its place."""
    from tacit.jobs import files

    def rescued(write: Any, out: Any, overwrite: bool, warn: Any, what: str = "model") -> Any:
        warn(f"The {what} was written to /tmp/elsewhere instead.")
        return out

    _, number = started(study)
    monkeypatch.setattr(files, "kept", rescued)
    assert worker.once(study.service)
    seen = asking.see_request(study.service, study.ada, number)
    assert seen["state"] == "failed"
    assert "elsewhere" not in str(seen)


def test_questions_of_too_many_groups_are_refused(study: Study) -> None:
    """One process answers everybody's questions: nobody may fill its memory."""
    study.grant()
    wide = {"statistic": "count", "by": ["age", "sex", "income"], "weight": 1.0}
    edges = {"statistic": "histogram", "column": "age", "edges": 100, "by": ["sex", "income"]}
    assert asking.plan(study.service, study.ada, "people", "questions", {**COUNT, "questions": [wide, edges]})
    study.service.data.joinpath("wide.csv").write_text("a,b\n1,1\n")
    schema = "".join(f'[columns.{name}]\ntype = "integer"\nbounds = [0, 999]\n' for name in "ab")
    holdings.register(study.service, study.curator, "wide", source="wide.csv", schema=schema, epsilon=1.0)
    holdings.make_grant(study.service, study.curator, analyst="ada", dataset="wide", epsilon=1.0)
    body = {"questions": ["count() by a, b"], "epsilon": 0.1}
    for act in (asking.ask, lambda *given: asking.plan(*given[:3], "questions", given[3])):
        with pytest.raises(InvalidValue, match="at most 250000 numbers are answered"):
            act(study.service, study.ada, "wide", body)
    medians = {**body, "questions": ["median(a) by b"]}
    assert asking.plan(study.service, study.ada, "wide", "questions", medians)
    with pytest.raises(InvalidValue, match="at most 10000000 numbers are counted"):
        asking.plan(
            study.service, study.ada, "wide", "questions", {**body, "questions": ["median(a) by b"] * 11}
        )


def test_a_session_ends_with_its_token(study: Study) -> None:
    """It is started with a token of one day, a second one is started, and the token is revoked."""
    service = study.service
    token = people.issue_token(service, study.curator, "ada", days=0.1)
    _, session = people.start_session(service, token["token"])
    _, second = people.start_session(service, token["token"])
    later = replace(service, clock=lambda: time.time() + 0.2 * 86400)
    with pytest.raises(ServiceRefused, match="expired"):
        identified(later, session.text, session=True)
    people.end_session(service, identified(service, second.text, session=True))
    assert identified(service, session.text, session=True).name == "ada"
    people.revoke_token(service, study.curator, token["id"])
    with pytest.raises(ServiceRefused, match="revoked"):
        identified(service, session.text, session=True)
    assert identified(service, study.tokens["ada"]).name == "ada"


def test_a_cookie_that_leaves_the_machine_is_sent_over_https_only(study: Study) -> None:
    """Behind a proxy that speaks https the service itself does not know of it."""
    for name, secure in (("data.example.org", True), ("127.0.0.1", False)):
        client = TestClient(application(study.service, hosts=()), base_url=f"http://{name}")
        answer = client.post("/api/v1/session", headers={"Authorization": f"Bearer {study.tokens['ada']}"})
        assert ("Secure" in answer.headers["set-cookie"]) == secure


def test_the_end_of_the_log_is_pinned_by_its_head(study: Study) -> None:
    """Whoever can write the database removes the last lines, and what the database says of their number."""
    told = auditing.verify(study.service, study.auditor, "people")
    study.grant()
    later = auditing.verify(study.service, study.auditor, "people", log_head=told["log_head"])
    with sqlite3.connect(study.service.place.home / "service.db") as connection:
        connection.execute("DROP TRIGGER tacit_service_no_delete")
        connection.execute("DELETE FROM tacit_service_log WHERE number = ?", (later["log_lines"],))
        number, head = told["log_head"].split(":")
        connection.execute("UPDATE tacit_service SET entries = ?, head = ?", (int(number), head))
    assert auditing.verify(study.service, study.auditor, "people") == told
    with pytest.raises(LedgerCorrupted, match="lacks the line"):
        auditing.verify(study.service, study.auditor, "people", log_head=later["log_head"])


@pytest.fixture
def ticking(make_study: Callable[..., Study]) -> Study:
    """A study whose next tick is far away, with a grant and a request that has ended."""
    study = make_study(tick=1e6)
    study.grant(models=["naive-bayes"])
    return study


def run_to(study: Study, number: str, progress: str | None) -> None:
    """A job that is being carried out, or has ended if there is no progress to tell."""
    with study.service.database.write() as connection:
        held = requests.next_claim(connection, study.service.now())
        assert held is not None
        requests.progress(connection, held, progress or "Reading the rows")
    if progress is None:
        carrying.carry_out(study.service, held)


def test_before_the_tick_nothing_tells_that_a_job_has_ended(ticking: Study) -> None:
    """And one that is cancelled ends in the same way, whether it had ended by then or not."""
    seen = []
    for progress in ("Reading the rows", None):
        number = asking.start(ticking.service, ticking.ada, "people", "fit", {**FIT, "epsilon": 0.1})["id"]
        run_to(ticking, number, progress)
        shown = asking.see_request(ticking.service, ticking.ada, number)
        cancelled = asking.cancel_request(ticking.service, ticking.ada, number)
        for one in (shown, cancelled):
            del one["id"], one["created"]
        seen.append((shown, cancelled))
    assert seen[0] == seen[1]
    assert asking.list_requests(ticking.service, ticking.ada)[0]["state"] == "running"
    ended = replace(ticking.service, clock=lambda: time.time() + 1e6)
    for one in asking.list_requests(ended, ticking.ada):
        told = asking.see_request(ended, ticking.ada, one["id"])
        assert (told["state"], told["result"].keys()) == ("cancelled", {"error"})
        with pytest.raises(ServiceRefused, match="no such file"):
            asking.downloaded(ended, ticking.ada, one["id"], "model.tacit")
    assert ticking.entries() == 1


def test_a_request_that_is_cancelled_while_it_is_planned_is_not_charged(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge looks in its own transaction whether the request is still wanted."""
    _, number = started(study)
    genuine = carrying.ready

    @contextmanager
    def cancelling(*given: Any, **options: Any) -> Iterator[carrying.Ready]:
        with genuine(*given, **options) as made:
            asking.cancel_request(study.service, study.ada, number)
            yield made

    monkeypatch.setattr(carrying, "ready", cancelling)
    assert worker.once(study.service)
    told = asking.see_request(study.service, study.ada, number)
    assert (told["state"], told["result"]["error"]["next"]) == ("cancelled", "Nothing was charged.")
    assert (study.entries(), told["entry"], study.service.seeds.kept()) == (0, None, [])


def test_a_second_charge_comes_on_the_tick(ticking: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of the budget tells when a charge was made: that of a test would tell how long the fit
    took."""
    charged = []
    monkeypatch.setattr(Service, "wait_for_tick", lambda self: charged.append(ticking.entries()))
    body = {**FIT, "epsilon": 0.1, "test_share": 0.2, "test_epsilon": 0.1}
    for asked in (body, {**FIT, "epsilon": 0.1}):
        asking.start(ticking.service, ticking.ada, "people", "fit", asked)
        assert worker.once(ticking.service)
    assert charged
    assert (set(charged), ticking.entries()) == ({1}, 3)


@pytest.mark.parametrize("failing", [False, True])
def test_before_the_tick_nothing_tells_that_questions_are_answered(
    ticking: Study, monkeypatch: pytest.MonkeyPatch, failing: bool
) -> None:
    """Neither another request with the same key nor an attempt to cancel waits, or speaks, differently."""
    service, slept, own, sleep = ticking.service, [], threading.get_ident(), time.sleep

    def noted(seconds: float) -> None:  # Threads that other tests have left behind go on sleeping.
        slept.append(seconds) if threading.get_ident() == own else sleep(seconds)

    monkeypatch.setattr(asking.time, "sleep", noted)  # type: ignore[attr-defined]
    if failing:
        monkeypatch.setattr(carrying, "_answers", lambda *given: 1 / 0)
    seen: list[Any] = []

    def look(number: str) -> None:
        before = len(slept)
        again = asking.ask(service, ticking.ada, "people", COUNT, "key")
        with pytest.raises(ServiceRefused) as raised:
            asking.cancel_request(service, ticking.ada, number)
        seen.append((again, str(raised.value), len(slept) - before))

    genuine = carrying.carry_out

    def looking(service: Any, held: Any, **options: Any) -> None:
        look(held.id)
        genuine(service, held, **options)
        look(held.id)

    monkeypatch.setattr(carrying, "carry_out", looking)
    if failing:
        with pytest.raises(ServiceRefused, match="could not be computed"):
            asking.ask(service, ticking.ada, "people", COUNT, "key")
    else:
        asking.ask(service, ticking.ada, "people", COUNT, "key")
    assert seen[0] == seen[1]
    assert seen[0][0]["state"] == "running"


def test_a_worker_begins_its_next_request_on_the_tick(
    ticking: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the charge for the second request tells when the first one ended."""

    class Slept(Exception):
        pass

    slept: list[int] = []

    def sleep(seconds: float) -> None:
        slept.append(ticking.entries())
        if len(slept) > 1:
            raise Slept

    for _ in range(2):
        asking.start(ticking.service, ticking.ada, "people", "fit", {**FIT, "epsilon": 0.1})
    monkeypatch.setattr("tacit.serve.service.time.sleep", sleep)
    with pytest.raises(Slept):
        worker.work(ticking.service.place, os.getppid())
    assert slept == [0, 1]


def test_a_download_does_not_tell_when_it_was_written(study: Study) -> None:
    _, number = started(study)
    assert worker.once(study.service)
    client = TestClient(application(study.service, hosts=()))
    headers = {"Authorization": f"Bearer {study.tokens['ada']}"}
    told = client.get(f"/api/v1/requests/{number}/files/model.tacit", headers=headers)
    place = asking.downloaded(study.service, study.ada, number, "model.tacit")
    assert told.content == place.read_bytes()
    assert (told.headers["etag"], told.headers["last-modified"][-17:]) == (f'"{number}"', "1970 00:00:00 GMT")
    part = client.get(
        f"/api/v1/requests/{number}/files/model.tacit",
        headers={**headers, "Range": "bytes=0-3", "If-Range": f'"{number}"'},
    )
    assert (part.status_code, part.content) == (206, told.content[:4])
