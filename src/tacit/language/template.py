"""Templates: how a demonstration becomes a piece of a prompt. All of it is public.

A prompt is an instruction, some demonstrations (a text with its label), and the text that is asked about. The
template says how one demonstration is written, and the verbalizer which word stands for which class:

>>> template = Template("Review: {text}\\nSentiment: {label}\\n\\n")
>>> template.shot("great fun", "positive")
'Review: great fun\\nSentiment: positive\\n\\n'
>>> template.question("dull")
'Review: dull\\nSentiment:'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tacit.errors import InvalidValue

__all__ = [
    "CHARACTERS",
    "Demonstration",
    "Template",
    "attempted",
    "clean_text",
    "cleaned",
    "declared_words",
    "is_text",
    "several",
]

Made = TypeVar("Made")

Demonstration = tuple[str, int]
"""A text, and the place of its class among the declared ones."""

TEXT, LABEL = "{text}", "{label}"
CHARACTERS = 32
"""Characters that are read of a text, for each token that it may have."""


@dataclass(frozen=True)
class Template:
    """How a demonstration is written: ``{text}``, and after it ``{label}``, each of them once.

    ``instruction`` is written before the first demonstration. Braces in a text mean nothing.
    """

    pattern: str
    instruction: str = ""

    def __post_init__(self) -> None:
        for name in ("pattern", "instruction"):
            if not isinstance(getattr(self, name), str):
                raise InvalidValue(name, getattr(self, name), "a text")
        once = self.pattern.count(TEXT) == 1 == self.pattern.count(LABEL)
        if not once or self.pattern.index(TEXT) > self.pattern.index(LABEL):
            advice = r'Write it like "Review: {text}\nSentiment: {label}\n\n".'
            raise InvalidValue("template", self.pattern, "{text} and then {label}, each of them once", advice)

    @classmethod
    def of(cls, given: Template | str) -> Template:
        """The template, or the one with this pattern."""
        return given if isinstance(given, Template) else cls(given)

    @property
    def parts(self) -> tuple[str, str, str]:
        """What stands before the text, between text and label, and after the label."""
        before, rest = self.pattern.split(TEXT)
        between, after = rest.split(LABEL)
        return before, between, after

    def shot(self, text: str, word: str) -> str:
        """One demonstration as it stands in a prompt."""
        before, between, after = self.parts
        return f"{before}{text}{between}{word}{after}"

    def question(self, text: str) -> str:
        """The last piece of a prompt, which the model completes with a label; it does not end in a blank."""
        before, between, _ = self.parts
        return f"{before}{text}{between}".rstrip(" ")


def declared_words(verbalizer: Any) -> dict[Any, str]:
    """The word of each class, in the order of the classes: two classes or more, with different words.

    >>> declared_words({0: "negative", 1: "positive"})
    {0: 'negative', 1: 'positive'}
    """
    if not isinstance(verbalizer, Mapping) or len(verbalizer) < 2:
        advice = 'Name a word for each class, such as {0: "negative", 1: "positive"}.'
        raise InvalidValue("verbalizer", verbalizer, "a word for each of two classes or more", advice)
    words = [word.strip() if isinstance(word, str) else "" for word in verbalizer.values()]
    if not all(words) or len(set(words)) < len(words):
        raise InvalidValue("verbalizer", dict(verbalizer), "different words, none of them empty")
    return dict(zip(verbalizer, words, strict=True))


def several(name: str, texts: Any) -> Any:
    """``texts`` as they are; one text alone, which Python takes for a sequence of letters, is refused.

    >>> several("questions", "Is it safe?")
    Traceback (most recent call last):
    ...
    tacit.errors.InvalidValue: questions must be a list of texts, got 'one text'. ...
    """
    if isinstance(texts, (str, bytes)):
        raise InvalidValue(name, "one text", "a list of texts", f"Put it into brackets: {name}=[...].")
    return texts


def is_text(value: Any) -> bool:
    """Whether a value is a text, by its type alone: no method of the value is called, which might raise."""
    return issubclass(type(value), str)


def attempted(compute: Callable[[], Made], otherwise: Made) -> Made:
    """What ``compute`` returns, and ``otherwise`` where it fails: for what private rows decide.

    A tokenizer in Rust panics with an error that is no ``Exception``, and that counts as a failure too. An
    interrupt of the process does not.

    >>> attempted(lambda: 1 // 0, 7)
    7
    """
    try:
        return compute()
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            return otherwise
        raise


def cleaned(text: Any, most: int) -> str:
    """A text as a tokenizer is given it: at most so many characters, all of which UTF-8 can write.

    What is no text is the empty text. It depends on this text alone. A tokenizer may take time that grows
    with the square of a text without blanks, so no text is handed to it whole.

    >>> cleaned(None, 10), cleaned("caf\\u00e9\\ud800 au lait", 6)
    ('', 'café? ')
    """
    if not is_text(text):
        return ""
    return str.__str__(text)[:most].encode("utf-8", "replace").decode("utf-8")


def clean_text(text: Any) -> str | None:
    """A text that any tokenizer takes, None for what is no text. It depends on this text alone.

    Lone surrogates, which UTF-8 cannot hold, become question marks, and zero bytes blanks.

    >>> clean_text("a\\ud800b"), clean_text(None), clean_text(7)
    ('a?b', None, None)
    """
    if not is_text(text):
        return None
    return str.__str__(text).encode("utf-8", "replace").decode("utf-8").replace("\0", " ").strip()
