"""The chain: records whose hashes cover all their content and the record before.

One chain runs through the whole ledger, whatever the dataset. It opens with the terms of the
first dataset, so that an altered budget breaks it like any other alteration.

What the chain proves: given its head (how many records, and the hash of the last), no record
before it can be changed, removed, added or moved without being found. What it cannot prove:
someone who can write the database can compute a new chain from the beginning, head included.
Against that there is one remedy, which needs no secret: write the head down elsewhere (in a
paper, a log book, a public page) and hand it to ``Ledger.verify``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.accounting import filters
from tacit.errors import InvalidValue
from tacit.guarantee import NOISE_KINDS
from tacit.ledger.budget import Terms
from tacit.ledger.totals import Total

__all__ = ["ORIGIN", "Broken", "DatasetState", "Record", "Replay", "ScopeState", "head_of", "worse_noise"]

ORIGIN = "0" * 64
"""What the first record names as the hash of the one before."""

HEAD_DIGITS = 32


class Broken(Exception):
    """The chain does not hold; ``number`` is the record where it was found, if one is to blame."""

    def __init__(self, problem: str, number: int | None = None) -> None:
        super().__init__(problem)
        self.number = number


@dataclass(frozen=True)
class Record:
    """One row of the entries table, in the types the database stores.

    ``kind`` is ``"dataset"`` (``details`` are its terms), ``"scope"`` (``details`` are its
    partitions) or ``"charge"``.
    """

    number: int
    kind: str
    dataset: str
    time: str
    version: str
    previous: str
    label: str | None = None
    scope: str | None = None
    partition: str | None = None
    event: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    renyi: float | None = None
    renyi_delta: float | None = None
    mode: str | None = None
    declared_delta: float | None = None
    noise: str | None = None
    details: str | None = None

    def to_json(self) -> str:
        """Canonical JSON of the whole content: one line, keys sorted, infinity as ``"inf"``.

        Minus zero is written as zero, since not every database keeps the sign.
        """
        content = {name: _plain(value) for name, value in vars(self).items()}
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)

    def hash(self) -> str:
        """SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def cost(self) -> filters.Cost:
        """What the filter counted for this charge."""
        parts = (self.epsilon, self.delta, self.renyi, self.renyi_delta)
        if any(not isinstance(part, float) or not part >= 0 for part in parts):
            raise ValueError(f"{parts} is not a cost")
        return filters.Cost(*parts)  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return "inf" if value == math.inf else value + 0.0


def head_of(count: int, digest: str) -> str:
    """The head in the short form that people write down: ``count:hash``, 128 bits of it."""
    return f"{count}:{digest[:HEAD_DIGITS]}"


def worse_noise(one: str, other: str) -> str:
    """The weaker promise of two kinds of noise."""
    return max(one, other, key=NOISE_KINDS.index)


@dataclass
class ScopeState:
    """A parallel scope: its declared partitions, and what each was charged."""

    partitions: tuple[str, ...]
    totals: dict[str, Total] = field(default_factory=dict)

    def worst(self, relation: str) -> filters.Cost:
        """What the scope costs as a whole, when no unit is in two partitions."""
        return filters.worst([total.cost() for total in self.totals.values()], relation)


@dataclass
class DatasetState:
    """Where a dataset stands: its terms, how it is counted, and its running totals."""

    terms: Terms
    mode: str | None = None
    noise: str = NOISE_KINDS[0]
    charges: int = 0
    sequential: Total = field(default_factory=Total)
    scopes: dict[str, ScopeState] = field(default_factory=dict)

    def add(self, cost: filters.Cost, scope: str | None, partition: str | None) -> None:
        """Count a charge."""
        if scope is None:
            self.sequential += cost
        else:
            totals = self.scopes.setdefault(scope, ScopeState(())).totals
            totals[str(partition)] = totals.get(str(partition), Total()) + cost

    def total(self) -> Total:
        """The sequential total and that of every scope."""
        total = self.sequential
        for scope in self.scopes.values():
            total += scope.worst(self.terms.relation)
        return total


@dataclass
class Replay:
    """The state of a ledger recomputed from its records alone, checking each as it comes."""

    count: int = 0
    last: str = ORIGIN
    datasets: dict[str, DatasetState] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], head: str | None = None) -> Replay:
        """Replay ``rows``, which must be in order; raises :class:`Broken` at the first fault.

        ``head``, if given, is a head written down earlier, which the chain must pass through.
        """
        replay = cls()
        wanted, digits = _parse_head(head)
        for row in rows:
            replay._append(row)
            if replay.count == wanted and not replay.last.startswith(digits):
                raise Broken(f"Entry {wanted} is not the one whose head was written down.", wanted)
        if replay.count < wanted:
            raise Broken(f"The head written down counts {wanted} entries; {replay.count} are left.")
        return replay

    def _append(self, row: Mapping[str, Any]) -> None:
        number = self.count + 1
        content = {name: value for name, value in row.items() if name != "hash"}
        record = Record(**content)
        if record.number != number:
            raise Broken(f"Entry {number} is missing.", number)
        try:
            digest = record.hash()
        except (TypeError, ValueError):
            raise Broken(f"Entry {number} holds values no ledger writes.", number) from None
        if digest != row["hash"]:
            raise Broken(f"Entry {number} has been edited: its content does not match its hash.", number)
        if record.previous != self.last:
            raise Broken(f"Entry {number} does not follow entry {number - 1}: the chain is broken.", number)
        try:
            self._apply(record)
        except (TypeError, ValueError, KeyError) as error:
            raise Broken(f"Entry {number} ({record.kind}) makes no sense: {error}.", number) from error
        self.count, self.last = number, digest

    def _apply(self, record: Record) -> None:
        if record.kind == "dataset":
            if record.dataset in self.datasets:
                raise ValueError(f"dataset {record.dataset!r} is opened twice")
            self.datasets[record.dataset] = DatasetState(Terms.from_json(str(record.details)))
            return
        dataset = self.datasets[record.dataset]
        if record.kind == "scope":
            if record.scope is None or record.scope in dataset.scopes:
                raise ValueError(f"scope {record.scope!r} is declared twice")
            partitions = json.loads(str(record.details))["partitions"]
            dataset.scopes[record.scope] = ScopeState(tuple(partitions))
        elif record.kind == "charge":
            self._charge(dataset, record)
        else:
            raise ValueError("unknown kind")

    def _charge(self, dataset: DatasetState, record: Record) -> None:
        rule = dataset.terms.filter or dataset.mode
        if rule not in (None, record.mode):
            raise ValueError(f"counted by the {record.mode} filter in a {rule} dataset")
        if record.scope is not None and record.partition not in dataset.scopes[record.scope].partitions:
            raise ValueError(f"{record.partition!r} is no partition of {record.scope!r}")
        dataset.add(record.cost(), record.scope, record.partition)
        dataset.mode = record.mode
        dataset.noise = worse_noise(dataset.noise, str(record.noise))
        dataset.charges += 1


def _parse_head(head: str | None) -> tuple[int, str]:
    if head is None:
        return 0, ""
    count, _, digits = head.strip().partition(":")
    if not count.isdecimal() or len(digits) != HEAD_DIGITS:
        raise InvalidValue("head", head, "what Ledger.head gave, such as '12:' and 32 digits")
    return int(count), digits
