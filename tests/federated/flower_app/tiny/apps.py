"""The same apps for one process, Flower's simulation and its deployment."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvgM

from tacit import Budget, Ledger
from tacit.federated import CLIENT, FederatedPlan
from tacit.federated.flower import clipped, private

FOLDER = Path(os.environ.get("TINY_FOLDER", "."))
PLAN = FederatedPlan(**json.loads(os.environ["TINY_PLAN"]))

client_app = ClientApp(mods=[clipped if PLAN.trust == "server" else clipped(PLAN)])
server_app = ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Client 0 is at fault, all others pull the model towards 1."""
    (given,) = message.content["arrays"].to_numpy_ndarrays()
    moved = given + 0.1 if context.node_config["partition-id"] else np.full_like(given, np.nan)
    metrics = MetricRecord({"num-examples": 4711})
    return Message(RecordDict({"arrays": ArrayRecord([moved]), "metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    with Ledger.open(FOLDER / "study.db", budget=Budget(1e9, 1e-2), unit=CLIENT) as ledger:
        wrapped = FedAvgM(min_available_nodes=PLAN.clients)
        strategy = private(wrapped, PLAN, ledger, checkpoint=FOLDER / "run.federation")
        result = strategy.start(grid, ArrayRecord([np.zeros(50)]), timeout=300)
        (found,) = result.arrays.to_numpy_ndarrays()
        np.save(FOLDER / "unfinished.npy", found)
        (FOLDER / "guarantee.txt").write_text(strategy.guarantee.statement())
    (FOLDER / "unfinished.npy").rename(FOLDER / "model.npy")
