"""Two processes train as one: the same sum, noise of the right size, one charge, and none is left waiting.

All of it is run once, under ``torchrun``; the tests look at what the two processes wrote down.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, distributed, nn

from tacit.errors import BudgetExceeded, EngineFailed, InvalidValue
from tacit.training import Trainer, clipped_gradient_sum, load_weights
from training import processes
from training.processes import CLIP, QUANTILE, ROWS, TYPICAL, network, plan, points, quiet, weights

pytestmark = pytest.mark.skipif(
    not (distributed.is_available() and distributed.is_gloo_available()),
    reason="needs torch.distributed with gloo",
)
FALSE_ALARM = 1e-6


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("processes")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, processes.__file__, str(folder)], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return SimpleNamespace(folder=folder, made=[torch.load(folder / f"{rank}.pt") for rank in (0, 1)])


def both(run: SimpleNamespace, scene: str, name: str) -> tuple[Any, Any]:
    one, two = (made[scene][name] for made in run.made)
    return one, two


def is_standard_normal(values: Tensor) -> bool:
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], values.numel())
    return bool(low <= float(values.double().square().sum()) <= high)


def test_sum_is_that_of_one_process(run: SimpleNamespace) -> None:
    model, words, targets = network()
    total, _ = clipped_gradient_sum(model, nn.CrossEntropyLoss(reduction="none"), words, targets, CLIP)
    expected = torch.cat([each.flatten() for each in total.values()])
    for found in both(run, "same_sum", "total"):
        assert float((found - expected).norm()) < 1e-6 * float(expected.norm())


def test_noise_has_the_size_of_one_process(run: SimpleNamespace) -> None:
    for name in ("sound", "seeded"):
        one, two = both(run, "noise", name)
        assert torch.equal(one, two)
        assert is_standard_normal(one)


@pytest.mark.parametrize("twin", ["whole shares", "one share", "same shares"])
def test_wrong_shares_are_seen(run: SimpleNamespace, twin: str) -> None:
    assert not is_standard_normal(both(run, "noise", twin)[0])


def test_correlated_noise_has_the_size_of_one_process(run: SimpleNamespace) -> None:
    one, two = both(run, "one_release", "fresh")
    assert torch.equal(one, two)
    assert is_standard_normal(one)
    assert not is_standard_normal(both(run, "one_release", "released")[0])


def test_each_example_pays_in_the_process_that_samples_it(run: SimpleNamespace) -> None:
    spent, squares = both(run, "one_release", "spent"), both(run, "one_release", "squares")[0]
    whole = torch.stack([spent[row % 2][row // 2] for row in range(9)])
    torch.testing.assert_close(whole, squares.double(), rtol=1e-3, atol=1e-6)
    assert float(squares.max()) == pytest.approx(2)
    assert float(squares.min()) > 0


def test_quantile_counts_all_examples(run: SimpleNamespace) -> None:
    model, (inputs, targets) = nn.Linear(4, 2), points(ROWS)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    _, norms = clipped_gradient_sum(model, nn.CrossEntropyLoss(reduction="none"), inputs, targets, CLIP)
    within = int((norms <= TYPICAL).sum())
    assert 0 < within < ROWS
    expected = QUANTILE.moved(TYPICAL, within - ROWS / 2, ROWS)
    one, two = both(run, "quantile", "clip_norm")
    assert one == two == pytest.approx(expected, rel=1e-9)
    counts, same = both(run, "quantile", "counts")
    assert torch.equal(counts, same)
    assert is_standard_normal((counts - 5) / (0.5 * 10))


def test_each_example_is_in_one_process(run: SimpleNamespace) -> None:
    one, two = both(run, "samples", "poisson")
    low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 101 * 50, 20 / 101)
    assert low <= int((one + two).sum()) <= high
    one, two = both(run, "samples", "shuffle")
    assert (one + two).view(-1, 5).sum(1).tolist() == [101] * 10
    assert one.view(-1, 5).sum(1).tolist() == [51] * 10


def test_one_charge_and_one_model(run: SimpleNamespace) -> None:
    assert both(run, "charges", "entries") == (1, 1)
    assert both(run, "charges", "epsilon") == (1.0, 1.0)
    assert both(run, "charges", "noise") == ("seeded", "seeded")
    even, odd = both(run, "charges", "read")
    assert set(even) - {0} == set(range(2, 40, 2))
    assert set(odd) - {0} == set(range(1, 40, 2))
    one, two = both(run, "charges", "weights")
    assert torch.equal(one, two)
    model = nn.Linear(4, 2)
    assert load_weights(run.folder / "model.safetensors", model).epsilon == 1.0
    assert torch.equal(weights(model), one)


def test_refused_in_both_before_reading(run: SimpleNamespace) -> None:
    for refused in both(run, "charges", "refused"):
        assert refused.startswith(BudgetExceeded.__name__)
    assert both(run, "charges", "unread") == (0, 0)


def test_stopped_and_resumed_together(run: SimpleNamespace) -> None:
    assert both(run, "stopping", "steps") == (3, 3)
    assert both(run, "stopping", "again") == (9, 9)
    for labels in both(run, "stopping", "labels"):
        assert labels[0] == ""
        assert len(set(labels)) == len(labels)
        assert {" from step 0", " from step 3"} < set(labels)
    assert torch.equal(*both(run, "stopping", "weights"))
    # A finished run has no steps left to take, whoever goes on with it.
    assert both(run, "stopping", "others") == ("no error", "no error")


def test_processes_without_examples(run: SimpleNamespace) -> None:
    assert torch.equal(*both(run, "few", "weights"))
    assert both(run, "few", "steps") == (10, 10)


@pytest.mark.parametrize(
    ("what", "rank", "error"),
    [
        ("mixing", 1, "NotIsolated: model and loss must be such that"),
        ("unreadable", 0, "OSError: unreadable"),
        ("callback", 0, "RuntimeError: a callback"),
        ("loop", 1, "no error"),
        ("stream", 0, "InvalidValue: dataset must be"),
    ],
)
def test_failure_of_one_ends_both(run: SimpleNamespace, what: str, rank: int, error: str) -> None:
    found = both(run, "failures", what)
    assert found[rank].startswith(error)
    assert found[1 - rank].startswith(f"{EngineFailed.__name__}: Process {rank} of 2 failed or left")


def test_loop_left_by_both(run: SimpleNamespace) -> None:
    assert both(run, "failures", "loops") == ("no error", "no error")
    assert (run.folder / "left.safetensors").exists()


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("rows", "len(dataset) must be the same in every process, got '40 and 41'."),
        ("plan", "plan must be the same in every process"),
        ("fixed", "sampling must be 'poisson', 'shuffle', 'cyclic' or 'ordered' in several processes"),
        ("wrapped", "model must be the plain module, got 'DistributedDataParallel'."),
    ],
)
def test_refused_in_both(run: SimpleNamespace, what: str, error: str) -> None:
    for found in both(run, "refusals", what):
        assert found.startswith(f"{InvalidValue.__name__}: {error}")


def test_processes_that_have_not_joined_are_refused(run: SimpleNamespace) -> None:
    for found in both(run, "without_joining", "error"):
        assert found.startswith("InvalidValue: torch.distributed must be initialised before")


def test_sharded_model_trains_as_a_whole_one(run: SimpleNamespace) -> None:
    model, words, targets = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    with quiet():
        Trainer(model, nn.CrossEntropyLoss(), optimizer, plan(ROWS, ROWS, 4)).fit((words, targets))
    expected = weights(model)
    for found in both(run, "sharded", "weights"):
        assert float((found - expected).norm()) < 1e-5 * float((expected - weights(network()[0])).norm())
    assert both(run, "sharded", "kind") == ("DTensor", "DTensor")
    assert both(run, "sharded", "partly") == ("no error", "no error")
    saved = copy.deepcopy(model)
    load_weights(run.folder / "whole.safetensors", saved)
    assert torch.equal(weights(saved), both(run, "sharded", "weights")[0])
    assert is_standard_normal(both(run, "sharded", "noise")[0])
    for refused in both(run, "sharded", "average"):
        assert refused.startswith("InvalidValue: average must be None for a sharded model")
