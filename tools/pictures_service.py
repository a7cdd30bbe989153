"""The pictures of the service in ``docs/pictures``: a study of some weeks, seen in a browser.

    python tools/pictures_service.py

Needs Chromium (``make browser``) and the extra ``dev``. The study is made up, and its times are set back, so
that its budgets were spent over some weeks.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tacit.ledger import posting
from tacit.serve.access import Caller
from tacit.serve.actions import asking, holdings, people
from tacit.serve.service import Place, Service
from tacit.serve.store import log

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SCHEMA = """
[unit]
name = "patient"

[columns.age]
type = "integer"
bounds = [0, 100]

[columns.sex]
type = "category"
categories = ["female", "male"]

[columns.ward]
type = "category"
categories = ["children", "heart", "surgery", "other"]

[columns.days]
type = "integer"
bounds = [0, 60]
"""
ASKED = [
    (20.6, "ada", "patients", 0.25, ["count() by ward"]),
    (18.2, "ada", "patients", 0.3, ["mean(days) by ward"]),
    (15.0, "bob", "patients", 0.5, ["histogram(age, 10)", "count() by sex"]),
    (14.8, "bob", "staff", 0.2, ["count() by ward"]),
    (11.1, "ada", "patients", 0.2, ["median(days)"]),
    (8.3, "carol", "patients", 0.4, ["crosstab(sex, ward)"]),
    (7.9, "carol", "staff", 0.3, ["mean(age)"]),
    (4.2, "bob", "patients", 0.3, ["mean(age) where ward = 'heart'"]),
    (1.4, "ada", "patients", 0.1, ["count() where days > 30"]),
]
"""How many days ago, who asked which dataset, for how much, what."""


@contextmanager
def days_ago(service: Service, days: float) -> Iterator[Service]:
    """The service at an earlier time, for whatever writes times down."""
    moment = datetime.now(UTC) - timedelta(days=days)
    clock = mock.Mock(wraps=datetime)
    clock.now.return_value = moment
    with mock.patch.object(posting, "datetime", clock), mock.patch.object(log, "datetime", clock):
        yield replace(service, clock=moment.timestamp)


def rows(path: Path, number: int, seed: int) -> None:
    """Rows of a made-up hospital."""
    random = np.random.default_rng(seed)
    age = random.integers(0, 100, number)
    others = random.choice(["heart", "surgery", "other"], number, p=[0.4, 0.35, 0.25])
    ward = np.where(age < 16, "children", others)
    sex = random.choice(["female", "male"], number)
    days = random.poisson(3 + age / 15)
    lines = (f"{a},{s},{w},{d}" for a, s, w, d in zip(age, sex, ward, days, strict=True))
    path.write_text("age,sex,ward,days\n" + "\n".join(lines) + "\n")


def study(home: Path) -> dict[str, str]:
    """Make the study; the tokens of its people."""
    with Place(home).open() as service:
        rows(service.data / "patients.csv", 12000, 1)
        rows(service.data / "staff.csv", 800, 2)
        with days_ago(service, 22) as past:
            first = people.first_curator(past)
            assert first is not None
            tokens = {"curator": first.text}
            curator = Caller("curator", "curator", first.id)
            callers: dict[str, Caller] = {}
            for name in ("ada", "bob", "carol", "eve"):
                role = "auditor" if name == "eve" else "analyst"
                people.add_user(past, curator, name, role)
                made = people.issue_token(past, curator, name, 60.0)
                tokens[name], callers[name] = made["token"], Caller(name, role, made["id"])
            for dataset, epsilon in (("patients", 4.0), ("staff", 1.0)):
                holdings.register(
                    past, curator, dataset, source=f"{dataset}.csv", schema=SCHEMA, epsilon=epsilon,
                    delta=1e-6,
                )  # fmt: skip
            for analyst, dataset, budget in (
                ("ada", "patients", 1.5), ("bob", "patients", 1.5), ("carol", "patients", 1.0),
                ("bob", "staff", 0.5), ("carol", "staff", 0.5),
            ):  # fmt: skip
                holdings.make_grant(
                    past, curator, analyst=analyst, dataset=dataset, epsilon=budget, delta=5e-7,
                    models=["naive-bayes", "logistic", "marginals", "network", "evaluation"],
                )  # fmt: skip
        for days, who, dataset, cost, questions in ASKED:
            with days_ago(service, days) as past:
                asking.ask(past, callers[who], dataset, {"questions": questions, "epsilon": cost})
    return tokens


@contextmanager
def serving(home: Path) -> Iterator[str]:
    """The address of the service while it runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tacit.cli", "serve", "--home", str(home), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{address}/api/v1/health").close()
                break
            except OSError:
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


@contextmanager
def visitor(browser: Browser, address: str, token: str | None, **options: Any) -> Iterator[Page]:
    """A page of a browser, signed in."""
    context = browser.new_context(base_url=address, **{"viewport": {"width": 1080, "height": 760}, **options})
    page = context.new_page()
    page.goto("/sign-in")
    if token is not None:
        page.fill("#token", token)
        page.click("main button")
        page.wait_for_url("**/")
    yield page
    context.close()


def picture(page: Page, name: str, *, height: int | None = None) -> None:
    """Take a picture, and make it small: 128 colours are enough for pages."""
    path = PICTURES / f"service-{name}.png"
    if height is not None:
        size = page.viewport_size
        assert size is not None
        page.set_viewport_size({"width": size["width"], "height": height})
    page.screenshot(path=path, full_page=height is None, animations="disabled")
    image = Image.open(path).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {image.width} × {image.height}, {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Make the study, run the service, take the pictures."""
    PICTURES.mkdir(exist_ok=True)
    chromium = shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        tokens = study(Path(folder) / "home")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        with serving(Path(folder) / "home") as address:
            with visitor(browser, address, None) as page:
                picture(page, "sign-in", height=460)
            with visitor(browser, address, tokens["ada"]) as page:
                analyst(page)
            with visitor(browser, address, tokens["ada"], viewport={"width": 375, "height": 760}) as page:
                page.goto("/")
                picture(page, "narrow")
            with visitor(browser, address, tokens["curator"]) as page:
                curator(page)
            with visitor(browser, address, tokens["curator"], color_scheme="dark") as page:
                page.goto("/")
                picture(page, "budgets-dark")
            with visitor(browser, address, tokens["eve"]) as page:
                auditor(page)
        browser.close()


def carried_out(page: Page, button: str, name: str) -> None:
    """Send the form of a job, wait for its end, and take a picture of that."""
    page.click(f"button:text-is('{button}')")
    page.wait_for_selector("[data-state=done]", timeout=120_000)
    picture(page, name)


def analyst(page: Page) -> None:
    """Asking, an answer, a fit, a training run, a measurement, the list of requests."""
    page.goto("/datasets/patients/ask")
    page.fill("#questions", "mean(days) by ward\nhistogram(age, 10)")
    page.fill("#epsilon", "0.2")
    page.fill("#population", "12000")
    page.wait_for_selector("#preview table")
    picture(page, "ask")
    page.click("text=Ask and charge")
    page.wait_for_selector("figure")
    page.emulate_media(color_scheme="dark")
    picture(page, "answers-dark")
    page.emulate_media(color_scheme="light")
    page.goto("/datasets/patients/fit")
    page.select_option("#model", "naive-bayes")
    page.select_option("#target", "ward")
    page.fill("#epsilon", "0.3")
    page.wait_for_selector("#preview .verdict")
    picture(page, "fit")
    carried_out(page, "Charge and fit", "model")
    page.goto("/datasets/patients/train")
    page.select_option("#target", "ward")
    page.fill("#epsilon", "0.1")
    page.fill("#delta", "1e-7")
    page.fill("#population", "12000")
    page.wait_for_selector("#preview .legend", timeout=120_000)
    picture(page, "train")
    page.goto("/datasets/patients/evaluate")
    page.fill("#epsilon", "0.05")
    page.wait_for_selector("#preview .legend")
    picture(page, "measure")
    carried_out(page, "Charge and measure", "measured")
    page.goto("/requests")
    picture(page, "requests")


def curator(page: Page) -> None:
    """Budgets, a dataset with its grants, registering, people."""
    page.goto("/")
    picture(page, "budgets")
    page.goto("/datasets/patients")
    page.click("text=Choose statistics and models")
    picture(page, "dataset")
    page.goto("/register")
    page.fill("#name", "visits")
    page.fill("#source", "visits-*.csv")
    page.fill("#epsilon", "3")
    picture(page, "register")
    page.goto("/people")
    picture(page, "people")


def auditor(page: Page) -> None:
    """The ledger and its verification, the report, the log."""
    page.goto("/ledger/patients")
    page.click("text=Verify now")
    page.wait_for_selector("text=Head of the log")
    picture(page, "ledger")
    page.goto("/ledger/patients/report")
    picture(page, "report", height=900)
    page.goto("/log")
    picture(page, "log", height=700)


if __name__ == "__main__":
    main()
