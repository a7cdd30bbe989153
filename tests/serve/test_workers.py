"""Workers in processes of their own: killed at any point, they charge once and release once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve.conftest import Study
from tacit.serve import carrying, worker
from tacit.serve.actions import asking, auditing
from tacit.serve.service import Place
from tacit.serve.store import requests

fork = multiprocessing.get_context("fork")
FIT = {"model": "naive-bayes", "target": "income", "epsilon": 0.5}


def started(study: Study) -> str:
    study.grant(models=["naive-bayes"])
    return str(asking.start(study.service, study.ada, "people", "fit", FIT)["id"])


def stopping(place: Place, moment: str, reached: Any) -> None:
    """A worker that says when it has reached a moment, and then waits to be killed."""
    from tacit.estimators.bayes import NaiveBayes
    from tacit.ledger.book import Book

    genuine_charge, genuine_fit = Book.charge, NaiveBayes._carry_out

    def wait() -> None:
        reached.set()
        time.sleep(60)

    def charge(*given: Any, **options: Any) -> Any:
        if moment == "before the charge":
            wait()
        made = genuine_charge(*given, **options)
        if moment == "after the charge":
            wait()
        return made

    def fitted(*given: Any, **options: Any) -> Any:
        made = genuine_fit(*given, **options)
        if moment == "after the fit":
            wait()
        return made

    def ended(*given: Any, **options: Any) -> Any:
        wait()

    Book.charge = charge  # type: ignore[method-assign]
    NaiveBayes._carry_out = fitted  # type: ignore[method-assign]
    if moment == "with the file written":
        requests.end = ended  # type: ignore[assignment]
    with place.open() as service:
        worker.once(service, lambda: os._exit(worker.STOPPED))


MOMENTS = ["before the charge", "after the charge", "after the fit", "with the file written"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_is_killed(anywhere: Study, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """kill -9 at four moments: the next worker goes on, one charge stands, one release is stored."""
    study = anywhere
    number = started(study)
    monkeypatch.setattr(requests, "LEASE", 1.5)
    reached = fork.Event()
    process = fork.Process(target=stopping, args=(study.service.place, moment, reached))
    process.start()
    assert reached.wait(60)
    charged = 0 if moment == "before the charge" else 1
    assert study.entries() == charged
    assert not worker.once(study.service)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    time.sleep(1.6)
    assert worker.once(study.service)
    assert not worker.once(study.service)
    seen = asking.see_request(study.service, study.ada, number)
    assert (seen["state"], study.entries(), study.spent()) == ("done", 1, 0.5)
    place = asking.downloaded(study.service, study.ada, number, "model.tacit")
    from tacit import load

    assert load(place)[-1].guarantee_.epsilon == 0.5
    assert [each.name for each in place.parent.parent.iterdir()] == ["2"]
    lines = [line["action"] for line in auditing.read_log(study.service, study.auditor)]
    assert (lines.count("released"), lines.count("resumed")) == (1, 1)
    auditing.verify(study.service, study.auditor, "people")


def test_a_running_job_is_cancelled(anywhere: Study) -> None:
    """The worker ends itself; the charge that it has made stands, and the next one does not go on."""
    study = anywhere
    number = started(study)
    reached = fork.Event()
    process = fork.Process(target=stopping, args=(study.service.place, "after the charge", reached))
    process.start()
    assert reached.wait(60)
    shown = asking.cancel_request(study.service, study.ada, number)
    assert shown["state"] == "cancelled"
    process.join(30)
    assert process.exitcode == worker.STOPPED
    seen = asking.see_request(study.service, study.ada, number)
    assert (seen["state"], seen["entry"], study.entries()) == ("cancelled", 2, 1)
    assert not worker.once(study.service)


def test_a_fit_that_fails_after_the_charge_is_not_tried_again(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tacit.estimators.bayes import NaiveBayes

    def broken(*given: Any) -> Any:
        raise ValueError("Jane Doe")

    number = started(study)
    monkeypatch.setattr(NaiveBayes, "_carry_out", broken)
    assert worker.once(study.service)
    assert not worker.once(study.service)
    seen = asking.see_request(study.service, study.ada, number)
    assert (seen["state"], seen["result"]["error"]["problem"]) == ("failed", carrying.FAILED)
    assert study.entries() == 1
    assert not study.service.folder(number, 1).exists()


def test_workers_are_started_again(study: Study) -> None:
    """Two processes of their own; one is killed, and the queue is worked off all the same."""
    from tacit.serve.http.running import Workers

    with Workers(study.service.place, 1) as workers:
        first = workers.processes[0]
        os.kill(first.pid or 0, signal.SIGKILL)
        number = started(study)
        deadline = time.monotonic() + 60
        while asking.see_request(study.service, study.ada, number)["state"] != "done":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert workers.processes[0] is not first
    assert study.entries() == 1


def test_a_worker_whose_parent_has_gone_ends(study: Study) -> None:
    """Also if the parent went before the worker began, and another process is its parent by now."""
    started(study)
    worker.work(study.service.place, os.getpid())
    assert study.entries() == 0


def test_a_file_of_another_attempt_is_not_shown(make_study: Callable[..., Study], folder: Path) -> None:
    study = make_study()
    number = started(study)
    assert worker.once(study.service)
    place = asking.downloaded(study.service, study.ada, number, "model.tacit")
    assert place.parent == study.service.folder(number, 1)
    (place.parent / "other.txt").write_text("left over")
    for name in ("other.txt", "../1/model.tacit", "", ".", "model.tacit/"):
        with pytest.raises(Exception, match="no such file"):
            asking.downloaded(study.service, study.ada, number, name)
    with pytest.raises(Exception, match="no such request"):
        asking.downloaded(study.service, study.bob, number, "model.tacit")
