"""Peers that need an environment of their own: made once under ``build/``, then asked over a pipe.

OpenDP's tables need exactly Polars 1.36.1, diffprivlib needs scikit-learn below 1.6; neither can live
beside the rest. A peer is a script of cases run by the environment's Python. One JSON line asks for a
case, one JSON line answers, so that the sides can take turns although they are different processes.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

ENVIRONMENTS = Path(__file__).parent.parent / "build" / "peers"
PACKAGES = {
    "opendp": ("opendp[polars]==0.16.0",),
    "diffprivlib": ("diffprivlib==0.6.6", "scikit-learn<1.6", "pyarrow"),
    "frequency_oracles": ("pure-ldp==1.2.0", "multi-freq-ldpy==0.2.5"),
    "interpret": ("interpret-core==0.7.8",),
}


class Timed(NamedTuple):
    """An answer, and the seconds it took from the file; ``compute`` leaves the loading out."""

    seconds: float
    compute: float
    answer: Any


class Refused(Exception):
    """The peer does not offer the case, or failed at it."""


def environment(name: str) -> Path:
    """The Python of the peer's environment, made on first use."""
    folder = ENVIRONMENTS / name
    python, done = folder / "bin" / "python", folder / ".installed"
    wanted = "\n".join(PACKAGES[name])
    if not done.exists() or done.read_text() != wanted:
        print(f"installing {' '.join(PACKAGES[name])} into build/peers/{name}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES[name]], check=True)
        done.write_text(wanted)
    return python


class Peer:
    """A running peer."""

    def __init__(self, name: str) -> None:
        script = Path(__file__).parent / f"_{name}_side.py"
        self.name = name
        self._process = subprocess.Popen(
            [str(environment(name)), str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.version = self.ask("version").answer

    def ask(self, verb: str, **arguments: object) -> Timed:
        """Run one case over there and wait for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"verb": verb, "arguments": arguments}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise Refused(f"{self.name} died")
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"])
        return Timed(**answer)

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Case = Callable[..., tuple[float, Any]]
"""Returns the seconds that were spent on loading, and the answer."""


def serve(package: str, cases: Mapping[str, Case]) -> None:
    """What a peer's script does: answer until the pipe closes."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    cases = {**cases, "version": lambda: (0.0, importlib.metadata.version(package))}
    for line in sys.stdin:
        question = json.loads(line)
        case = cases.get(question["verb"])
        try:
            if case is None:
                raise Refused("not offered")
            start = time.perf_counter()
            loading, answer = case(**question["arguments"])
            spent = time.perf_counter() - start
            reply = {"seconds": spent, "compute": spent - loading, "answer": answer}
        except Refused as refusal:
            reply = {"refused": str(refusal)}
        except Exception as error:
            reply = {"refused": f"{type(error).__name__}: {str(error).strip()[:200]}"}
        print(json.dumps(reply), file=answers, flush=True)
