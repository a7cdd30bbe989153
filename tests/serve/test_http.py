"""The service over HTTP: who may call what, what is sent back, and what bad input meets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvicorn
from fastapi.routing import APIRoute

from serve.conftest import SCHEMA, Study, TestClient
from tacit.serve import carrying
from tacit.serve.actions import asking
from tacit.serve.http import routes
from tacit.serve.http.application import application
from tacit.serve.http.connections import Connection
from tacit.serve.http.limits import Guard
from tacit.serve.http.routes import COOKIE, PREFIX
from tacit.serve.keeping import MOST_SOURCES
from tacit.serve.pages import asking as asking_pages
from tacit.serve.pages import auditing, entering, holdings, people
from tacit.serve.store import log

COUNT = {"questions": ["count()"], "epsilon": 0.25}
PEOPLE = {"curator": "curator", "analyst": "ada", "auditor": "eve"}


@pytest.fixture
def client(study: Study) -> Iterator[TestClient]:
    app = application(study.service, largest=20_000)
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as made:
        yield made


def call(client: TestClient, study: Study, user: str | None, method: str, path: str, **options: Any) -> Any:
    headers = {} if user is None else {"Authorization": f"Bearer {study.tokens[user]}"}
    return client.request(method, PREFIX + path, headers={**headers, **options.pop("headers", {})}, **options)


@pytest.fixture(scope="module")
def still(lasting: Study) -> Iterator[TestClient]:
    app = application(lasting.service, largest=20_000)
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as made:
        yield made


GRANT = {"analyst": "bob", "dataset": "people", "epsilon": 0.1}
FIT = {"kind": "fit", "model": "logistic", "target": "income", "epsilon": 0.5}
NEW = {"name": "more", "source": "people.csv", "schema": SCHEMA, "epsilon": 1.0}
MATRIX: list[tuple[str, str, Any, str]] = [
    ("GET", "/me", None, "curator analyst auditor"),
    ("POST", "/users", {"name": "zed", "role": "analyst"}, "curator"),
    ("GET", "/users", None, "curator auditor"),
    ("POST", "/users/bob/tokens", {}, "curator"),
    ("GET", "/tokens", None, "curator"),
    ("DELETE", "/tokens/{token}", None, "curator"),
    ("POST", "/datasets", NEW, "curator"),
    ("GET", "/datasets", None, "curator analyst auditor"),
    ("GET", "/datasets/{name}", None, "curator analyst auditor"),
    ("POST", "/datasets/{name}/confirm", None, "curator"),
    ("POST", "/datasets/{name}/plan", COUNT, "analyst"),
    ("POST", "/datasets/{name}/questions", COUNT, "analyst"),
    ("POST", "/datasets/{name}/jobs/plan", FIT, "analyst"),
    ("POST", "/datasets/{name}/jobs", FIT, "analyst"),
    ("GET", "/requests", None, "curator analyst auditor"),
    ("GET", "/requests/{number}", None, "analyst"),
    ("DELETE", "/requests/{waiting}", None, "curator analyst"),
    ("GET", "/requests/{number}/files/{file}", None, "analyst"),
    ("POST", "/grants", GRANT, "curator"),
    ("GET", "/grants", None, "curator analyst auditor"),
    ("DELETE", "/grants/{grant}", None, "curator"),
    ("GET", "/ledger/{name}", None, "curator auditor"),
    ("GET", "/ledger/{name}/verification", None, "curator auditor"),
    ("GET", "/ledger/{name}/page", None, "curator auditor"),
    ("GET", "/log", None, "curator auditor"),
    ("DELETE", "/session", None, "curator analyst auditor"),
]
"""Every route but those that need no caller, with the roles that may call it."""


def test_the_matrix_has_every_route(client: TestClient) -> None:
    described = client.get(f"{PREFIX}/openapi.json").json()
    routes = {
        (method.upper(), path.removeprefix(PREFIX))
        for path, methods in described["paths"].items()
        for method in methods
    }
    listed = {
        (method, re.sub("{waiting}|{grant}", "{number}", path.replace("bob", "{name}")))
        for method, path, _, _ in MATRIX
    }
    assert routes == listed | {("GET", "/health"), ("POST", "/session")}


@pytest.mark.parametrize(("method", "path", "body", "roles"), MATRIX)
def test_who_may_call_what(
    client: TestClient, study: Study, method: str, path: str, body: Any, roles: str
) -> None:
    """Cell by cell: 401 without a token, 403 for another role, and something else for those who may."""
    grant = study.grant(models=["logistic"])
    ids = {"name": "people", "file": "model.tacit", "token": study.bob.token, "grant": grant}
    if "{number}" in path:
        asked = call(client, study, "ada", "POST", "/datasets/people/questions", json=COUNT)
        ids["number"] = asked.json()["id"]
    found = {}
    for role, user in {"nobody": None, **PEOPLE}.items():
        if "{waiting}" in path:
            started = call(client, study, "ada", "POST", "/datasets/people/jobs", json=FIT)
            ids["waiting"] = started.json()["id"]
        found[role] = call(client, study, user, method, path.format(**ids), json=body).status_code
    assert found.pop("nobody") == 401
    for role, status in found.items():
        if role not in roles.split():
            assert status == 403, role
        elif path.endswith("{file}"):
            assert status == 404, role
        else:
            assert status in (200, 201, 202), role


def test_a_browser_session_over_http(client: TestClient, study: Study) -> None:
    started = call(client, study, "ada", "POST", "/session")
    cookie = started.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/"))
    study.grant()
    assert client.get(f"{PREFIX}/me").json()["name"] == "ada"
    path = f"{PREFIX}/datasets/people/plan"
    assert client.post(path, json=COUNT).status_code == 403
    assert client.post(path, json=COUNT, headers={"X-CSRF-Token": "x"}).status_code == 403
    secret = {"X-CSRF-Token": started.json()["csrf"]}
    assert client.post(path, json=COUNT, headers=secret).status_code == 200
    assert client.delete(f"{PREFIX}/session", headers=secret).status_code == 200
    client.cookies.set(COOKIE, cookie.split("=", 1)[1].split(";")[0])
    assert client.get(f"{PREFIX}/me").status_code == 401


def test_answers_have_interval_guarantee_and_entry(client: TestClient, study: Study) -> None:
    study.grant(epsilon=0.5)
    asked = {"questions": ["count() by sex"], "epsilon": 0.25, "confidence": 0.9}
    answered = call(
        client, study, "ada", "POST", "/datasets/people/questions", json=asked,
        headers={"Idempotency-Key": "once"},
    )  # fmt: skip
    result = answered.json()["result"]
    assert result["entry"] == answered.json()["entry"] == 2
    assert result["guarantee"]["epsilon"] == 0.25
    assert all(row["low"] <= row["value"] <= row["high"] for row in result["answers"][0]["rows"])
    again = call(
        client, study, "ada", "POST", "/datasets/people/questions", json=asked,
        headers={"Idempotency-Key": "once"},
    )  # fmt: skip
    assert again.content == answered.content
    other = {**asked, "epsilon": 0.2}
    clash = call(
        client, study, "ada", "POST", "/datasets/people/questions", json=other,
        headers={"Idempotency-Key": "once"},
    )  # fmt: skip
    assert clash.status_code == 409
    assert study.spent() == 0.25
    refused = call(client, study, "ada", "POST", "/datasets/people/questions", json={**asked, "epsilon": 0.3})
    assert refused.status_code == 402
    assert refused.json()["error"]["kind"] == "BudgetExceeded"
    assert study.spent() == 0.25


def test_every_answer_forbids_caching_and_sniffing(client: TestClient, study: Study) -> None:
    for path in ("/health", "/me", "/nothing"):
        headers = call(client, study, "ada", "GET", path).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_another_host_name_is_refused(client: TestClient) -> None:
    assert client.get(f"{PREFIX}/health").status_code == 200
    for host, status in (("localhost:8000", 200), ("[::1]:8000", 200), ("evil.example", 421), ("", 421)):
        assert client.get(f"{PREFIX}/health", headers={"Host": host}).status_code == status


def test_large_bodies_are_refused(client: TestClient, study: Study) -> None:
    body = json.dumps({"questions": ["count()"], "epsilon": 1, "grant": "x" * 30_000})
    assert call(client, study, "ada", "POST", "/datasets/people/plan", content=body).status_code == 413

    def pieces() -> Iterator[bytes]:
        for _ in range(30):
            yield b" " * 1000

    assert call(client, study, "ada", "POST", "/datasets/people/plan", content=pieces()).status_code == 413


def test_slow_clients_are_cut_off() -> None:
    """A body that does not arrive in time is not waited for, and no application is called."""
    sent: list[Any] = []

    async def never() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    async def app(*given: Any) -> None:
        raise AssertionError("called")

    guard = Guard(app, hosts=(), largest=100, seconds=0.05)
    asyncio.run(guard({"type": "http", "headers": []}, never, send))
    assert sent[0]["status"] == 408


BAD = [
    b"", b"{", b"[]", b"null", b"\xff\xfe", b'"x"', b"1e999", b"NaN",
    b'{"questions": ["count()"], "epsilon": NaN}', b'{"questions": ["count()"], "epsilon": 1e400}',
    b'{"questions": ["count()"], "epsilon": -1}', b'{"questions": ["count()"], "epsilon": "1"}',
    b'{"questions": [{"statistic": "count", "weight": NaN}], "epsilon": 1}',
    b'{"questions": [{"statistic": "count", "weight": 1e999}], "epsilon": 1}',
    b'{"questions": ["count() where age > \\ud800"], "epsilon": 1}',
    b'{"questions": ["count() where sex = \'\\u0000\'"], "epsilon": 1}',
    b'{"questions": [{"statistic": "\\ud800"}], "epsilon": 1}',
    b'{"questions": [{"\\ud800": 1, "statistic": "count"}], "epsilon": 1}',
    b'{"questions": ' + b"[" * 5000 + b"]" * 5000 + b', "epsilon": 1}',
    b'{"questions": [{"statistic": "count", "by": ' + b"[" * 900 + b"]" * 900 + b'}], "epsilon": 1}',
    b'{"questions": [{"statistic": ' + b'{"a":' * 400 + b"1" + b"}" * 400 + b'}], "epsilon": 1}',
    b'{"questions": ["count()"], "epsilon": 1, "grant": "\'; DROP TABLE tacit_service_grants; --"}',
    b'{"questions": ["count()"], "epsilon": 1, "epsilon": 2, "more": 3}',
    b'{"questions": ["histogram(age, 99999999999999999999)"], "epsilon": 1}',
    b'{"questions": ["quantile(age, 7)"], "epsilon": 1}',
    b'{"questions": ["count() where ' + b"(" * 3000 + b'"], "epsilon": 1}',
    b'{"questions": ["count() where ' + b"not " * 3000 + b'sex"], "epsilon": 1}',
]  # fmt: skip


@pytest.mark.parametrize("body", BAD)
def test_bad_bodies_are_told_apart_and_change_nothing(still: TestClient, lasting: Study, body: bytes) -> None:
    for path in ("/datasets/people/plan", "/datasets/people/questions", "/datasets/people/jobs"):
        answer = call(
            still, lasting, "ada", "POST", path, content=body, headers={"Content-Type": "application/json"}
        )
        assert 400 <= answer.status_code < 500, answer.text
        assert answer.json()["error"]["problem"]
    assert lasting.entries() == 0


@pytest.mark.parametrize(
    "path",
    [
        "/datasets/..%2f..%2fetc", "/datasets/%00", "/datasets/people'--", "/requests/..%2f..%2fservice.db",
        "/requests/0/files/..%2f..%2fservice.db", "/requests/%ED%A0%80", "/datasets/" + "x" * 500,
        "/ledger/..%2fpeople", "/datasets/<script>alert(1)<%2fscript>", "//etc/passwd", "/requests?most=-1",
    ],
)  # fmt: skip
def test_odd_paths_find_nothing(still: TestClient, lasting: Study, path: str) -> None:
    for user in ("ada", "curator"):
        for method in ("GET", "POST", "DELETE", "PUT"):
            answer = call(still, lasting, user, method, path)
            assert 400 <= answer.status_code < 500, (method, answer.text)
            assert str(lasting.service.place.home) not in answer.text


def test_a_label_is_text_wherever_it_is_shown(client: TestClient, study: Study) -> None:
    study.grant()
    label = "<img src=x onerror=alert(1)>"
    body = {"questions": [{"statistic": "count", "label": label}], "epsilon": 0.25}
    answered = call(client, study, "ada", "POST", "/datasets/people/questions", json=body)
    assert answered.headers["content-type"] == "application/json"
    page = call(client, study, "eve", "GET", "/ledger/people/page").text
    assert "<img src=x" not in page
    assert "&lt;img src=" in page


def test_errors_of_validation_echo_nothing(client: TestClient, study: Study) -> None:
    """A token that was put into the wrong place is not sent back, nor is any other input."""
    secret = study.tokens["ada"]
    answer = call(client, study, "curator", "POST", "/users", json={"name": secret, "role": secret})
    assert answer.status_code == 422
    assert secret not in answer.text


def test_the_service_tells_nothing_of_its_own_errors(
    client: TestClient, study: Study, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tacit.serve.actions import people

    def broken(*given: Any) -> Any:
        raise RuntimeError("secret row 4711")

    monkeypatch.setattr(people, "oneself", broken)
    with TestClient(client.app, base_url="http://127.0.0.1") as strict:  # raises what a server would log
        answer = call(strict, study, "ada", "GET", "/me")
    assert (answer.status_code, answer.json()["error"]["problem"]) == (500, "The service failed.")
    assert "4711" not in answer.text + caplog.text
    assert "RuntimeError" in caplog.text


class Listening:
    """A service on a port of its own, whose connections are cut off after a moment."""

    def __init__(self, app: Any, patience: float) -> None:
        class Impatient(Connection):
            pass

        Impatient.patience = patience
        self.place = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_level="critical", ws="none", http=Impatient, timeout_keep_alive=100)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.place]}, daemon=True)

    def __enter__(self) -> Listening:
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *raised: object) -> None:
        self.server.should_exit = True
        self.thread.join()

    def connected(self) -> socket.socket:
        return socket.create_connection(self.place.getsockname(), timeout=120)


async def large(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers with more than a connection holds."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(200):
        await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def cut_off(connection: socket.socket) -> bool:
    """Whether the other end closes the connection; what it sends before is dropped."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
def test_headers_that_do_not_arrive_are_not_waited_for(sent: bytes) -> None:
    """On a new connection, and on one that has had an answer; drops prolong nothing."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with Listening(app, 0.3) as service:
        with service.connected() as connection:
            connection.sendall(sent)
            assert cut_off(connection)
        with service.connected() as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 204")
            connection.sendall(sent)
            assert cut_off(connection)
        assert not service.server.server_state.connections


def test_an_answer_that_nobody_takes_is_not_kept() -> None:
    with Listening(large, 0.3) as service, service.connected() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        while not service.server.server_state.connections:
            time.sleep(0.01)
        end = time.monotonic() + 120
        while service.server.server_state.connections and time.monotonic() < end:
            time.sleep(0.01)
        assert not service.server.server_state.connections


def test_endless_headers_are_refused() -> None:
    with Listening(large, 100.0) as service, service.connected() as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"GET / HTTP/1.1\r\n")
            for number in range(1000):
                connection.sendall(b"X-%d: " % number + b"x" * 1000 + b"\r\n")
        assert cut_off(connection)


METHODS = ["HEAD", "OPTIONS", "TRACE", "PUT", "PATCH", "DELETE", "PROPFIND", "ANYTHING"]


@pytest.mark.parametrize("method", METHODS)
def test_every_route_refuses_methods_that_it_does_not_have(
    still: TestClient, lasting: Study, method: str
) -> None:
    """Whoever calls, and whatever is sent along; the description may be asked for its headers alone."""
    with lasting.service.database.read() as connection:
        before = log.length(connection)
    views = (routes, asking_pages, auditing, entering, holdings, people)
    known: dict[str, set[str]] = {f"{PREFIX}/openapi.json": {"GET", "HEAD"}}
    for route in (route for view in views for route in view.router.routes if isinstance(route, APIRoute)):
        known.setdefault(route.path, set()).update(route.methods)
    assert len(known) > 40
    ids = {"name": "people", "number": "0" * 32, "token": "0" * 16, "file": "model.tacit", "what": "ask"}
    for path, methods in known.items():
        if method in methods:
            continue
        for headers in ({}, *({"Authorization": f"Bearer {token}"} for token in lasting.tokens.values())):
            answer = still.request(method, path.format(**ids), headers=headers, data={"epsilon": "1"})
            assert answer.status_code == 405, (method, path)
            assert answer.headers["allow"], path
            assert set(answer.headers) & {"set-cookie", "location", "access-control-allow-origin"} == set()
            assert "epsilon" not in answer.text
    with lasting.service.database.read() as connection:
        assert log.length(connection) == before


def test_one_analyst_holds_half_of_the_turns_at_most(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """One analyst has more questions that do not end than there are turns; another is answered."""
    for name in ("ada", "bob"):
        study.grant(name)
    inside, over, real = threading.Semaphore(0), threading.Event(), carrying.carry_out

    def slow(service: Any, held: Any, *given: Any, **options: Any) -> None:
        if held.analyst == "ada":
            inside.release()
            over.wait(120)
        real(service, held, *given, **options)

    monkeypatch.setattr(carrying, "carry_out", slow)
    app, many, body = application(study.service), MOST_SOURCES + 2, {**COUNT, "epsilon": 0.01}
    place = "/datasets/people/questions"
    with TestClient(app, base_url="http://127.0.0.1") as client, ThreadPoolExecutor(many + 1) as pool:
        asked = [pool.submit(call, client, study, "ada", "POST", place, json=body) for _ in range(many)]
        try:
            assert all(inside.acquire(timeout=120) for _ in range(MOST_SOURCES // 2))
            assert not inside.acquire(timeout=0.5)
            for path in (place, "/datasets/people/plan"):
                other = pool.submit(call, client, study, "bob", "POST", path, json=body)
                assert other.result(timeout=60).status_code == 200
        finally:
            over.set()
        assert [one.result().status_code for one in asked] == [200] * many
    assert study.entries() == many + 1


def test_those_who_wait_keep_nobody_out(
    make_study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One analyst has more questions that wait for the tick than a server has threads by default."""
    study = make_study(tick=1e6)
    study.grant()
    many, waiting, over = 60, threading.Semaphore(0), threading.Event()

    def waits(seconds: float) -> None:
        waiting.release()
        over.wait(120)

    monkeypatch.setattr(asking.time, "sleep", waits)  # type: ignore[attr-defined]
    app = application(study.service)
    with TestClient(app, base_url="http://127.0.0.1") as client, ThreadPoolExecutor(many) as pool:
        body = {**COUNT, "epsilon": 0.001}
        for _ in range(many):
            pool.submit(call, client, study, "ada", "POST", "/datasets/people/questions", json=body)
        try:
            assert all(waiting.acquire(timeout=120) for _ in range(many))
            assert call(client, study, None, "GET", "/health").status_code == 200
        finally:
            over.set()
