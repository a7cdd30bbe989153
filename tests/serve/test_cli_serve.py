"""``tacit serve`` as a curator starts it: one process on the loopback, and a token that is shown once."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from serve.conftest import SCHEMA, write_rows
from tacit.errors import ServiceRefused
from tacit.serve.client import Session, connect


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tacit.cli", "serve", *words]


def test_from_the_first_start_to_a_release(folder: Path) -> None:
    """Start, register, grant, ask, fit; kill the service; start it again: nothing is lost."""
    home, port = folder / "study", free_port()
    words = command("--home", str(home), "--port", str(port), "--workers", "1")
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    url = f"http://127.0.0.1:{port}"
    first = subprocess.Popen(words, **quiet)  # type: ignore[call-overload]
    try:
        shown = first.stdout.readline()
        found = re.search(r"tacit_\w+_[\w-]+", shown)
        assert found is not None
        assert first.stdout.readline() == f"Serving {home} at {url}\n"
        curator = Session(url, found[0])
        _answering(curator)
        write_rows(home / "data" / "people.csv", 500)
        about = {"name": "people", "source": "people.csv", "schema": SCHEMA, "epsilon": 2.0}
        curator.call("POST", "/datasets", about)
        curator.call("POST", "/users", {"name": "ada", "role": "analyst"})
        token = curator.call("POST", "/users/ada/tokens", {})["token"]
        terms = {"analyst": "ada", "dataset": "people", "epsilon": 2.0, "models": ["naive-bayes"]}
        curator.call("POST", "/grants", terms)
        table = connect(url, token=token)
        assert table.count(epsilon=0.5).guarantee.epsilon == 0.5
        job = table.fit("naive-bayes", target="income", epsilon=0.5)
        assert job.model()[-1].guarantee_.epsilon == 0.5
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    again = subprocess.Popen(words, **quiet)  # type: ignore[call-overload]
    try:
        assert again.stdout.readline().startswith("Serving")
        _answering(curator)
        assert connect(url, token=token).remaining() == 1.0
        assert token.rsplit("_", 1)[1].encode() not in (home / "service.db").read_bytes()
    finally:
        again.send_signal(signal.SIGINT)
        _, errors = again.communicate(timeout=30)
    assert token not in errors
    with pytest.raises(ServiceRefused, match="cannot be reached"):
        curator.call("GET", "/me")


def _answering(session: Session) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            session.call("GET", "/health")
            return
        except ServiceRefused:
            assert time.monotonic() < deadline


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), capture_output=True, text=True, timeout=60, check=False, env={**os.environ}
    )


def test_without_https_only_the_loopback(tmp_path: Path) -> None:
    answer = ran("--home", str(tmp_path / "h"), "--host", "0.0.0.0")
    assert (answer.returncode, "--certificate" in answer.stderr) == (2, True)
    assert not (tmp_path / "h").exists()
    answer = ran("--home", str(tmp_path / "h"), "--key", "x")
    assert (answer.returncode, "belong together" in answer.stderr) == (2, True)


def test_a_lost_token_is_replaced(tmp_path: Path) -> None:
    tokens = {ran("--home", str(tmp_path), "--new-token").stdout for _ in range(2)}
    assert len(tokens) == 2
    assert all("tacit_" in one for one in tokens)


def test_a_port_that_is_taken_is_told_before_a_token_is_made(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        home = folder / "study"
        words = command("--home", str(home), "--port", port)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Token" not in done.stdout
    assert not home.exists()
    assert "Name another --port." in done.stderr


def test_another_database_than_postgresql_is_refused(folder: Path) -> None:
    words = command("--home", str(folder / "study"), "--database", "sqlite:///private.db")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "PostgreSQL" in done.stderr
    assert "private.db" not in done.stderr
