"""The pages in a real browser: a whole study from the first sign-in on, in the order of this file."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.browser.conftest import Study

NASTY = "<img src=x onerror=alert(1)>"
SCHEMA = f"""
[columns.age]
type = "integer"
bounds = [0, 100]

[columns.note]
type = "category"
categories = ["plain", "{NASTY}"]
"""
PAGES = {
    "curator": ["/", "/register", "/datasets/people", "/requests", "/people"],
    "ada": ["/", "/datasets/people", "/datasets/people/ask", "/datasets/people/fit",
            "/datasets/people/train", "/datasets/people/synthesize", "/datasets/people/evaluate", "/requests",
            "{answer}", "{job}", "{measured}", "/nothing"],
    "eve": ["/", "/ledger/people/verification", "/ledger/people/report", "/log", "/people"],
}  # fmt: skip


def rows(path: Path) -> None:
    random = np.random.default_rng(3)
    ages, notes = random.integers(0, 100, 600), random.choice(["plain", NASTY], 600)
    lines = (f"{age},{note}" for age, note in zip(ages, notes, strict=True))
    path.write_text("age,note\n" + "\n".join(lines) + "\n")


def focused(page: Any) -> str:
    """What has the focus: its id, or its text."""
    return str(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))


def charges(study: Study) -> int:
    """How many charges the ledger has, as the auditor sees them."""
    page = study.of("eve")
    page.goto("/ledger/people")
    found = re.search(r"(\d+) charges?\.", page.inner_text("main"))
    assert found is not None
    return int(found.group(1))


def test_signing_in(study: Study) -> None:
    page = study.page()
    page.goto("/")
    assert page.url.endswith("/sign-in")
    page.fill("#token", "tacit_wrong_token")
    page.press("#token", "Enter")
    page.wait_for_selector("#problems")
    assert focused(page) == "problems"
    assert page.get_attribute("#token", "aria-invalid") == "true"
    assert "opens nothing" in page.inner_text(
        f"#{page.get_attribute('#token', 'aria-describedby').split()[1]}"
    )
    page.fill("#token", study.tokens["curator"])
    page.press("#token", "Enter")
    page.wait_for_selector("text=There is no dataset yet")
    study.known["curator"] = page


def test_registering(study: Study) -> None:
    page = study.of("curator")
    page.click("nav >> text=Register")
    page.fill("#name", "people")
    page.fill("#source", "../service.db")
    page.fill("#schema", SCHEMA)
    page.fill("#epsilon", "2")
    page.fill("#delta", "1e-5")
    page.click("main button")
    page.wait_for_selector("#problems")
    assert page.input_value("#schema").strip() == SCHEMA.strip()
    assert page.is_visible("#source-problem")
    rows(study.home / "data" / "people.csv")
    page.fill("#source", "people.csv")
    page.click("main button")
    page.wait_for_url("**/datasets/people?told=registered")
    assert "was registered" in page.inner_text("[role=status]")


def test_adding_people(study: Study) -> None:
    page = study.of("curator")
    for name, role in (("ada", "analyst"), ("bob", "analyst"), ("eve", "auditor")):
        page.goto("/people")
        page.fill("#name", name)
        page.select_option("#role", role)
        page.click("section >> text=Add >> nth=-1")
        page.wait_for_url("**/people?told=added")
        page.click(f"[aria-label='Issue a token for {name}']")
        study.tokens[name] = page.inner_text("#token").strip()
    page.goto("/people")
    assert study.tokens["eve"] not in page.content()


def test_granting(study: Study) -> None:
    page = study.of("curator")
    page.goto("/datasets/people")
    for name, epsilon in (("ada", "1"), ("bob", "0.1")):
        page.select_option("#analyst", name)
        page.fill("#epsilon", epsilon)
        page.fill("#delta", "1e-6")
        page.click("summary >> text=Choose statistics")
        for model in ("naive-bayes", "marginals", "network", "evaluation"):
            page.check(f"input[value={model}]")
        page.click("button >> text=Grant")
        page.wait_for_selector("text=The grant was made")
    assert page.locator("#grants ~ .scroll >> nth=0").inner_text().count("naive-bayes, marginals") == 2


def test_a_preview_appears_while_one_types_and_charges_nothing(study: Study) -> None:
    page = study.of("ada")
    page.click('a.button >> text="Ask"')
    page.click("[data-insert='mean(age)']")
    assert focused(page) == "questions"
    page.fill("#epsilon", "0.25")
    page.fill("#population", "600")
    page.wait_for_selector("#preview .sign.yes")
    page.wait_for_selector("#preview >> text=± ")
    assert "ε 0.25" in page.inner_text("#preview")
    page.fill("#epsilon", "7")
    page.wait_for_selector("#preview .sign.no")
    page.fill("#questions", "mean(wealth)")
    page.wait_for_selector("#preview >> text=wealth")
    assert charges(study) == 0


def test_asking(study: Study) -> None:
    page = study.of("ada")
    page.goto("/datasets/people/ask")
    page.fill("#questions", "count()\nhistogram(age, 5)")
    page.fill("#epsilon", "0.2")
    page.click("text=Ask and charge")
    page.wait_for_selector("[data-state=done]")
    study.known["answer"] = page.url
    assert page.locator("figure[role=img] svg:visible").count() == 1
    assert page.locator("figure").get_attribute("aria-label")
    assert page.locator(".answers table").count() == 3
    assert "Charged as entry" in page.inner_text("main")
    page.reload()
    assert charges(study) == 1


def test_sending_a_form_twice_charges_once(study: Study) -> None:
    page = study.of("ada")
    page.goto("/datasets/people/ask")
    page.fill("#questions", "count()")
    page.fill("#epsilon", "0.05")
    send = """async () => {
        const form = document.querySelector("form[data-preview]");
        const body = () => new URLSearchParams(new FormData(form));
        const send = () => fetch(form.action, {method: "POST", body: body()});
        return (await Promise.all([send(), send(), send()])).map((answer) => answer.url);
    }"""
    places = page.evaluate(send)
    assert len(set(places)) == 1
    assert "/requests/" in places[0]
    assert charges(study) == 2


def test_an_empty_budget_refuses(study: Study) -> None:
    page = study.of("bob")
    for epsilon, left in (("0.1", True), ("0.01", False)):
        page.goto("/datasets/people/ask")
        page.fill("#questions", "count()")
        page.fill("#epsilon", epsilon)
        page.click("text=Ask and charge")
        page.wait_for_selector("[data-state=done]" if left else "#problems")
    assert focused(page) == "problems"
    assert "Nothing was charged" in page.inner_text("#problems")
    assert page.input_value("#questions") == "count()"
    assert charges(study) == 3


def test_fitting_and_downloading(study: Study) -> None:
    page = study.of("ada")
    page.goto("/datasets/people/fit")
    page.select_option("#model", "naive-bayes")
    page.select_option("#target", "note")
    page.fill("#epsilon", "0.2")
    page.click("summary:text-is('More')")
    page.fill("#label", NASTY)
    page.wait_for_selector("#preview .sign.yes")
    page.click("text=Charge and fit")
    page.wait_for_url("**/requests/*")
    study.known["job"] = page.url
    page.wait_for_selector("[data-state=done]")
    assert page.inner_text("#said") in ("", "The request is done.")
    with page.expect_download() as waiting:
        page.click("text=Download model.tacit")
    assert waiting.value.suggested_filename == "model.tacit"
    assert Path(waiting.value.path()).stat().st_size > 100


def test_training_and_measuring(study: Study) -> None:
    """A network is trained and then measured, each by its tab, with a preview while one types."""
    page, before = study.of("ada"), charges(study)
    page.goto("/datasets/people/ask")
    page.click("nav a:text-is('Train')")
    page.select_option("#architecture", "linear")
    page.select_option("#target", "note")
    page.fill("#epsilon", "0.1")
    page.fill("#delta", "1e-7")
    page.fill("#population", "600")
    page.click("summary:text-is('More')")
    page.fill("#epochs", "1")
    page.fill("#batch_size", "200")
    page.wait_for_selector("#preview .sign.yes")
    assert "δ 10⁻⁷" in page.inner_text("#preview")
    page.click("button:text-is('Charge and train')")
    page.wait_for_url("**/requests/*")
    page.wait_for_selector("[data-state=done]")
    with page.expect_download() as waiting:
        page.click("a:text-is('Download model.safetensors')")
    assert Path(waiting.value.path()).stat().st_size > 100
    trained = page.url.rpartition("/")[2]
    page.goto("/datasets/people/ask")
    page.click("nav a:text-is('Measure')")
    assert page.input_value("#request") == trained  # the newest model comes first
    page.fill("#epsilon", "0.05")
    page.wait_for_selector("#preview .sign.yes")
    page.click("button:text-is('Charge and measure')")
    page.wait_for_url("**/requests/*")
    page.wait_for_selector("[data-state=done]")
    study.known["measured"] = page.url
    assert "accuracy" in page.inner_text(".answers")
    assert trained[:8] in page.inner_text("main")
    assert charges(study) == before + 2


def test_a_job_that_waits_is_cancelled(study: Study) -> None:
    page = study.of("ada")
    page.goto("/datasets/people/synthesize")
    page.fill("#rows", "50")
    page.fill("#epsilon", "0.01")
    page.click("text=Charge and synthesize")
    page.wait_for_selector("[data-state]")
    cancel = """() => {
        const form = document.querySelector("main form[action$='/cancel']");
        form?.requestSubmit();
        return form !== null;
    }"""
    if page.evaluate(cancel):  # unless the worker was quicker
        page.wait_for_url(re.compile("told=cancelled|/cancel$"))
    page.goto("/requests")
    page.wait_for_selector("text=synthetic table")


def test_verifying(study: Study) -> None:
    page = study.of("eve")
    page.goto("/ledger/people")
    page.click("text=Verify now")
    page.wait_for_selector(".sign.yes")
    heads = page.locator(".heads dd").all_inner_texts()
    page.fill("#head", heads[0])
    page.fill("#log_head", heads[1])
    page.click("text=Verify now")
    page.wait_for_selector("text=what you had written down is in them")
    page.fill("#head", "3:" + "0" * 32)
    page.click("text=Verify now")
    page.wait_for_selector("text=It does not verify")
    page.fill("#head", "something else")
    page.click("text=Verify now")
    page.wait_for_selector("text=This cannot be verified")
    page.goto("/ledger/people")
    page.click("text=Report for the data protection officer")
    page.wait_for_selector("h1 >> text=Privacy ledger")
    assert "rgb(0, 158, 115)" in page.evaluate(
        "getComputedStyle(document.querySelector('.summary')).borderTopColor"
    )


def test_html_in_texts_stays_text(study: Study) -> None:
    page = study.of("ada")
    page.goto("/datasets/people/ask")
    page.fill("#questions", "count() by note")
    page.fill("#epsilon", "0.05")
    page.click("text=Ask and charge")
    page.wait_for_selector("[data-state=done]")
    assert NASTY in page.inner_text(".answers table >> nth=0")
    places = [(page, page.url), (page, study.known["job"]), (page, "/requests"), (page, "/datasets/people")]
    for other, place in [
        *places,
        (study.of("eve"), "/ledger/people"),
        (study.of("eve"), "/ledger/people/report"),
    ]:
        other.goto(place)
        assert other.locator("img").count() == 0
        assert other.locator("script:not([src])").count() == 0
    page.goto("/datasets/people/ask")
    page.fill("#questions", f"count() where note = '{NASTY}' and <script>alert(2)</script>")
    page.wait_for_selector("#preview .sign.no")
    page.click("text=Ask and charge")
    page.wait_for_selector("#questions-problem")
    assert page.locator("img, main script").count() == 0


def test_asking_by_keyboard_alone(study: Study) -> None:
    page = study.of("ada")
    page.goto("/datasets/people/ask")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    page.keyboard.press("Enter")
    assert focused(page) == "content"
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(focused(page))
        if seen[-1] == "questions":
            page.keyboard.type("count()")
        if seen[-1] == "epsilon":
            page.keyboard.press("Control+A")
            page.keyboard.type("0.02")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", seen
        if seen[-1] == "Ask and charge":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-state=done]")
    order = [seen.index(name) for name in ("questions", "epsilon", "delta", "confidence", "Ask and charge")]
    assert order == sorted(order)


def test_everything_works_without_scripts(study: Study) -> None:
    page = study.page("ada", java_script_enabled=False)
    page.goto("/datasets/people/ask")
    assert not page.is_visible(".examples")
    page.fill("#questions", "mean(age)")
    page.fill("#epsilon", "0.02")
    page.click("button >> text=Preview")
    page.wait_for_selector("#preview .sign.yes")
    assert page.input_value("#questions").strip() == "mean(age)"
    page.click("text=Ask and charge")
    page.wait_for_selector("[data-state=done]")
    page.goto("/datasets/people/fit")
    page.select_option("#target", "note")
    page.fill("#epsilon", "0.02")
    page.click("text=Charge and fit")
    page.wait_for_selector("[data-state]")
    for _ in range(600):
        again = page.locator("text=Look again")
        if not again.count():
            break
        again.click()
        page.wait_for_timeout(200)
    assert page.get_attribute("[data-state]", "data-state") == "done"
    page.click("text=Sign out")
    page.wait_for_url("**/sign-in")
    page.context.close()


def test_a_form_of_another_session_is_refused(study: Study) -> None:
    page, other = study.of("ada"), study.page("ada")
    for one in (page, other):
        one.goto("/datasets/people/ask")
        one.fill("#questions", "count()")
    secret = other.input_value("form[data-preview] [name=csrf]")
    page.evaluate("(text) => document.querySelector('form[data-preview] [name=csrf]').value = text", secret)
    before = charges(study)
    page.click("text=Ask and charge")
    page.wait_for_selector("text=This form belongs to another session")
    assert charges(study) == before
    other.context.close()


def ordered(levels: list[int]) -> bool:
    return levels[:1] == [1] and all(after <= level + 1 for level, after in pairwise(levels))


@pytest.mark.parametrize("user", PAGES)
def test_pages_fit_small_screens_and_are_accessible(study: Study, user: str) -> None:
    """At 375 pixels nothing overflows; axe-core and a few checks of our own find no fault, light or dark."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    page = study.of(user)
    for place in PAGES[user]:
        page.goto(place.format(**{name: study.known[name] for name in ("answer", "job", "measured")}))
        for scheme, width in (("light", 1100), ("dark", 375)):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 700})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (place, scheme)
            found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
            told = [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found]
            assert told == [], (place, scheme)
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((one) => +one.tagName[1])")
        assert ordered(levels), (place, levels)
        assert levels.count(1) == 1
        assert page.title()
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 720})


def test_signing_out(study: Study) -> None:
    page = study.of("ada")
    page.goto("/requests")
    assert "count()" in page.inner_text("main")
    page.click("text=Sign out")
    page.wait_for_url("**/sign-in")
    page.go_back()
    page.wait_for_url("**/sign-in*")
    assert "count()" not in page.inner_text("body")
    page.goto(study.known["answer"])
    assert "/sign-in?next=" in page.url
    page.fill("#token", study.tokens["ada"])
    page.click("main button")
    page.wait_for_url(study.known["answer"])
    assert page.context.cookies()
    assert all(cookie["httpOnly"] and cookie["sameSite"] == "Strict" for cookie in page.context.cookies())
    assert page.evaluate("document.cookie") == ""


def test_a_revoked_token_ends_the_sessions(study: Study) -> None:
    curator, page = study.of("curator"), study.of("ada")
    curator.goto("/people")
    number = study.tokens["ada"].split("_")[1]
    curator.click(f"[aria-label='Revoke token {number} of ada']")
    curator.wait_for_url("**/people?told=token-revoked")
    page.goto("/")
    assert page.url.endswith("/sign-in")
