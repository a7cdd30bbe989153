"""Commands as a user types them, for examples that show and run them."""

from __future__ import annotations

import shlex
import sys

from rich.console import Console

from tacit import cli

__all__ = ["command"]


def command(console: Console, *words: str) -> None:
    """Show a command as it would be typed, and run it."""
    console.print(f"$ tacit {shlex.join(words)}", markup=False, soft_wrap=True, style="bold")
    code = cli.app(list(words), standalone_mode=False)
    if code:
        sys.exit(int(code))
