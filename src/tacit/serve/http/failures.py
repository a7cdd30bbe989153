"""Failed sign-ins, limited for each address; and when to ask again, where somebody asks too often.

Tokens are too long to be guessed. What is limited is the work that whoever tries makes: an address from which
many requests came with no token, or with a wrong one, is refused before anything is looked up, for a while.
Who has been recognised lately is not: behind a proxy, or at one machine, all have the same address.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import MutableMapping
from typing import Any

from tacit.serve.http.limits import App, Receive, Scope, Send
from tacit.serve.rates import RETRY_AFTER, Rate

__all__ = ["Failures"]

_MOST_KNOWN = 10_000
_SECRETS = (b"authorization", b"cookie")


class Failures:
    """Counts answers with the code 401 by address, and refuses an address that had too many."""

    def __init__(self, app: App, *, per_minute: int) -> None:
        self.app, self._rate = app, Rate(per_minute)
        self._known: OrderedDict[bytes, None] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        address = str((scope.get("client") or ("",))[0])
        shown = _digest(scope)

        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                if status == 401:
                    self._known.pop(shown or b"", None)
                    self._rate.take(address)
                elif shown is not None and 200 <= status < 300:
                    self._remember(shown)
                elif status == 429:
                    message["headers"] = [*message.get("headers", ()), _RETRY]
            await send(message)

        if self._rate.spent(address) and shown not in self._known:
            problem = "Too many requests from this address had no token, or a wrong one."
            error = {"kind": "ServiceRefused", "problem": problem, "next": "Wait a while.", "status": 429}
            headers = [(b"content-type", b"application/json"), _RETRY]
            await send({"type": "http.response.start", "status": 429, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps({"error": error}).encode()})
            return
        await self.app(scope, receive, sending)

    def _remember(self, shown: bytes) -> None:
        self._known[shown] = None
        self._known.move_to_end(shown)
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)


_RETRY = (b"retry-after", str(RETRY_AFTER).encode())


def _digest(scope: Scope) -> bytes | None:
    """What stands for the secrets of a request; None if it has none."""
    shown = [value for name, value in scope["headers"] if name.lower() in _SECRETS]
    return hashlib.sha256(b"\0".join(shown)).digest() if shown else None
