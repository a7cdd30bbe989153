"""A running service and Debian's Chromium, driven by Playwright; one of each for a module."""

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from databases import MEMORY

__all__ = ["Study"]

PATIENCE = 120_000
"""Milliseconds after which something that was waited for is taken to hang."""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]


@dataclass
class Study:
    """A service that runs, a browser, and the tokens of its people by name."""

    address: str
    home: Path
    browser: Any
    tokens: dict[str, str]
    wrong: list[str] = field(default_factory=list)
    """What the browser has complained about: scripts and styles that were refused, errors, dialogs."""
    known: dict[str, Any] = field(default_factory=dict)

    def page(self, user: str | None = None, **options: Any) -> Any:
        """A page in a context of its own, signed in."""
        context = self.browser.new_context(base_url=self.address, **options)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("dialog", lambda dialog: (self.wrong.append(dialog.message), dialog.dismiss()))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda told: self._heard(told.text))
        if user is not None:
            page.goto("/sign-in")
            page.fill("#token", self.tokens[user])
            page.click("main button")
            page.wait_for_url(self.address + "/")
        return page

    def _heard(self, text: str) -> None:
        if "Content Security Policy" in text or "Refused to" in text:
            self.wrong.append(text)

    def of(self, user: str) -> Any:
        """The page of a user, signed in once for all tests."""
        if user not in self.known:
            self.known[user] = self.page(user)
        return self.known[user]


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def study() -> Iterator[Study]:
    """The service with one curator, and nothing else."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no Chromium: make browser installs it")
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: no browser to drive"
    )
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, api.sync_playwright() as playwright:
        home, port = Path(folder) / "home", _port()
        command = [sys.executable, "-m", "tacit.cli", "serve", "--home", str(home), "--port", str(port)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as service:
            assert service.stdout is not None
            token = service.stdout.readline().split()[-1]
            address = service.stdout.readline().split()[-1]
            try:
                _wait(address, service)
                browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
                made = Study(address, home, browser, {"curator": token})
                yield made
                browser.close()
            finally:
                service.terminate()
    assert made.wrong == []


def _wait(address: str, service: subprocess.Popen[str]) -> None:
    for _ in range(1200):
        try:
            urllib.request.urlopen(f"{address}/api/v1/health").close()
            return
        except OSError:
            assert service.poll() is None, "the service has ended"
            time.sleep(0.1)
    raise AssertionError("the service does not answer")
