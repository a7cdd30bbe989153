"""Users, tokens, sessions, grants and the log."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from serve.conftest import SCHEMA, Study
from tacit.errors import InvalidValue, LedgerCorrupted, LedgerError, ServiceRefused, TacitError
from tacit.serve.access import MAY, ROLES, Caller, identified
from tacit.serve.actions import asking, auditing, holdings, people
from tacit.serve.rates import Rate
from tacit.serve.service import Place
from tacit.serve.store import log, tables


def status(raised: pytest.ExceptionInfo[ServiceRefused]) -> int:
    return raised.value.status


def test_a_token_opens_until_it_is_revoked(anywhere: Study) -> None:
    study = anywhere
    caller = identified(study.service, study.tokens["ada"])
    assert (caller.name, caller.role) == ("ada", "analyst")
    people.revoke_token(study.service, study.curator, caller.token)
    with pytest.raises(ServiceRefused, match="revoked") as raised:
        identified(study.service, study.tokens["ada"])
    assert status(raised) == 401
    with pytest.raises(ServiceRefused, match="no such token"):
        people.revoke_token(study.service, study.curator, caller.token)


def test_a_token_expires(study: Study) -> None:
    later = replace(study.service, clock=lambda: study.service.now() + 30 * 86400 + 60)
    identified(study.service, study.tokens["ada"])
    with pytest.raises(ServiceRefused) as raised:
        identified(later, study.tokens["ada"])
    assert status(raised) == 401


@pytest.mark.parametrize(
    "bend",
    [
        lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"),
        lambda token: token.replace("tacit_", ""),
        lambda token: token + "x",
        lambda token: token.rsplit("_", 1)[0] + "_",
        lambda token: "tacit_' OR 1=1 --_" + token.rsplit("_", 1)[1],
        lambda token: "",
        lambda token: "tacit_\x00_\x00",
        lambda token: "tacit_" + "9" * 100_000 + "_x",
        lambda token: "tacit_a_\ud800",
    ],
)
def test_other_texts_open_nothing(anywhere: Study, bend) -> None:
    with pytest.raises(ServiceRefused) as raised:
        identified(anywhere.service, bend(anywhere.tokens["curator"]))
    assert status(raised) == 401


def test_no_secret_is_stored(study: Study) -> None:
    people.start_session(study.service, study.tokens["ada"])
    kept = (study.service.place.home / "service.db").read_bytes()
    for token in study.tokens.values():
        assert token.rsplit("_", 1)[1].encode() not in kept
    assert "tacit_" not in repr(people.start_session(study.service, study.tokens["ada"])[1])


def test_a_session_needs_its_second_secret_to_change_anything(study: Study) -> None:
    caller, secret = people.start_session(study.service, study.tokens["ada"])
    assert caller.name == "ada"
    assert identified(study.service, secret.text, session=True).session
    with pytest.raises(ServiceRefused) as raised:
        identified(study.service, secret.text, session=True, unsafe=True)
    assert status(raised) == 403
    with pytest.raises(ServiceRefused):
        identified(study.service, secret.text, session=True, unsafe=True, csrf="guess")
    assert identified(study.service, secret.text, session=True, unsafe=True, csrf=secret.csrf)
    # A session is no token, a token no session, and neither makes a further session of a session.
    for text, session in ((secret.text, False), (study.tokens["ada"], True)):
        with pytest.raises(ServiceRefused):
            identified(study.service, text, session=session)
    with pytest.raises(ServiceRefused):
        people.start_session(study.service, secret.text)
    people.end_session(study.service, caller)
    with pytest.raises(ServiceRefused):
        identified(study.service, secret.text, session=True)


@pytest.mark.parametrize("name", ["", "Ada", "a b", "../x", "a'--", "<b>", "a" * 65, "é", "a\x00"])
def test_names_mean_nothing(study: Study, name: str) -> None:
    with pytest.raises(InvalidValue):
        people.add_user(study.service, study.curator, name, "analyst")
    with pytest.raises(InvalidValue):
        holdings.register(study.service, study.curator, name, source="people.csv", schema="", epsilon=1.0)


def test_users_are_added_once_and_have_known_roles(study: Study) -> None:
    with pytest.raises(ServiceRefused, match="already") as raised:
        people.add_user(study.service, study.curator, "ada", "curator")
    assert status(raised) == 409
    with pytest.raises(InvalidValue):
        people.add_user(study.service, study.curator, "mallory", "root")
    assert people.first_curator(study.service) is None
    with pytest.raises(ServiceRefused, match="no such user"):
        people.issue_token(study.service, study.curator, "nobody")


def test_grants_are_checked_and_revoked(anywhere: Study) -> None:
    study = anywhere
    with pytest.raises(ServiceRefused, match="no such analyst"):
        study.grant("eve")
    for wrong in ({"statistics": ["median", "mode"]}, {"models": ["gpt"]}, {"delta": 0.5}, {"days": 1e9}):
        with pytest.raises(InvalidValue):
            study.grant(**wrong)
    number = study.grant(epsilon=0.5, statistics=["count"], models=["logistic"])
    (listed,) = holdings.list_grants(study.service, study.ada)
    assert (listed["id"], listed["remaining"]["epsilon"]) == (number, 0.5)
    assert holdings.list_grants(study.service, study.bob) == []
    assert holdings.list_datasets(study.service, study.bob) == []
    with pytest.raises(ServiceRefused) as raised:
        holdings.see_dataset(study.service, study.bob, "people")
    assert status(raised) == 404
    seen = holdings.see_dataset(study.service, study.ada, "people")
    assert "source" not in seen
    assert holdings.see_dataset(study.service, study.curator, "people")["source"] == "people.csv"
    holdings.revoke_grant(study.service, study.curator, number)
    assert holdings.list_datasets(study.service, study.ada) == []
    with pytest.raises(ServiceRefused):
        holdings.granted(study.service, study.ada, "people")


def test_a_grant_expires(study: Study) -> None:
    study.grant(days=1.0)
    later = replace(study.service, clock=lambda: study.service.now() + 86500)
    assert holdings.list_datasets(study.service, study.ada)
    assert not holdings.list_datasets(later, study.ada)


def test_the_log_is_chained_and_append_only(anywhere: Study) -> None:
    study = anywhere
    study.grant()
    lines = auditing.read_log(study.service, study.auditor)
    assert [line["action"] for line in lines][:2] == ["added user", "issued token"]
    assert lines[-1]["action"] == "granted"
    assert not any("tacit_" in str(line) for line in lines)
    assert auditing.verify(study.service, study.auditor, "people")["log_lines"] == len(lines)
    with pytest.raises(LedgerError), study.service.database.write() as connection:
        connection.execute(tables.log.update().values(actor="nobody"))
    with pytest.raises(LedgerError), study.service.database.write() as connection:
        connection.execute(tables.log.delete())


@pytest.mark.parametrize(
    "forgery",
    [
        "UPDATE tacit_service_log SET actor = 'bob' WHERE number = 3",
        "DELETE FROM tacit_service_log WHERE number = 3",
        "DELETE FROM tacit_service_log WHERE number = (SELECT max(number) FROM tacit_service_log)",
    ],
)
def test_a_log_that_was_altered_does_not_verify(study: Study, forgery: str) -> None:
    with sqlite3.connect(study.service.place.home / "service.db") as connection:
        for verb in ("update", "delete"):
            connection.execute(f"DROP TRIGGER tacit_service_no_{verb}")
        connection.execute(forgery)
    with study.service.database.read() as connection, pytest.raises(LedgerCorrupted):
        log.verify(connection)


def test_every_action_is_for_some_role() -> None:
    assert all(roles and roles <= set(ROLES) for roles in MAY.values())


def test_a_later_layout_is_refused(study: Study) -> None:
    with study.service.database.write() as connection:
        connection.execute(sa.update(tables.state).values(version=99))
    with pytest.raises(LedgerError, match="later version"):
        Place(study.service.place.home).open()


def test_every_refusal_to_answer_is_in_the_log(study: Study) -> None:
    """By role, grant, grammar or budget: who asked for what, and how it was refused."""
    count = {"questions": ["count()"], "epsilon": 0.1}
    tried: list[tuple[Caller, str, dict[str, Any], int]] = [
        (study.auditor, "people", count, 403),
        (study.ada, "people", count, 404),
        (study.ada, "<script>", count, 404),
    ]
    for caller, dataset, body, _ in tried:
        with pytest.raises(ServiceRefused):
            asking.ask(study.service, caller, dataset, body)
    study.grant(statistics=["count"])
    more: list[tuple[str, dict[str, Any], int]] = [
        ("questions", {"questions": ["mean(age)"], "epsilon": 0.1}, 403),
        ("questions", {"questions": ["nonsense("], "epsilon": 0.1}, 422),
        ("questions", {**count, "epsilon": 3.0}, 402),
        ("fit", {"model": "naive-bayes", "target": "income", "epsilon": 0.1}, 403),
    ]
    for kind, body, _ in more:
        asked = (asking.ask,) if kind == "questions" else (asking.start, kind)
        with pytest.raises(TacitError):
            asked[0](study.service, study.ada, "people", *asked[1:], body)  # type: ignore[operator]
    lines = [line for line in auditing.read_log(study.service, study.auditor) if line["action"] == "refused"]
    told = [(line["actor"], line["details"]["status"]) for line in lines]
    assert told == [
        *((caller.name, status) for caller, _, _, status in tried),
        *(("ada", status) for _, _, status in more),
    ]
    assert [line["subject"] for line in lines[:3]] == ["people", "people", "no name of a dataset"]
    assert study.entries() == 0


def test_refused_previews_are_in_the_log_and_cannot_fill_it(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(asking, "_previews", Rate(3, lambda: now))
    study.grant(statistics=["count"])
    refused: list[tuple[Caller, str, dict[str, Any]]] = [
        (study.auditor, "questions", {"questions": ["count()"], "epsilon": 0.1}),
        (study.ada, "questions", {"questions": ["mean(age)"], "epsilon": 0.1}),
        (study.ada, "fit", {"model": "naive-bayes", "target": "income", "epsilon": 0.1}),
        *[(study.ada, "questions", {"questions": ["nonsense("], "epsilon": 0.1})] * 5,
    ]
    for caller, kind, body in refused:
        with pytest.raises(TacitError):
            asking.plan(study.service, caller, "people", kind, body)
    asking.plan(study.service, study.ada, "people", "questions", {"questions": ["count()"], "epsilon": 0.1})

    def noted() -> list[tuple[str, int, str]]:
        lines = auditing.read_log(study.service, study.auditor)
        told = [(line["actor"], line["details"]) for line in lines if line["action"] == "refused"]
        assert all(details["preview"] for _, details in told)
        return [(actor, details["status"], details["kind"]) for actor, details in told]

    first = [("eve", 403, "questions"), ("ada", 403, "questions"), ("ada", 403, "fit")]
    assert noted() == [*first, ("ada", 422, "questions")]
    now = 20.0
    with pytest.raises(TacitError):
        asking.plan(study.service, study.ada, "people", *refused[-1][1:])
    assert noted() == [*first, *[("ada", 422, "questions")] * 2]


def test_the_report_names_whoever_the_schema_names(study: Study) -> None:
    page = auditing.ledger_page(study.service, study.auditor, "people")
    assert "[about] of the schema names somebody" in page
    assert "--responsible" not in page
    named = SCHEMA + '\n[about]\nresponsible = "Data office, data@clinic.example"\n'
    options: dict[str, Any] = {"source": "people.csv", "schema": named, "epsilon": 1.0}
    holdings.register(study.service, study.curator, "named", **options)
    assert "Data office, data@clinic.example" in auditing.ledger_page(study.service, study.auditor, "named")
