"""Every test draws its own random numbers, the same in every run and in any order.

With ``FRESH=1`` in the environment they come from the operating system, and Hypothesis looks for new
examples: a test that fails then, but for once in a million runs, is wrong or has found something.

Every process computes on one thread, and so do those that tests start. Tests run side by side, and a thread
that waits for another of its process keeps a core busy that another test needs: two processes of two threads
each, on two cores, take several times as long as two of one.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
from collections.abc import Generator
from threading import Lock

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy and PyTorch are imported
os.environ["COLUMNS"] = "80"  # where commands break their lines, whatever terminal the tests run in

import hypothesis
import numpy as np
import pytest

from tacit import randomness

pytest_plugins = ["engines", "databases"]
collect_ignore = ["tests/federated/flower_app"]
"""A Flower app, which Flower's own processes import."""
for colours in ("FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE"):
    os.environ.pop(colours, None)
FRESH = os.environ.get("FRESH", "") not in ("", "0")
LONG = (
    "tests/contract/test_battery.py",
    "tests/adversarial/test_training_isolation.py",
    "tests/training/test_trainer.py",
    "tests/end_to_end/test_docs.py",
    "tests/end_to_end/test_cli_train.py",
    "tests/contract/test_mends.py",
    "tests/contract/test_broken_twins.py",
    "tests/contract/test_estimator_battery.py",
    "tests/serve/test_cli_serve.py",
    "tests/serve/browser/test_browser.py",
    "tests/serve/test_generated_requests.py",
    "tests/estimators/test_scikit_learn_checks.py",
    "tests/training/test_distributed.py",
    "tests/contract/test_training_battery.py",
    "tests/training/test_exactness.py",
)
"""The files that take longest. They come first: two processes share the files, each as a whole, and a long
one at the end would leave a core without work."""

hypothesis.settings.register_profile(
    "tacit", derandomize=not FRESH, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tacit")
"""How long an example takes is no reason to fail: the machine may be busy."""


class Stream:
    """Bytes in place of the operating system's, reproducible unless threads take turns."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(seed)
        self._turn = Lock()

    def __call__(self, count: int) -> bytes:
        with self._turn:
            return self._bits.random_raw(-(-count // 8)).tobytes()[:count]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONG)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if FRESH or item.get_closest_marker("fresh"):
        return (yield)
    seed = int.from_bytes(hashlib.sha256(item.nodeid.encode()).digest()[:4])
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomness, "_entropy", Stream(seed))
        return (yield)
