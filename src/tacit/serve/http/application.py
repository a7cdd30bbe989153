"""The application: routes, limits, and errors in the service's own words."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Collection, Mapping, MutableMapping
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Any

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from tacit.errors import TacitError
from tacit.serve.carrying import error_of
from tacit.serve.http.failures import Failures
from tacit.serve.http.limits import CONNECTIONS, SECONDS, App, Guard, Receive, Scope, Send
from tacit.serve.http.routes import PREFIX, router
from tacit.serve.pages import router as pages
from tacit.serve.pages.failing import failure
from tacit.serve.service import LOOPBACK, Service, refused

__all__ = ["application"]

LARGEST = 1_000_000


class Plain(JSONResponse):
    """JSON in ASCII: text that is no text in UTF-8 cannot break it."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def application(
    service: Service,
    *,
    hosts: Collection[str] = LOOPBACK,
    largest: int = LARGEST,
    seconds: float = SECONDS,
) -> FastAPI:
    """The service as an ASGI application, to be called by the names of ``hosts`` (any, if there are none)."""
    made = FastAPI(
        title="tacit",
        summary="Ask private data, within a budget.",
        version=metadata.version("tacit"),
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        default_response_class=Plain,
        lifespan=_with_threads,
        responses=_responses(),
    )
    made.state.service = service
    made.include_router(router)
    made.include_router(pages)
    made.add_exception_handler(TacitError, _refused)
    made.add_exception_handler(RequestValidationError, _malformed)
    made.add_exception_handler(HTTPException, _unknown)
    made.add_exception_handler(RecursionError, _deep)
    made.add_middleware(Failures, per_minute=service.place.failures)
    made.add_middleware(Discreet)
    made.add_middleware(Guard, hosts=hosts, largest=largest, seconds=seconds)
    return made


def _responses() -> dict[int | str, dict[str, Any]]:
    told = {
        401: "The caller is not known.", 402: "The budget does not suffice. Nothing was charged.",
        403: "The caller may not do this.", 404: "There is no such thing for this caller.",
        408: "The request took too long to arrive.",
        409: "It contradicts what was asked before, or what is stored does not verify.",
        413: "The request is too large.", 422: "The request makes no sense.",
        429: "Too many requests, or too many jobs that wait.",
        503: "It cannot be done now, or has failed.",
    }  # fmt: skip
    content = {"application/json": {"schema": {"type": "object"}}}
    return {status: {"description": text, "content": content} for status, text in told.items()}


def _answer(request: Request, error: TacitError, headers: Mapping[str, str] | None = None) -> Response:
    """An error as JSON, or as a page where a page was asked for."""
    told = error_of(error)
    if not request.url.path.startswith(f"{PREFIX}/"):
        page = failure(request, told)
        page.headers.update(headers or {})
        return page
    if told["status"] == 401:
        headers = {"WWW-Authenticate": "Bearer"}
    return Plain({"error": told}, told["status"], headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, TacitError)
    return await run_in_threadpool(_answer, request, error)


async def _malformed(request: Request, error: Exception) -> Response:
    """Where a body is wrong, without what it held."""
    assert isinstance(error, RequestValidationError)
    places = [
        ".".join(str(part)[:60] for part in one["loc"][:8]) + f": {one['msg']}"[:200]
        for one in error.errors()[:5]
    ]
    said = refused(422, f"The request is malformed: {'; '.join(places)}.", "See openapi.json.")
    return await run_in_threadpool(_answer, request, said)


async def _deep(request: Request, error: Exception) -> Response:
    said = refused(422, "The request holds values within values within values.", "Send flat ones.")
    return await run_in_threadpool(_answer, request, said)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = refused(error.status_code, str(error.detail))
    return await run_in_threadpool(_answer, request, said, error.headers)


class Discreet:
    """Answers an error of the service itself with one sentence, whatever it was.

    Its kind is logged and nothing else of it: its message may quote rows, and a server that is handed the
    error writes it into its own log.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, failed = False, ""

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except Exception as error:
            failed = type(error).__name__
        if not failed:
            return
        logging.getLogger("tacit.serve").error("%s in %s", failed, str(scope.get("path"))[:200])
        if begun or scope["type"] != "http":
            raise RuntimeError("The service failed while it answered.")
        said = refused(500, "The service failed.", "Tell its curator.")
        answer = await run_in_threadpool(_answer, Request(scope, receive), said)
        await answer(scope, receive, send)


@asynccontextmanager
async def _with_threads(app: FastAPI) -> AsyncIterator[None]:
    """As many threads as connections: requests that wait for a tick, or for their turn, keep no other out."""
    to_thread.current_default_thread_limiter().total_tokens = CONNECTIONS
    yield
