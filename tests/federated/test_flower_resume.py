"""A server that is killed goes on from its checkpoint, and no round is unpaid or taken twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM

import flower_apps as apps
from tacit import Budget, Ledger
from tacit.errors import InvalidValue, LedgerError
from tacit.federated import CLIENT
from tacit.federated.flower import ProcessGrid, private

ROUNDS = 4


class Killed(BaseException):
    """Stands for a signal that no handler of the library may swallow."""


def numbers(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([array.numpy().astype(float).ravel() for array in arrays.values()])


def strategy_of(kind: Any) -> Any:
    return kind(eta=0.1, tau=0.1) if kind is FedAdam else kind(server_momentum=0.9, server_learning_rate=0.5)


def run(
    kind: Any,
    path: Path | None,
    ledger: Ledger | None = None,
    stop_at: int | None = None,
    after: bool = False,
) -> tuple[list[int], np.ndarray | None]:
    """The rounds that were released, and the last model; ``stop_at`` breaks off in or after a round."""
    released: list[int] = []

    def train(message: Message, context: Context) -> Message:
        if not after and len(released) + begun == stop_at:
            raise Killed
        return apps.steady(message, context)

    def evaluate(number: int, arrays: ArrayRecord) -> None:
        if number:
            released.append(number)
        if after and number == stop_at:
            raise Killed

    begun = 1
    plan = apps.plan(rounds=ROUNDS, noise_multiplier=1.0)
    strategy = private(strategy_of(kind), plan, ledger, checkpoint=path, random_state=11)
    grid = ProcessGrid(apps.app(train), 10)
    try:
        found = strategy.start(grid, apps.model(), evaluate_fn=evaluate)
    except Killed:
        return released, None
    return released, numbers(found.arrays)


@pytest.mark.parametrize("kind", [FedAdam, FedAvgM])
@pytest.mark.parametrize("stop_at", [1, 2, 4])
def test_a_run_broken_off_between_rounds_ends_as_one_that_was_not(
    kind: Any, stop_at: int, tmp_path: Path
) -> None:
    first, _ = run(kind, tmp_path / "run", stop_at=stop_at, after=True)
    second, found = run(kind, tmp_path / "run")
    assert first + second == [1, 2, 3, 4]
    assert np.array_equal(found, run(kind, None)[1])


def test_a_round_in_whose_middle_the_server_was_killed_is_not_repeated(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "study.db", budget=Budget(100.0, 1e-4), unit=CLIENT) as ledger:
        first, _ = run(FedAvgM, tmp_path / "run", ledger, stop_at=2)
        spent = ledger.spent().epsilon
        second, _ = run(FedAvgM, tmp_path / "run", ledger)
        assert (first, second) == ([1], [3, 4])
        assert ledger.spent().epsilon == spent
        third, _ = run(FedAvgM, tmp_path / "run", ledger)
        assert third == []


def test_a_copy_of_a_checkpoint_takes_no_round_again(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "study.db", budget=Budget(100.0, 1e-4), unit=CLIENT) as ledger:
        run(FedAvgM, tmp_path / "run", ledger, stop_at=2, after=True)
        (tmp_path / "copy").write_bytes((tmp_path / "run").read_bytes())
        run(FedAvgM, tmp_path / "run", ledger)
        with pytest.raises(LedgerError):
            run(FedAvgM, tmp_path / "copy", ledger)


def test_nodes_keep_their_numbers(tmp_path: Path) -> None:
    plan = apps.plan(clients=3, cohort=3, rounds=2, noise_multiplier=1.0)
    one = private(FedAvg(), plan, None, checkpoint=tmp_path / "run")
    one.start(ProcessGrid(apps.app(apps.steady), 3), apps.model(), num_rounds=1)
    two = private(FedAvg(), plan, None, checkpoint=tmp_path / "run")
    grid = ProcessGrid(apps.app(apps.steady), 3)
    grid._contexts = {node + 500: context for node, context in grid._contexts.items()}
    messages = list(two.configure_train(2, apps.model(), ConfigRecord(), grid))
    assert messages == []


def test_settings_of_the_strategy_are_those_of_the_new_start(tmp_path: Path) -> None:
    """A server that goes on with another learning rate uses it; its momentum comes from the checkpoint."""
    plan = apps.plan(rounds=2, noise_multiplier=1.0)
    grid = ProcessGrid(apps.app(apps.steady), 10)
    first = private(FedAvgM(server_momentum=0.9), plan, None, checkpoint=tmp_path / "run")
    first.start(grid, apps.model(), num_rounds=1)
    second = private(
        FedAvgM(server_momentum=0.9, server_learning_rate=0.0), plan, None, checkpoint=tmp_path / "run"
    )
    second.start(grid, apps.model(), num_rounds=2)
    found = second._inner.strategy
    assert (found.server_learning_rate, len(found.momentum_vector)) == (0.0, 2)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    run(FedAvgM, tmp_path / "run", stop_at=1, after=True)
    plan = apps.plan(rounds=ROUNDS, noise_multiplier=1.0)
    renamed = ArrayRecord({f"other {name}": array for name, array in apps.model().items()})
    with pytest.raises(InvalidValue, match="checkpoint"):
        private(FedAvgM(), plan, None, checkpoint=tmp_path / "run").start(
            ProcessGrid(apps.app(apps.steady), 10), renamed
        )


SERVER = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
import flower_apps as apps
from flwr.serverapp.strategy import FedAvg
from tacit import Budget, Ledger
from tacit.federated import CLIENT
from tacit.federated.flower import ProcessGrid, private

folder, last = sys.argv[1], int(sys.argv[2])
plan = apps.plan(rounds=4, noise_multiplier=1.0)

def train(message, context):
    if len(released) == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return apps.steady(message, context)

released = []
with Ledger.open(folder + "/study.db", budget=Budget(100.0, 1e-4), unit=CLIENT) as ledger:
    strategy = private(FedAvg(), plan, ledger, checkpoint=folder + "/run")
    strategy.start(
        ProcessGrid(apps.app(train), 10), apps.model(),
        evaluate_fn=lambda number, arrays: (number and released.append(number)) and None,
    )
    print("released", *released, "in all")
"""


def test_a_server_that_is_killed_by_a_signal_goes_on(tmp_path: Path) -> None:
    def server(last: int) -> subprocess.CompletedProcess[str]:
        here = str(Path(__file__).resolve().parents[1])
        return subprocess.run(
            [sys.executable, "-c", SERVER, str(tmp_path), str(last), here],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    killed = server(2)
    assert killed.returncode == -signal.SIGKILL
    with Ledger.open(tmp_path / "study.db", unit=CLIENT) as ledger:
        spent = ledger.spent().epsilon
        assert spent > 0
    resumed = server(9)
    assert resumed.returncode == 0, resumed.stderr
    assert "released 4 " in resumed.stdout
    with Ledger.open(tmp_path / "study.db", unit=CLIENT) as ledger:
        assert ledger.spent().epsilon == spent
