"""One operation of a trace, with where the examples lie in its arguments, as the rules want it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tacit.training.isolation.places import MIXED, PUBLIC, Found, Rows
from tacit.training.isolation.recording import Ref
from tacit.training.isolation.unproved import Unproved

_SCHEMAS: dict[Any, tuple[tuple[str, Any], ...]] = {}


class Call:
    """An operation of a trace, its arguments by name, and where the examples lie in them."""

    def __init__(self, entry: Any, place: Callable[[Ref], Found], examples: int) -> None:
        self.func, given, named, self.outs = entry
        self.examples = examples
        self.place = place
        schema = _SCHEMAS.get(self.func)
        if schema is None:
            schema = tuple((each.name, each.default_value) for each in self.func._schema.arguments)
            _SCHEMAS[self.func] = schema
        self.values: dict[str, Any] = dict(schema)
        self.values.update(zip((name for name, _ in schema), given, strict=False))
        self.values.update(named)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def at(self, name: str) -> Found:
        """Where the examples lie in an argument; nowhere in one that was not given."""
        value = self.values[name]
        return self.place(value) if isinstance(value, Ref) else PUBLIC

    def each(self, *names: str) -> list[tuple[Ref, Found]]:
        """The tensors among these arguments, or all, and where the examples lie in each."""
        chosen = [self.values.get(name) for name in names] if names else list(self.values.values())
        flat: list[Any] = []
        for value in chosen:
            flat.extend(value if type(value) is tuple else (value,))
        return [(value, self.place(value)) for value in flat if isinstance(value, Ref)]

    def public(self, *names: str) -> None:
        """These arguments must hold no examples."""
        if any(found != PUBLIC for _, found in self.each(*names)):
            raise Unproved

    def same(self, found: Found) -> list[Found]:
        """Every result has its examples there."""
        return [found] * len(self.outs)


Rule = Callable[[Call], list[Found]]


def combined(rows: Iterable[Rows]) -> Rows:
    """One place for examples that lie at the same one in several tensors."""
    every = list(rows)
    blocks = {each.block for each in every if each.block is not None}
    if len({each.dimension for each in every}) != 1 or len(blocks) > 1:
        raise Unproved
    return Rows(every[0].dimension, blocks.pop() if blocks else None, any(each.data for each in every))


def over(found: Rows) -> str:
    """What comes of adding up, or otherwise joining, examples."""
    if not found.data:
        raise Unproved
    return MIXED


def broadcast(tensors: Iterable[tuple[Ref, Found]], shape: tuple[int, ...]) -> Found:
    """Where the examples lie in what tensors make when broadcast to a shape."""
    rows = []
    for ref, found in tensors:
        if isinstance(found, Rows):
            dimension = found.dimension + len(shape) - len(ref.size)
            if dimension < 0 or shape[dimension] != ref.size[found.dimension]:
                raise Unproved
            rows.append(found._replace(dimension=dimension))
    return combined(rows) if rows else PUBLIC
