"""Workers: processes that carry out what waits in the queue, and what others were killed over.

A worker claims one request at a time and renews its lease every second. If the request is cancelled, or was
taken over by another worker because this one was held up for too long, the process ends itself at once;
whoever started it starts another. Where there is a tick, a worker begins each request at a tick, and its next
one at that at which it is told how the last one ended.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from tacit.serve import carrying
from tacit.serve.service import Place, Service
from tacit.serve.store import log, requests

__all__ = ["STOPPED", "once", "work"]

POLL = 0.25
"""Seconds between two looks into an empty queue."""
STOPPED = 75
"""The exit code of a worker whose request was cancelled or taken over."""


def once(service: Service, stopped: Callable[[], None] | None = None) -> bool:
    """Carry out one request, if there is one to claim."""
    with service.database.read() as connection:
        if not requests.waits(connection, service.now()):
            return False
    with service.database.write() as connection:
        held = requests.next_claim(connection, service.now())
        if held is not None and held.attempt > 1:
            log.append(connection, held.analyst, "resumed", held.id, attempt=held.attempt)
    if held is None:
        return False
    carrying.carry_out(service, held, stopped)
    return True


def work(place: Place, parent: int) -> None:
    """Carry out requests until ``parent``, the process that started this one, is gone, or Spark is: it takes
    another process to start Spark again, which whoever has started this one starts.

    The worker is told who its parent is: one that asked could begin after the parent has gone, and would wait
    for ever.
    """
    with place.open() as service:
        carrying.forget_seeds(service)
        service.wait_for_tick()
        while os.getppid() == parent and not service.keeping.spark_ended():
            if _tried(service):
                service.wait_for_tick()
            else:
                time.sleep(POLL)


def _tried(service: Service) -> bool:
    """Whether a request was carried out. Of an error only the kind is logged: its message may quote rows."""
    failed = ""
    try:
        return once(service, lambda: os._exit(STOPPED))
    except Exception as error:
        failed = type(error).__name__
    logging.getLogger("tacit.serve").error("%s in a worker", failed)
    return False
