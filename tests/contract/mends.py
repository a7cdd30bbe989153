"""The registry of mends: each promise that adversaries once broke, the attack, and its broken twin.

An attack is registered where it is written, in ``tests/adversarial``, with the decorator :func:`mend`. It
returns where the code keeps its promise and raises where the promise is broken. Its twin takes the guard
away, or puts the old code back. ``test_mends.py`` carries out every attack twice: on the code, where it must
fail, and on the twin, where it must succeed. An item without an attack fails the battery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ITEMS: dict[int, str] = {
    1: "state that escapes from a training step",
    2: "examples that mix in a training step",
    3: "a run in which mixing was found has no guarantee",
    4: "training steps that were not paid for",
    5: "a second run on a trained model",
    6: "sums of very many gradients in float32",
    7: "scores of one row that depend on the other rows",
    8: "one row that makes somebody's model fail",
    9: "a solver that gives up on some data",
    10: "one label, row or value of another kind",
    11: "files and tests that claim too much",
    12: "rows that are not the same rows twice",
    13: "two units that become one, or one that becomes two",
    14: "one row that the engine cannot digest",
    15: "intervals that do not hold, messages that quote a row, rounding beyond its allowance",
    16: "a ledger that was emptied, cut or edited",
    17: "an event priced inside the write lock",
}
"""The promises that were broken and mended, numbered as in the list of findings."""

BROKEN = (AssertionError, pytest.fail.Exception)
"""How an attack shows that it got through: an assertion, or an error that was expected and did not come."""


@dataclass(frozen=True)
class Scene:
    """What an attack may use: a folder of its own, patches that are taken back, the fixtures of the tests."""

    path: Path
    patch: pytest.MonkeyPatch
    fixture: Callable[[str], Any]


@dataclass(frozen=True)
class Mend:
    """One attack on one item. ``twin`` takes the mend away; ``shows`` is what the attack raises then."""

    item: int
    name: str
    attack: Callable[[Scene], None]
    twin: Callable[[pytest.MonkeyPatch], None]
    shows: type[BaseException] | tuple[type[BaseException], ...] = BROKEN


MENDS: dict[str, Mend] = {}


def register_mend(made: Mend) -> Mend:
    """Add a mend; the battery carries out its attack from then on."""
    if made.item not in ITEMS:
        raise ValueError(f"{made.item} is not the number of an item")
    if made.name in MENDS:
        raise ValueError(f"a mend called {made.name!r} is registered twice")
    MENDS[made.name] = made
    return made


def mend(
    item: int,
    name: str,
    *,
    twin: Callable[[pytest.MonkeyPatch], None],
    shows: type[BaseException] | tuple[type[BaseException], ...] = BROKEN,
) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Register the function below as the attack on an item."""

    def register(attack: Callable[[Scene], None]) -> Callable[[Scene], None]:
        register_mend(Mend(item, name, attack, twin, shows))
        return attack

    return register


def replacing(target: Any, name: str, value: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """A twin that exchanges one attribute."""
    return lambda patch: patch.setattr(target, name, value)


def without_mend(mends: Iterable[Mend], items: Iterable[int] = ITEMS) -> list[int]:
    """The items that no attack is registered for."""
    return sorted(set(items) - {made.item for made in mends})
