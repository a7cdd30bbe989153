"""What a model has cost already: the private runs that its weights come from.

A run that goes on from the weights of an earlier one on the same people releases, together with it, the
composition of both, so its guarantee covers both. A run is known by the number that its account drew at
random, so that none counts twice, and the events of all runs are composed as one. The runs of a model are
found

- by the parameter: whatever is done to it in place, and in whatever model it is used (:func:`mark`);
- by the module that holds it: a copy or a pickle of the model takes the mark along;
- by content: weights that were released in this process are recognised by a few of their numbers,
  however they were carried from one model into another (:class:`Trace`);
- by the file: :func:`tacit.save` and checkpoints write the runs down, and loading marks the model.

They are looked for when a run begins, before each of its steps, at its end, and whenever its guarantee is
asked for: a callback may train the same model by another trainer, or load other weights into it, and a
later run may go on with the model. Runs whose steps alternate cost no more than runs one after the other,
since each step is private given all that was released before it (concurrent composition, Vadhan and Zhang
2023).

Two kinds of weights cannot be followed, and every guarantee assumes that there are none: weights that left
the process by other means than these files, and weights that were copied and then changed.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from array import array
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from tacit import accounting, events
from tacit.errors import InvalidValue, UnsupportedEvent
from tacit.guarantee import NOISE_KINDS, Guarantee
from tacit.relations import Relation
from tacit.training.parallel import sharding

EARLIER = ("composed", "disjoint")
OTHER_PEOPLE = "the earlier runs on this model saw none of these people"
"""What is assumed where a run was declared to be on other people than those before it."""
_ATTRIBUTE = "_tacit_past"
_NUMBERS = 8
_TELLING = ("parameters", "buffers", "named_parameters", "named_buffers", "_named_members")


@dataclass(frozen=True)
class Run:
    """A private run, with the numbers of the runs ``before`` it that its first weights came from.

    ``alone`` is its guarantee if those first weights were public. ``disjoint``: it was declared that nobody
    in this run was in one of the runs before. ``steps`` counts the steps that were paid for when this was
    noted: of two notes about one run, the one with more steps is the later one.
    """

    number: str
    alone: Guarantee
    before: tuple[str, ...] = ()
    disjoint: bool = False
    steps: int = 0

    def to_json(self) -> str:
        """One line of JSON."""
        alone = json.loads(self.alone.to_json())
        return json.dumps([self.number, alone, self.before, self.disjoint, self.steps])

    @classmethod
    def from_json(cls, text: str) -> Run:
        """The run that ``text`` describes."""
        number, alone, before, disjoint, *more = json.loads(text)
        guarantee = Guarantee.from_json(json.dumps(alone))
        return cls(str(number), guarantee, tuple(before), bool(disjoint), int(more[0]) if more else 0)


_RUNS: dict[str, Run] = {}
_MARKED: MutableMapping[Tensor, frozenset[str]] = WeakIdKeyDictionary()
_RELEASED: dict[str, array[int]] = {}
_VOID: set[str] = set()
_READ: set[str] = set()


def packed(runs: Iterable[Run]) -> str:
    """Runs as text, for a file."""
    return json.dumps([run.to_json() for run in runs])


def unpacked(text: str) -> tuple[Run, ...]:
    """The runs that :func:`packed` wrote, remembered from now on."""
    return known(map(Run.from_json, json.loads(text)))


def known(runs: Iterable[Run]) -> tuple[Run, ...]:
    """All that is known about the same runs, remembered for as long as the process lives."""
    found = []
    for run in runs:
        newest = _joined(_RUNS.get(run.number, run), run)
        found.append(_voided(newest) if is_void(run.number) else newest)
        _RUNS[run.number] = found[-1]
    return tuple(found)


def _joined(old: Run, new: Run) -> Run:
    """Two notes about one run as one: the cost of the later note, and the runs before it of both."""
    later = old if old.steps > new.steps else new
    before = tuple(dict.fromkeys((*old.before, *new.before)))
    return replace(later, before=before, disjoint=old.disjoint and new.disjoint)


def oldest_first(runs: Iterable[Run], mine: Run) -> tuple[Run, ...]:
    """The run ``mine`` as it is given, and the others as they are known by now, in order, each once."""
    found = {run.number: run for run in known(runs)} | {mine.number: mine}
    return tuple(found[number] for number in _RUNS.copy() if number in found)


def mark(model: nn.Module, runs: Iterable[Run]) -> None:
    """Note that the weights of a model come from these runs."""
    found = {run.number: run.to_json() for run in known(runs)}
    for each in _held(model):
        _MARKED[each] = _MARKED.get(each, frozenset()) | found.keys()
    for module in model.modules():
        if module._parameters or module._buffers:
            with suppress(AttributeError, RuntimeError):
                setattr(module, _ATTRIBUTE, {**getattr(module, _ATTRIBUTE, {}), **found})


def of(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> tuple[Run, ...]:
    """The runs that the weights of a model, or the state of its optimiser, come from, oldest first."""
    held = [*_held(model), *state_of(optimizer)]
    return _with_before(_marks(model, held) | _by_content(held))


def marked(model: nn.Module) -> tuple[Run, ...]:
    """The runs that a model is marked with; if there are none, those that its content tells."""
    return _with_before(_marks(model, list(_held(model)))) or of(model)


def _marks(model: nn.Module, held: Iterable[Tensor]) -> set[str]:
    numbers: set[str] = set()
    for module in model.modules():
        for number, text in getattr(module, _ATTRIBUTE, {}).items():
            if number not in _RUNS or text not in _READ:
                known([Run.from_json(text)])
                _READ.add(text)
            numbers.add(number)
    for each in held:
        numbers |= _MARKED.get(each, frozenset())
    return numbers


def _by_content(held: Iterable[Tensor], mine: str = "") -> set[str]:
    """The runs that released these weights; weights that the run ``mine`` released come from no other."""
    prints = np.array([made for made in map(_print, held) if made is not None], np.uint64)
    found = {run: np.isin(prints, np.array(seen, np.uint64)) for run, seen in _RELEASED.copy().items()}
    numbers: set[str] = set()
    for place in range(len(prints)):
        runs = [run for run, seen in found.items() if seen[place]]
        if mine in runs:
            continue
        # Runs with one seed release the same weights, of which any run may be the source.
        numbers |= set(runs[-1:] if all(_RUNS[run].alone.noise == "seeded" for run in runs) else runs)
    return numbers


def _with_before(numbers: set[str]) -> tuple[Run, ...]:
    for number in list(numbers):
        numbers |= set(_RUNS[number].before)
    return tuple(run for number, run in _RUNS.copy().items() if number in numbers)


def composed(runs: Iterable[Run], delta: float) -> Guarantee:
    """What may be promised, at this δ where possible, about weights that come from these runs.

    Runs on the same people compose. A run that was declared to be on other people than all runs before it
    composes in parallel with them. Where no accountant can price the composed event at δ, the ε and the δ of
    the runs are added up.
    """
    first, *later = runs
    event, before = first.alone.event, {first.number}
    apart: tuple[str, ...] = ()
    parts = [first.alone]
    for run in later:
        if run.disjoint and before <= set(run.before):
            event = events.Parallel((event, run.alone.event))
            apart = (OTHER_PEOPLE,)
        else:
            event = events.Compose((*_flat(event), run.alone.event))
        before.add(run.number)
        parts.append(run.alone)
    try:
        epsilon = _epsilon(event, delta, first.alone.relation)
    except UnsupportedEvent:
        epsilon = math.inf
    if any(math.isinf(part.epsilon) for part in parts):
        epsilon = math.inf
    elif math.isinf(epsilon):
        epsilon = math.fsum(part.epsilon for part in parts)
        delta = min(1.0, math.fsum(part.delta for part in parts))
    return Guarantee(
        epsilon, delta, event, first.alone.relation, first.alone.unit,
        max((part.noise for part in parts), key=NOISE_KINDS.index),
        tuple(dict.fromkeys((*(text for part in parts for text in part.assumptions), *apart))),
    )  # fmt: skip


@functools.lru_cache(1 << 8)
def _epsilon(event: events.Event, delta: float, relation: Relation) -> float:
    """A run that asks for its ε again and again asks for the same one."""
    return accounting.epsilon(event, delta, relation=relation)


def void(model: nn.Module, number: str) -> None:
    """Note that a run has lost its guarantee, and with it all weights that come from it."""
    _VOID.add(number)
    mark(model, [_RUNS[number]])


def is_void(number: str) -> bool:
    """Whether a run was found, in this process, to have no guarantee."""
    return number in _VOID


def _voided(run: Run) -> Run:
    return replace(run, alone=replace(run.alone, epsilon=math.inf))


def check(runs: Iterable[Run], like: Guarantee) -> None:
    """Refuse runs under another relation or of another unit: their cost together cannot be stated."""
    for run in runs:
        if (run.alone.relation, run.alone.unit) != (like.relation, like.unit):
            raise InvalidValue(
                "plan", f"{like.relation} of one {like.unit}",
                f"for {run.alone.relation} of one {run.alone.unit}, as an earlier run on this model",
                "The cost of both together can be stated only under one relation and for one unit.",
            )  # fmt: skip


def _flat(event: events.Event) -> tuple[events.Event, ...]:
    return event.events if isinstance(event, events.Compose) else (event,)


class Trace:
    """Notes the weights that a run releases at each step, as fingerprints of a few of their numbers.

    It also notices what other code has put into the model since (:meth:`arrived`).
    """

    def __init__(self, number: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._number, self._model, self._optimizer = number, model, optimizer
        self._seen = _RELEASED.setdefault(number, array("Q"))
        self._watched = [each for each in model.parameters() if each.requires_grad]
        self._left = {each: _print(each) for each in _held(model)}
        self._start = set(self._left.values())
        self._kept = self._versions()

    def note(self, more: Iterable[Tensor] = ()) -> None:
        """Note the weights as they are now, except those that are still as they were at the start."""
        for each in self._watched:
            self._left[each] = _print(each)
        for made in (*(self._left[each] for each in self._watched), *map(_print, more)):
            if made is not None and made not in self._start:
                self._seen.append(made)
        self._kept = self._versions()

    def arrived(self) -> tuple[Run, ...]:
        """The runs that the model is marked with, and those whose weights came into it after the last note.

        Weights are looked up by content where a tensor is another, or holds other numbers, than at the last
        note; tensors of the optimiser where they are others or were written to.
        """
        held = list(_held(self._model))
        changed = [each for each in held if each not in self._left or _print(each) != self._left[each]]
        kept = self._versions()
        changed += [each for each, version in kept.items() if self._kept.get(each) != version]
        return _with_before(_marks(self._model, held) | _by_content(changed, self._number))

    def _versions(self) -> dict[Tensor, int]:
        return {each: each._version for each in state_of(self._optimizer)}


def _held(model: nn.Module) -> Iterator[Tensor]:
    """The parameters and buffers of a model, each once, also those that only its own methods tell of."""
    seen: set[int] = set()
    asked = () if _usual(model) else (*model.parameters(), *model.buffers())
    registered = (
        each
        for _, module in model.named_modules()
        for each in (*module._parameters.values(), *module._buffers.values())
    )
    for each in itertools.chain(registered, asked):
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each


def _usual(model: nn.Module) -> bool:
    """Whether a model tells of its parameters and buffers as every module does: of the registered ones."""
    return all(
        getattr(getattr(model, name, None), "__func__", None) is getattr(nn.Module, name) for name in _TELLING
    )


def state_of(optimizer: torch.optim.Optimizer | None) -> Iterator[Tensor]:
    """The tensors that an optimiser keeps."""
    states: Iterable[dict[str, Any]] = () if optimizer is None else optimizer.state.values()
    for state in states:
        yield from (each for each in state.values() if isinstance(each, Tensor))


def _print(values: Tensor) -> int | None:
    """A fingerprint of a tensor from a few of its entries; None where these entries are all alike."""
    if sharding.is_shard(values) or values.numel() < 2 or values.is_meta:
        return None
    some = values.detach().take(_places(values.numel(), values.device)).tolist()
    if len(set(some)) < 2 or any(each != each for each in some):
        return None
    return hash((*values.shape, *some)) & 0xFFFF_FFFF_FFFF_FFFF


@functools.lru_cache(1 << 10)
def _places(numbers: int, device: torch.device) -> Tensor:
    places = torch.linspace(0, numbers - 1, min(_NUMBERS, numbers), dtype=torch.float64)
    return places.round().long().to(device)
