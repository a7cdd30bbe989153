"""A pass of model and loss, written down operation by operation while it runs.

:class:`Recording` sits below autograd, so that it sees what is computed by whatever road it came: layers,
functions, hooks, functions with a backward of their own, activations computed again on the way back. It
notes every operation with the storage, offset, sizes and strides of each tensor; views need no note, since
the geometry of a tensor says which part of its storage it is.

It does five things at once, for every pass over private rows, provable or not:

- what is written into memory that was there before the pass (parameters, buffers, attributes, inputs; under
  ``no_grad``, through ``.data`` or another alias) is put back when the pass ends;
- a tensor computed from an earlier pass's examples, kept somewhere and used again, is refused;
- with ``reading`` refused, values of the examples do not leave PyTorch for Python;
- a tensor of unknown origin is noted: one that no recorded operation made and that neither model nor loss
  held before the pass. It may have been computed by operations that were not recorded;
- what leaves the recorded thread is refused or noted (:mod:`.confinement`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.errors import NotIsolated
from tacit.training.isolation.confinement import Confinement, no_dispatch_modes, no_function_modes
from tacit.training.isolation.operations import KINDS, kind, written
from tacit.training.isolation.unproved import Unproved

_SMALL = 1 << 12
_LEAVING = {
    "numpy", "tolist", "__array__", "__dlpack__", "data_ptr", "const_data_ptr", "mutable_data_ptr",
    "untyped_storage", "storage", "_typed_storage", "__reduce_ex__", "__reduce__", "__deepcopy__", "apply_",
    "map_", "map2_", "share_memory_", "__cuda_array_interface__", "custom_function_call",
}  # fmt: skip
# Functions that make a tensor of Python's values, and read, unseen by the dispatcher, those of tensors in it.
_MAKING = {"tensor", "as_tensor", "asarray", "new_tensor", "scalar_tensor", "sparse_coo_tensor"}
_COPYING = {"tensor", "as_tensor", "asarray"}
_NUMBERS = (
    bool, int, float, complex, str, range, type(None), np.generic, torch.dtype, torch.device, torch.layout,
)  # fmt: skip
# Functions that read, likewise, whole numbers as places or lengths.
_SIZING = {"tensor_split", "ctc_loss", "lstm", "gru", "rnn_tanh", "rnn_relu", "_pad_packed_sequence"}

# Storages computed from examples that outlived their pass: used again, they carry examples into another.
_OUTLIVED: dict[int, StorageWeakRef] = {}
# Storages that recorded operations computed from public values, and that outlived their pass, as caches do.
_PUBLIC: dict[int, StorageWeakRef] = {}
_CLEANED = {"again at": 256}
_ACTIVE = threading.local()

Place = tuple[Tensor | None, int]


class Ref(NamedTuple):
    """A tensor as an operation saw it: the number of its storage, and where in it the tensor lies."""

    number: int
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


_tuple: Callable[..., Ref] = tuple.__new__
# What PyTorch itself says of a tensor; a subclass, or methods put in their place, may say something else.
_base: Any = torch._C.TensorBase
storage_of: Callable[[Tensor], Any] = _base.untyped_storage
size_of: Callable[[Tensor], torch.Size] = _base.size
dtype_of: Callable[[Tensor], torch.dtype] = _base.dtype.__get__
version_of: Callable[[Tensor], int] = _base._version.__get__
detached: Callable[[Tensor], Tensor] = _base.detach
is_contiguous: Callable[..., bool] = _base.is_contiguous
_offset, _stride, _layout = _base.storage_offset, _base.stride, _base.layout.__get__
_STRIDED = torch.strided
_LIFT = torch.ops.aten.lift_fresh.default
_PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format})
_GENERATOR = len(torch.get_rng_state())
STATE = b"the state of a generator"
"""Stands for the numbers of a tensor that may be a generator's state, another one each time."""
OPAQUE = "a tensor without strides"
"""Stands for a tensor that lies nowhere, as sparse ones, and for other things that cannot be compared."""


def _state(generator: torch.Generator) -> bytes:
    return generator.get_state().numpy().tobytes()


def active() -> Recording | None:
    """The recording under way in this thread."""
    return getattr(_ACTIVE, "recording", None)


def _forget_expired() -> None:
    """Drop references to storages that are gone, once there are twice as many as were left the last time.

    A reference keeps the address of its storage from being used again, so that a late clean-up harms nothing.
    """
    if len(_OUTLIVED) + len(_PUBLIC) < _CLEANED["again at"]:
        return
    for kept in (_OUTLIVED, _PUBLIC):
        for key in [key for key, each in kept.copy().items() if each.expired()]:  # type: ignore[no-untyped-call]
            kept.pop(key, None)
    _CLEANED["again at"] = 2 * (len(_OUTLIVED) + len(_PUBLIC)) + 256


class Recording(TorchDispatchMode):
    """Writes down, within, what is done; ``data`` are the tensors that hold one entry for each example.

    Without ``reading``, values of the examples do not leave PyTorch. ``resumed``: what an earlier pass
    computed is used on purpose, as its graph is on the way back. ``held`` tells the storages that model and
    loss held before the pass; ``others`` are those of examples that the pass must not see.

    ``unknown``: a tensor, or a state of a generator of random numbers, of unknown origin was used.
    ``failed``: an operation failed on examples, which tells Python something of them. ``disturbed``: another
    thread ran during the pass.
    """

    def __init__(
        self, data: Iterable[Tensor], names: Mapping[int, str], *, reading: bool = True,
        resumed: bool = False, held: Callable[[int], bool] | None = None, others: Container[int] = (),
    ) -> None:  # fmt: skip
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace: list[Any] = []
        self.escaped: list[str] = []
        self.unknown = self.failed = False
        self._names, self._resumed = names, resumed
        self._known, self._others = held, others
        self._confinement = Confinement(reading=reading)
        self._numbers: dict[int, int] = {}
        self._tainted: list[bool] = []
        self._foreign: dict[int, str] = {}
        self._touched = False
        self._held = _Weak()
        self._saved: dict[int, tuple[Tensor, Tensor]] = {}
        self._marked: list[tuple[Ref, int]] = []
        self._reading = None if reading else _Reading(self)
        for each in data:
            storage = storage_of(each)
            if storage._cdata not in self._numbers:
                self._foreign[self._new(storage, tainted=True)] = "inputs and targets"
            self.trace.append(("data", self.ref(each)))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # Nothing runs compiled here, and to import the compiler takes a second.

    def __enter__(self) -> Recording:
        self._before = active()
        self._seeds = {torch.default_generator: {_state(torch.default_generator)}}
        _ACTIVE.recording = self
        try:
            self._confinement.__enter__()
            super().__enter__()  # type: ignore[no-untyped-call]
            if self._reading is not None:
                self._reading.__enter__()  # type: ignore[no-untyped-call]
        except BaseException:  # Ctrl-C, say: threads are not to be refused for ever after.
            self._confinement.__exit__()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._reading is not None:
                self._reading.__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
                self._reading = None
            super().__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
        finally:
            self._confinement.__exit__()
        _ACTIVE.recording, self._before = self._before, None
        with torch.no_grad():
            for now, before in self._saved.values():
                now.copy_(before)
        self._saved.clear()
        for number, reference in enumerate(self._held):
            if not _expired(reference) and number not in self._foreign:
                kept = _OUTLIVED if self._tainted[number] else _PUBLIC
                kept[reference] = StorageWeakRef.from_weakref(reference)  # type: ignore[no-untyped-call]
                self._held[number] = 0
        self._held.free()
        self._numbers.clear()
        _forget_expired()
        if self._confinement.fault is not None:
            raise self._confinement.fault

    @property
    def disturbed(self) -> bool:
        """Whether another thread ran during the pass, and may have computed with its examples."""
        return self._confinement.disturbed

    @property
    def others(self) -> str:
        """The names of threads that ran during the pass."""
        return self._confinement.others

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _, view, makes, empty, writes, draws = KINDS.get(id(func)) or kind(func)
        with no_function_modes():
            if view:
                return func(*args, **kwargs) if kwargs else func(*args)
            if func is _LIFT:
                return self._constant(func, args[0])
            self._touched = False
            given = tuple([each if type(each) in _PLAIN else self._packed(each) for each in args])
            named = tuple([(key, self._packed(kwargs[key])) for key in kwargs]) if kwargs else ()
            tainted = self._touched and not makes
            into = written(func, args, kwargs or {}) if writes else ()
            if into:
                self._save(into, tainted)
            generator = self._generator(args, kwargs or {}) if draws else None
            try:
                made = func(*args, **kwargs) if kwargs else func(*args)
            except Exception:
                self.failed |= tainted
                raise
            if generator is not None:
                self._seeds[generator].add(_state(generator))
            if empty:
                made.zero_()  # What lies there may be what was computed from other examples.
            self.trace.append((func, given, named, self._noted(made, tainted)))
            if tainted and into:
                for each in into:
                    if _layout(each) is _STRIDED:
                        self._tainted[self._numbers[storage_of(each)._cdata]] = True
            return made

    def _generator(self, args: Any, kwargs: Any) -> torch.Generator | None:
        """The generator that an operation draws from, the state of which must be known to be public."""
        given = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Generator)]
        generator = given[0] if given else torch.default_generator
        seen = self._seeds.setdefault(generator, set())
        if _state(generator) not in seen:
            self.unknown = True
        return generator

    def ref(self, tensor: Tensor) -> Ref:
        """Where a tensor lies; ``_touched`` becomes true if it was computed from examples."""
        storage = storage_of(tensor)
        number = self._numbers.get(storage._cdata)
        if number is None:
            number = self._adopted(tensor, storage)
        elif self._tainted[number]:
            self._touched = True
        return _tuple(Ref, (number, _offset(tensor), size_of(tensor), _stride(tensor), dtype_of(tensor)))

    def tainted(self, tensor: Tensor) -> bool:
        """Whether a tensor was computed from examples."""
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return True
        number = self._numbers.get(storage_of(tensor)._cdata)
        return number is not None and self._tainted[number]

    def rows(self, what: str, *places: Place) -> None:
        """Note that these tensors must have their examples along these dimensions, now and to the end."""
        with no_function_modes():
            refs = tuple([(self.ref(each), dimension) for each, dimension in places if each is not None])
        self._marked.extend(refs)
        self.trace.append((what, refs))

    def close(self) -> None:
        """Note that the pass is over, and what it has left must still be as it was when it was noted."""
        self.trace.append(("gradient", tuple(self._marked)))

    def count(self) -> int:
        """How many storages have been numbered."""
        return len(self._held)

    def numbers(self, tensors: Iterable[Tensor]) -> set[int]:
        """The numbers of the storages in which tensors lie."""
        with no_function_modes():
            return {self.ref(each).number for each in tensors}

    def examined(self, numbers: Iterable[int]) -> bool:
        """Whether something computed from examples lies in one of these storages."""
        return any(self._tainted[each] for each in numbers)

    def trusted(
        self, what: Any, given: list[Place], call: Callable[[], list[Place]],
        public: Iterable[Tensor | None] = (),
    ) -> list[Tensor | None]:  # fmt: skip
        """Run a computation of our own unwatched; inputs and results have their examples along dimensions.

        What else it reads, weights as a rule, must be ``public``: nothing that was computed from examples.
        """
        if any(each is not None and self.tainted(each) for each in public):
            raise Unproved
        with no_function_modes():
            refs = tuple([None if each is None else (self.ref(each), at) for each, at in given])
        tainted = any(self._tainted[each[0].number] for each in refs if each is not None)
        with no_function_modes():
            with no_dispatch_modes():
                made = call()
            outs = tuple([None if each is None else (self._out(each, tainted), at) for each, at in made])
            self._seeds[torch.default_generator].add(_state(torch.default_generator))
        self.trace.append(("trusted", what, refs, outs))
        return [each for each, _ in made]

    def _packed(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            if _layout(value) is _STRIDED:
                return self.ref(value)
        elif isinstance(value, list | tuple):
            return tuple([self._packed(each) if isinstance(each, Tensor) else each for each in value])
        elif not isinstance(value, torch.ScriptObject):
            return value
        self._touched = True
        return OPAQUE

    def _noted(self, made: Any, tainted: bool) -> Any:
        if isinstance(made, Tensor):
            return (self._out(made, tainted),)
        if isinstance(made, list | tuple):
            return tuple([self._out(each, tainted) if isinstance(each, Tensor) else None for each in made])
        return ()

    def _out(self, tensor: Tensor, tainted: bool) -> Any:
        if _layout(tensor) is not _STRIDED:
            return OPAQUE
        storage = storage_of(tensor)
        number = self._numbers.get(storage._cdata)
        if number is None:
            number = self._new(storage, tainted=tainted)
        return _tuple(Ref, (number, _offset(tensor), size_of(tensor), _stride(tensor), dtype_of(tensor)))

    def _new(self, storage: Any, *, tainted: bool) -> int:
        number = len(self._held)
        # While it is referred to, weakly, no other storage gets the same address.
        self._held.append(storage._weak_ref())
        self._numbers[storage._cdata] = number
        self._tainted.append(tainted)
        return number

    def _adopted(self, tensor: Tensor, storage: Any) -> int:
        """The number of a storage that was there before the pass."""
        kept = _OUTLIVED.get(storage._cdata)
        if kept is not None and not self._resumed and not kept.expired():  # type: ignore[no-untyped-call]
            raise NotIsolated(
                "model and loss", "a tensor computed from the examples of an earlier pass",
                "such that nothing computed from examples is used with other examples",
                "Keep nothing of a batch for the next one.",
            )  # fmt: skip
        if storage._cdata in self._others:
            raise NotIsolated(
                "model and loss", "a batch reached from within the pass of one of its examples",
                "a function of the example that they are given",
            )  # fmt: skip
        if not self._known_before(storage):
            self.unknown = True
        number = self._new(storage, tainted=False)
        label: Any = self._names.get(storage._cdata)
        if label is None:
            label = storage._cdata
            if storage.device.type == "cpu" and storage.nbytes() <= 64:
                label = bytes(storage.tolist())
            elif dtype_of(tensor) == torch.uint8 and storage.nbytes() == _GENERATOR:
                label = STATE
        self._foreign[number] = label if isinstance(label, str) else "a tensor that the model holds"
        self.trace.append(("foreign", number, label))
        return number

    def _known_before(self, storage: Any) -> bool:
        """Whether model or loss held a storage before the pass, or a recorded operation made it earlier."""
        if self._known is None or storage._cdata in self._names:
            return True
        kept = _PUBLIC.get(storage._cdata)
        if kept is not None and not kept.expired():  # type: ignore[no-untyped-call]
            return True
        return self._known(storage._cdata)

    def _constant(self, func: Any, value: Tensor) -> Tensor:
        """A tensor made of Python's numbers; of a large one they are not noted, and it cannot be followed."""
        made: Tensor = func(value)
        outs = (self._out(made, False),)
        small = made.numel() <= _SMALL and made.device.type == "cpu"
        self.trace.append(("constant", tuple(made.flatten().tolist()) if small else object(), outs))
        return made

    def _save(self, into: Iterable[Tensor], tainted: bool) -> None:
        for each in into:
            if _layout(each) is not torch.strided:
                continue
            storage = storage_of(each)
            number = self._numbers[storage._cdata]
            label = self._foreign.get(number)
            if label is None:
                continue
            if storage._cdata not in self._saved:
                whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
                self._saved[storage._cdata] = (whole, whole.clone())
            if tainted and label not in self.escaped and label != "inputs and targets":
                self.escaped.append(label)


class _Weak(list[int]):
    """Weak references to storages, by their addresses; 0 stands for one that was given away."""

    def free(self) -> None:
        while self:
            reference = self.pop()
            if reference:
                _free(reference)

    __del__ = free


_expired: Callable[..., Any] = torch.UntypedStorage._expired
_free: Callable[..., Any] = torch.UntypedStorage._free_weak_ref


class _Reading(TorchFunctionMode):
    """Refuses, within, what takes an example's values out of PyTorch, past the dispatcher."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "").partition(".")[0]
        if name in ("__get__", "__set__"):
            owner = getattr(getattr(func, "__self__", None), "__name__", name)
            name = owner if name == "__get__" else f"{owner} ="
        if name in _LEAVING and (
            name == "custom_function_call"
            or any(isinstance(each, Tensor) and self.recording.tainted(each) for each in args)
        ):
            raise Unproved
        copied = name in _COPYING and args and isinstance(args[0], Tensor)
        made_of = (args[name == "new_tensor" :], *(kwargs or {}).values()) if name in _MAKING else ()
        if not copied and self._tells(made_of):
            raise Unproved
        if name in _SIZING and any(map(self._counts, (*args[1:], *(kwargs or {}).values()))):
            raise Unproved
        # A tensor that vmap has wrapped is not to be put in place of a plain one.
        if name in ("data =", "set_") and any(map(torch._C._functorch.is_functorch_wrapped_tensor, args)):
            raise Unproved
        return func(*args, **kwargs) if kwargs else func(*args)

    def _tells(self, value: Any) -> bool:
        """Whether what a tensor is to be made of holds a value of an example, or may do so."""
        if isinstance(value, list | tuple):
            return any(map(self._tells, value))
        if isinstance(value, Tensor):
            return self.recording.tainted(value)
        if isinstance(value, np.ndarray):
            return bool(value.dtype == object)
        return not isinstance(value, _NUMBERS)

    def _counts(self, value: Any) -> bool:
        """Whether a tensor of whole numbers, computed from examples, is to be read as sizes."""
        whole = isinstance(value, Tensor) and not value.is_floating_point()
        return whole and self.recording.tainted(value)
