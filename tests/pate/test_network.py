"""Network: PyTorch modules as teachers and students."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tacit.errors import InvalidValue
from tacit.pate import GNMax, Network, PATEClassifier

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(1)
X = RNG.normal(size=(400, 4))
Y = np.where(X[:, 0] + X[:, 1] > 0, "yes", "no")


def made() -> torch.nn.Module:
    return torch.nn.Linear(4, 2)


def test_a_module_learns_and_a_seed_repeats_it() -> None:
    model = Network(made, epochs=15, learning_rate=0.05, random_state=3).fit(X, Y)
    assert np.mean(model.predict(X) == Y) > 0.9
    again = Network(made, epochs=15, learning_rate=0.05, random_state=3).fit(X, Y)
    assert (model.predict_proba(X) == again.predict_proba(X)).all()
    assert pickle.loads(pickle.dumps(model)).predict(X).tolist() == model.predict(X).tolist()


def test_a_module_that_is_given_is_copied_and_the_generator_is_left_alone() -> None:
    module = made()
    before, state = module.weight.detach().clone(), torch.get_rng_state()
    Network(module, epochs=2).set_params(random_state=1).fit(X, Y)
    assert (module.weight == before).all()
    assert (torch.get_rng_state() == state).all()


def test_rows_are_shaped() -> None:
    shaped = Network(lambda: torch.nn.Sequential(torch.nn.Flatten(), made()), epochs=2, shape=(1, 2, 2))
    assert shaped.fit(X, Y).predict_proba(X).shape == (400, 2)
    with pytest.raises(InvalidValue, match="module"):
        Network(None).fit(X, Y)


def test_networks_are_teachers_and_students() -> None:
    network = Network(made, epochs=12, learning_rate=0.1, batch_size=16)
    model = PATEClassifier(
        network, network, n_teachers=6, aggregator=GNMax(0.5), epsilon=1e4, delta=1e-5, classes=["no", "yes"],
        n_queries=100, random_state=1,
    ).fit(X[:300], Y[:300], X[300:])  # fmt: skip
    assert np.mean(model.predict(X[300:]) == Y[300:]) > 0.8
