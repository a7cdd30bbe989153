"""Text of TOML: keys, strings and values as schemas are written, and where one was left open."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

__all__ = ["key", "left_open", "literal", "quoted"]

_SECTION = re.compile(r"\s*\[\s*(\w+)(?:\s*\.\s*(.*?))?\s*\]\s*(?:#.*)?")
_ENTRY = re.compile(r"\s*([\w-]+)\s*=")
_STRING = re.compile(r""""(?:[^"\\]|\\.)*"|'[^']*'|#.*""")


def left_open(text: str) -> tuple[str, str] | None:
    """What a ? was left for in TOML text, and the ? with its line; None if there is none.

    A bare ? is no TOML: this is looked for only in text that cannot be read.
    """
    kind = name = entry = ""
    for number, line in enumerate(text.splitlines(), 1):
        if (section := _SECTION.fullmatch(line)) is not None:
            kind, name, entry = section[1], (section[2] or "").strip("\"'"), ""
            continue
        if (found := _ENTRY.match(line)) is not None:
            entry = found[1]
        if "?" in _STRING.sub("", line):
            inside = {"columns": f" of column {name!r}", "unit": " of the unit", "csv": " of csv"}
            return f"{entry or 'a value'}{inside.get(kind, '')}", f"? in line {number}"
    return None


def quoted(text: str) -> str:
    """A TOML string, on one line and with nothing invisible in it."""
    short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(short.get(c) or (c if c.isprintable() else f"\\U{ord(c):08x}") for c in text) + '"'


def key(name: str) -> str:
    """A TOML key: bare where that is allowed."""
    return name if name.isascii() and name.replace("-", "").replace("_", "a").isalnum() else quoted(name)


def literal(value: Any) -> str:
    """A value, or a tuple of values, as TOML."""
    if not isinstance(value, tuple):
        plain = str(value).lower() if isinstance(value, (bool, date)) else repr(value)
        return quoted(value) if isinstance(value, str) else plain
    parts = [literal(part) for part in value]
    line = f"[{', '.join(parts)}]"
    return line if len(line) <= 96 else "[\n    " + ",\n    ".join(parts) + ",\n]"
