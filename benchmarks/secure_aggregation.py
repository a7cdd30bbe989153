"""Secure aggregation beside Flower's SecAgg+, and the privacy work of a large round beside a plain one.

    python benchmarks/secure_aggregation.py [--only flower|plain] [--complete] [--repeats 3]

Writes results/secure_aggregation.md, with both parts or the chosen one. Flower's side is its own workflow and
client mod, driven by a grid that hands messages over in memory; ours carries every message as bytes. Both
run in one process, on the same updates and the same kind of graph: each client masks with few neighbours, as
SecAgg+ is meant to be used, and with ``--complete`` with all others too. Flower's round is run once; ours is
the best of ``--repeats``. Both sums are checked. CPU time counts all threads. The plain round is what
Flower does with updates that nobody hides: each is written to bytes, read again and added. No time includes
training.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
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
RESULTS = Path(__file__).parent / "results" / "secure_aggregation.md"


def cpu() -> float:
    """Seconds of processor time of this process, its threads and its children that have ended."""
    return sum(os.times()[:4])


def flower(updates: np.ndarray, degree: int | None, spent: dict[str, float]) -> np.ndarray:
    """One round of SecAgg+, as Flower's server and client code run it: the mean of the updates.

    A client has ``degree`` neighbours, or all; shares are as many, and one for itself.
    """
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
    shares, threshold = (clients, -(-2 * clients // 3)) if degree is None else (degree + 1, degree // 2 + 1)
    workflow = SecAggPlusWorkflow(shares, threshold, max_weight=1.0)
    stage = WorkflowState()
    for step in (
        workflow.setup_stage, workflow.share_keys_stage,
        workflow.collect_masked_vectors_stage, workflow.unmask_stage,
    ):  # fmt: skip
        start = time.perf_counter()
        if not step(grid, context, stage):
            raise RuntimeError("Flower's round failed.")
        spent[step.__name__] = time.perf_counter() - start
        print(f"Flower, {step.__name__}: {spent[step.__name__]:.2f} s", flush=True)
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


def best(call: Callable[[], Any], repeats: int) -> tuple[float, float, Any]:
    """Wall and CPU seconds of the fastest of these calls, and the result of the last."""
    found = []
    result = None
    for _ in range(repeats):
        start, used = time.perf_counter(), cpu()
        result = call()
        found.append((time.perf_counter() - start, cpu() - used))
    return *min(found), result


def told(spent: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f} s" for name, value in spent.items())


def beside_flower(random: np.random.Generator, repeats: int, degree: int | None) -> str:
    updates = random.normal(size=(100, 100_000)).astype(np.float32) * 1e-3
    mean = updates.mean(axis=0, dtype=np.float64)
    parts: dict[str, float] = {}
    wall, used, total = best(lambda: ours(updates, degree), repeats)
    deviation = DistributedNoise(1.0, BITS, 100, 67, 1.0).deviation(100_000)
    if not 0.95 < np.std(total - 100 * mean) / deviation < 1.05:
        raise RuntimeError("Our sum is not that of the updates with the stated noise.")
    print(f"tacit: {wall:.2f} s", flush=True)
    theirs, busy, found = best(lambda: flower(updates, degree, parts), 1)
    if np.abs(found - mean).max() > 1e-4:
        raise RuntimeError("Flower's mean is not that of the updates.")
    return f"""
## 100 clients × 100,000 numbers, each with {"all" if degree is None else degree} others

| | wall, s | CPU, s | runs |
|---|---:|---:|---:|
| Flower SecAgg+ | {theirs:.1f} | {busy:.1f} | 1 |
| tacit, with clipping, encoding and noise | {wall:.2f} | {used:.2f} | best of {repeats} |
| ratio | {theirs / wall:.1f} | {busy / used:.1f} | |

Flower's stages: {told(parts)}.
"""


def beside_plain(random: np.random.Generator, repeats: int) -> str:
    updates = random.normal(size=(1000, 100_000)).astype(np.float32) * 1e-3
    degree = degree_for(1000, colluding=50, dropouts=50)
    spent: dict[str, float] = {}

    def last() -> np.ndarray:
        spent.clear()
        return ours(updates, degree, spent)

    bare, idle, _ = best(lambda: plain(updates), repeats)
    wall, used, _ = best(last, repeats)
    return f"""
## 1,000 clients × 100,000 numbers, each with {degree} others

| | wall, s | CPU, s | runs |
|---|---:|---:|---:|
| plain round of Flower's records | {bare:.2f} | {idle:.2f} | best of {repeats} |
| tacit, privacy work of all clients and the server | {wall:.1f} | {used:.1f} | best of {repeats} |
| ratio | {wall / bare:.1f} | {used / idle:.1f} | |

Of the last round: {told(spent)}.
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=("flower", "plain"))
    parser.add_argument("--complete", action="store_true", help="every client with every other, too: minutes")
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    logging.getLogger("flwr").setLevel(logging.ERROR)
    random = np.random.default_rng(1)
    flag = (f" --only {chosen.only}" if chosen.only else "") + (" --complete" if chosen.complete else "")
    versions = ", ".join(f"{name} {version(name)}" for name in ("flwr", "cryptography", "numpy"))
    text = f"""# Secure aggregation in one process

`python benchmarks/secure_aggregation.py{flag} --repeats {chosen.repeats}`, {versions}, {platform.machine()}.

Both sides draw real keys for every client, seal the shares, and open the masks again; nothing is trained or
sent over a network. They differ in what they use: Flower P-384, Fernet, Shamir's sharing in Python and masks
from NumPy's Mersenne Twister with a seed of 32 bits, which is not cryptographic; tacit X25519, HKDF,
ChaCha20-Poly1305, Shamir's sharing by NumPy tables and masks from ChaCha20. Flower's messages are not turned
into bytes here, tacit's are. SecAgg+ is made for few neighbours; with all others it takes minutes. CPU
seconds are the fairer figure where other programs run at the same time.
"""
    if chosen.only != "plain":
        few = degree_for(100, colluding=5, dropouts=5)
        for degree in (few, None) if chosen.complete else (few,):
            text += beside_flower(random, chosen.repeats, degree)
            RESULTS.write_text(text)
    if chosen.only != "flower":
        text += beside_plain(random, max(1, chosen.repeats - 1))
    RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
