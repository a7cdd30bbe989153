"""Work that is paid for as a whole and done in steps: each step is paid for once, and taken once.

A training run is charged for at its start and takes its steps later, perhaps in several processes one after
the other, from files that can be copied. Its entries say which steps [first, last) they pay for, and which
they take. The ledger compares each with all earlier ones of the same run in the transaction that
writes it, so that of two processes that want the same step only one gets it, and none gets a step that
nobody has paid for.

>>> begun = Work("run", paid=(0, 100), taken=(0, 10))
>>> conflict(Work("run", taken=(10, 20)), [begun]), conflict(Work("run", taken=(5, 15)), [begun])
(None, 'steps 5 to 14 were taken already, in part or in whole')
>>> conflict(Work("run", taken=(95, 105)), [begun])
'steps 95 to 104 were not paid for'
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Span", "Work", "conflict", "held", "known_here", "take_here"]

Span = tuple[int, int]


@dataclass(frozen=True)
class Work:
    """What an entry says about the steps [first, last) of a run, known by a name that is drawn at random.

    ``paid``: the entry pays for them. ``taken``: they may be taken from now on, by whoever made this entry.
    ``back``: they were taken by an earlier entry, and whoever made it neither did nor will take
    them. ``place`` tells apart the files a run goes on from.
    """

    run: str
    paid: Span | None = None
    taken: Span | None = None
    back: Span | None = None
    place: str | None = None

    def said(self) -> dict[str, Any]:
        """What there is to say, the run first."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, text: str) -> Work | None:
        """The work in the details of an entry, if any; ValueError, TypeError or KeyError if they are none."""
        said = json.loads(text)
        if "run" not in said:
            return None
        spans = {name: _span(said.get(name)) for name in ("paid", "taken", "back")}
        return cls(run=said["run"], place=said.get("place"), **spans)


def _span(value: list[int] | None) -> Span | None:
    if value is None:
        return None
    first, last = map(int, value)
    return first, last


def held(works: Iterable[Work]) -> tuple[list[Span], list[Span]]:
    """Steps that are paid for, and steps that are taken and not given back."""
    paid: list[Span] = []
    taken: list[Span] = []
    for work in works:
        paid += [work.paid] if work.paid else []
        taken += [work.taken] if work.taken else []
        if work.back:
            taken = _without(taken, work.back)
    return paid, taken


def conflict(work: Work, earlier: Iterable[Work]) -> str | None:
    """Why these steps may not be paid for, taken or given back after what was written earlier, if so."""
    paid, taken = held(earlier)
    if work.paid:
        if _meets(work.paid, paid):
            return f"{_named(work.paid)} were paid for already, in part or in whole"
        paid.append(work.paid)
    if work.taken:
        if _meets(work.taken, taken):
            return f"{_named(work.taken)} were taken already, in part or in whole"
        if not _covered(work.taken, paid):
            return f"{_named(work.taken)} were not paid for"
    if work.back and not _covered(work.back, taken):
        return f"{_named(work.back)} were not taken"
    return None


_HERE: dict[str, list[Work]] = {}
"""What runs without a ledger have paid for and taken in this process, by run."""
_TURN = threading.Lock()


def take_here(work: Work) -> str | None:
    """Note the work of a run that has no ledger, for this process; or why it may not be done, if so."""
    with _TURN:
        earlier = _HERE.setdefault(work.run, [])
        problem = conflict(work, earlier)
        if problem is None:
            earlier.append(work)
        return problem


def known_here(begun: Work) -> list[Work]:
    """What a run that has no ledger did in this process; ``begun``, which its file tells, if nothing."""
    with _TURN:
        return list(_HERE.setdefault(begun.run, [begun]))


def _named(span: Span) -> str:
    return f"steps {span[0]} to {span[1] - 1}"


def _meets(span: Span, spans: list[Span]) -> bool:
    return any(max(span[0], each[0]) < min(span[1], each[1]) for each in spans)


def _without(spans: list[Span], removed: Span) -> list[Span]:
    cut = [
        part
        for first, last in spans
        for part in ((first, min(last, removed[0])), (max(first, removed[1]), last))
    ]
    return [part for part in cut if part[0] < part[1]]


def _covered(span: Span, spans: list[Span]) -> bool:
    left = [span]
    for each in spans:
        left = _without(left, each)
    return not left
