"""Networks in files: tacit.save and tacit.load take them as they take estimators."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit import Guarantee, events
from tacit.errors import InvalidValue, MissingExtra, ModelUnreadable, TacitError
from tacit.evaluation import evaluate, evaluations_of
from tacit.models import describe, description_of, guarantee_of, load, registry, save

torch = pytest.importorskip("torch")

from tacit.training import Plan, Trainer, load_weights, save_weights, saving  # noqa: E402
from tacit.training.networks.network import Network, Preparation, Weights  # noqa: E402

HONEST = Guarantee(1.0, 0.0, events.Pure(1.0))
IMAGES = np.random.default_rng(1).normal(size=(7, 1, 4, 4)).astype(np.float32)


@pytest.fixture
def network() -> Network:
    made = Network.new("linear", (1, 4, 4), ("cat", "dog", "fox"), Preparation((0.1,), (0.5,)))
    made.guarantee_, made.run = HONEST, (("optimiser", "sgd"),)
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    plan = Plan(population=64, batch_size=16, epochs=1, clip_norm=1.0, epsilon=2.0, delta=1e-5)
    made = Trainer(
        model, torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1), plan, random_state=1
    )
    return made.fit((torch.randn(64, 3), torch.zeros(64, dtype=torch.long)))


@pytest.fixture(scope="module")
def result() -> Any:
    from sklearn.linear_model import LogisticRegression

    x = np.linspace(-1, 1, 50)[:, None]
    return evaluate(LogisticRegression().fit(x, x[:, 0] > 0), x, x[:, 0] > 0, epsilon=1.0)


def test_a_network_loads_as_it_was(network: Network, path: Path, result: Any) -> None:
    save(network, path, evaluations=[result])
    again = load(path)
    assert type(again) is Network
    assert again.guarantee_ == HONEST == guarantee_of(again)
    assert again.event_ == HONEST.event
    assert again.predict_proba(IMAGES).tobytes() == network.predict_proba(IMAGES).tobytes()
    best = network.predict_proba(IMAGES).argmax(axis=1)
    assert again.predict(IMAGES).tolist() == [network.classes_[place] for place in best]
    assert description_of(again) == network.describe()
    assert evaluations_of(again) == (result,)
    with pytest.raises(TacitError, match="exists"):
        save(again, path)
    save(again, path, overwrite=True)
    assert evaluations_of(load(path)) == (result,)


def test_a_network_describes_itself(network: Network) -> None:
    described = network.describe()
    assert described.title == "linear classifier of 3 classes"
    assert dict(described.facts)["one example"] == "1 × 4 × 4"
    assert described.run == (("optimiser", "sgd"),)
    assert described.classes == ("cat", "dog", "fox")
    assert [shape for _, shape in described.tensors] == [(3, 16), (3,)]


def test_numbers_that_are_not_finite_have_no_class(network: Network) -> None:
    odd = IMAGES.copy()
    odd[2, 0, 1, 1] = np.nan
    assert np.isnan(network.predict_proba(odd)).all(axis=1).tolist() == [row == 2 for row in range(7)]
    with pytest.raises(InvalidValue, match="finite"):
        network.predict(odd)


def test_a_trainer_is_saved_with_what_it_promises(trainer: Trainer, path: Path, result: Any) -> None:
    tacit.save(trainer, path, evaluations=[result])
    again = tacit.load(path)
    assert type(again) is Weights
    assert again.guarantee_ == trainer.guarantee == guarantee_of(again)
    assert again.event_ == trainer.guarantee.event
    assert dict(again.describe().facts)["parameters and buffers"] == "8"
    assert dict(again.describe().tensors) == {"weight": (2, 3), "bias": (2,)}
    assert evaluations_of(again) == (result,)
    with pytest.raises(TacitError, match=r"load_weights\(path, module\)"):
        again.predict(IMAGES)
    own = torch.nn.Linear(3, 2)
    assert load_weights(path, own) == trainer.guarantee
    assert torch.equal(own.weight, trainer.model.weight)


def test_weights_that_were_loaded_are_saved_again(trainer: Trainer, path: Path, tmp_path: Path) -> None:
    save(trainer, path)
    save(load(path), tmp_path / "again")
    (tensors, facts), (again, same) = saving.read(path), saving.read(tmp_path / "again")
    assert facts == same
    assert {"guarantee", "past"} == set(facts)
    assert tensors.keys() == again.keys()
    assert all(torch.equal(each, again[name]) for name, each in tensors.items())


def test_what_has_no_guarantee_is_refused(network: Network, path: Path) -> None:
    network.guarantee_ = None
    with pytest.raises(InvalidValue, match="trained first"):
        save(network, path)
    with pytest.raises(InvalidValue, match="Linear"):
        save(torch.nn.Linear(2, 2), path)
    with pytest.raises(InvalidValue, match=r"tacit\.evaluate"):
        save(network, path, evaluations=[{"accuracy": 1.0}])
    assert not path.exists()


def test_describe_makes_no_model(
    network: Network, trainer: Trainer, path: Path, result: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(network, path, evaluations=[result])
    save(trainer, path.with_suffix(".own"))
    monkeypatch.setattr(Network, "__init__", lambda self: pytest.fail("built"))
    facts = describe(path)
    assert facts["format"] == "safetensors"
    assert facts["network"]["architecture"] == "linear"
    assert facts["statement"] == HONEST.statement()
    assert facts["evaluations"] == [json.loads(json.dumps(result.to_dict()))]
    assert sorted(facts["tensors"].values()) == ["torch.float32 (3, 16)", "torch.float32 (3,)"]
    assert describe(path.with_suffix(".own"))["network"] == {}


@pytest.mark.parametrize("read", [load, describe])
def test_a_stored_evaluation_may_not_state_less_than_it_cost(
    read: Any, trainer: Trainer, network: Network, path: Path, result: Any
) -> None:
    stored = result.to_dict()
    cheap = {**stored, "guarantee": {**stored["guarantee"], "epsilon": 0.1}}
    for model in (trainer, network):
        save(model, path, evaluations=[cheap], overwrite=True)
        with pytest.raises(ModelUnreadable, match="event costs"):
            read(path)


@pytest.mark.parametrize("read", [load, describe])
def test_an_altered_file_does_not_load(read: Any, network: Network, path: Path) -> None:
    save(network, path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(ModelUnreadable, match="altered"):
        read(path)


def test_a_checkpoint_is_no_model(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    plan = Plan(population=8, batch_size=4, epochs=1, clip_norm=1.0, epsilon=2.0, delta=1e-5)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    made = Trainer(model, torch.nn.CrossEntropyLoss(), optimizer, plan, checkpoint=tmp_path / "run")
    made.fit((torch.randn(8, 3), torch.zeros(8, dtype=torch.long)))
    for read in (load, describe):
        with pytest.raises(ModelUnreadable, match="checkpoint of a run"):
            read(tmp_path / "run")


# ------------------------------------------------------------------------ the registry, and what it imports

FRESH = """
import sys, tacit
model = tacit.load(sys.argv[1])
print(type(model).__name__, model.guarantee_.epsilon, "torch" in sys.modules)
"""


def test_a_fresh_process_loads_either_kind(network: Network, path: Path, tmp_path: Path) -> None:
    """Nothing but tacit is imported: the registry finds the package that knows the file."""
    from tacit.estimators import LogisticRegression

    save(network, path)
    x = np.linspace(-1, 1, 40)[:, None]
    model = LogisticRegression(epsilon=2.0, norm=1.0, classes=[False, True]).fit(x, x[:, 0] > 0)
    save(model, tmp_path / "linear.tacit")
    printed = {path: "Network 1.0 True", tmp_path / "linear.tacit": "LogisticRegression 2.0 False"}
    for place, said in printed.items():
        done = subprocess.run(
            [sys.executable, "-c", FRESH, str(place)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == said


@pytest.mark.parametrize("missing", ["torch", "safetensors.torch"])
def test_without_torch_it_says_what_to_install(
    missing: str, network: Network, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(network, path)

    def absent(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(registry, "import_module", absent)
    package = missing.partition(".")[0]
    for read in (load, describe):
        with pytest.raises(MissingExtra, match=rf"networks need .* {package},.*pip install 'tacit\[torch\]'"):
            read(path)


def test_formats_are_a_closed_list(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidValue, match="archive, safetensors"):
        registry.register_reader("pickle", load, describe)
    imported = []
    monkeypatch.setattr(registry, "import_module", imported.append)
    for name in (registry.ARCHIVE, registry.SAFETENSORS):
        registry.require(name)
    assert imported == [
        "tacit.models.archive", "tacit.estimators.registry", "tacit.labels.saving",
        "tacit.pate.registry", "tacit.local.learning", "tacit.local.records",
        "tacit.training.networks.network",
    ]  # fmt: skip
    with pytest.raises(KeyError):
        registry.require("os")


def test_no_name_in_a_file_is_imported(network: Network, path: Path) -> None:
    save(network, path)
    content = path.read_bytes().replace(b"linear", b"os.sys")
    path.write_bytes(content)
    with pytest.raises(ModelUnreadable):
        load(path)
    network.architecture = "os.system"
    save(network, path, overwrite=True)
    with pytest.raises(TacitError, match=r"os\.system|architecture"):
        load(path)


def test_own_modules_are_saved_with_a_guarantee_in_hand(path: Path) -> None:
    own = torch.nn.Linear(2, 2)
    save_weights(own, path, HONEST)
    assert load(path).guarantee_ == HONEST
