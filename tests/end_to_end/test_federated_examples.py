"""The examples over Flower: they run, state what they promise, and learn."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tacit import Ledger
from tacit.federated import CLIENT

pytest.importorskip("flwr")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MNIST = EXAMPLES.parent.parent / "shared" / "data" / "mnist"


def right(name: str, folder: Path, *arguments: str) -> float:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "of one client" in done.stdout
    found = re.search(r"right for ([\d.]+)%", done.stdout)
    assert found is not None
    return float(found[1])


@pytest.mark.audit
def test_scikit_learn_clients_learn_income(tmp_path: Path) -> None:
    assert right("federated_sklearn.py", tmp_path) > 80
    with Ledger.open(tmp_path / "out" / "federated.db", unit=CLIENT) as ledger:
        assert len(ledger.entries()) == 1
        assert ledger.spent().epsilon <= 4.0


@pytest.mark.audit
@pytest.mark.skipif(not MNIST.exists(), reason="MNIST is not here: see the example's --data")
def test_pytorch_clients_learn_digits_by_secure_aggregation(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert right("federated_torch.py", tmp_path, "--data", str(MNIST)) > 80
