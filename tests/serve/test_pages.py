"""The pages of the service by HTTP: who may see what, what forms do, and what an attacker meets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest
from fastapi.routing import APIRoute

from serve.conftest import SCHEMA, Study, TestClient
from tacit.serve import worker
from tacit.serve.actions import asking
from tacit.serve.http.application import application
from tacit.serve.http.callers import COOKIE
from tacit.serve.pages import asking as asking_pages
from tacit.serve.pages import auditing, entering, holdings, people
from tacit.serve.pages.rendering import POLICY
from tacit.serve.pages.visits import FORM_COOKIE, destination

PEOPLE = {"curator": "curator", "analyst": "ada", "auditor": "eve"}
ASK = {"questions": "count()", "epsilon": "0.05", "delta": "0", "confidence": "0.95"}
FIT = {"model": "logistic", "target": "income", "epsilon": "0.05"}
TRAIN = {
    "architecture": "linear", "target": "income", "epsilon": "0.05", "delta": "1e-7", "population": "2000",
    "batch_size": "500", "epochs": "1",
}  # fmt: skip
MEASURE = {"request": "{fitted}", "epsilon": "0.05"}
SYNTHESIZE = {"method": "marginals", "rows": "9", "epsilon": "0.05"}
NEW = {"name": "more", "source": "people.csv", "schema": SCHEMA, "epsilon": "1"}
GRANT = {"analyst": "bob", "epsilon": "0.1", "all_statistics": "yes"}


class Browser:
    """A client with a session, which sends the secret of its forms along, as pages do."""

    def __init__(self, study: Study, user: str | None) -> None:
        app = application(study.service)
        self.client = TestClient(
            app, base_url="http://127.0.0.1", raise_server_exceptions=False, follow_redirects=False
        )
        self.csrf = ""
        if user is not None:
            self.signed = self.client.post("/sign-in", data={"token": study.tokens[user]})
            found = re.search('name="csrf" value="([^"]+)"', self.get("/").text)
            assert found is not None
            self.csrf = found.group(1)

    def get(self, path: str, **options: Any) -> Any:
        return self.client.get(path, **options)

    def post(self, path: str, form: dict[str, Any] | None = None, **options: Any) -> Any:
        return self.client.post(path, data={"csrf": self.csrf, **(form or {})}, **options)

    def key(self, path: str) -> str:
        found = re.search('name="key" value="([^"]+)"', self.get(path).text)
        assert found is not None
        return found.group(1)


@pytest.fixture
def browse(study: Study) -> Iterator[Callable[[str | None], Browser]]:
    opened: list[Browser] = []

    def made(user: str | None) -> Browser:
        opened.append(Browser(study, user))
        return opened[-1]

    yield made
    for one in opened:
        one.client.close()


ALL, CURATOR, ANALYST, READERS = "curator analyst auditor", "curator", "analyst", "curator auditor"
MATRIX: list[tuple[str, str, dict[str, str] | None, str]] = [
    ("GET", "/", None, ALL),
    ("GET", "/register", None, CURATOR),
    ("POST", "/register", NEW, CURATOR),
    ("GET", "/datasets/{name}", None, ALL),
    ("POST", "/datasets/{name}/confirm", {}, CURATOR),
    ("POST", "/datasets/{name}/grants", GRANT, CURATOR),
    ("POST", "/datasets/{name}/grants/{number}/revoke", {}, CURATOR),
    ("GET", "/datasets/{name}/ask", None, ANALYST),
    ("GET", "/datasets/{name}/fit", None, ANALYST),
    ("GET", "/datasets/{name}/train", None, ANALYST),
    ("GET", "/datasets/{name}/synthesize", None, ANALYST),
    ("GET", "/datasets/{name}/evaluate", None, ANALYST),
    ("POST", "/datasets/{name}/ask", ASK, ANALYST),
    ("POST", "/datasets/{name}/fit", FIT, ANALYST),
    ("POST", "/datasets/{name}/train", TRAIN, ANALYST),
    ("POST", "/datasets/{name}/synthesize", SYNTHESIZE, ANALYST),
    ("POST", "/datasets/{name}/evaluate", MEASURE, ANALYST),
    ("POST", "/datasets/{name}/ask/preview", ASK, ANALYST),
    ("POST", "/datasets/{name}/fit/preview", FIT, ANALYST),
    ("POST", "/datasets/{name}/train/preview", TRAIN, ANALYST),
    ("POST", "/datasets/{name}/synthesize/preview", SYNTHESIZE, ANALYST),
    ("POST", "/datasets/{name}/evaluate/preview", MEASURE, ANALYST),
    ("GET", "/requests", None, ALL),
    ("GET", "/requests/{asked}", None, ANALYST),
    ("POST", "/requests/{waiting}/cancel", {}, "curator analyst"),
    ("GET", "/ledger/{name}", None, READERS),
    ("GET", "/ledger/{name}/verification", None, READERS),
    ("GET", "/ledger/{name}/report", None, READERS),
    ("GET", "/log", None, READERS),
    ("GET", "/people", None, READERS),
    ("POST", "/people", {"name": "zed", "role": "analyst"}, CURATOR),
    ("POST", "/people/{name}/tokens", {"days": "3"}, CURATOR),
    ("POST", "/tokens/{token}/revoke", {}, CURATOR),
    ("POST", "/sign-out", {}, ALL),
]
"""Every page but those that need no visitor, with the roles that may open it."""
FORMS = "|".join(get_args(asking_pages.What))
OPEN = {("GET", "/static/{name}"), ("GET", "/sign-in"), ("POST", "/sign-in")}


def test_the_matrix_has_every_page() -> None:
    routes = {
        (method, route.path)
        for views in (entering, holdings, asking_pages, auditing, people)
        for route in views.router.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    listed = {
        (
            method,
            re.sub(f"/({FORMS})(?=/|$)", "/{what}", re.sub("{asked}|{waiting}", "{number}", path)),
        )
        for method, path, _, _ in MATRIX
    }
    assert routes == listed | OPEN
    places = {(method, path) for method, path, _, _ in MATRIX}
    for what in get_args(asking_pages.What):
        page = f"/datasets/{{name}}/{what}"
        assert {("GET", page), ("POST", page), ("POST", f"{page}/preview")} <= places


@pytest.mark.parametrize(("method", "path", "form", "roles"), MATRIX)
def test_who_may_open_which_page(
    browse: Callable[[str | None], Browser], study: Study, method: str, path: str, form: Any, roles: str
) -> None:
    """Cell by cell: to the sign-in for nobody, 403 for another role, a page or a redirection for the rest."""
    grant = study.grant(models=["logistic", "marginals", "network", "evaluation"], delta=1e-6)
    ids = {
        "name": "ada" if path.startswith("/people") else "people",
        "number": grant,
        "token": study.bob.token,
    }
    if "{asked}" in path:
        body = {"questions": ["count()"], "epsilon": 0.1}
        ids["asked"] = asking.ask(study.service, study.ada, "people", body)["id"]
    fit = {"model": "logistic", "target": "income", "epsilon": 0.1}
    if form == MEASURE:
        form = {**form, "request": asking.start(study.service, study.ada, "people", "fit", fit)["id"]}
        assert worker.once(study.service)
    for role, user in {"nobody": None, **PEOPLE}.items():
        if "{waiting}" in path:
            ids["waiting"] = asking.start(study.service, study.ada, "people", "fit", fit)["id"]
        browser, place = browse(user), path.format(**ids)
        answer = browser.get(place) if method == "GET" else browser.post(place, {**form, "once": role})
        if role == "nobody":
            expected = (303, 401)
            assert answer.headers.get("location", "/sign-in").startswith("/sign-in"), place
        elif role in roles.split():
            expected = (200, 303)
            assert not answer.headers.get("location", "").startswith("/sign-in") or place == "/sign-out"
        else:
            expected = (403,)
        assert answer.status_code in expected, (role, answer.text)
        assert method == "GET" or role == "nobody" or answer.status_code != 401


def test_every_page_has_strict_headers(browse: Callable[[str | None], Browser], study: Study) -> None:
    browser = browse("curator")
    for path in ("/", "/datasets/people", "/people", "/nothing", "/sign-in", "/datasets/none"):
        headers = browser.get(path).headers
        if path != "/sign-in":
            assert headers["content-security-policy"] == POLICY
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
    report = browser.get("/ledger/people/report").headers
    assert "unsafe" not in report["content-security-policy"]
    assert "attachment" in browser.get("/ledger/people/report?save=true").headers["content-disposition"]
    for cookie in browser.signed.headers.get_list("set-cookie"):
        assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/"))


def test_no_page_has_styles_or_scripts_in_it(browse: Callable[[str | None], Browser], study: Study) -> None:
    study.grant()
    ada, curator = browse("ada"), browse("curator")
    asked = {"questions": "count() by sex\ncrosstab(sex, income)\nmean(age)\ntop(sex, 1)", "epsilon": "0.2"}
    place = ada.post("/datasets/people/ask", {**asked, "key": "k"}).headers["location"]
    answered = ada.get(place).text
    assert answered.count("<figure") == 2
    for text in (answered, ada.get("/").text, curator.get("/").text, curator.get("/datasets/people").text):
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|<script(?! src=)", text)


def test_a_form_of_another_session_is_refused(browse: Callable[[str | None], Browser], study: Study) -> None:
    study.grant()
    one, two = browse("ada"), browse("ada")
    for csrf in (two.csrf, "", "x", one.csrf + "x"):
        answer = one.client.post("/datasets/people/ask", data={**ASK, "csrf": csrf})
        assert answer.status_code == 403
        assert "another session" in answer.text
    # The secret is read from the form alone: that the browser sends a cookie with it proves nothing.
    assert one.client.post("/datasets/people/ask", data=ASK).status_code == 403
    assert study.entries() == 0
    assert one.post("/datasets/people/ask", ASK).status_code == 303


@pytest.mark.parametrize("site", ["cross-site", "same-site", "null"])
def test_forms_from_elsewhere_are_refused(
    browse: Callable[[str | None], Browser], study: Study, site: str
) -> None:
    study.grant()
    headers = {"Sec-Fetch-Site": site}
    assert browse("ada").post("/datasets/people/ask", ASK, headers=headers).status_code == 403
    signed = browse(None).client.post("/sign-in", data={"token": study.tokens["ada"]}, headers=headers)
    assert signed.status_code == 403
    assert "set-cookie" not in signed.headers
    assert study.entries() == 0


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/", "//evil.example", "/\\evil.example", "\\\\evil", "javascript:alert(1)",
        "/a//b", "/%2f/evil", "/a?b=//evil", "/a\r\nSet-Cookie: x=y", " /a", "/a/../b", "/sign-in",
        "http:/evil", "/\t/evil",
    ],
)  # fmt: skip
def test_signing_in_leads_to_no_other_site(
    browse: Callable[[str | None], Browser], study: Study, wanted: str
) -> None:
    assert destination(wanted) == "/"
    browser = browse(None)
    answer = browser.client.post("/sign-in", data={"token": study.tokens["ada"], "next": wanted})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_signing_in_leads_back(browse: Callable[[str | None], Browser], study: Study) -> None:
    browser = browse(None)
    answer = browser.get("/datasets/people")
    assert answer.headers["location"] == "/sign-in?next=%2Fdatasets%2Fpeople"
    form = {"token": study.tokens["curator"], "next": "/datasets/people"}
    assert browser.client.post("/sign-in", data=form).headers["location"] == "/datasets/people"
    wrong = browser.client.post("/sign-in", data={"token": "tacit_x_y"})
    assert wrong.status_code == 401
    assert "tacit_x_y" not in wrong.text


def test_signing_out_ends_the_session(browse: Callable[[str | None], Browser], study: Study) -> None:
    browser = browse("curator")
    kept = {name: browser.client.cookies[name] for name in (COOKIE, FORM_COOKIE)}
    answer = browser.post("/sign-out")
    assert answer.headers["location"] == "/sign-in"
    assert answer.headers["clear-site-data"] == '"cache"'
    for name, text in kept.items():
        browser.client.cookies.set(name, text)
    assert browser.get("/").status_code == 303
    assert browser.post("/people", {"name": "x", "role": "curator"}).status_code == 401


def test_asking_twice_with_one_form_charges_once(
    browse: Callable[[str | None], Browser], study: Study
) -> None:
    study.grant()
    browser = browse("ada")
    form = {**ASK, "key": browser.key("/datasets/people/ask")}
    places = {browser.post("/datasets/people/ask", form).headers["location"] for _ in range(3)}
    assert (len(places), study.entries(), study.spent()) == (1, 1, 0.05)
    clash = browser.post("/datasets/people/ask", {**form, "epsilon": "0.06"})
    assert clash.status_code == 409
    assert form["key"] not in clash.text
    assert study.entries() == 1


def test_granting_twice_with_one_form_grants_once(
    browse: Callable[[str | None], Browser], study: Study
) -> None:
    from tacit.serve.actions import holdings as held

    browser = browse("curator")
    for _ in range(2):
        assert browser.post("/datasets/people/grants", {**GRANT, "once": "a"}).status_code == 303
    assert len(held.list_grants(study.service, study.curator)) == 1
    browser.post("/datasets/people/grants", {**GRANT, "once": "b"})
    assert len(held.list_grants(study.service, study.curator)) == 2


def test_what_does_not_fit_is_refused_and_said(browse: Callable[[str | None], Browser], study: Study) -> None:
    study.grant(epsilon=0.1)
    browser = browse("ada")
    answer = browser.post("/datasets/people/ask", {**ASK, "epsilon": "0.2", "key": "k"})
    assert answer.status_code == 402
    assert "Nothing was charged" in answer.text
    previewed = browser.post("/datasets/people/ask/preview", {**ASK, "epsilon": "0.2"})
    assert "does not fit" in previewed.text
    assert study.entries() == 0


@pytest.mark.parametrize(
    ("form", "place"),
    [
        ({"questions": ""}, "questions"),
        ({"questions": "median(wealth)"}, "questions"),
        ({"questions": "<b>count()</b>"}, "questions"),
        ({"epsilon": "much"}, "epsilon"),
        ({"epsilon": "-1"}, "epsilon"),
        ({"epsilon": "nan"}, "epsilon"),
        ({"epsilon": "1e999"}, "epsilon"),
        ({"delta": "2"}, "delta"),
        ({"population": "many"}, "population"),
    ],
)
def test_faults_stand_beside_their_field(
    browse: Callable[[str | None], Browser], study: Study, form: dict[str, str], place: str
) -> None:
    study.grant()
    answer = browse("ada").post("/datasets/people/ask", {**ASK, **form})
    assert answer.status_code == 422
    assert f'id="{place}-problem"' in answer.text
    assert f'<a href="#{place}">' in answer.text
    assert "<b>count" not in answer.text
    assert study.entries() == 0


@pytest.mark.parametrize("body", [b"\xff\xfe=1", b"a=" + b"&a=" * 3000, b"questions=%ff%fe&epsilon=1"])
def test_what_is_no_form_is_refused(
    browse: Callable[[str | None], Browser], study: Study, body: bytes
) -> None:
    browser = browse("ada")
    for kind, status in (("application/x-www-form-urlencoded", 422), ("application/json", 415), ("", 415)):
        answer = browser.client.post(
            "/datasets/people/ask", content=body, headers={"Content-Type": kind}
        )  # fmt: skip
        assert answer.status_code == status


def test_pages_tell_nothing_of_errors(
    browse: Callable[[str | None], Browser], study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.grant()
    browser = browse("ada")

    def broken(*given: Any) -> Any:
        raise RuntimeError("secret row 4711")

    monkeypatch.setattr(asking, "list_requests", broken)
    answer = browser.get("/requests")
    assert answer.status_code == 500
    assert "4711" not in answer.text
    assert "Traceback" not in answer.text
    monkeypatch.undo()
    (study.service.data / "people.csv").write_text("age,sex,income\n")
    for path in ("/datasets/people/ask", "/datasets/people/ask/preview"):
        answer = browser.post(path, {**ASK, "key": "k"})
        assert answer.status_code == 503
        assert str(study.service.place.home) not in answer.text
        assert "people.csv" not in answer.text


def test_an_analyst_sees_nothing_of_others(browse: Callable[[str | None], Browser], study: Study) -> None:
    study.grant("ada")
    study.grant("bob")
    made = asking.ask(study.service, study.bob, "people", {"questions": ["count() by sex"], "epsilon": 0.25})
    browser = browse("ada")
    assert browser.get(f"/requests/{made['id']}").status_code == 404
    for path in ("/", "/requests", "/datasets/people", "/datasets/people/ask"):
        text = browser.get(path).text
        assert "bob" not in text
        assert "people.csv" not in text
        assert made["id"] not in text


def test_pages_wait_for_the_tick(make_study: Callable[..., Study]) -> None:
    """How a request ended, its entry, its answers and its progress are told at the tick, and not before."""
    study = make_study(tick=3600.0)
    study.grant(models=["naive-bayes"])
    from tacit.serve import worker

    body = {"model": "naive-bayes", "target": "income", "epsilon": 0.1}
    number = asking.start(study.service, study.ada, "people", "fit", body)["id"]
    assert worker.once(study.service)
    browser = Browser(study, "ada")
    for path in (f"/requests/{number}", "/requests", "/"):
        text = browser.get(path).text
        assert "running" in text
        assert ">done<" not in text
        assert "model.tacit" not in text
        assert "Charged as entry" not in text
    assert "Over time" in text
    assert 'class="steps"' not in text
    browser.client.close()
    later = replace(study, service=replace(study.service, clock=lambda: study.service.now() + 3600.0))
    browser = Browser(later, "ada")
    text = browser.get(f"/requests/{number}").text
    assert "Charged as entry" in text
    assert "model.tacit" in text
    assert 'class="steps"' in browser.get("/").text
    browser.client.close()


def test_texts_are_escaped(browse: Callable[[str | None], Browser], study: Study) -> None:
    study.grant(models=["naive-bayes"])
    browser, auditor = browse("ada"), browse("eve")
    nasty = "<img src=x onerror=alert(1)>"
    fit = {"model": "naive-bayes", "target": "income", "epsilon": "0.05", "label": nasty, "key": nasty}
    answer = browser.post("/datasets/people/fit", fit)
    assert answer.status_code == 422  # a key has no spaces
    place = browser.post("/datasets/people/fit", {**fit, "key": "k"}).headers["location"]
    body = {"questions": [{"statistic": "count", "label": nasty}], "epsilon": 0.25}
    number = asking.ask(study.service, study.ada, "people", body)["id"]
    for who, path in (
        (browser, place),
        (browser, f"/requests/{number}"),
        (auditor, "/ledger/people"),
        (auditor, "/log"),
    ):
        assert "<img src=x" not in who.get(path).text
    shown = auditor.get("/ledger/people").text
    assert "&lt;img" in shown
    form = {**ASK, "questions": '"><script>alert(1)</script>'}
    assert "<script>alert" not in browser.post("/datasets/people/ask", form).text


def test_every_kind_of_request_is_called_by_its_name(
    browse: Callable[[str | None], Browser], study: Study
) -> None:
    """A fit with its test, a measurement, a training run: what was measured is shown, and what it cost."""
    study.grant(models=["naive-bayes", "evaluation", "network"], delta=1e-6, epsilon=3.0)
    fit = {"model": "naive-bayes", "target": "income", "epsilon": 0.3, "test_share": 0.2}
    fit |= {"test_epsilon": 0.25}
    number = asking.start(study.service, study.ada, "people", "fit", fit)["id"]
    assert worker.once(study.service)
    measure = {"request": number, "epsilon": 0.1}
    measured = asking.start(study.service, study.ada, "people", "evaluate", measure)["id"]
    assert worker.once(study.service)
    train = {
        "architecture": "linear", "target": "income", "epsilon": 0.5, "delta": 1e-7, "population": 2000,
        "batch_size": 500,
    }  # fmt: skip
    trained = asking.start(study.service, study.ada, "people", "train", train)["id"]
    browser = browse("ada")
    page = browser.get(f"/requests/{number}").text
    assert "ε = 0.55" in page
    assert all(word in page for word in ("Charged as entries 2 and 3", "How good it is", "accuracy"))
    page = browser.get(f"/requests/{measured}").text
    assert "A model measured on people" in page
    assert f"measurement of the model of request {number[:8]}" in page
    assert "How good it is" in page
    assert "Download" not in page
    page = browser.get(f"/requests/{trained}").text
    assert "A network of people" in page
    listed = browser.get("/requests").text
    assert "network linear of income" in listed
    assert "synthetic" not in listed
    form = browse("curator").get("/datasets/people").text
    for model in ("network", "evaluation"):
        assert f'name="models" value="{model}"' in form


JOBS = {"fit": ["naive-bayes"], "train": ["network"], "synthesize": ["marginals"], "evaluate": ["evaluation"]}


@pytest.mark.parametrize("what", JOBS)
def test_a_form_is_offered_where_a_grant_allows_it(
    browse: Callable[[str | None], Browser], study: Study, what: str
) -> None:
    """The first page, the page of the dataset and the tabs lead to it; elsewhere the page says why not."""
    browser, place = browse("ada"), f"/datasets/people/{what}"
    study.grant(models=[name for other, names in JOBS.items() if other != what for name in names])
    pages = ("/", "/datasets/people", "/datasets/people/ask")
    assert not any(f'href="{place}"' in browser.get(path).text for path in pages)
    refused = browser.get(place)
    assert refused.status_code == 200
    assert f"Your grants allow no {asking_pages.LACKING[what]}. Ask the curator for one." in refused.text
    assert "Charge and" not in refused.text
    body = {
        "fit": FIT,
        "train": TRAIN,
        "synthesize": SYNTHESIZE,
        "evaluate": {**MEASURE, "request": "0" * 32},
    }
    for path in (place, f"{place}/preview"):
        answer = browser.post(path, body[what])
        assert answer.status_code == 403
        assert "The grant does not allow" in answer.text
    study.grant(models=JOBS[what])
    assert all(f'href="{place}"' in browser.get(path).text for path in pages)
    expected = "You have no model that predicts" if what == "evaluate" else "Charge and"
    assert expected in browser.get(place).text
    assert study.entries() == 0


def test_training_and_measuring_by_forms(browse: Callable[[str | None], Browser], study: Study) -> None:
    """Each has a preview that charges nothing, is charged once however often its form is sent, and ends."""
    grant = study.grant(models=["network", "evaluation"], delta=1e-6)
    study.grant(models=["network"], epsilon=0.01)
    browser = browse("ada")
    train = {**TRAIN, "epsilon": "0.5", "grant": grant, "label": "the <network>"}
    previewed = browser.post("/datasets/people/train/preview", train).text
    assert "This would cost <strong>ε 0.5</strong>, δ 10⁻⁷" in previewed
    for name, text in train.items():
        assert (
            re.search(f'name="{name}"[^>]* value="{text}"|value="{text}" selected', previewed)
            or name == "label"
        )
    assert "the &lt;network&gt;" in previewed
    assert (
        "4 times: on a secret sample, in which each row is with a probability of 25%: Gaussian" in previewed
    )
    assert study.entries() == 0
    train["key"] = browser.key("/datasets/people/train")
    places = {browser.post("/datasets/people/train", train).headers["location"] for _ in range(3)}
    (trained,) = places
    assert worker.once(study.service)
    assert not worker.once(study.service)
    assert "Download model.safetensors" in browser.get(trained).text
    number = trained.rpartition("/")[2]
    form = browser.get("/datasets/people/evaluate").text
    assert f'<option value="{number}">linear of income (people, request {number[:8]})</option>' in form
    assert 'name="delta"' not in form
    measure = {"request": number, "epsilon": "0.25", "grant": grant, "groups_by": "sex"}
    assert (
        "This would cost <strong>ε 0.25</strong>."
        in browser.post("/datasets/people/evaluate/preview", measure).text
    )
    assert study.entries() == 1
    measure["key"] = browser.key("/datasets/people/evaluate")
    places = {browser.post("/datasets/people/evaluate", measure).headers["location"] for _ in range(2)}
    (measured,) = places
    assert worker.once(study.service)
    page = browser.get(measured).text
    assert all(word in page for word in ("How good it is", "accuracy", "sex"))
    assert study.entries() == 2
    assert 0.74 < study.spent() <= 0.75


@pytest.mark.parametrize(
    ("what", "form", "place"),
    [
        ("train", {"architecture": "transformer"}, "architecture-problem"),
        ("train", {"population": ""}, "population-problem"),
        ("train", {"population": "many"}, "population-problem"),
        ("train", {"delta": "0"}, "delta-problem"),
        ("train", {"target": "wealth"}, "problems"),
        ("train", {"epochs": "1e9"}, "epochs-problem"),
        ("train", {"batch_size": "0.5"}, "batch_size-problem"),
        ("train", {"lr": "nan"}, "lr-problem"),
        ("train", {"clip_norm": "-1"}, "clip_norm-problem"),
        ("evaluate", {"request": "0" * 32}, "request-problem"),
        ("evaluate", {"request": "../model"}, "request-problem"),
        ("evaluate", {"epsilon": "0"}, "epsilon-problem"),
        ("evaluate", {"groups_by": "wealth"}, "problems"),
    ],
)
def test_faults_of_jobs_stand_beside_their_field(
    browse: Callable[[str | None], Browser], study: Study, what: str, form: dict[str, str], place: str
) -> None:
    study.grant(models=["naive-bayes", "network", "evaluation"], delta=1e-6)
    fit = {"model": "naive-bayes", "target": "income", "epsilon": 0.25}
    number = asking.start(study.service, study.ada, "people", "fit", fit)["id"]
    assert worker.once(study.service)
    given = TRAIN if what == "train" else {**MEASURE, "request": number}
    answer = browse("ada").post(f"/datasets/people/{what}", {**given, **form})
    assert answer.status_code == 422, answer.text
    assert f'id="{place}"' in answer.text
    assert study.entries() == 1


def test_a_preview_says_which_part_of_a_budget_is_too_small(
    browse: Callable[[str | None], Browser], study: Study
) -> None:
    study.grant(models=["network"], delta=1e-8)
    text = browse("ada").post("/datasets/people/train/preview", TRAIN).text
    assert "does not fit" in text
    assert "δ 10⁻⁷</strong>, and ε 1, δ 10⁻⁸ of the grant is left, ε 4, δ 10⁻⁶ of the dataset" in text


def test_another_analyst_s_model_is_neither_offered_nor_measured(
    browse: Callable[[str | None], Browser], study: Study
) -> None:
    for name in ("ada", "bob"):
        study.grant(name, models=["naive-bayes", "evaluation"])
    fit = {"model": "naive-bayes", "target": "income", "epsilon": 0.25}
    number = asking.start(study.service, study.bob, "people", "fit", fit)["id"]
    assert worker.once(study.service)
    browser = browse("ada")
    assert number[:8] not in browser.get("/datasets/people/evaluate").text
    answer = browser.post("/datasets/people/evaluate", {**MEASURE, "request": number})
    assert answer.status_code == 422
    assert study.entries() == 1


def test_a_head_that_is_none_is_told_of_beside_its_field(
    browse: Callable[[str | None], Browser], study: Study
) -> None:
    """It is no sign that the ledger was forged."""
    browser = browse("eve")
    for head, status, title in (
        ("something else", 422, "This cannot be verified"),
        ("1:" + "0" * 32, 409, "It does not verify"),
    ):
        answer = browser.get("/ledger/people/verification", params={"head": head})
        assert (answer.status_code, title in answer.text) == (status, True)
        assert f'value="{head}"' in answer.text


def test_a_fit_with_a_test_by_the_form(browse: Callable[[str | None], Browser], study: Study) -> None:
    """The test has an ε of its own, is in the preview, and is charged after the model."""
    study.grant(models=["naive-bayes"])
    browser = browse("ada")
    fit = {
        "model": "naive-bayes", "target": "income", "epsilon": "0.3", "test_share": "0.25",
        "test_epsilon": "0.2", "groups_by": "sex",
    }  # fmt: skip
    assert "<strong>ε 0.5</strong>" in browser.post("/datasets/people/fit/preview", fit).text
    for wrong, place in (({"test_share": "2"}, "test_share-problem"), ({"test_epsilon": ""}, "problems")):
        answer = browser.post("/datasets/people/fit", {**fit, **wrong})
        assert (answer.status_code, f'id="{place}"' in answer.text) == (422, True)
    place = browser.post("/datasets/people/fit", {**fit, "key": browser.key("/datasets/people/fit")})
    assert worker.once(study.service)
    shown = browser.get(place.headers["location"]).text
    assert all(words in shown for words in ("Download model.tacit", "How good it is", "accuracy"))
    assert (study.entries(), round(study.spent(), 9)) == (2, 0.5)
