"""Bounds on what a client may send: how much, how slowly, under which name; and headers of every answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

__all__ = ["CONNECTIONS", "SECONDS", "Guard"]

SECONDS = 20.0
"""How long a request may take to arrive: its headers, and then its body."""
CONNECTIONS = 200
"""The most connections at a time: whoever holds many open and sends nothing keeps out no more than these."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; "
        b"base-uri 'none'",
    ),
)
"""Headers of every answer, but for those that it has itself: pages have a policy of their own."""


class Guard:
    """Reads the whole body before anything else happens, within a size and a time.

    ``hosts`` are the names that the service may be called by. A browser that was led here by a name that
    somebody else has pointed at this machine sends that name, and is refused.
    """

    def __init__(self, app: App, *, hosts: Collection[str], largest: int, seconds: float) -> None:
        self.app, self.hosts, self.largest, self.seconds = app, frozenset(hosts), largest, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                known = {name.lower() for name, _ in given}
                message["headers"] = [*given, *(one for one in HEADERS if one[0] not in known)]
            await send(message)

        headers = {name.lower(): value for name, value in scope["headers"]}
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if self.hosts and name.strip("[]") not in self.hosts:
            await _answer(sending, 421, "The service is not called by this name.")
            return
        try:
            async with asyncio.timeout(self.seconds):
                body = await self._body(headers, receive)
        except TimeoutError:
            await _answer(sending, 408, "The request took too long to arrive.")
            return
        if body is None:
            await _answer(sending, 413, f"The request is larger than {self.largest} bytes.")
            return
        told = False

        async def receiving() -> MutableMapping[str, Any]:
            nonlocal told
            if told:
                return await receive()
            told = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, receiving, sending)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """The body, or None if it is too large; what is announced as too large is not waited for."""
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self.largest:
            return None
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self.largest:
                return None
        return body


async def _answer(send: Send, status: int, problem: str) -> None:
    error = {"kind": "ServiceRefused", "problem": problem, "next": "", "status": status}
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
