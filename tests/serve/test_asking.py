"""Questions: planned, charged once, answered from what is stored, refused from public facts."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serve.conftest import SCHEMA, Study, write_rows
from tacit.errors import BudgetExceeded, InvalidValue, ServiceRefused, TacitError
from tacit.serve import carrying, worker
from tacit.serve.actions import asking, auditing, holdings
from tacit.serve.store import requests
from tacit.tables.wire import release_from

COUNT: dict[str, Any] = {"questions": ["count() by sex"], "epsilon": 0.5}


def ask(study: Study, caller: Any = None, key: str | None = None, **body: Any) -> dict[str, Any]:
    return asking.ask(study.service, caller or study.ada, "people", {**COUNT, **body}, key)


def actions_of(study: Study) -> list[str]:
    return [line["action"] for line in auditing.read_log(study.service, study.curator)]


def test_a_question_is_planned_then_asked(anywhere: Study) -> None:
    study = anywhere
    study.grant(epsilon=0.75)
    body = {"questions": ["mean(age)", {"statistic": "count", "by": "sex"}], "epsilon": 0.5}
    plan = asking.plan(study.service, study.ada, "people", "questions", {**body, "population": 2000})
    assert plan["fits"]
    assert (plan["cost"]["epsilon"], plan["grant"]["remaining"]) == (0.5, 0.75)
    assert plan["dataset"] == {"remaining": 4.0, "remaining_after": 3.5}
    assert all(question["error"] > 0 for question in plan["questions"])
    assert study.entries() == 0
    answered = asking.ask(study.service, study.ada, "people", body)
    assert (answered["state"], study.spent()) == ("done", 0.5)
    mean, count = (release_from(one["release"]) for one in answered["result"]["answers"])
    assert abs(mean.value - 53) < 20
    assert list(count.value.index) == ["F", "M"]
    (entry,) = auditing.read_ledger(study.service, study.auditor, "people")["entries"]
    assert answered["entry"] == entry["number"]
    assert mean.guarantee.epsilon == 0.25
    assert [row["keys"] for row in answered["result"]["answers"][1]["rows"]] == [{"sex": "F"}, {"sex": "M"}]
    again = asking.plan(study.service, study.ada, "people", "questions", body)
    assert not again["fits"]
    with pytest.raises(BudgetExceeded, match=r"ε = 0\.25 of"):
        asking.ask(study.service, study.ada, "people", body)
    assert study.entries() == 1
    auditing.verify(study.service, study.auditor, "people")


def test_the_same_key_gives_the_same_answer_and_one_charge(anywhere: Study) -> None:
    study = anywhere
    study.grant()
    study.grant("bob")
    first = ask(study, key="k1")
    assert ask(study, key="k1") == first
    assert study.entries() == 1
    with pytest.raises(ServiceRefused, match="another request") as raised:
        ask(study, key="k1", epsilon=0.25)
    assert raised.value.status == 409
    # Keys are each analyst's own, and a repeated question without a key is another question.
    assert ask(study, study.bob, key="k1")["id"] != first["id"]
    assert ask(study)["result"]["answers"] != first["result"]["answers"]
    assert study.spent() == 1.5


def test_a_stored_answer_outlives_grant_and_file(study: Study) -> None:
    grant = study.grant()
    first = ask(study, key="k1")
    holdings.revoke_grant(study.service, study.curator, grant)
    (study.service.data / "people.csv").unlink()
    assert ask(study, key="k1") == first
    with pytest.raises(ServiceRefused):
        ask(study, key="k2")


def test_two_analysts_race_for_the_last_of_a_budget(make_study: Callable[..., Study]) -> None:
    study = make_study(budget=(1.0, 0.0))
    study.grant("ada", 1.0)
    study.grant("bob", 1.0)
    outcomes: list[str] = []
    barrier = threading.Barrier(6)

    def race(caller: Any) -> None:
        barrier.wait()
        try:
            outcomes.append(ask(study, caller, epsilon=0.4)["state"])
        except BudgetExceeded:
            outcomes.append("refused")

    threads = [threading.Thread(target=race, args=((study.ada, study.bob)[n % 2],)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["done"] * 2 + ["refused"] * 4
    assert (study.entries(), study.spent()) == (2, 0.8)


def test_one_key_at_once_is_charged_once(study: Study) -> None:
    study.grant()
    found: list[Any] = []

    def send() -> None:
        found.append(ask(study, key="same"))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one["id"] for one in found}) == 1
    assert study.entries() == 1
    assert ask(study, key="same")["state"] == "done"


@pytest.mark.parametrize(
    ("question", "status"),
    [
        ("mean(age)", 403),
        ({"statistic": "mean", "column": "age"}, 403),
        ("count() by town", 422),
        ("count() where age > 'x'", 422),
        ("count(", 422),
        ("", 422),
        ("count()\x00", 422),
        ({"statistic": "count", "by": {"a": 1}}, 422),
        ({"statistic": "count", "by": [["sex"]]}, 422),
        ({"statistic": "count", "where": 3}, 422),
        ({"statistic": "count", "weight": "2"}, 422),
        ({"statistic": "count", "weight": float("nan")}, 422),
        ({"statistic": "count", "written": "x"}, 422),
        ({"statistic": ["count"]}, 422),
        ({"statistic": "count", "label": "<script>" * 100}, 422),
        ({}, 422),
        ([], 422),
        (None, 422),
        (3, 422),
    ],
)
def test_what_grant_or_grammar_do_not_know_is_refused(lasting: Study, question: Any, status: int) -> None:
    with pytest.raises(TacitError) as raised:
        ask(lasting, questions=[question])
    assert carrying.status_of(raised.value) == status
    assert lasting.entries() == 0


@pytest.mark.parametrize("deep", [3, 50, 2000])
def test_deep_values_are_refused(lasting: Study, deep: int) -> None:
    value: Any = 1
    for _ in range(deep):
        value = [value]
    with pytest.raises(InvalidValue):
        ask(lasting, questions=[{"statistic": "histogram", "column": "age", "edges": value}])


def test_refusals_name_no_path_and_nobody_else(study: Study) -> None:
    study.grant("ada", 0.5)
    study.grant("bob", 4.0)
    ask(study, study.bob, epsilon=3.9, questions=["count() where age > 77"])
    with pytest.raises(BudgetExceeded) as raised:
        ask(study, epsilon=0.4)
    assert "77" not in str(raised.value)
    (study.service.data / "people.csv").unlink()
    with pytest.raises(ServiceRefused) as refused:
        ask(study, epsilon=0.01)
    assert str(study.service.place.home) not in str(refused.value)
    assert "csv" not in str(refused.value)


def test_a_file_that_was_replaced_is_refused_until_it_is_confirmed(study: Study) -> None:
    study.grant()
    ask(study)
    write_rows(study.service.data / "people.csv", 1999)
    with pytest.raises(ServiceRefused, match="not those that were registered"):
        ask(study, epsilon=0.25)
    assert study.entries() == 1
    holdings.confirm_dataset(study.service, study.curator, "people")
    ask(study, epsilon=0.25)
    assert study.spent() == 0.75


SOURCES = [
    "../people.csv", "/etc/passwd", "http://127.0.0.1/x.csv", "s3://bucket/x.csv", "~/x.csv", "a\\b.csv",
    "", " ", "x" * 600, "people.csv\x00", "out.csv", "nothing.csv", "sub/../../home/service.db", ".", "*",
    "../data/people.csv", "file:///etc/passwd", "people.csv; DROP TABLE x", "[", "**/*.db",
]  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_sources_stay_inside_the_folder_of_data(study: Study, source: str) -> None:
    outside = study.service.place.home / "secret.csv"
    write_rows(outside)
    os.symlink(outside, study.service.data / "out.csv")
    with pytest.raises((InvalidValue, TacitError)):
        holdings.register(study.service, study.curator, "other", source=source, schema=SCHEMA, epsilon=1.0)
    assert [one["name"] for one in holdings.list_datasets(study.service, study.curator)] == ["people"]


def test_several_files_are_one_dataset(study: Study) -> None:
    for number in range(2):
        write_rows(study.service.data / f"part{number}.csv", 500)
    holdings.register(study.service, study.curator, "parts", source="part*.csv", schema=SCHEMA, epsilon=50.0)
    holdings.make_grant(study.service, study.curator, analyst="ada", dataset="parts", epsilon=50.0)
    answered = asking.ask(study.service, study.ada, "parts", {"questions": ["count()"], "epsilon": 20.0})
    assert abs(answered["result"]["answers"][0]["rows"][0]["value"] - 1000) < 5
    write_rows(study.service.data / "part2.csv", 500)
    with pytest.raises(ServiceRefused):
        asking.ask(study.service, study.ada, "parts", {"questions": ["count()"], "epsilon": 1.0})


def test_a_failure_after_the_charge_tells_one_sentence(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.tables import batch

    def broken(*given: Any) -> Any:
        raise ValueError("the row of Jane Doe, 47, is odd")

    study.grant()
    monkeypatch.setattr(batch, "_answered", broken)
    with pytest.raises(ServiceRefused, match="stays charged") as raised:
        ask(study, key="k")
    assert "Jane" not in str(raised.value)
    assert (study.entries(), raised.value.status) == (1, 503)
    monkeypatch.undo()
    # It is not tried again: whether it fails might depend on the noise.
    with pytest.raises(ServiceRefused, match="stays charged"):
        ask(study, key="k")
    assert study.entries() == 1
    assert "Jane" not in json.dumps(auditing.read_log(study.service, study.curator))
    assert actions_of(study)[-1] == "failed"


class Killed(BaseException):
    """Stands for the end of a process: nothing that handles exceptions sees it."""


@pytest.mark.parametrize("moment", ["before the charge", "after the charge", "before the end"])
def test_whoever_is_killed_is_followed_by_another_who_charges_no_more(
    anywhere: Study, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    from tacit.ledger.book import Book
    from tacit.tables import batch

    def killed(*given: Any, **options: Any) -> Any:
        raise Killed

    study = anywhere
    study.grant()
    with monkeypatch.context() as patch:
        if moment == "before the charge":
            patch.setattr(Book, "charge", killed)
        elif moment == "after the charge":
            patch.setattr(batch, "_answered", killed)
        else:
            patch.setattr(requests, "end", killed)
        with pytest.raises(Killed):
            ask(study, key="k")
    charged = 0 if moment == "before the charge" else 1
    assert study.entries() == charged
    waiting = ask(study, key="k")
    assert (waiting["state"], waiting["result"]) == ("running", None)
    later = replace(study.service, clock=lambda: time.time() + requests.LEASE + 1)
    study.service = later
    if moment == "before the end":
        assert worker.once(later)
        assert not worker.once(later)
    answered = ask(study, key="k")
    assert (answered["state"], study.entries(), study.spent()) == ("done", 1, 0.5)
    assert "resumed" in actions_of(study)
    assert answered == ask(study, key="k")


def test_of_two_attempts_one_release_is_stored(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt is held up, loses its lease, and comes back when the second has answered."""
    study.grant()
    genuine = carrying._released
    late = replace(study.service, clock=lambda: time.time() + requests.LEASE + 1)
    stored: list[dict[str, Any]] = []

    def slow(service: Any, held: Any, *given: Any) -> Any:
        result = genuine(service, held, *given)
        stored.append(result[0])
        if held.attempt == 1:
            assert worker.once(late)
        return result

    monkeypatch.setattr(carrying, "_released", slow)
    answered = asking.see_request(late, study.ada, ask(study, key="k")["id"])
    assert len(stored) == 2
    assert stored[0] == stored[1]
    assert answered["result"]["answers"] == stored[1]["answers"]
    assert (study.entries(), actions_of(study).count("released")) == (1, 1)


def test_a_request_is_given_up_after_some_kills(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.tables import batch

    def killed(*given: Any) -> Any:
        raise Killed

    study.grant()
    monkeypatch.setattr(batch, "_answered", killed)
    with pytest.raises(Killed):
        ask(study, key="k")
    for number in range(1, carrying.MOST_ATTEMPTS):
        late = replace(study.service, clock=lambda number=number: time.time() + 100 * number)
        with pytest.raises(Killed):
            worker.once(late)
    late = replace(study.service, clock=lambda: time.time() + 10_000)
    assert worker.once(late)
    assert not worker.once(late)
    (request,) = asking.list_requests(late, study.ada)
    assert (request["state"], study.entries()) == ("failed", 1)


def test_requests_are_their_own_analysts(study: Study) -> None:
    study.grant()
    number = ask(study)["id"]
    assert asking.see_request(study.service, study.ada, number)["result"]
    with pytest.raises(ServiceRefused) as raised:
        asking.see_request(study.service, study.bob, number)
    assert raised.value.status == 404
    with pytest.raises(ServiceRefused):
        asking.cancel_request(study.service, study.bob, number)
    assert asking.list_requests(study.service, study.bob) == []
    for other in (study.curator, study.auditor):
        (shown,) = asking.list_requests(study.service, other)
        assert shown["result"] is None
    for odd in ("x", "'", "\x00", "../..", "é", number.upper()):
        with pytest.raises(ServiceRefused):
            asking.see_request(study.service, study.ada, odd)


def test_answers_leave_on_the_tick(make_study: Callable[..., Study]) -> None:
    study = make_study(tick=0.5)
    study.grant()
    for _ in range(2):
        ask(study, epsilon=0.1)
        past = time.time() % 0.5
        assert past < 0.2
    (last, *_) = asking.list_requests(study.service, study.ada)
    with study.service.database.read() as connection:
        held = requests.find(connection, last["id"])
    assert held is not None
    assert held.visible is not None
    assert held.visible % 0.5 == 0
    assert held.shown_state(held.visible - 0.01) == "running"


def test_keys_are_plain(study: Study) -> None:
    study.grant()
    for key in ("", " ", "x" * 201, "é", "a\nb", "own 1"):
        with pytest.raises(InvalidValue):
            ask(study, key=key)


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    from tacit.serve.service import Place

    with Place(tmp_path / "a" / "b").open() as service:
        assert service.data.is_dir()
        assert not service.has_ledger()
    with pytest.raises(InvalidValue):
        Place(tmp_path, tick=-1.0)


@pytest.mark.parametrize("label", ["\x1b[2J", "a\nb", "\u202egnp", " ", "\x00"])
def test_labels_of_jobs_are_printable_before_anything_waits(lasting: Study, label: str) -> None:
    grant = lasting.grant(models=["naive-bayes"])
    body = {"model": "naive-bayes", "target": "income", "epsilon": 0.1, "label": label, "grant": grant}
    with pytest.raises(InvalidValue, match="label must be printable"):
        asking.plan(lasting.service, lasting.ada, "people", "fit", body)
    with pytest.raises(InvalidValue, match="label must be printable"):
        asking.start(lasting.service, lasting.ada, "people", "fit", body)
    holdings.revoke_grant(lasting.service, lasting.curator, grant)
    assert asking.list_requests(lasting.service, lasting.ada) == []
