"""A server that was killed goes on from its checkpoint: no round is unpaid, and none is released twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.errors import InvalidValue, LedgerError, ModelUnreadable
from tacit.federated import CLIENT, Adam, FederatedPlan, Momentum, Rounds, simulate
from tacit.federated.checkpoint import Checkpoint
from tacit.ledger import Budget, Ledger
from tacit.training import Quantile

FACTS: dict[str, Any] = {"clients": 30, "cohort": 15, "rounds": 6, "delta": 1e-5, "noise_multiplier": 2.0}
PLAN = FederatedPlan(**FACTS, trust="server")
SHAPES = [(2,)]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.db", Budget(PLAN.epsilon * 1.01, 1e-5), unit=CLIENT) as opened:
        yield opened


def test_a_killed_round_counts_as_taken(ledger: Ledger, tmp_path: Path) -> None:
    file = tmp_path / "run.federation"
    rounds = Rounds(PLAN, SHAPES, ledger=ledger, checkpoint=file)
    rounds.begin().finish()
    lost = rounds.begin()
    again = Rounds(PLAN, SHAPES, ledger=ledger, checkpoint=file)
    assert again.number == 2, "round 1 may have been seen: its noise is never drawn again"
    assert again.begin().number == 2
    assert [entry.event for entry in ledger.entries()].count(PLAN.event) == 1
    taken = [entry.work.taken for entry in ledger.entries() if entry.work and entry.work.taken]
    assert taken == [(0, 1), (1, 2), (2, 3)]
    with pytest.raises(LedgerError, match="taken already"):
        rounds.begin()
    del lost


def test_a_finished_round_is_handed_out_again_as_it_was(ledger: Ledger, tmp_path: Path) -> None:
    file = tmp_path / "run.federation"
    rounds = Rounds(PLAN, SHAPES, ledger=ledger, checkpoint=file)
    rounds.state = {"weights": np.arange(3.0)}
    one = rounds.begin()
    one.receive(one.cohort[0], [np.ones(2)])
    update = one.finish()
    again = Rounds(PLAN, SHAPES, ledger=ledger, checkpoint=file)
    assert again.number == 1
    assert again.pending is not None
    assert np.array_equal(again.pending[0], update[0])
    assert np.array_equal(again.state["weights"], np.arange(3.0))
    again.begin()
    assert Rounds(PLAN, SHAPES, ledger=ledger, checkpoint=file).pending is None


def test_copies_of_a_checkpoint_take_no_round_twice(ledger: Ledger, tmp_path: Path) -> None:
    file, copy = tmp_path / "run.federation", tmp_path / "copy.federation"
    Rounds(PLAN, SHAPES, ledger=ledger, checkpoint=file).begin().finish()
    shutil.copy(file, copy)
    Rounds(PLAN, SHAPES, ledger=ledger, checkpoint=file).begin().finish()
    with pytest.raises(LedgerError, match="from a copy"):
        Rounds(PLAN, SHAPES, ledger=ledger, checkpoint=copy)
    shutil.copy(file, copy)
    first, second = (Rounds(PLAN, SHAPES, ledger=ledger, checkpoint=each) for each in (file, copy))
    first.begin()
    with pytest.raises(LedgerError):
        second.begin()


def test_an_old_checkpoint_put_back_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    file, old = tmp_path / "run.federation", tmp_path / "old"
    rounds = Rounds(PLAN, SHAPES, ledger=ledger, checkpoint=file)
    rounds.begin().finish()
    shutil.copy(file, old)
    rounds.begin().finish()
    rounds.begin().finish()
    shutil.copy(old, file)
    with pytest.raises(LedgerError):
        Rounds(PLAN, SHAPES, ledger=ledger, checkpoint=file)


def test_another_ledger_has_no_charge(ledger: Ledger, tmp_path: Path) -> None:
    file = tmp_path / "run.federation"
    Rounds(PLAN, SHAPES, ledger=ledger, checkpoint=file).begin().finish()
    with (
        Ledger.open(tmp_path / "other.db", Budget(100.0, 1e-5), unit=CLIENT) as other,
        pytest.raises(LedgerError, match="no charge"),
    ):
        Rounds(PLAN, SHAPES, ledger=other, checkpoint=file)


def test_without_a_ledger_the_same_holds_in_one_process(tmp_path: Path) -> None:
    file = tmp_path / "run.federation"
    rounds = Rounds(PLAN, SHAPES, checkpoint=file)
    rounds.begin().finish()
    again = Rounds(PLAN, SHAPES, checkpoint=file)
    assert again.begin().number == 1
    with pytest.raises(LedgerError, match="taken already"):
        rounds.begin()


def test_another_plan_or_model_is_another_run(tmp_path: Path) -> None:
    file = tmp_path / "run.federation"
    Rounds(PLAN, SHAPES, checkpoint=file).begin()
    more = FederatedPlan(**{**FACTS, "rounds": 7}, trust="server")
    for plan, shapes in ((more, SHAPES), (PLAN, [(3,)])):
        with pytest.raises(InvalidValue, match="another run"):
            Rounds(plan, shapes, checkpoint=file)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.federation"
    Rounds(PLAN, SHAPES, checkpoint=file).begin().finish()
    whole = file.read_bytes()
    for damaged in (b"", whole[:-1], whole[:200], b"x" * len(whole), whole[:100] + b"?" + whole[101:]):
        file.write_bytes(damaged)
        with pytest.raises(ModelUnreadable):
            Rounds(PLAN, SHAPES, checkpoint=file)


def test_the_file_tells_no_cohort_and_no_update(tmp_path: Path) -> None:
    file = tmp_path / "run.federation"
    one = Rounds(PLAN, SHAPES, checkpoint=file).begin()
    for client in one.cohort:
        one.receive(client, [np.array([0.123456789, 0.0])])
    kept = Checkpoint.read(file)
    assert not kept.asked.any()
    assert kept.update is None
    assert kept.state == {}
    one.finish()
    released = Checkpoint.read(file).update
    assert released is not None
    assert np.array_equal(released, one.finish()[0])


def test_caps_and_clip_norm_survive(tmp_path: Path) -> None:
    plan = FederatedPlan(
        **{**FACTS, "rounds": 4}, trust="server", sampling="rotation",
        clipping=Quantile(learning_rate=1.0, count_noise=0.2),
    )  # fmt: skip
    file = tmp_path / "run.federation"
    asked = np.zeros(30, int)
    for _ in range(4):
        rounds = Rounds(plan, SHAPES, checkpoint=file)
        one = rounds.begin()
        asked[list(one.cohort)] += 1
        one.finish()
        assert Rounds(plan, SHAPES, checkpoint=file).clip_norm == rounds.clip_norm != plan.clip_norm
    assert asked.max() <= plan.participations == 2
    with pytest.raises(InvalidValue, match="all were taken"):
        Rounds(plan, SHAPES, checkpoint=file).begin()


class Killed(BaseException):
    """What ends a process in the middle of a round."""


def moved(client: int, parameters: list[np.ndarray]) -> list[np.ndarray]:
    return [np.array([1.0, -1.0]) - parameters[0]]


@pytest.mark.parametrize("optimizer", [Momentum, Adam, None])
def test_a_run_killed_between_rounds_ends_as_if_it_had_not_been(optimizer: Any, tmp_path: Path) -> None:
    def made() -> Any:
        return None if optimizer is None else optimizer()

    whole = simulate(PLAN, moved, [np.zeros(2)], optimizer=made(), random_state=5)
    file = tmp_path / "run.federation"

    def kill(progress: Any) -> None:
        if progress.number in (1, 3):
            raise Killed

    for _ in range(2):
        with pytest.raises(Killed):
            simulate(
                PLAN, moved, [np.zeros(2)], optimizer=made(), checkpoint=file, progress=kill, random_state=5
            )
    again = simulate(PLAN, moved, [np.zeros(2)], optimizer=made(), checkpoint=file, random_state=5)
    assert np.array_equal(again.parameters[0], whole.parameters[0])
    assert again.guarantee == whole.guarantee


def test_a_run_killed_within_a_round_loses_it_and_nothing_else(ledger: Ledger, tmp_path: Path) -> None:
    file = tmp_path / "run.federation"
    seen: list[int] = []

    def kill(client: int, parameters: list[np.ndarray]) -> list[np.ndarray]:
        raise Killed

    with pytest.raises(Killed):
        simulate(PLAN, kill, [np.zeros(2)], ledger=ledger, checkpoint=file)
    run = simulate(
        PLAN, moved, [np.zeros(2)], ledger=ledger, checkpoint=file,
        progress=lambda each: seen.append(each.number),
    )  # fmt: skip
    assert seen == [1, 2, 3, 4, 5]
    assert run.guarantee.epsilon == PLAN.epsilon
    ledger.verify()


PROGRAM = """
import os, signal, sys
import numpy as np
from tacit.federated import CLIENT, FederatedPlan, Rounds
from tacit.ledger import Ledger
plan = FederatedPlan(clients=30, cohort=15, rounds=6, delta=1e-5, noise_multiplier=2.0, trust="server")
ledger = Ledger.open(sys.argv[1])
rounds = Rounds(plan, [(2,)], ledger=ledger, checkpoint=sys.argv[2])
rounds.begin().finish()
one = rounds.begin()
one.receive(one.cohort[0], [np.ones(2)])
print(rounds.number, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_9(ledger: Ledger, tmp_path: Path) -> None:
    file = tmp_path / "run.federation"
    numbers = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "ledger.db"), str(file)],
            capture_output=True, text=True, check=False, env={**os.environ},
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, done.stderr
        numbers.append(int(done.stdout))
    assert numbers == [2, 4, 6]
    assert Rounds(PLAN, SHAPES, ledger=ledger, checkpoint=file).finished
    assert sum(entry.event == PLAN.event for entry in ledger.entries()) == 1
    ledger.verify()
