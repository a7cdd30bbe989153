"""How questions are read: tokens, and a recursive descent through them.

Text is read by this grammar alone and never evaluated; it has no calls, attributes or subscripts.
Length and depth are limited, and whatever the grammar does not know is
:class:`tacit.errors.InvalidValue`, naming the place.

>>> Parser("not age + 1 >= 40").disjunction()
Operation(symbol='not', parts=(Operation(symbol='>=', parts=(...), Literal(value=40))),))
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tacit.errors import InvalidValue
from tacit.tables.language.condition import COMPARISONS, Literal, Name, Node, Operation

__all__ = ["KEYWORDS", "MAX_DEPTH", "MAX_LENGTH", "Parser", "Token", "condition_of"]

MAX_LENGTH = 2000
MAX_DEPTH = 32

KEYWORDS = ("and", "or", "not", "in", "is", "by", "where", "true", "false", "none", "null")
_CONSTANTS = {"true": True, "false": False, "none": None, "null": None}
_SPELLINGS = {"=": "==", "<>": "!="}
_CLOSING = {"(": ")", "[": "]"}
_HINTS = {
    "between": "Write low <= column <= high.",
    "like": "Name the values: column in ('one', 'another').",
    "(": "Functions cannot be called there.",
    ".": "Attributes cannot be read there.",
    "[": "Subscripts are not understood there.",
    "&": "Write: and.",
    "|": "Write: or.",
    "~": "Write: not.",
    "-": "A column whose name is not a plain word goes in double quotes.",
    **dict.fromkeys("'\"`", "Nothing is quoted there, or the quotation mark is not closed."),
    **dict.fromkeys("“”‘’", "Use straight quotation marks: ' for text, \" for columns."),
}
_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<word>[^\W\d]\w*)
      | (?P<text>'(?:[^']|'')*')
      | (?P<column>"(?:[^"]|"")+"|`(?:[^`]|``)+`)
      | (?P<sign>==|!=|<>|<=|>=|[=<>+\-*/(),[\]])
      | (?P<stray>.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A piece of the text: its kind and where it stands."""

    kind: str
    text: str
    start: int

    @property
    def plain(self) -> str:
        """The sign or, in lower case, the keyword that this is; else empty."""
        if self.kind == "sign":
            return _SPELLINGS.get(self.text, self.text)
        return self.text.lower() if self.kind == "word" and self.text.lower() in KEYWORDS else ""


def condition_of(text: str) -> Node:
    """The condition that ``text`` states, and nothing after it."""
    parser = Parser(text, named="where")
    tree = parser.disjunction()
    if parser.token.kind != "end":
        raise parser.refuse("an operator or its end")
    return tree


class Parser:
    """Reads a text from left to right; every method reads one rule of the grammar.

    ``named`` is what error messages call the text: a question, or the condition of one.
    """

    def __init__(self, text: str, named: str = "question") -> None:
        if not isinstance(text, str):
            raise InvalidValue(named, text, "text")
        if len(text) > MAX_LENGTH:
            raise InvalidValue(named, text[:40] + "…", f"at most {MAX_LENGTH} characters long")
        self.named = named
        found = (Token(str(match.lastgroup), match[0], match.start()) for match in _TOKEN.finditer(text))
        self.text = text
        self.tokens = [*(token for token in found if token.kind != "space"), Token("end", "", len(text))]
        self.next = 0
        self._depth = 0

    @property
    def token(self) -> Token:
        """The token to be read next."""
        return self.tokens[self.next]

    def invalid(self, requirement: str, next_step: str = "") -> InvalidValue:
        """An error about the text as a whole."""
        return InvalidValue(self.named, self.text, requirement, next_step)

    def refuse(self, expected: str, hint: str = "") -> InvalidValue:
        """An error about the next token, where something else was expected."""
        token = self.token
        end = token.kind == "end"
        place = "its end" if end else f"character {token.start + 1} ({token.text[:40]!r})"
        if not hint:
            keyword = "A column of this name goes in double quotes." if token.plain.isalpha() else ""
            hint = keyword or _HINTS.get(token.text.lower(), "")
        return self.invalid(f"continued at {place} with {expected}", hint)

    def take(self, *signs: str) -> str:
        """Step over the next token if it is one of these signs or keywords; empty if it is not."""
        plain = self.token.plain
        if not plain or plain not in signs:
            return ""
        self.next += 1
        return plain

    def expect(self, sign: str, expected: str) -> None:
        """Step over this sign, which must come next."""
        if not self.take(sign):
            raise self.refuse(expected)

    def sequence(self, opening: str, read: Callable[[], Any]) -> Iterator[Any]:
        """The values that ``read`` finds between commas, up to the sign that closes ``opening``."""
        closing = _CLOSING[opening]
        self._depth += 1
        self._check(self._depth)
        first = True
        while not self.take(closing):
            if not first:
                self.expect(",", f"a comma or {closing!r}")
            first = False
            yield read()
        self._depth -= 1

    def value(self) -> Any:
        """An argument: a column as a Name, a list as a tuple, a constant as it is."""
        opening = self.take("(", "[")
        return tuple(self.sequence(opening, self.value)) if opening else self.simple("a column or a value")

    def simple(self, expected: str) -> Any:
        """A column as a Name, or a constant as it is."""
        negative = self.take("-")
        if negative and self.token.kind != "number":
            raise self.refuse("a number")
        leaf = self._atom(expected)
        if isinstance(leaf, Name):
            return leaf
        return -leaf.value if negative else leaf.value

    def column(self, expected: str) -> str:
        """The name of a column; single quotes are accepted too."""
        found = self.simple(expected)
        if isinstance(found, Name):
            return found.name
        if isinstance(found, str):
            return found
        self.next -= 1
        raise self.refuse(expected)

    def disjunction(self) -> Node:
        """A condition, or a part of one in parentheses."""
        return self._joined("or", lambda: self._joined("and", self._negation))

    def _check(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self.invalid(f"nested at most {MAX_DEPTH} deep", "Ask something simpler.")

    def _operation(self, symbol: str, *parts: Node) -> Operation:
        made = Operation(symbol, parts)
        self._check(made.depth)
        return made

    def _nested(self, read: Callable[[], Node]) -> Node:
        self._depth += 1
        self._check(self._depth)
        found = read()
        self._depth -= 1
        return found

    def _joined(self, word: str, read: Callable[[], Node]) -> Node:
        parts = [read()]
        while self.take(word):
            parts.append(read())
        return parts[0] if len(parts) == 1 else self._operation(word, *parts)

    def _negation(self) -> Node:
        if self.take("not"):
            return self._operation("not", self._nested(self._negation))
        return self._comparison()

    def _comparison(self) -> Node:
        left = self._sum()
        links: list[Node] = []
        while True:
            if symbol := self.take(*COMPARISONS):
                right = self._sum()
                links.append(self._operation(symbol, left, right))
                left = right
            elif self.take("is"):
                symbol = "is not" if self.take("not") else "is"
                if not self.take("none", "null"):
                    raise self.refuse("None", "Compare other values with == or !=.")
                links.append(self._operation(symbol, left))
            elif symbol := self.take("in", "not"):
                if symbol == "not":
                    self.expect("in", "'in'")
                    symbol = "not in"
                links.append(self._operation(symbol, left, *self._constants()))
            else:
                break
        if len(links) > 1:
            return self._operation("and", *links)
        return links[0] if links else left

    def _constants(self) -> list[Node]:
        opening = self.take("(", "[")
        if not opening:
            raise self.refuse("a list, as in ('Cuba', 'India')")
        values: list[Node] = []
        for value in self.sequence(opening, lambda: self.simple("a value")):
            if isinstance(value, Name):
                self.next -= 1
                raise self.refuse("a value", "Text goes in single quotes.")
            values.append(Literal(value))
        if not values:
            self.next -= 1
            raise self.refuse("a value")
        return values

    def _sum(self) -> Node:
        return self._calculated(("+", "-"), lambda: self._calculated(("*", "/"), self._factor))

    def _calculated(self, symbols: tuple[str, ...], read: Callable[[], Node]) -> Node:
        left = read()
        while symbol := self.take(*symbols):
            left = self._operation(symbol, left, read())
        return left

    def _factor(self) -> Node:
        if self.take("-"):
            return self._operation("-", self._nested(self._factor))
        if self.take("+"):
            return self._nested(self._factor)
        if self.take("("):
            inner = self._nested(self.disjunction)
            self.expect(")", "an operator, 'and', 'or' or a closing parenthesis")
            return inner
        return self._atom("a column or a value")

    def _atom(self, expected: str) -> Name | Literal:
        token = self.token
        leaf: Name | Literal
        if token.kind in ("text", "column") and not token.text.isprintable():
            raise self.refuse("printable text")
        if token.kind == "number":
            if not math.isfinite(float(token.text)):
                raise self.refuse("a number that is not as large")
            leaf = Literal(int(token.text) if token.text.isdecimal() else float(token.text))
        elif token.kind == "text":
            leaf = Literal(token.text[1:-1].replace("''", "'"))
        elif token.kind == "column":
            mark = token.text[0]
            leaf = Name(token.text[1:-1].replace(mark * 2, mark), quoted=True)
        elif token.plain in _CONSTANTS:
            leaf = Literal(_CONSTANTS[token.plain])
        elif token.kind == "word" and not token.plain:
            leaf = Name(token.text)
        else:
            raise self.refuse(expected)
        self.next += 1
        return leaf
