"""Connections: whoever sends a request slowly, or does not take its answer, is cut off.

uvicorn waits for the headers of a request, and for a client to take its answer, as long as the client likes.
Since connections are counted, a few hundred of these would keep everybody out.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from tacit.serve.http.limits import SECONDS

__all__ = ["Connection"]


class Connection(H11Protocol):
    """A connection with two limits: on the time from one request to the headers of the next, and on the time
    in which a client takes nothing of an answer that waits for it."""

    patience = SECONDS

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._silent: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None

    def _watch(self) -> None:
        """Wait for the next request, once: what comes in drops prolongs nothing."""
        busy = self.cycle is not None and not self.cycle.response_complete
        if busy and self._silent is not None:
            self._silent.cancel()
            self._silent = None
        elif not busy and self._silent is None:
            self._silent = self.loop.call_later(self.patience, self.transport.abort)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read bytes of a request; its headers, once complete, end the wait."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Begin to wait for the client to take bytes of its answer."""
        super().pause_writing()
        self._stuck = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        """End that wait: the client has taken bytes."""
        super().resume_writing()
        self._taken()

    def _taken(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def connection_lost(self, exc: Exception | None) -> None:
        """End both waits."""
        super().connection_lost(exc)
        self._taken()
        if self._silent is not None:
            self._silent.cancel()
