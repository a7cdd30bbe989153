"""Secure aggregation beside Flower's SecAgg+, and the privacy work of a large round beside a plain one.

    python benchmarks/secure_aggregation.py [--only flower|plain]

Flower's side is its own workflow and client mod, driven by a grid that hands messages over in memory; ours
carries every message as bytes. Both run in one process with real keys, on the same updates, in turn, best of
several; every client masks with every other. The plain round is what Flower does with updates that nobody
hides: each is written to bytes, read again and added. No time includes training.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common import recorddict_compat as compat
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.server.workflow.secure_aggregation.secaggplus_workflow import SecAggPlusWorkflow, WorkflowState
from flwr.supercore.task_identity import TaskIdentity

from tacit.federated.distributed import DistributedNoise
from tacit.federated.secure import Occasion, SecureClient, SecureServer, degree_for
from tacit.randomness import Source

BITS = 18


def flower(updates: np.ndarray) -> np.ndarray:
    """One round of SecAgg+, as Flower's server and client code run it."""
    clients, size = len(updates), updates.shape[1]
    contexts = {i + 1: Context(1, i + 1, {}, RecordDict(), {}) for i in range(clients)}

    def fit(message: Message, context: Context) -> Message:
        parameters = ndarrays_to_parameters([updates[message.metadata.dst_node_id - 1]])
        result = FitRes(Status(Code.OK, ""), parameters, 1, {})
        return Message(compat.fitres_to_recorddict(result, False), reply_to=message)

    def send_and_receive(messages: Any, timeout: float | None = None) -> list[Message]:
        for message in messages:  # a client takes its copy of the configuration apart
            for name, record in message.content.config_records.items():
                message.content = RecordDict({**message.content, name: ConfigRecord(dict(record))})
        return [secaggplus_mod(m, contexts[m.metadata.dst_node_id], fit) for m in messages]

    fit_ins = FitIns(ndarrays_to_parameters([np.zeros(size, dtype=np.float32)]), {})
    found: list[np.ndarray] = []
    strategy = SimpleNamespace(
        configure_fit=lambda *given: [(SimpleNamespace(node_id=i + 1), fit_ins) for i in range(clients)],
        aggregate_fit=lambda number, results, failures: (
            found.extend(parameters_to_ndarrays(results[0][1].parameters)) or None,
            {},
        ),
    )
    state = RecordDict()
    state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(fit_ins.parameters, True)
    context: Any = SimpleNamespace(
        state=state,
        strategy=strategy,
        history=SimpleNamespace(),
        client_manager=SimpleNamespace(num_available=lambda: clients),
    )
    grid: Any = SimpleNamespace(send_and_receive=send_and_receive)
    workflow = SecAggPlusWorkflow(clients, 2 * clients // 3, max_weight=1.0)
    stage = WorkflowState()
    for step in (
        workflow.setup_stage, workflow.share_keys_stage,
        workflow.collect_masked_vectors_stage, workflow.unmask_stage,
    ):  # fmt: skip
        if not step(grid, context, stage):
            raise RuntimeError("Flower's round failed.")
    return found[0]


def ours(updates: np.ndarray, degree: int | None = None, spent: dict[str, float] | None = None) -> np.ndarray:
    """One round: clip, encode with noise, mask, sum, unmask; every message as bytes."""
    clients, size = len(updates), updates.shape[1]
    times = {} if spent is None else spent
    threshold = -(-2 * clients // 3)
    noise = DistributedNoise(1.0, BITS, clients, threshold, 1.0)
    encoder, source, on = noise.encoder(size, seed=1), Source(), Occasion(b"benchmark run 00", 0)
    server = SecureServer(range(clients), threshold, encoder.width, BITS, on=on, degree=degree)

    def timed(name: str, call: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = call()
        times[name] = times.get(name, 0.0) + time.perf_counter() - start
        return result

    parties = timed(
        "keys",
        lambda: [
            SecureClient(i, threshold, on=on, dimension=encoder.width, bits=BITS, degree=degree)
            for i in range(clients)
        ],
    )
    rosters = timed("keys", lambda: server.keys([p.advertise().to_bytes() for p in parties]))
    inboxes = timed(
        "shares", lambda: server.shares([parties[i].share(m).to_bytes() for i, m in rosters.items()])
    )

    def sent() -> Any:
        for i, inbox in inboxes.items():
            vector = timed("clip, encode, noise", lambda i=i: encoder.encode(updates[i], source))
            yield timed("masks", lambda i=i, v=vector, b=inbox: parties[i].masked(v, b).to_bytes())

    before = sum(times.values())
    start = time.perf_counter()
    lists = server.masked(sent())
    times["sum"] = time.perf_counter() - start - (sum(times.values()) - before)
    total = timed(
        "unmask", lambda: server.unmask([parties[i].unmask(m).to_bytes() for i, m in lists.items()])
    )
    return timed("decode", lambda: encoder.decode(total))


def plain(updates: np.ndarray) -> np.ndarray:
    """A round without privacy: updates as Flower's records and bytes, read again and added."""
    total = np.zeros(updates.shape[1])
    for update in updates:
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([update]), 1, {})
        carried = compat.recorddict_to_fitres(compat.fitres_to_recorddict(result, False), False)
        total += parameters_to_ndarrays(carried.parameters)[0]
    return total


def best(call: Callable[[], Any], so_far: float) -> float:
    start = time.perf_counter()
    call()
    return min(so_far, time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=("flower", "plain"))
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    logging.getLogger("flwr").setLevel(logging.ERROR)
    random = np.random.default_rng(1)
    if chosen.only != "plain":
        updates = random.normal(size=(100, 100_000)).astype(np.float32) * 1e-3
        theirs = mine = np.inf
        for _ in range(chosen.repeats):
            mine, theirs = best(lambda: ours(updates), mine), best(lambda: flower(updates), theirs)
        print(
            f"100 clients x 100,000: Flower SecAgg+ {theirs:.2f} s, tacit {mine:.2f} s: {theirs / mine:.1f} x"
        )
    if chosen.only != "flower":
        updates = random.normal(size=(1000, 100_000)).astype(np.float32) * 1e-3
        degree = degree_for(1000, colluding=50, dropouts=50)
        spent: dict[str, float] = {}
        bare = private = np.inf
        for _ in range(max(1, chosen.repeats - 1)):
            spent.clear()
            bare = best(lambda: plain(updates), bare)
            private = best(lambda: ours(updates, degree, spent), private)
        about = f"1,000 clients x 100,000, degree {degree}"
        print(f"{about}: plain round {bare:.2f} s, privacy work {private:.2f} s: {private / bare:.1f} x")
        print("  of the last round: " + ", ".join(f"{name} {value:.2f} s" for name, value in spent.items()))


if __name__ == "__main__":
    main()
