"""Income from Adult, learned by 1,500 clients of scikit-learn over Flower, without anybody sharing a row.

Every client has 20 rows and an SGDClassifier. Three lines make the Flower app private: the plan, the
wrapped strategy and the client mod. The apps run in one process here; ``--simulation`` runs the same apps
in Flower's simulation (``pip install "tacit[simulation]"``), and docs/flower.md as SuperLink and
SuperNodes.

Prints the guarantee and the accuracy on Adult's public test rows. Takes about half a minute.
"""

from __future__ import annotations

import argparse
import functools
import os
from pathlib import Path

import numpy as np
import pandas as pd
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvgM
from sklearn.linear_model import SGDClassifier

import tacit
from tacit import datasets
from tacit.federated.flower import run_in_process

CLIENTS, ROWS = 1500, 20
PLAN = tacit.federated.FederatedPlan(
    clients=CLIENTS, cohort=300, rounds=12, clip_norm=0.5, epsilon=4.0, delta=1e-5, trust="server"
)

client_app = ClientApp(mods=[tacit.federated.clipped])
server_app = ServerApp()


@functools.cache
def adult(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Features by the public schema, and whether somebody earns more than 50,000."""
    files = datasets.adult()
    frame = pd.read_csv(files.train if part == "train" else files.test)
    maker = tacit.estimators.Preprocessor(tacit.Schema.load(files.schema), target="income")
    inputs = np.asarray(maker.fit_transform(frame), dtype=np.float64)
    return inputs, (frame["income"].str.strip() == ">50K").to_numpy().astype(int)


def model_of(arrays: ArrayRecord) -> SGDClassifier:
    """A linear model with the coefficients in a message; its classes are public."""
    coefficients, intercept = arrays.to_numpy_ndarrays()
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.1, alpha=1e-4)
    model.classes_, model.coef_, model.intercept_ = np.array([0, 1]), coefficients, intercept
    return model


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """One pass over the client's own rows."""
    inputs, targets = adult("train")
    mine = slice(int(context.node_config["partition-id"]) * ROWS, None)
    model = model_of(message.content.array_records["arrays"])
    model.partial_fit(inputs[mine][:ROWS], targets[mine][:ROWS], classes=[0, 1])
    arrays = ArrayRecord([model.coef_, model.intercept_])
    metrics = MetricRecord({"num-examples": ROWS})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """The rounds of the plan, charged to a ledger of clients."""
    width = adult("test")[0].shape[1]
    folder = Path(str(context.run_config.get("folder", os.environ.get("FOLDER", "out"))))
    folder.mkdir(exist_ok=True)
    budget = tacit.Budget(4.0, 1e-5)
    with tacit.Ledger.open(folder / "federated.db", budget=budget, unit=tacit.federated.CLIENT) as ledger:
        strategy = tacit.federated.private(FedAvgM(server_learning_rate=1.5), PLAN, ledger)
        result = strategy.start(grid, ArrayRecord([np.zeros((1, width)), np.zeros(1)]))
        print(strategy.guarantee.statement())
    inputs, targets = adult("test")
    right, less = model_of(result.arrays).score(inputs, targets), 1 - targets.mean()
    print(f"The model is right for {right:.1%} of {len(targets)} test rows; {less:.1%} earn less.")


def run(arguments: list[str] | None = None) -> None:
    """The apps in one process, or in Flower's simulation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulation", action="store_true")
    parser.add_argument("--out", default="out", help="the folder of the ledger")
    given = parser.parse_args(arguments)
    if given.simulation:
        from flwr.simulation import run_simulation

        # Flower's simulation takes no run_config, so the folder goes to the server by its environment.
        os.environ["FOLDER"] = given.out
        run_simulation(server_app, client_app, num_supernodes=CLIENTS)
        return
    run_in_process(server_app, client_app, CLIENTS, {"folder": given.out})


if __name__ == "__main__":
    run()
