"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of data and vectors beside the checkout; tests that need it skip without it."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder ../shared of data and vectors beside the checkout")
    return folder


@pytest.fixture
def tested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of the trainer test their gradients at the first step alone: short runs do little else.

    This is for tests of something else. That a run does so ten times is tested in ``test_selftests.py``, and
    what is found then with the trainer and its adversaries.
    """
    from tacit.training import step

    monkeypatch.setattr(step, "_TESTS", 1)


@pytest.fixture
def one_thread() -> None:
    """Every test computes on one thread (``conftest.py`` of the root); tests that still ask for it get it."""
