"""Forms: the texts that were typed, the body they mean, and what is wrong with each field.

A form is turned into the same body as a request of the API (:mod:`tacit.serve.http.bodies`), and so obeys the
same limits.

>>> form = Form({"name": ["ada"], "role": ["analyst"]})
>>> form.body(NewUser)
NewUser(name='ada', role='analyst')
>>> try:
...     Form({"epsilon": ["much"], "analyst": ["ada"], "dataset": ["people"]}).body(NewGrant)
... except Unfit as unfit:
...     print(unfit.form.problems)
{'epsilon': 'Write a number, such as 0.5.'}
"""

from __future__ import annotations

import math
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tacit.errors import InvalidValue, TacitError
from tacit.serve.carrying import status_of
from tacit.serve.http.bodies import NewGrant, NewUser
from tacit.serve.service import refused

__all__ = ["Form", "NewGrant", "NewUser", "Unfit"]

Body = TypeVar("Body", bound=BaseModel)
MOST_FIELDS = 2000
TESTS = frozenset({"test_share", "test_epsilon"})
NUMBERS = TESTS | frozenset(
    {"epsilon", "delta", "confidence", "days", "norm", "interval_share", "epochs", "lr", "clip_norm"}
)
WHOLE = frozenset({"population", "rows", "bins", "rounds", "n_clusters", "n_components", "batch_size"})
LISTS = frozenset({"statistics", "models", "exclude", "groups_by"})
SWITCHES = frozenset({"buy_population"})
PLACES = {"question": "questions", "condition": "questions", "column": "questions", "where": "questions"}
"""Fields of a form in which a value stands that an error calls by another name."""
WORDS = {
    "missing": "This is needed.",
    "string_pattern_mismatch": "Use small letters, digits, hyphens and underscores, at most 64.",
}


@dataclass(frozen=True)
class Form:
    """What was typed: the texts by the names of the fields; and what is wrong, by field or in all."""

    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""
    status: int = 200

    @classmethod
    def parsed(cls, body: bytes) -> Form:
        """The form in the body of a request; ServiceRefused if there is none."""
        try:
            pairs = urllib.parse.parse_qsl(
                body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
            )
        except ValueError:
            raise refused(422, "The form cannot be read.", "Go back and try again.") from None
        texts: dict[str, list[str]] = {}
        for name, text in pairs:
            texts.setdefault(name, []).append(text.replace("\r\n", "\n"))
        return cls(texts)

    def __getitem__(self, name: str) -> str:
        """The text of a field, empty if it was left out."""
        return self.texts.get(name, [""])[0]

    def has(self, name: str, text: str) -> bool:
        """Whether this is among the choices that were made."""
        return text in self.texts.get(name, ())

    def with_defaults(self, **texts: str) -> Form:
        """The form with texts for fields that were not sent."""
        return replace(self, texts={**{name: [text] for name, text in texts.items()}, **self.texts})

    def body(self, model: type[Body], /, **given: Any) -> Body:
        """The body of a request that this form means; Unfit, with the form, where it means none."""
        values: dict[str, Any] = dict(given)
        problems: dict[str, str] = {}
        known = {about.alias or name for name, about in model.model_fields.items()} - set(given)
        for name in sorted(known & set(self.texts)):
            try:
                value = self._value(name)
            except ValueError as error:
                problems[name] = str(error)
                continue
            if value is not None:
                values[name] = value
        try:
            made = model.model_validate(values)
        except ValidationError as error:
            for one in error.errors():
                name = str(one["loc"][0]) if one["loc"] else ""
                problems.setdefault(name, WORDS.get(one["type"], f"{one['msg']}."))
            made = None
        if problems or made is None:
            raise Unfit(replace(self, problems=problems, status=422))
        return made

    def _value(self, name: str) -> Any:
        """What the text of one field means; None where it is left empty."""
        if name == "questions":
            return [line.strip() for text in self.texts[name] for line in text.split("\n") if line.strip()]
        if name in LISTS:
            return [text for text in self.texts[name] if text]
        text = self[name].strip()
        if not text:
            return None
        if name in SWITCHES:
            return True
        if name in NUMBERS:
            try:
                number = float(text)
            except ValueError:
                number = math.nan
            if not math.isfinite(number):
                raise ValueError("Write a number, such as 0.5.")
            return number
        if name in WHOLE:
            if not text.isascii() or not text.isdigit() or len(text) > 15:
                raise ValueError("Write a whole number, such as 10.")
            return int(text)
        return text

    def wrong(self, error: TacitError) -> Form:
        """The form with an error of the action, at the field that it names, if there is one."""
        told = f"{error.problem} {error.next_step}".strip()
        status = status_of(error)
        if isinstance(error, InvalidValue):
            name = getattr(error, "name", "")
            place = PLACES.get(name, name) if name not in self.texts else name
            if place in self.texts:
                return replace(self, problems={place: told}, status=status)
        return replace(self, trouble=told, status=status)


class Unfit(Exception):
    """A form that means no request; ``form`` says why."""

    def __init__(self, form: Form) -> None:
        super().__init__("The form is not filled in rightly.")
        self.form = form
