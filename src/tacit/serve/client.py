"""The other end of a service: a table somewhere else, asked as if it were here.

``tacit.connect(url, token=…)`` takes the place of ``tacit.tables.open(…)``: the table has the same methods
and gives the same releases. What is private stays where it is; what is public, the schema, is fetched.
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from tacit._writing import write
from tacit.errors import InvalidValue, TacitError
from tacit.relations import Relation, Unit
from tacit.schema import Schema
from tacit.serve.grammar import question_to
from tacit.serve.session import Session, refusal
from tacit.tables.asking import BatchQuestions, TableQuestions
from tacit.tables.language.condition import Expression
from tacit.tables.language.grammar import condition_of
from tacit.tables.questions import Question, parse
from tacit.tables.release import Release
from tacit.tables.wire import release_from

__all__ = ["RemoteBatch", "RemoteJob", "RemoteTable", "Session", "connect"]


def connect(
    url: str,
    *,
    token: str | None = None,
    dataset: str | None = None,
    grant: str | None = None,
    context: ssl.SSLContext | None = None,
) -> RemoteTable:
    """A private table that a service holds, to be asked like one of :func:`tacit.tables.open`.

    ``token`` is the analyst's, or else read from the environment, ``TACIT_TOKEN``. ``dataset`` may be left
    out where there is a grant for one only. ``grant`` names what answers are charged to, the newest if left
    out.

    Every answer is charged by the service before it reads a row; the guarantee comes with the release. A
    request that was interrupted is repeated under its own key, and charged once.
    """
    known = (token or os.environ.get("TACIT_TOKEN") or "").strip()
    if not known:
        raise InvalidValue("token", None, "given", "The curator issues tokens; or set TACIT_TOKEN.")
    session = Session(url.rstrip("/"), known, context)
    if dataset is None:
        names = [one["name"] for one in session.call("GET", "/datasets")]
        if len(names) != 1:
            listed = ", ".join(map(repr, names)) or "none"
            raise InvalidValue("dataset", None, f"one of those that you have a grant for: {listed}")
        (dataset,) = names
    about = session.call("GET", f"/datasets/{urllib.parse.quote(dataset, safe='')}")
    return RemoteTable(session, dataset, Schema.from_toml(about["schema"]), about, grant)


class RemoteTable(TableQuestions):
    """A private table that a service holds; made by :func:`tacit.connect`."""

    def __init__(
        self,
        session: Session,
        dataset: str,
        schema: Schema,
        about: Mapping[str, Any],
        grant: str | None,
        conditions: tuple[str, ...] = (),
    ) -> None:
        self.session, self.dataset, self.grant = session, dataset, grant
        self.schema = schema
        """What is public about the columns."""
        self.conditions = conditions
        """The conditions that the rows of this view meet, as text."""
        self._about = about

    @property
    def relation(self) -> Relation:
        """Which tables count as neighbours."""
        return Relation.of(self._about["relation"])

    @property
    def unit(self) -> Unit:
        """Whom the answers protect."""
        return Unit(**self._about["unit"])

    def remaining(self) -> float:
        """ε that this analyst may still spend: what is left of the grant, and of the dataset's budget."""
        about = self.session.call("GET", self._path())
        left = [
            one["remaining"]["epsilon"]
            for one in about["grants"]
            if one["in_force"] and self.grant in (None, one["id"])
        ]
        return min(float(about["remaining"]["epsilon"]), float(left[-1]) if left else 0.0)

    def filter(self, *conditions: Any) -> RemoteTable:
        """The rows that meet all conditions, as text; Ibis expressions are not sent."""
        for one in conditions:
            if not isinstance(one, str):
                advice, shown = 'Write it as text: filter("age >= 40").', str(Expression(one))
                raise InvalidValue("condition", shown, "text, where a service is asked", advice)
            condition_of(one)
        known = (*self.conditions, *conditions)
        return RemoteTable(self.session, self.dataset, self.schema, self._about, self.grant, known)

    def batch(self, *, epsilon: float, delta: float = 0.0) -> RemoteBatch:
        """Several questions for one budget: ``with table.batch(epsilon=1.0) as b: n = b.count()``."""
        return RemoteBatch(self, epsilon, delta)

    def ask(self, question: Question | str, *, epsilon: float, delta: float = 0.0) -> Release:
        """The answer to a question, a value of :mod:`tacit.tables.questions` or its text, at this cost."""
        batch = self.batch(epsilon=epsilon, delta=delta)
        release = batch.ask(question)
        batch.run()
        return release

    def fit(self, model: str, *, epsilon: float, delta: float = 0.0, **options: Any) -> RemoteJob:
        """Have a model fitted, by its name in :data:`tacit.estimators.ESTIMATORS`; options as for a fit.

        ``test_share=0.2, test_epsilon=0.1`` sets a share of the rows aside, and measures the model on them,
        for an ε of its own.
        """
        return self._started({"kind": "fit", "model": model, "epsilon": epsilon, "delta": delta, **options})

    def train(
        self, architecture: str, *, target: str, epsilon: float, delta: float, **options: Any
    ) -> RemoteJob:
        """Have a network trained by DP-SGD on the rows; options are those of :func:`tacit.jobs.train`."""
        body = {"kind": "train", "architecture": architecture, "target": target}
        return self._started({**body, "epsilon": epsilon, "delta": delta, **options})

    def evaluate(self, job: RemoteJob | str, *, epsilon: float, **options: Any) -> RemoteJob:
        """Have the model of an earlier job measured on the rows of this table, for an ε of its own."""
        made = job if isinstance(job, str) else job.id
        return self._started({"kind": "evaluate", "request": made, "epsilon": epsilon, **options})

    def synthesize(self, *, epsilon: float, delta: float = 0.0, **options: Any) -> RemoteJob:
        """Have a synthetic table made; options are those of :func:`tacit.jobs.synthesize`."""
        return self._started({"kind": "synthesize", "epsilon": epsilon, "delta": delta, **options})

    def _started(self, body: dict[str, Any]) -> RemoteJob:
        if self.conditions:
            raise InvalidValue("filter", self.conditions, "left out: jobs see all rows of a dataset")
        sent = {**body, **({} if self.grant is None else {"grant": self.grant})}
        key = secrets.token_hex(16)
        made = self.session.call("POST", f"{self._path()}/jobs", sent, key=key)
        return RemoteJob(self.session, made["id"])

    def _path(self) -> str:
        return f"/datasets/{urllib.parse.quote(self.dataset, safe='')}"

    def close(self) -> None:
        """Close the connections that are kept for the next question. The table can be asked again."""
        self.session.close()

    def __enter__(self) -> RemoteTable:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        shown = f" where {' and '.join(self.conditions)}" if self.conditions else ""
        return f"RemoteTable({self.dataset!r} at {self.session.url}{shown})"


class RemoteBatch(BatchQuestions):
    """Several questions that share one budget, sent together when the ``with`` block ends."""

    def __init__(self, table: RemoteTable, epsilon: float, delta: float) -> None:
        self._table, self._epsilon, self._delta = table, epsilon, delta
        self._asked: list[tuple[Question, Release]] = []
        self._done = False

    def ask(self, question: Question | str) -> Release:
        """Add a question, a value or its text; its release is filled when the batch has run."""
        if self._done:
            raise TacitError("This batch has ended.", "Open another with table.batch().")
        from tacit import events
        from tacit.guarantee import Guarantee

        asked = parse(question) if isinstance(question, str) else question
        nothing = Guarantee(0.0, 0.0, events.Compose(()), self._table.relation, self._table.unit)
        release = Release(str(asked), nothing)
        self._asked.append((self._restricted(asked), release))
        return release

    def _restricted(self, question: Question) -> Question:
        """The question with the conditions of the view."""
        given = self._table.conditions
        if not given or isinstance(question.where, Expression):
            return question
        own = () if question.where is None else (question.where,)
        return replace(question, where=" and ".join(f"({one})" for one in (*given, *own)))

    def _body(self) -> dict[str, Any]:
        body = {
            "questions": [question_to(question) for question, _ in self._asked],
            "epsilon": self._epsilon,
            "delta": self._delta,
        }
        return body if self._table.grant is None else {**body, "grant": self._table.grant}

    def plan(self, *, population: int | None = None) -> dict[str, Any]:
        """What the questions would cost, how accurate the answers would be, and what would be left."""
        guess = {} if population is None else {"population": population}
        found: dict[str, Any] = self._table.session.call(
            "POST", f"{self._table._path()}/plan", {**self._body(), **guess}
        )
        return found

    def run(self) -> None:
        """Send the questions, once, and fill the releases. The end of a ``with`` block does this."""
        if self._done:
            raise TacitError("This batch has run already.", "Open another with table.batch().")
        self._done = True
        if not self._asked:
            return
        session, key = self._table.session, secrets.token_hex(16)
        told = session.call("POST", f"{self._table._path()}/questions", self._body(), key=key)
        result = _ended(session, told)["result"]
        for (_, release), answer in zip(self._asked, result["answers"], strict=True):
            found = release_from(answer["release"])
            release.label, release.guarantee, release.bounds = found.label, found.guarantee, found.bounds
            release._answer = found.filled()

    def __enter__(self) -> RemoteBatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.run()
        self._done = True


def _ended(session: Session, told: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request when it has ended well; what went wrong is raised."""
    wait = iter(_pauses())
    while told["state"] in ("waiting", "running"):
        time.sleep(next(wait))
        told = session.call("GET", f"/requests/{told['id']}")
    if told["state"] != "done":
        error = told["result"]["error"]
        raise refusal(error["status"], json.dumps({"error": error}).encode())
    return told


def _pauses() -> Iterator[float]:
    pause = 0.1
    while True:
        yield pause
        pause = min(2.0, pause * 1.5)


@dataclass(frozen=True)
class RemoteJob:
    """A fit, a training run, a synthesis or a measurement that the service works on."""

    session: Session
    id: str

    def status(self) -> dict[str, Any]:
        """How it stands."""
        found: dict[str, Any] = self.session.call("GET", f"/requests/{self.id}")
        return found

    def cancel(self) -> None:
        """Cancel it. A charge that was made stands."""
        self.session.call("DELETE", f"/requests/{self.id}")

    def result(self) -> dict[str, Any]:
        """Wait for it: its files, its guarantee and the number of its entry in the ledger."""
        found: dict[str, Any] = _ended(self.session, self.status())["result"]
        return found

    def download(self, folder: str | os.PathLike[str] = ".", *, overwrite: bool = False) -> list[Path]:
        """Wait for it, and write its files into a folder."""
        made = []
        for name in self.result()["files"]:
            place = Path(folder) / Path(name).name
            write(place, self.session.fetch("GET", f"/requests/{self.id}/files/{name}"), overwrite=overwrite)
            made.append(place)
        return made

    def model(self) -> Any:
        """Wait for it, and load the model with its guarantee."""
        import tempfile

        from tacit import load

        names = [name for name in self.result()["files"] if name.startswith("model.")]
        if not names:
            raise TacitError("This job has made no model.", "result() has what it has found.")
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / Path(names[0]).name
            place.write_bytes(self.session.fetch("GET", f"/requests/{self.id}/files/{names[0]}"))
            return load(place)

    def evaluation(self) -> Any:
        """Wait for it, and show how good the model is, where that was measured: an Evaluation, or None."""
        from tacit.evaluation import Evaluation

        found = self.result().get("evaluation")
        return None if found is None else Evaluation.from_dict(found)
