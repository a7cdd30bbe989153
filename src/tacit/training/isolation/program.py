"""The proof that a pass kept its examples apart, from what was written down of it.

Three things are proved of a trace of n examples.

1. Operation by operation, each from the closed table (:mod:`.table`), every loss and every gradient that
   becomes part of an example's own depends on that example and on public values alone.
2. The pass did not depend on how many examples there are: it is, operation for operation, that of two and of
   three examples, of which tiny batches give the traces, with sizes and strides that grow evenly with n
   and all other numbers the same. Hence what an example adds to the sum does not depend on who else was
   drawn. One example alone goes through the same computations; its copies in memory may differ. Tiny batches
   hold zeros, so that no number in a trace can have come from the private rows.
3. Nothing computed from examples was written into memory that outlives the pass, every tensor came from a
   recorded operation or was there before the pass, no operation failed on examples, random numbers came from
   a known state, and no other thread ran.

A trace that was proved once need not be proved again: the same trace is the same computation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from tacit.errors import NotIsolated
from tacit.training.isolation.calls import Call, combined
from tacit.training.isolation.growth import Sized, Trace, even, sizes_of
from tacit.training.isolation.operations import MAKES, overloads, written_refs
from tacit.training.isolation.places import (
    COUNTED,
    MIXED,
    PUBLIC,
    UNCLEAR,
    Found,
    Owned,
    Owner,
    Rows,
    fixed,
    located,
    owning,
    refs,
    within_example,
)
from tacit.training.isolation.recording import OPAQUE, STATE, Recording, Ref
from tacit.training.isolation.table import KEEPING, SIZES
from tacit.training.isolation.unproved import Changed, Unproved

_MOST = 64
_PATIENCE = 3
ADVICE = (
    "Normalise, attend and average within an example only, and keep nothing of a batch; or pass "
    'examples="alone" to the trainer, which computes every example by itself.'
)


def mixed(what: str) -> NotIsolated:
    """The refusal of model and loss that mix examples."""
    return NotIsolated(
        "model and loss", "a computation over several examples",
        f"such that one example does not change {what} of another", ADVICE,
    )  # fmt: skip


class Program:
    """What model and loss do to a batch, whatever its size, as far as it has been proved.

    ``alone``: it could not be, and examples are computed one at a time.
    """

    def __init__(self) -> None:
        self.alone = False
        self._failures = 0
        self._proved: dict[int, Trace] = {}
        self._tiny: dict[int, Trace] = {}

    def prove(self, recording: Recording, examples: int, tiny: Callable[[int], Recording]) -> None:
        """Raise unless the pass just recorded kept its examples apart; ``tiny`` traces so many zeros."""
        if recording.escaped:
            raise _escaped(recording.escaped[0])
        if recording.unknown or recording.disturbed or recording.failed:
            raise Unproved
        trace = recording.trace
        if self._proved.get(examples) == trace:
            return
        try:
            if not self._tiny or not self._fits(trace, examples):
                # What the model does may change with time; the tiny batches are then traced anew, and the
                # uses of its parameters are looked for anew if they may be others.
                if self._proved and _steps(trace) != _steps(next(iter(self._proved.values()))):
                    raise Changed
                self._tiny = {size: _traced(tiny, size) for size in (1, 2, 3)}
                self._proved.clear()
                if _computed(self._tiny[1]) != _computed(self._tiny[2]):
                    self.alone = True
                    raise Unproved
                if not self._fits(trace, examples):
                    self._failures += 1
                    self.alone = self._failures >= _PATIENCE
                    raise Unproved
            sized = sizes_of(self._tiny[2], self._tiny[3])
            _walk(trace, examples, sized)
        except Changed:
            raise
        except Unproved:
            self.alone = self.alone or not self._failures
            raise
        if len(self._proved) >= _MOST:
            self._proved.clear()
        self._proved[examples] = trace

    def _fits(self, trace: Trace, examples: int) -> bool:
        two, three = self._tiny[2], self._tiny[3]
        return len(trace) == len(two) == len(three) and all(
            even(*entries, examples) for entries in zip(two, three, trace, strict=True)
        )


def _traced(tiny: Callable[[int], Recording], size: int) -> Trace:
    """The trace of a tiny batch of zeros; without one, as model or loss fail on zeros, nothing is proved."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            recording = tiny(size)
    except (NotIsolated, Unproved):
        raise
    except Exception as error:
        raise Unproved from error
    if recording.disturbed or recording.failed:
        raise Unproved
    return recording.trace


def _computed(trace: Trace) -> list[Any]:
    """The operations of the way there, without those that only copy or make room, and their plain numbers."""
    found = []
    for entry in trace:
        if entry[0] == "loss":
            break
        if type(entry[0]) is str:
            if entry[0] in ("constant", "trusted"):
                found.append(entry[:2])
        elif entry[0] not in MAKES and entry[0] not in _COPIES:
            loose = SIZES.get(entry[0], ())
            names = [each.name for each in entry[0]._schema.arguments]
            given = [*zip(names, entry[1], strict=False), *entry[2]]
            plain = [each for name, each in given if name not in loose and type(each) in _PLAIN]
            # Products of matrices, or of as many of each, by how their factors lie in memory.
            for part in _PRODUCTS.get(entry[0], (entry[0],)):
                found.append((part, *plain))
    return found


def _steps(trace: Trace) -> list[Any]:
    """What was done, and with which tensors of the model, whatever the numbers and sizes."""
    return [entry[2] if entry[0] == "foreign" and type(entry[2]) is str else entry[0] for entry in trace]


def _escaped(what: str) -> NotIsolated:
    return NotIsolated(
        what, "changed by a forward or backward pass", "the same whatever examples the model sees",
        "It would keep a statistic of the data that no noise covers; keep it out of training. " + ADVICE,
    )  # fmt: skip


class _Walk:
    """Follows a trace, with the owners of every storage as they are at each moment."""

    def __init__(self, examples: int) -> None:
        self.examples = examples
        self.owners: dict[int, Owner] = {}
        self.sized: dict[Ref, Sized] = {}
        self.uniform: set[int] = set()

    def grow(self, ref: Ref) -> tuple[int, ...] | None:
        """The dimensions of a tensor as long as the batch; None where that is unclear."""
        sized = self.sized.get(ref)
        return () if sized is None else sized.grow

    def place(self, ref: Ref) -> Found:
        """Where a tensor has its examples."""
        owner = self.owners.get(ref.number, PUBLIC)
        sized = self.sized.get(ref)
        if isinstance(owner, Owned):
            found = located(owner, self.examples, ref)
            if found is None:
                raise Unproved
            if sized is not None:
                part = within_example(owner, self.examples, ref)
                if not part == within_example(owner, 2, sized.two) == within_example(owner, 3, sized.three):
                    raise Unproved
            return found
        if owner == PUBLIC:
            grow = self.grow(ref)
            if grow is None or len(grow) > 1:
                raise Unproved
            if sized is None or ref.number in self.uniform:
                same = True
            else:
                same = fixed(ref) == fixed(sized.two) == fixed(sized.three)
            if not same:
                raise Unproved
            return Rows(grow[0], None, False) if grow else PUBLIC
        return owner

    def entry(self, entry: Any) -> None:
        what = entry[0]
        if type(what) is not str:
            self._operation(entry)
        elif what == "data":
            owned = owning(Rows(0, 1), self.examples, entry[1]) if entry[1].size else None
            if owned is None:
                raise Unproved
            self.owners[entry[1].number] = owned
        elif what == "constant":
            if self.grow(entry[2][0]) != ():
                self.owners[entry[2][0].number] = UNCLEAR
        elif what == "trusted":
            self._trusted(entry)
        elif what == "foreign":
            if entry[2] == STATE:
                self.owners[entry[1]] = UNCLEAR
        else:
            for ref, dimension in entry[1]:
                self.check(what, ref, dimension)

    def check(self, what: str, ref: Ref, dimension: int) -> None:
        """The examples of this tensor must lie along this dimension."""
        if ref.size[dimension] != self.examples:
            raise Unproved
        found = self.place(ref)
        if found == MIXED:
            raise mixed(f"the {what}")
        if found in (COUNTED, UNCLEAR):
            raise Unproved
        if isinstance(found, Rows) and (found.dimension != dimension or found.block not in (1, None)):
            raise Unproved

    def _trusted(self, entry: Any) -> None:
        _, _, given, outs = entry
        rows: list[Rows] = []
        mix = False
        for ref, dimension in filter(None, given):
            found = self.place(ref)
            if isinstance(found, Rows):
                if found.dimension != dimension:
                    raise Unproved
                rows.append(found._replace(dimension=0))
            elif found == MIXED:
                mix = True
            elif found != PUBLIC:
                raise Unproved
        place = combined(rows) if rows else None
        for ref, dimension in filter(None, outs):
            self._put(ref, MIXED if mix else place._replace(dimension=dimension) if place else PUBLIC)

    def _operation(self, entry: Any) -> None:
        func, given, named, outs = entry
        if OPAQUE in given or OPAQUE in outs:
            raise Unproved
        if func in MAKES:
            self._make(func, given, outs)
            return
        tensors = refs((given, named))
        places = [self.place(each) for each in tensors]
        if not outs and any(each == MIXED or (isinstance(each, Rows) and each.data) for each in places):
            raise Unproved
        told = torch.Tag.dynamic_output_shape in func.tags or func in _SIZED_BY_VALUES
        if MIXED in places and (func.namespace != "aten" or told):
            raise Unproved  # How large a result is, or a number beside it, would tell what was mixed.
        if MIXED in places:
            results: list[Found] = [MIXED] * len(outs)
        elif all(each == PUBLIC for each in places):
            results = [self._repeated(func, each) for each in outs]
        elif UNCLEAR in places or (COUNTED in places and "index" not in func._schema.name):
            if any(isinstance(each, Rows) and each.data for each in places):
                raise Unproved
            results = [UNCLEAR] * len(outs)
        else:
            rule = KEEPING.get(func)
            if rule is None:
                raise Unproved
            results = rule(Call(entry, self.place, self.examples))
        for ref, found in zip(outs, results, strict=True):
            if ref is not None:
                self._put(ref, found, within=ref.number in {each.number for each in tensors})
        self._written(entry, outs, results)

    def _written(self, entry: Any, outs: Any, results: list[Found]) -> None:
        """What is written into must be what comes out, or nobody can tell what it holds."""
        numbers = {each.number for each in outs if each is not None}
        for ref in written_refs(entry):
            if ref.number not in numbers and any(found != PUBLIC for found in results):
                raise Unproved

    def _make(self, func: Any, given: Any, outs: Any) -> None:
        for ref in outs:
            if self.grow(ref) == ():
                self.owners[ref.number] = PUBLIC
            elif func in _IN_ORDER and ref.size == (self.examples,) and _plain_range(func, given):
                self.owners[ref.number] = COUNTED
            elif func in _UNIFORM:
                self.owners[ref.number] = PUBLIC
                self.uniform.add(ref.number)
            else:
                self.owners[ref.number] = UNCLEAR

    def _repeated(self, func: Any, out: Ref | None) -> Found:
        """What is made of public tensors: public, and as often as there are examples if it was repeated."""
        grow = self.grow(out) if out is not None else ()
        return Rows(grow[0], None, False) if func is _aten.repeat.default and grow else PUBLIC

    def _put(self, ref: Ref, found: Found, *, within: bool = False) -> None:
        """Note what a result holds; ``within`` a storage that was there already."""
        before = self.owners.get(ref.number, PUBLIC) if within else PUBLIC
        if within and MIXED in (before, found):
            self.owners[ref.number] = MIXED
        elif isinstance(found, Rows):
            if not found.data and found.block is None:
                # The same for all examples, so that any of its parts may be called theirs.
                found = found._replace(block=max(1, ref.size[found.dimension] // self.examples))
            owned = owning(found, self.examples, ref)
            if owned is None or before in (COUNTED, UNCLEAR):
                raise Unproved
            if isinstance(before, Owned):
                if before.stride != owned.stride:
                    raise Unproved
                owned = Owned(owned.stride, before.data or owned.data)
            self.owners[ref.number] = owned
        elif not within or found != PUBLIC:
            self.owners[ref.number] = found if not within else UNCLEAR
        elif ref.number in self.uniform and before == PUBLIC:
            # Something was written at one place of many alike.
            self.owners[ref.number] = UNCLEAR


def _walk(trace: Trace, examples: int, sized: list[list[Sized]]) -> None:
    walk = _Walk(examples)
    for entry, row in zip(trace, sized, strict=True):
        every = refs(entry)
        walk.sized = dict(zip(every, row, strict=True))
        if any(walk.sized[ref] != each for ref, each in zip(every, row, strict=True)):
            raise Unproved
        walk.entry(entry)


_aten = torch.ops.aten
_PLAIN = (int, float, bool, str)
_COPIES = {_aten.clone.default, _aten.copy_.default, _aten._to_copy.default}
_PRODUCTS = {
    **dict.fromkeys((_aten.mm.default, _aten.bmm.default), ("product",)),
    **dict.fromkeys((_aten.addmm.default, _aten.baddbmm.default), ("product", _aten.add.Tensor)),
}
_SIZED_BY_VALUES = overloads("_pack_padded_sequence _ctc_loss segment_reduce _nested_tensor_from_mask")
_IN_ORDER = {_aten.arange.default, _aten.arange.start, _aten.arange.start_step}
_UNIFORM = {
    each
    for each in MAKES
    if each._schema.name.partition("::")[2].replace("new_", "").replace("_like", "").replace("_strided", "")
    in ("zeros", "ones", "empty", "full", "rand", "randn", "randint", "empty_permuted")
}
"""Tensors of which all entries are the same, or drawn independently from one distribution."""


def _plain_range(func: Any, given: Any) -> bool:
    """Whether a range is 0, 1, 2 …"""
    numbers = [each for each in given if isinstance(each, int | float)]
    if func is _aten.arange.default:
        return True
    return numbers[0] == 0 and (len(numbers) < 3 or numbers[2] == 1)
