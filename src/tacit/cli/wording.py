"""Errors as the command says them: arguments of functions become options.

The library names an argument as ``test_epsilon=`` or shows it as ``test_epsilon=0.2``; on the command line
that is ``--test-epsilon`` and ``--test-epsilon 0.2``, and ``size=(28, 32)`` is ``--size 28x32``. Only options
of the command that was run are written so, and nothing between quotes is changed.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from tacit.cli.lazy import LazyGroup
from tacit.errors import TacitError

__all__ = ["told", "warned"]

_shown = warnings.showwarning


def told(error: TacitError) -> str:
    """The error in one line, with the options of the command that was run."""
    return "tacit: " + as_options(" ".join(str(error).split()), set(_options(LazyGroup.asked)))


def warned(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
    """Show a warning of tacit in one line on standard error, and any other as Python does."""
    if category.__module__ == "tacit.errors":
        said = as_options(" ".join(str(message).split()), set(_options(LazyGroup.asked)))
        print(f"tacit: warning: {said}", file=sys.stderr)
    else:
        _shown(message, category, *place, **options)


def as_options(text: str, options: set[str]) -> str:
    """The text with these arguments written as options.

    >>> as_options("Pass overwrite=True, or delta=1e-6: see 'delta=' and bounds=.", {"overwrite", "delta"})
    "Pass --overwrite, or --delta 1e-6: see 'delta=' and bounds=."
    >>> as_options("Give size=(28, 32).", {"size"})
    'Give --size 28x32.'
    """
    if not options:
        return text
    names = "|".join(sorted(options, key=len, reverse=True))
    pattern = rf"'[^']*'|\"[^\"]*\"|\b({names})=(?:(True\b|(?=[\s.,;:)]|$))|\((\d+), (\d+)\))?"

    def written(found: re.Match[str]) -> str:
        name, flag, height, width = found.groups()
        if name is None:
            return found.group()
        option = f"--{name.replace('_', '-')}"
        if height is not None:
            return f"{option} {height}x{width}"
        return option if flag is not None else f"{option} "

    return re.sub(pattern, written, text)


def _options(command: Any) -> Iterator[str]:
    """The Python names of the options of a command and of the commands below it."""
    for parameter in getattr(command, "params", ()):
        if parameter.param_type_name == "option":
            yield str(parameter.name)
    for below in getattr(command, "commands", {}).values():
        yield from _options(below)
