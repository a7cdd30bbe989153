"""How much work a question is beside the same question in the process, in calls and statements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa

import tacit
from calls import calls
from serve.conftest import SCHEMA, Study
from tacit.serve.actions import asking

COUNT = {"questions": ["count()"], "epsilon": 0.005}


def ask(study: Study) -> None:
    asking.ask(study.service, study.ada, "people", COUNT)


def test_a_question_is_as_much_work_however_many_were_asked(study: Study) -> None:
    """What was spent of a grant is not added up anew for each question."""
    study.grant()
    for _ in range(3):
        ask(study)
    first = calls(ask, study)
    for _ in range(60):
        ask(study)
    assert calls(ask, study) < first + 600


def test_a_question_through_the_service_is_little_more_work_than_in_the_process(
    study: Study, tmp_path: Path
) -> None:
    """Some calls are added to those of the question: for the request, its seed, its lines of the log."""
    study.grant()
    ledger = tacit.Ledger.open(tmp_path / "own.db", tacit.Budget(1.0))
    place, schema = study.service.data / "people.csv", tacit.Schema.from_toml(SCHEMA)
    with ledger, tacit.tables.open(place, schema=schema, ledger=ledger) as table:

        def here() -> None:
            release = table.count(epsilon=0.005)
            assert release.interval(0.95)[0] < release.value

        for _ in range(3):
            ask(study)
            here()
        assert calls(ask, study) < calls(here) + 10_000


def test_how_many_statements_a_question_takes(study: Study) -> None:
    """Three transactions write: one for the request, one for the charge, one for the release."""
    study.grant()
    ask(study)
    told: list[str] = []

    def heard(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        told.append(statement.split()[0])

    sa.event.listen(sa.Engine, "before_cursor_execute", heard)
    try:
        ask(study)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", heard)
    assert {verb: told.count(verb) for verb in told} == {"SELECT": 15, "INSERT": 4, "UPDATE": 5}
