"""One app in three runtimes: one process, Flower's simulation, and SuperLink with SuperNodes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import Ledger
from tacit.federated import CLIENT, FederatedPlan

APP = Path(__file__).resolve().parent / "flower_app"
SOURCE = Path(__file__).resolve().parents[2] / "src"

pytest.importorskip("flwr")


def facts(trust: str, clients: int) -> dict[str, Any]:
    noise = 1e-3 if trust == "server" else 1e-2
    plan = {"clients": clients, "cohort": clients, "rounds": 2, "noise_multiplier": noise, "delta": 1e-5}
    return {**plan, "trust": trust}


def environment(folder: Path, plan: dict[str, Any]) -> dict[str, str]:
    """No telemetry, and a home of its own: nothing leaves this machine."""
    return {
        **os.environ, "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0",
        "FLWR_HOME": str(folder / "home"), "TINY_FOLDER": str(folder), "TINY_PLAN": json.dumps(plan),
        "PYTHONPATH": os.pathsep.join([str(SOURCE), str(APP)]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }  # fmt: skip


def check(folder: Path, plan: dict[str, Any]) -> None:
    """The model is the clipped mean, the faulty client counts as zero, and the run was paid for once."""
    clients = plan["clients"]
    expected = plan["rounds"] * min(1.0, 0.1 * np.sqrt(50)) * (clients - 1) / clients / np.sqrt(50)
    found = np.load(folder / "model.npy")
    assert found == pytest.approx(np.full(50, expected), abs=0.02)
    assert found.std() > 0
    with Ledger.open(folder / "study.db", unit=CLIENT) as ledger:
        paid = [entry for entry in ledger.entries() if entry.event == FederatedPlan(**plan).event]
        assert len(paid) == 1
    assert "client" in (folder / "guarantee.txt").read_text()


def run(code: str, folder: Path, plan: dict[str, Any]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(folder, plan), cwd=folder, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (folder / "model.npy").exists(), done.stderr[-3000:]


PROCESS = """
from tacit.federated.flower import run_in_process
from tiny.apps import client_app, server_app
run_in_process(server_app, client_app, 4)
"""


def test_in_one_process(tmp_path: Path) -> None:
    plan = facts("server", 4)
    run(PROCESS, tmp_path, plan)
    check(tmp_path, plan)


SIMULATION = """
from flwr.simulation import run_simulation
from tiny.apps import client_app, server_app
ray = {"num_cpus": 1, "include_dashboard": False}
backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0}, "init_args": ray}
run_simulation(server_app, client_app, num_supernodes=4, backend_config=backend)
"""


@pytest.mark.audit
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is missing: pip install 'tacit[simulation]'")
def test_in_the_simulation_runtime(tmp_path: Path) -> None:
    plan = facts("aggregator", 4)
    run(SIMULATION, tmp_path, plan)
    check(tmp_path, plan)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def started(
    stack: ExitStack, name: str, *arguments: str, folder: Path, plan: dict[str, Any]
) -> Iterator[None]:
    log = stack.enter_context((folder / f"{name}-{arguments[-1][:14]}.log").open("w"))
    process = subprocess.Popen(
        [str(Path(sys.executable).parent / name), *arguments], env=environment(folder, plan), cwd=folder,
        stdout=log, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()


def wait_for(what: Any, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def deployed(folder: Path, plan: dict[str, Any]) -> None:
    """A SuperLink and a SuperNode for each client, on free ports of the loopback; then ``flwr run``."""
    clients = plan["clients"]
    link, *nodes = free_ports(1 + clients)
    home = folder / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
    )
    with ExitStack() as stack:
        superlink = ["--insecure", "--disable-runtime-dependency-installation", "--port", str(link)]
        stack.enter_context(started(stack, "flower-superlink", *superlink, folder=folder, plan=plan))
        assert wait_for(lambda: listens(link), 300)
        for number, port in enumerate(nodes):
            config = f"partition-id={number} num-partitions={clients}"
            given = [
                "--insecure",
                "--superlink",
                f"127.0.0.1:{link}",
                "--port",
                str(port),
                "--node-config",
                config,
            ]
            stack.enter_context(started(stack, "flower-supernode", *given, folder=folder, plan=plan))
        asked = subprocess.run(
            [str(Path(sys.executable).parent / "flwr"), "run", str(APP), "here"], cwd=folder,
            env=environment(folder, plan), capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert asked.returncode == 0, asked.stdout + asked.stderr
        done = wait_for((folder / "model.npy").exists, 400)
        logs = "\n".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
        assert done, logs


@pytest.mark.audit
@pytest.mark.parametrize("trust", ["server", "aggregator"])
def test_as_superlink_and_supernodes(trust: str, tmp_path: Path) -> None:
    plan = {**facts(trust, 2), "rounds": 2 if trust == "server" else 1}
    deployed(tmp_path, plan)
    check(tmp_path, plan)
