"""Digits, learned by 600 clients of PyTorch over Flower, where the server is not trusted with any update.

Every client has 20 images of MNIST and a small convolutional network. Under ``trust="aggregator"`` a client
clips its update, adds its share of the noise and masks it, and the server can open only the noisy sum of a
cohort. The client pins the plan, so that the server cannot hand it a weaker one. ``--trust server`` is the
same app with a server that is trusted with the clipped updates and adds the noise itself.

``--data`` names the folder with the four files of MNIST. Prints the guarantee and the accuracy on the last
2,000 test images. Takes about a minute on an idle core.
"""

from __future__ import annotations

import argparse
import functools
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvgM
from torch import Tensor, nn

import tacit
from tacit.federated.flower import run_in_process

CLIENTS, IMAGES = 600, 20


def plan_for(trust: str) -> tacit.federated.FederatedPlan:
    """Fifteen rounds of about 60 clients, of which 5 may leave in the middle of a round."""
    facts: dict[str, Any] = {"clients": CLIENTS, "cohort": 60, "rounds": 15, "clip_norm": 0.5, "delta": 1e-5}
    if trust == "server":
        return tacit.federated.FederatedPlan(**facts, epsilon=8.0, trust="server")
    return tacit.federated.FederatedPlan(**facts, epsilon=8.0, trust="aggregator", dropouts=5)


def network() -> nn.Module:
    """One convolution and a linear layer, the same at the start for all."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(1, 4, 5, stride=2)
    return nn.Sequential(convolution, nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 10))


@functools.cache
def mnist(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels of training and test."""

    def stored(name: str, offset: int) -> np.ndarray:
        with gzip.open(folder / f"{name}-ubyte.gz") as stream:
            return np.frombuffer(stream.read(), np.uint8, offset=offset)

    images = [
        torch.tensor(stored(f"{part}-images-idx3", 16).reshape(-1, 1, 28, 28) / np.float32(255))
        for part in ("train", "t10k")
    ]
    labels = [torch.tensor(stored(f"{part}-labels-idx1", 8).astype(int)) for part in ("train", "t10k")]
    return images[0], labels[0], images[1], labels[1]


def train(message: Message, context: Context) -> Message:
    """Ten steps on the client's own images."""
    images, labels, _, _ = mnist(Path(str(context.run_config["data"])))
    first = int(context.node_config["partition-id"]) * IMAGES
    mine, loss = slice(first, first + IMAGES), nn.CrossEntropyLoss()
    model = network()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(10):
        optimizer.zero_grad()
        loss(model(images[mine]), labels[mine]).backward()
        optimizer.step()
    arrays, metrics = ArrayRecord(model.state_dict()), MetricRecord({"num-examples": IMAGES})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def apps(trust: str) -> tuple[ServerApp, ClientApp]:
    """The two apps. Three lines make them private: the plan, the mod and the wrapped strategy."""
    plan = plan_for(trust)
    client_app = ClientApp(mods=[tacit.federated.clipped(plan)])
    client_app.train()(train)
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        wrapped = FedAvgM(server_learning_rate=1.0, server_momentum=0.5)
        strategy = tacit.federated.private(wrapped, plan, None)
        result = strategy.start(grid, ArrayRecord(network().state_dict()))
        print(strategy.guarantee.statement())
        model = network()
        model.load_state_dict(result.arrays.to_torch_state_dict())
        _, _, images, labels = mnist(Path(str(context.run_config["data"])))
        right = (model(images[-2000:]).argmax(1) == labels[-2000:]).double().mean()
        print(f"The model is right for {float(right):.1%} of 2000 test images.")

    return server_app, client_app


def run(arguments: list[str] | None = None) -> None:
    """The apps in one process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="../shared/data/mnist")
    parser.add_argument("--trust", choices=("aggregator", "server"), default="aggregator")
    given = parser.parse_args(arguments)
    run_in_process(*apps(given.trust), CLIENTS, {"data": given.data})


if __name__ == "__main__":
    run()
