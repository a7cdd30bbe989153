"""Running the service: uvicorn in this process, workers in others."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import socket
import threading
from collections.abc import Collection
from contextlib import suppress
from multiprocessing.context import SpawnProcess

import uvicorn

from tacit.errors import TacitError
from tacit.serve import worker
from tacit.serve.carrying import forget_seeds
from tacit.serve.http.application import application
from tacit.serve.http.connections import Connection
from tacit.serve.http.limits import CONNECTIONS
from tacit.serve.service import LOOPBACK, Place

__all__ = ["Workers", "listening", "run", "warm"]


class Workers:
    """So many worker processes, each started again when it has ended."""

    def __init__(self, place: Place, number: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._place, self._over = place, threading.Event()
        self.processes: list[SpawnProcess] = [self._started() for _ in range(number)]
        self._watch = threading.Thread(target=self._watching, daemon=True)
        self._watch.start()

    def _started(self) -> SpawnProcess:
        process = self._context.Process(target=worker.work, args=(self._place, os.getpid()), daemon=True)
        process.start()
        return process

    def _watching(self) -> None:
        while not self._over.wait(0.2):
            for number, process in enumerate(self.processes):
                if not process.is_alive() and not self._over.is_set():
                    self.processes[number] = self._started()

    def close(self) -> None:
        """End the workers. What they were at is taken up when the service runs again."""
        self._over.set()
        self._watch.join()
        for process in self.processes:
            process.terminate()
            process.join()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def warm() -> None:
    """Import what the first question needs, before a crowd of threads does."""
    for name in ("tables.table", "tables.batch", "tables.wire", "tables.lines", "data.source"):
        importlib.import_module(f"tacit.{name}")


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; TacitError where that cannot be, before anything else is done."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        said = f"The service cannot listen at {host}, port {port}: {error.strerror or type(error).__name__}."
        raise TacitError(said, "Name another --port.") from None


def run(
    place: Place,
    listener: socket.socket,
    *,
    host: str = "127.0.0.1",
    workers: int = 1,
    hosts: Collection[str] = (),
    certificate: str | None = None,
    key: str | None = None,
) -> None:
    """Serve until interrupted. Names in ``hosts`` are allowed besides those of the loopback and ``host``, the
    address at which ``listener`` listens."""
    with place.open() as service, Workers(place, workers):
        forget_seeds(service)
        warm()
        app = application(service, hosts={*LOOPBACK, host, *hosts} if host != "0.0.0.0" or hosts else ())
        config = uvicorn.Config(
            app, http=Connection, access_log=False, log_level="warning",
            server_header=False, limit_concurrency=CONNECTIONS, timeout_keep_alive=10,
            ssl_certfile=certificate, ssl_keyfile=key, h11_max_incomplete_event_size=16_384, ws="none",
            proxy_headers=False,
        )  # fmt: skip
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])
