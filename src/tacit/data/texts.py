"""A column of text as the one thing that a model sees of a row, by what its schema declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tacit.data.cleaning.values import Values, category, reader
from tacit.data.columns import Columns
from tacit.data.features import Features
from tacit.data.preprocessor import Preprocessor
from tacit.errors import InvalidValue
from tacit.schema import Schema

__all__ = ["TextColumn", "text_column"]


class TextColumn(Preprocessor):
    """The texts of one column and a target, by public knowledge alone: what a table is to features of texts.

    ``schema``, ``target``: as of a :class:`Preprocessor`. ``text`` is a column of type ``"text"``; left out,
    the only one of the schema. No other column is read. :meth:`transform` gives one text for each row: blanks
    around it are taken off, and a value that is no text is the ``missing`` constant of the column, or the
    empty text.

    Guarantee: none needed, nothing is read from the data, and no value raises.

    >>> schema = Schema.from_toml('''
    ... [columns.review]
    ... type = "text"
    ... [columns.liked]
    ... type = "boolean"
    ... ''')
    >>> TextColumn(schema, target="liked").transform({"review": ["  fine ", None]}).tolist()
    ['fine', '']
    """

    def __init__(self, schema: Any, *, target: str | None = None, text: str | None = None) -> None:
        super().__init__(schema, target=target)
        self.text = text

    @property
    def column(self) -> str:
        """The column of texts."""
        return text_column(Schema.of(self.schema), self.text, self.target)

    @property
    def exclude(self) -> Sequence[str]:
        """Every column but the text and the target."""
        return [name for name in Schema.of(self.schema) if name not in (self.column, self.target)]

    @exclude.setter
    def exclude(self, names: Sequence[str]) -> None:
        """Nothing: the columns follow from the schema."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The one column that is read."""
        return (self.column,)

    @property
    def features(self) -> Features:
        """None before the text has been made into numbers."""
        return Features((), (), ())

    def transform(self, X: Any) -> NDArray[Any]:  # type: ignore[override]
        """One text for each row of a table, or of a list of texts."""
        schema, name = Schema.of(self.schema), self.column
        if isinstance(X, Mapping) or hasattr(X, "columns"):
            values = Columns(X, schema, (name,))[name]
        elif isinstance(X, str):
            raise InvalidValue("X", "one text", "a list of texts, or a table", "Write [text].")
        else:
            listed = np.empty(len(X), dtype=object)
            listed[:] = list(X)
            values = Values(listed)
        column, read = schema[name], reader("text")

        def cleaned(stored: NDArray[Any]) -> NDArray[Any]:
            found = np.empty(len(stored), dtype=object)
            found[:] = [category(column, read(value)) or "" for value in stored]
            return found

        return values.read(cleaned)

    def contents(self, X: Any) -> list[bytes]:
        """The text of every row in UTF-8."""
        return [str(text).encode() for text in self.transform(X)]

    def describe(self) -> str:
        """What is read, in words."""
        return f"{self.column}: the text; a missing one is empty\n{self.target}: the target"

    def to_dict(self) -> dict[str, Any]:
        """The parameters in JSON's terms, the schema as TOML."""
        return {"schema": Schema.of(self.schema).to_toml(), "target": self.target, "text": self.column}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Of the parameters that :meth:`to_dict` gave, checked."""
        made = cls(Schema.from_toml(data["schema"]), target=data["target"], text=data["text"])
        text_column(made.schema, made.text, made.target)
        return made


def text_column(schema: Schema, wanted: str | None, target: str | None) -> str:
    """The column of texts: the one that is wanted, or the only one there is."""
    texts = [name for name, column in schema.columns.items() if column.type == "text" and name != target]
    texts = [name for name in texts if name != schema.unit.column]
    if wanted is None and len(texts) == 1:
        return texts[0]
    if not texts:
        raise InvalidValue(
            "schema", ", ".join(schema), "one with a column of text",
            'Declare the column of texts with type = "text" in the schema.',
        )  # fmt: skip
    if wanted is None:
        listed = ", ".join(texts)
        raise InvalidValue("text", None, f"one of the columns of text: {listed}", "Say which: text=NAME.")
    if wanted not in texts:
        advice = f"It is declared as {schema[wanted].type}."
        requirement = f"a column of text that is neither target nor unit: {', '.join(texts)}"
        raise InvalidValue("text", wanted, requirement, advice)
    return wanted
