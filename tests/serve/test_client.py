"""The client against a service that runs: a notebook moves to the service by changing one line."""

from __future__ import annotations

import http.client
import http.server
import math
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import uvicorn

import tacit
from serve.conftest import SCHEMA, Study
from tacit.errors import BudgetExceeded, InvalidValue, ServiceRefused, TacitError
from tacit.serve import session as sessions
from tacit.serve import worker
from tacit.serve.actions import holdings
from tacit.serve.client import Session, connect
from tacit.serve.http.application import application


@pytest.fixture
def url(study: Study) -> Iterator[str]:
    """The address of the study's service, which runs in another thread."""
    place = socket.socket()
    place.bind(("127.0.0.1", 0))
    options: dict[str, Any] = {"log_level": "error", "ws": "none", "timeout_keep_alive": 600}
    server = uvicorn.Server(uvicorn.Config(application(study.service), **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{place.getsockname()[1]}"
    server.should_exit = True
    thread.join()


def notebook(table: Any) -> list[Any]:
    """What a notebook asks, whatever table it is given."""
    older = table.filter("age >= 40")
    with table.batch(epsilon=0.4) as batch:
        first, second = batch.mean("age"), batch.histogram("age", edges=[0, 50, float("inf")], weight=2)
    return [
        table.count(epsilon=0.1), table.count(by="sex", epsilon=0.1), older.count(epsilon=0.1), first, second,
        table.ask("median(age) by sex", epsilon=0.2), table.crosstab(["sex", "income"], epsilon=0.1),
        table.quantile("age", [0.25, 0.75], where="sex = 'F'", epsilon=0.2),
        table.top("income", 1, epsilon=0.1),
    ]  # fmt: skip


def test_the_same_notebook_here_and_there(study: Study, url: str, tmp_path: Path) -> None:
    study.grant(epsilon=2.0)
    there = notebook(tacit.connect(url, token=study.tokens["ada"]))
    ledger = tacit.Ledger.open(tmp_path / "s.db", budget=tacit.Budget(2.0))
    schema = tacit.Schema.from_toml(SCHEMA)
    with ledger, tacit.tables.open(study.service.data / "people.csv", schema=schema, ledger=ledger) as table:
        here = notebook(table)
        assert ledger.spent().epsilon == pytest.approx(study.spent())
    for one, other in zip(there, here, strict=True):
        assert type(one) is type(other)
        assert type(one.value) is type(other.value)
        assert one.guarantee.epsilon == pytest.approx(other.guarantee.epsilon)
        assert one.guarantee.event == other.guarantee.event
        if isinstance(one.value, pd.Series | pd.DataFrame):
            assert one.value.index.equals(other.value.index)
    assert study.entries() == 8


def test_what_is_known_of_a_table(study: Study, url: str) -> None:
    study.grant(epsilon=0.5)
    with connect(url, token=study.tokens["ada"]) as table:
        assert list(table.schema) == ["age", "sex", "income"]
        assert (str(table.relation), table.unit) == ("add_remove", tacit.Unit())
        assert table.remaining() == 0.5
        batch = table.batch(epsilon=0.25)
        batch.count()
        assert batch.plan()["fits"]
        assert study.entries() == 0
        assert study.tokens["ada"] not in repr(table) + repr(table.session)


def test_refusals_are_raised_as_they_are_here(study: Study, url: str) -> None:
    study.grant(epsilon=0.5, statistics=["count", "mean"])
    table = connect(url, token=study.tokens["ada"])
    with pytest.raises(BudgetExceeded, match="does not fit"):
        table.count(epsilon=0.75)
    with pytest.raises(InvalidValue, match="column"):
        table.mean("shoe size", epsilon=0.1)
    with pytest.raises(ServiceRefused) as raised:
        table.median("age", epsilon=0.1)
    assert raised.value.status == 403
    with pytest.raises(InvalidValue, match="epsilon"):
        table.count(epsilon=None)  # type: ignore[arg-type]
    import ibis

    old = ibis._.age > 90
    with pytest.raises(InvalidValue, match="text"):
        table.filter(old)
    with pytest.raises(InvalidValue, match="text"):
        table.count(where=old, epsilon=0.1)
    assert study.entries() == 0
    for text in ("nonsense", "tacit_x_y"):
        with pytest.raises(ServiceRefused, match="token"):
            connect(url, token=text)
    with pytest.raises(InvalidValue, match="none"):
        connect(url, token=study.tokens["bob"])
    for wrong_url in ("people.csv", "ftp://x", "http://"):
        with pytest.raises(InvalidValue):
            connect(wrong_url, token="x")
    with pytest.raises(InvalidValue, match="token"):
        connect(url)
    with pytest.raises(ServiceRefused, match="cannot be reached"):
        Session("http://127.0.0.1:9", "x").call("GET", "/me")


def test_an_interrupted_request_is_sent_again_and_charged_once(
    study: Study, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost on its way, after the charge: the client asks again under the same key."""
    genuine, lost = http.client.HTTPConnection.getresponse, []

    def losing(connection: http.client.HTTPConnection) -> Any:
        answer = genuine(connection)
        if not lost:
            lost.append(answer.read())
            raise ConnectionResetError("gone")
        return answer

    study.grant()
    table = connect(url, token=study.tokens["ada"])
    monkeypatch.setattr(http.client.HTTPConnection, "getresponse", losing)
    release = table.count(epsilon=0.25)
    assert len(lost) == 1
    assert str(release.value).encode() in lost[0]
    assert study.entries() == 1


def test_connections_are_kept_for_the_next_question(
    study: Study, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions share a connection, unless it is old, another process's or closed; no question is lost."""
    genuine, made = http.client.HTTPConnection.connect, []

    def connecting(connection: http.client.HTTPConnection) -> None:
        made.append(connection)
        genuine(connection)

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connecting)
    monkeypatch.setattr(sessions, "KEPT", math.inf)
    study.grant()
    with connect(url, token=study.tokens["ada"]) as table:
        for _ in range(3):
            table.count(epsilon=0.1)
        assert len(made) == 1
        made[0].sock.shutdown(socket.SHUT_RDWR)
        table.count(epsilon=0.1)
        assert (len(made), study.entries()) == (2, 4)
        again = pickle.loads(pickle.dumps(table.session))
        assert again == table.session
        assert again._kept.take() is None
        with monkeypatch.context() as other:
            other.setattr(sessions.os, "getpid", lambda: -1)
            assert table.session._kept.take() is None
        table.count(epsilon=0.1)
        monkeypatch.setattr(sessions, "KEPT", 0.0)
        table.count(epsilon=0.1)
        assert (len(made), study.entries()) == (4, 6)
    assert all(one.sock is None for one in made)


def test_what_must_not_be_sent_twice_is_sent_on_a_new_connection(
    study: Study, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.grant()
    session = Session(url, study.tokens["ada"])
    session.call("GET", "/me")
    monkeypatch.setattr(session._kept, "take", lambda: pytest.fail("a connection was used again"))
    session.call("POST", "/datasets/people/plan", {"questions": ["count()"], "epsilon": 0.1})
    session.close()


def test_a_model_is_fitted_and_loaded(study: Study, url: str, tmp_path: Path) -> None:
    study.grant(epsilon=3.0, delta=1e-6, models=["logistic", "marginals"])
    table = connect(url, token=study.tokens["ada"])
    with pytest.raises(ServiceRefused, match="does not allow the model"):
        table.fit("naive-bayes", target="income", epsilon=0.5)
    job = table.fit("logistic", target="income", epsilon=1.0, buy_population=True)
    assert (job.status()["state"], study.entries()) == ("waiting", 0)
    assert worker.once(study.service)
    assert job.result()["entry"] == 2
    model = job.model()
    assert model[-1].guarantee_.epsilon == 1.0
    rows = pd.DataFrame({"age": [30, 80], "sex": ["F", "M"], "income": ["low", "high"]})
    assert set(model.predict(rows)) <= {"high", "low"}
    made = table.synthesize(epsilon=1.0, rows=50, bins=4)
    assert worker.once(study.service)
    places = made.download(tmp_path)
    assert sorted(place.name for place in places) == ["model.tacit", "table.csv"]
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 51
    with pytest.raises(TacitError, match="exists"):
        made.download(tmp_path)
    assert (study.spent(), study.entries()) == (pytest.approx(2.0), 2)
    with pytest.raises(ServiceRefused, match="ended"):
        made.cancel()
    waiting = table.synthesize(epsilon=0.5, rows=5)
    waiting.cancel()
    assert not worker.once(study.service)
    with pytest.raises(ServiceRefused, match="cancelled"):
        waiting.result()
    assert study.entries() == 2


def test_a_job_is_not_for_a_view(study: Study, url: str) -> None:
    study.grant(models=["logistic"])
    view = connect(url, token=study.tokens["ada"]).filter("age > 3")
    with pytest.raises(InvalidValue, match="all rows"):
        view.fit("logistic", target="income", epsilon=0.5)


def test_the_token_goes_to_one_address_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirection and a proxy get to see no token; without https the service is on this machine."""
    seen: list[tuple[str, str | None]] = []

    class Answering(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/stolen")
            self.end_headers()

        def log_message(self, *given: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        with pytest.raises(ServiceRefused, match="302"):
            Session(address, "secret").call("GET", "/me")
        assert seen == [("/api/v1/me", "Bearer secret")]
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, address)
        with pytest.raises(ServiceRefused, match="reached"):
            Session("http://127.0.0.1:9", "secret").call("DELETE", "/session")
        assert len(seen) == 1
        server.shutdown()
    for elsewhere in ("http://data.example.org", "http://127.0.0.1.example.org", "ftp://127.0.0.1", "data"):
        with pytest.raises(InvalidValue, match="url"):
            connect(elsewhere, token="secret")
    assert Session("https://data.example.org", "secret").url == "https://data.example.org"


@pytest.mark.parametrize("token", ["tacit_1_se\ncret", "tacit_1_sécret", "tacit_1_secret\r\nX-More: 1", 7])
def test_a_token_is_never_shown(token: Any) -> None:
    """Python's own HTTP client quotes a header that it refuses."""
    with pytest.raises(InvalidValue, match="token") as raised:
        Session("http://127.0.0.1:9", token)
    assert "cret" not in f"{raised.value} {raised.value!r} {vars(raised.value)}"
    assert "secret" not in repr(Session("http://127.0.0.1:9", "tacit_1_secret"))


def test_a_token_from_a_file_ends_in_a_line_break(study: Study, url: str) -> None:
    study.grant()
    assert connect(url, token=study.tokens["ada"] + "\n").dataset == "people"


def test_what_is_left_is_that_of_a_grant_in_force(study: Study, url: str) -> None:
    """The newest grant was revoked: answers are charged to the one before it."""
    study.grant(epsilon=0.5)
    revoked, expired = study.grant(epsilon=3.0), study.grant(epsilon=2.0, days=1e-7)
    holdings.revoke_grant(study.service, study.curator, revoked)
    assert connect(url, token=study.tokens["ada"]).remaining() == 0.5
    assert connect(url, token=study.tokens["ada"], grant=expired).remaining() == 0.0


def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    """A server that is killed while it answers; and something that is no service at all."""
    seen: list[str] = []

    class Answering(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            whole = b'{"status": "ok"}' if self.path.endswith("/health") else b"<p>Welcome</p>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole[:5] if len(seen) == 1 else whole)

        def log_message(self, *given: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        session = Session(f"http://127.0.0.1:{server.server_address[1]}", "secret")
        assert session.call("GET", "/health") == {"status": "ok"}
        assert len(seen) == 2
        with pytest.raises(ServiceRefused, match="no service of tacit"):
            session.call("GET", "/me")
        server.shutdown()
