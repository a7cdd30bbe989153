"""How a client reaches a service: its address, a token, and connections that are kept for the next request.

Without keeping them, every question would wait for a new connection, and over https for another handshake.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import time
import urllib.parse
import urllib.request
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tacit.errors import BudgetExceeded, InvalidValue, ServiceRefused, TacitError
from tacit.serve.service import LOOPBACK

__all__ = ["Kept", "Session", "connection_to", "refusal"]

PATIENCE = 60.0
"""Seconds to wait for an answer of the service, and between attempts at most."""
ATTEMPTS = 4
KEPT = 4.0
"""Seconds for which a connection is kept: fewer than those after which the service closes it."""


class Kept:
    """Connections that wait for the next request; threads share them, and processes do not."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[http.client.HTTPConnection, int, float]] = deque()

    def take(self) -> http.client.HTTPConnection | None:
        """A connection that was given back a moment ago, in this process, or None."""
        while self._waiting:
            try:
                connection, process, since = self._waiting.pop()
            except IndexError:  # another thread has taken the last one
                return None
            if process == os.getpid() and time.monotonic() - since < KEPT:
                return connection
            connection.close()
        return None

    def give(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection whose answer was read to its end, unless the service has closed it."""
        if connection.sock is not None:
            self._waiting.append((connection, os.getpid(), time.monotonic()))

    def close(self) -> None:
        """Close those that wait."""
        while self._waiting:
            self._waiting.pop()[0].close()


def connection_to(url: str, context: ssl.SSLContext | None, patience: float) -> http.client.HTTPConnection:
    """A connection to the service at an address: straight, or for https by the proxy of the environment."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port, timeout=patience)
    proxy = None if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get("https")
    if proxy is None:
        return http.client.HTTPSConnection(host, parts.port, timeout=patience, context=context)
    way = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    made = http.client.HTTPSConnection(way.hostname or "", way.port, timeout=patience, context=context)
    headers = {}
    if way.username is not None:
        name = f"{urllib.parse.unquote(way.username)}:{urllib.parse.unquote(way.password or '')}"
        headers["Proxy-Authorization"] = "Basic " + base64.b64encode(name.encode()).decode()
    made.set_tunnel(host, parts.port, headers)
    return made


@dataclass(frozen=True)
class Session:
    """How the service is reached: its address and a token, which is sent in a header and never shown.

    The token goes to this address and nowhere else: redirections are refused, and ``http://``, which anybody
    on the way can read, reaches the loopback only, past every proxy. A connection is kept for a few seconds
    after an answer, for the next request.
    """

    url: str
    token: str
    context: ssl.SSLContext | None = None
    _kept: Kept = field(default_factory=Kept, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidValue("url", self.url, "an address such as http://127.0.0.1:8000")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK:
            advice = "Use https://: the token could be read on the way."
            raise InvalidValue("url", self.url, "of the loopback, without https", advice)
        if not (isinstance(self.token, str) and self.token.isascii() and self.token.isprintable()):
            advice = "It is one line of letters, digits, hyphens and underscores; it is not shown here."
            raise InvalidValue("token", "…", "the text that the curator has issued", advice)
        weakref.finalize(self, self._kept.close)

    def close(self) -> None:
        """Close the connections that are kept. The session can be used again."""
        self._kept.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Session, (self.url, self.token, self.context)

    def __repr__(self) -> str:
        return f"Session({self.url!r})"

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Any:
        """The answer of a route as JSON; what the service refuses is raised as it would be here."""
        found = self.fetch(method, path, body, key=key)
        try:
            return json.loads(found)
        except ValueError:
            said = f"What answers at {self.url} is no service of tacit."
            raise ServiceRefused(said, "Check its address.", status=502) from None

    def fetch(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> bytes:
        """The bytes of an answer. A request with a key, or one that only reads, is sent again if need be."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Idempotency-Key"] = key
        root = urllib.parse.urlsplit(self.url).path
        again = ATTEMPTS if key is not None or method == "GET" else 1
        for attempt in range(1, again + 1):
            # One that was kept may have been closed meanwhile: only what may be sent again is sent on it.
            kept = None if again == 1 or attempt > 1 else self._kept.take()
            connection = kept or connection_to(self.url, self.context, PATIENCE)
            try:
                connection.request(method, f"{root}/api/v1{path}", data, headers)
                answer = connection.getresponse()
                status, found = answer.status, answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if attempt == again:
                    raise ServiceRefused(
                        f"The service at {self.url} cannot be reached: {error}.",
                        "Check the address. A request that was sent with a key is charged at most once.",
                        status=503,
                    ) from None
                time.sleep(0.2 * attempt)
                continue
            except BaseException:
                connection.close()
                raise
            self._kept.give(connection)
            if status >= 300:  # a redirection too: the token would be sent along, to whatever it names
                raise refusal(status, found)
            return found
        raise AssertionError("unreachable")


def refusal(status: int, body: bytes) -> TacitError:
    """The error that the service answered with, raised here as it would be where the rows are."""
    try:
        told = json.loads(body)["error"]
        problem, advice, kind = str(told["problem"]), str(told["next"]), told["kind"]
    except (ValueError, KeyError, TypeError):
        problem = f"The service answered with the code {status}."
        return ServiceRefused(problem, "Check its address.", status=status)
    if status == 402:
        return BudgetExceeded(problem, advice, **dict.fromkeys(("label", "budget", "spent", "would_be")))
    if kind == "InvalidValue":
        made = InvalidValue.__new__(InvalidValue)
        TacitError.__init__(made, problem, advice, status=status)
        return made
    return ServiceRefused(problem, advice, status=status)
