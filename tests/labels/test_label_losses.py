"""Losses for randomized labels: against their definitions, and what a network learns with them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit import labels
from tacit.labels import LabelPrivateClassifier, Response

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def logits() -> torch.Tensor:
    return torch.randn((7, 4), generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_the_loss_of_responses_is_their_negative_log_likelihood(logits: torch.Tensor) -> None:
    """P(response | x) = Σ_c q_c P(response | c), with the table of randomized response."""
    mechanism, responses = Response(4, 1.0), np.array([0, 1, 2, 3, 0, 1, 2])
    table = np.array(mechanism.table()[:4], dtype=float)
    shares = torch.softmax(logits, dim=1).numpy()
    expected = -np.log((shares @ table)[np.arange(7), responses]).mean()
    told = torch.from_numpy(mechanism.log_likelihood(responses))
    constant = math.log(math.e + 3)
    assert math.isclose(labels.ResponseLoss()(logits, told).item() + constant, expected, rel_tol=1e-9)


def test_the_gradient_of_the_posterior_is_that_of_the_likelihood(logits: torch.Tensor) -> None:
    """Fisher's identity: the prior of the present model makes both losses move alike."""
    told = torch.randn((7, 4), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    gradients = []
    for loss in (labels.ResponseLoss(), labels.SoftTargetLoss()):
        leaf = logits.clone().requires_grad_()
        loss(leaf, told).backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


def test_a_prior_of_an_earlier_epoch_is_taken(logits: torch.Tensor) -> None:
    told, prior = torch.zeros_like(logits), torch.full_like(logits, 0.25)
    expected = -torch.log_softmax(logits, dim=1).mean()
    torch.testing.assert_close(labels.SoftTargetLoss()(logits, told, prior), expected)


def test_the_debiased_loss_has_the_true_loss_as_its_mean(logits: torch.Tensor) -> None:
    loss, table = labels.DebiasedLoss(0.7, 4), np.array(Response(4, 0.7).table()[:4], dtype=float)
    for label in range(4):
        means = [loss(logits, torch.full((7,), response)).item() for response in range(4)]
        true = torch.nn.functional.cross_entropy(logits, torch.full((7,), label)).item()
        assert math.isclose(table[label] @ means, true, rel_tol=1e-9)


@pytest.fixture(scope="module")
def fitted() -> tuple[LabelPrivateClassifier, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 4, 1500)
    X = np.eye(4)[y] * 3 + rng.normal(size=(1500, 4))
    base = labels.Perceptron((16,), epochs=8, batch_size=64, learning_rate=0.01, dropout=0.2, random_state=1)
    return (
        LabelPrivateClassifier(base, 1.0, method="subset", classes=range(4), random_state=1).fit(X, y),
        X,
        y,
    )


def test_a_network_learns_from_responses(
    fitted: tuple[LabelPrivateClassifier, np.ndarray, np.ndarray],
) -> None:
    model, X, y = fitted
    assert np.mean(model.predict(X) == y) > 0.9


def test_a_network_is_saved(
    fitted: tuple[LabelPrivateClassifier, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    model, X, _ = fitted
    tacit.save(model, tmp_path / "network.tacit")
    loaded = tacit.load(tmp_path / "network.tacit")
    assert (loaded.predict_proba(X) == model.predict_proba(X)).all()
    assert loaded.guarantee_ == model.guarantee_


def test_a_network_alone_learns_plain_labels() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 400)
    X = np.eye(2)[y] * 4 + rng.normal(size=(400, 2))
    model = labels.Perceptron((8,), epochs=8, batch_size=32, learning_rate=0.02, random_state=1).fit(
        X, np.array(["no", "yes"])[y]
    )
    assert np.mean(model.predict(X) == np.array(["no", "yes"])[y]) > 0.95
