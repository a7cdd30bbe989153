"""``tacit serve``: hold data for others, who ask within grants and never see a row."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import InvalidValue, TacitError
from tacit.serve.actions import people
from tacit.serve.service import LOOPBACK, Place

__all__ = ["serve"]


def serve(
    home: Annotated[
        Path, typer.Option(help="Folder of the service; made if it is not there.", show_default=False)
    ],
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.", min=1, max=65535)] = 8000,
    database: Annotated[
        str | None,
        typer.Option(
            help="URL of a PostgreSQL database, for several machines.",
            show_default="files in the home",
            envvar="TACIT_DATABASE",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder that datasets are registered from.", show_default="data in the home"),
    ] = None,
    spark: Annotated[
        str | None,
        typer.Option(
            help="Master of Spark, such as local[2]; tables of its catalog may be registered.",
            show_default="no Spark",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes for fits and synthesis.", min=0, max=64)] = 1,
    tick: Annotated[
        float, typer.Option(help="Answer at multiples of so many seconds; 0 answers at once.", min=0)
    ] = 0.0,
    rate: Annotated[int, typer.Option(help="Requests per minute and token; 0 for any.", min=0)] = 600,
    queue: Annotated[int, typer.Option(help="Waiting jobs per analyst; 0 for any.", min=0)] = 20,
    failures: Annotated[
        int, typer.Option(help="Requests per minute and address with no valid token; 0 for any.", min=0)
    ] = 60,
    certificate: Annotated[
        Path | None, typer.Option(help="Certificate of the server, for https.", show_default=False)
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Its private key.", show_default=False)] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A further name that the service may be called by.", show_default=False),
    ] = None,
    new_token: Annotated[
        bool, typer.Option("--new-token", help="Print a further token of the first curator, and exit.")
    ] = False,
) -> None:
    """Hold data for others, who ask within grants and never see a row.

    The first start makes the home, with a ledger and a folder data in it, and
    prints the token of a first curator, once. Whoever has it registers
    datasets, adds users and grants; analysts ask by tacit.connect, or by the
    API, which /api/v1/openapi.json describes.

    Listening at another address than the loopback needs --certificate and
    --key: tokens would otherwise be readable on the way.
    """
    if any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn", "cryptography")):
        advice = "Install them: pip install 'tacit[serve]'."
        raise TacitError("The service needs FastAPI, uvicorn and cryptography.", advice)
    if (certificate is None) != (key is None):
        raise TacitError("--certificate and --key belong together.", "Give both, or neither.")
    if certificate is None and host not in LOOPBACK:
        advice = "Give --certificate and --key, or listen at 127.0.0.1 behind a proxy that speaks https."
        raise InvalidValue("--host", host, "an address of the loopback, without https", advice)
    kind = None if database is None else database.partition(":")[0]
    if kind not in (None, "postgres", "postgresql", "postgresql+psycopg"):
        advice = "Leave it out: the service then keeps files in its home."
        raise InvalidValue("--database", kind, "the URL of a PostgreSQL database", advice)
    place = Place(home, database, data, tick, rate, queue, failures, spark)
    from tacit.serve.http.running import listening, run

    listener = None if new_token else listening(host, port)
    if listener is not None and spark is not None:
        from tacit.data.spark import SparkTables

        SparkTables(spark).start()  # what is wrong with it is told before a token is made
    with place.open() as service:
        first = people.first_curator(service)
        if new_token and first is None:
            first = people.further_curator(service)
    shown = f"[{host}]" if ":" in host else host
    scheme = "http" if certificate is None else "https"
    if first is not None:
        typer.echo(f"Token of the curator, shown this once: {first.text}")
    if listener is None:
        return
    typer.echo(f"Serving {home} at {scheme}://{shown}:{port}")
    run(
        place, listener, host=host, workers=workers, hosts=name or (),
        certificate=None if certificate is None else str(certificate), key=None if key is None else str(key),
    )  # fmt: skip
