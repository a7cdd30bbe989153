"""How CSV files are written: the delimiter, the decimal mark and the encoding.

All three are public facts about a file, like the names of its columns, and part of its schema
(:class:`tacit.schema.Schema`): whoever reads the file reads it alike.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from tacit.errors import InvalidValue

__all__ = ["DECIMALS", "Dialect"]

DECIMALS = (".", ",")
_NAMES = {"utf-8": "utf-8", "ascii": "utf-8", "utf-8-sig": "utf-8", "iso8859-1": "latin-1"}
"""What encodings are called here, by Python's name for them, where the two differ."""
_KNOWN = frozenset(
    ["utf-8", "latin-1", "utf-16", "koi8-r", "koi8-u", "mac-roman", "cp437", "cp850", "cp852", "cp866"]
    + ["gb18030", "big5", "shift_jis", "euc_jp", "euc_kr"]
    + [f"cp{number}" for number in range(1250, 1259)]
    + [f"iso8859-{number}" for number in range(2, 17) if number != 12]
)


@dataclass(frozen=True)
class Dialect:
    """How the CSV files of a table are written. Parquet files, frames and tables have no dialect.

    ``delimiter``
        The one character between two values. Files that end in ``.tsv`` have tabs where none but ``","`` is
        declared.
    ``decimal``
        The mark in ``1.5`` or ``1,5``. The other one is then no part of a number: ``1.234,5`` is none.
    ``encoding``
        Of the text: ``"utf-8"`` (with or without a byte order mark), ``"latin-1"``, ``"cp1252"`` (Windows),
        ``"utf-16"`` and the like.

    >>> Dialect(";", ",", "ISO-8859-1")
    Dialect(delimiter=';', decimal=',', encoding='latin-1')
    >>> Dialect(encoding="martian")
    Traceback (most recent call last):
    ...
    tacit.errors.InvalidValue: encoding must be known, got 'martian'. Such as utf-8, latin-1 or cp1252.
    """

    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        mark = self.delimiter
        if not isinstance(mark, str) or len(mark) != 1 or mark in '"\r\n\\\0':
            raise InvalidValue("delimiter", mark, "one character, such as ',' or ';'")
        if self.decimal not in DECIMALS:
            raise InvalidValue("decimal", self.decimal, "'.' or ','")
        object.__setattr__(self, "encoding", _encoding(self.encoding))


def _encoding(name: object) -> str:
    try:
        found = codecs.lookup(str(name)).name
    except (LookupError, ValueError):
        found = ""
    known = _NAMES.get(found, found)
    if not isinstance(name, str) or known not in _KNOWN:
        raise InvalidValue("encoding", name, "known", "Such as utf-8, latin-1 or cp1252.")
    return known
