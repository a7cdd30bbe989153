"""A round of Flower's simulation, plain and private: how much time the privacy work adds.

One NumPy app with 10⁵ parameters runs in Flower's own simulation (``run_simulation``, Ray). In one and the
same run the server takes plain rounds of FedAvg with all clients, and rounds under
``tacit.federated.private`` with a trusted server and with secure aggregation. All clients answer a small
plain round first, which starts the actors. Wall-clock time is what a user waits. CPU seconds are those of
this process and all of its children, Ray's included. A private round under secure aggregation sends four
messages to each client, and Flower and Ray take their time for each. So the privacy work itself (clip,
encode, mask, sum, unmask, and writing down a client between its stages) is measured too: the CPU seconds of
the same apps in one process (``tacit.federated.flower.ProcessGrid``), less those of the plain round there.

    python benchmarks/federated_speed.py [--clients 1000] [--repetitions 2] [--out benchmarks/results]
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import flwr
import numpy as np
import psutil
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from tacit.federated import FederatedPlan
from tacit.federated.flower import ProcessGrid, clipped, private

PARAMETERS = 100_000


def plan_for(trust: str, clients: int) -> FederatedPlan:
    """Rounds with all clients, of which one is taken; under secure aggregation a tenth of them may leave."""
    facts: dict[str, Any] = {
        "clients": clients, "cohort": clients, "rounds": 50, "participations": 50, "noise_multiplier": 1.0,
        "delta": 1e-5, "trust": trust, "sampling": "rotation",
    }  # fmt: skip
    return FederatedPlan(**facts, **({"dropouts": clients // 10} if trust == "aggregator" else {}))


class PrivateIfAsked:
    """The mod of tacit for messages of a private strategy; plain messages pass as in an app without it."""

    __name__ = "private_if_asked"

    def __init__(self, clients: int) -> None:
        self._mods = {trust: clipped(plan_for(trust, clients)) for trust in ("server", "aggregator")}

    def __call__(self, message: Message, context: Context, call_next: Any) -> Message:
        if "tacit" not in message.content:
            return call_next(message, context)
        trust = "aggregator" if '"aggregator"' in str(message.content["tacit"]["plan"]) else "server"
        return self._mods[trust](message, context, call_next)


def train(message: Message, context: Context) -> Message:
    """A client whose training costs next to nothing."""
    (given,) = message.content.array_records["arrays"].to_numpy_ndarrays()
    moved = ArrayRecord([given + np.float32(1e-3)])
    counted = MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": moved, "metrics": counted}), reply_to=message)


def cpu_seconds() -> float:
    """Of this process and of all processes below it."""
    here = psutil.Process()
    total = 0.0
    for each in [here, *here.children(recursive=True)]:
        try:
            total += sum(each.cpu_times()[:2])
        except psutil.Error:
            continue
    return total


def one_round(grid: Grid, kind: str, clients: int, size: int = PARAMETERS) -> None:
    """One round of FedAvg with all clients, plain or under a plan."""
    start = ArrayRecord([np.zeros(size, np.float32)])
    plain = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    if kind == "plain":
        plain.start(grid, start, num_rounds=1)
        return
    result = private(plain, plan_for(kind, clients), None).start(grid, start, num_rounds=1)
    if not result.arrays.to_numpy_ndarrays()[0].any():
        raise RuntimeError(f"The round of {kind} was given up.")


def in_one_process(app: ClientApp, kind: str, clients: int) -> float:
    """The CPU seconds of a round without Ray and without messages between processes."""
    grid, start = ProcessGrid(app, clients), time.process_time()
    one_round(grid, kind, clients)
    return time.process_time() - start


def table(found: dict[str, list[Any]], clients: int, cores: int) -> str:
    """The best of each kind, and the ratios to the plain round."""
    best = {kind: np.min(np.array(times), axis=0) for kind, times in found.items() if times}
    lines = [
        f"# A round of {clients} simulated clients × {PARAMETERS} parameters",
        "",
        f"Flower {flwr.__version__} with Ray on {cores} cores of {platform.machine()}, Python "
        f"{platform.python_version()}; best of {len(found['plain'])} round(s) of each kind in one run, "
        f"written by `python benchmarks/federated_speed.py --clients {clients}`. Privacy work: the CPU "
        "seconds that the round takes in one process beyond those of the plain round in one process.",
        "",
        "| round | wall-clock s | CPU s | wall-clock ÷ plain | CPU ÷ plain | privacy work, CPU s | privacy "
        "work ÷ plain round |",
        "|---|---|---|---|---|---|---|",
    ]
    plain = best["plain"]
    for kind, (wall, cpu, alone) in best.items():
        name, work = kind if kind == "plain" else f'trust="{kind}"', alone - plain[2]
        lines.append(
            f"| {name} | {wall:.1f} | {cpu:.1f} | {wall / plain[0]:.2f} | {cpu / plain[1]:.2f} "
            f"| {work:.1f} | {work / plain[1]:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--kinds", default="plain,server,aggregator")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    client_app, server_app = ClientApp(mods=[PrivateIfAsked(given.clients)]), ServerApp()
    client_app.train()(train)

    kinds = given.kinds.split(",")

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        one_round(grid, "plain", given.clients, 10)
        found: dict[str, list[Any]] = {kind: [] for kind in kinds}
        for _ in range(given.repetitions):
            for kind in kinds:
                wall, cpu = time.perf_counter(), cpu_seconds()
                one_round(grid, kind, given.clients)
                taken = time.perf_counter() - wall, cpu_seconds() - cpu
                found[kind].append((*taken, alone[kind]))
                print(kind, found[kind][-1], flush=True)
            text = table(found, given.clients, cores)
            print(text, flush=True)
            (given.out / "federated_speed.md").write_text(text)

    alone = {kind: in_one_process(client_app, kind, given.clients) for kind in kinds}
    print("in one process", alone, flush=True)
    ray = {"num_cpus": cores, "include_dashboard": False}
    backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0}, "init_args": ray}
    run_simulation(server_app, client_app, num_supernodes=given.clients, backend_config=backend)


if __name__ == "__main__":
    main()
