"""The command line, run in the process of the tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tacit.cli import main


@dataclass
class Outcome:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    def good(self) -> Outcome:
        """The outcome, if it is a success."""
        assert self.code == 0, self.err
        return self

    @property
    def json(self) -> Any:
        """What was printed, of a success, as JSON."""
        return json.loads(self.good().out)


Run = Callable[..., Outcome]

HOURS_AND_SEX = """
[columns.hours]
type = "number"
bounds = [0, 80]
[columns.sex]
type = "category"
categories = ["Female", "Male"]
"""
"""Two columns of the schema of the people that commands are tried on."""


def commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``tacit`` with these arguments, in the current folder."""

    def command(*arguments: str) -> Outcome:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["tacit", *arguments])
        with pytest.raises(SystemExit) as exit:
            main()
        shown = capsys.readouterr()
        code = exit.value.code
        return Outcome(0 if code is None else int(code), shown.out, shown.err)

    return command
