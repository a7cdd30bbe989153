"""A pass over private rows stays where it is recorded: in its thread, in its process, under the dispatcher.

:class:`~.recording.Recording` sees the operations of its own thread. What other threads and processes compute
with the examples, and what runs with PyTorch's dispatch switched off, it cannot see. So, while a pass runs,

- a thread or process that model or loss start is refused: by Python's audit events, whatever called for it,
  and threads also where they are started, since Python 3.11 has no event for them;
- the ways of PyTorch to switch its dispatch modes off are refused;
- addresses are not read through ``ctypes``, and values of examples not through DLPack or scripted functions
  that make Python's values of tensors, unless the pass has one example and may read values;
- threads that were there before are watched by their processor time. One that ran may have computed with the
  examples: the pass is ``disturbed``, and proves nothing.

Threads of IPython, of progress bars, of data loaders, of Spark, of pytest-xdist and of tacit itself are
trusted to do their own work only; threads of C++ libraries (BLAS, OpenMP, the autograd engine) take no
orders from model code. A program that has other threads of its own and knows that they leave the examples
alone says so with :func:`trusting_threads`, as ``Trainer(threads="trusted")`` does.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch.utils import _python_dispatch

from tacit.errors import NotIsolated
from tacit.training.isolation.unproved import Unproved

_STARTING = {
    "_thread.start_new_thread", "_thread.start_joinable_thread", "os.fork", "os.forkpty", "os.posix_spawn",
    "os.spawn", "os.exec", "os.system", "os.startfile", "subprocess.Popen",
}  # fmt: skip
_ADDRESSES = {
    "ctypes.cdata", "ctypes.cdata/buffer", "ctypes.string_at", "ctypes.wstring_at", "ctypes.call_function",
    "ctypes.PyObj_FromPtr",
}  # fmt: skip
_TRUSTED = (
    "tacit.", "ipykernel.", "IPython.", "zmq.", "tornado.", "tqdm.", "torch.utils.data.", "execnet.",
    "pyspark.", "py4j.",
)  # fmt: skip
THREADS = ("watched", "trusted")

_PASSES: dict[int, Confinement] = {}
_KNOWN: WeakSet[threading.Thread] = WeakSet()
_LOCK = threading.Lock()
_LOCAL = threading.local()
_init = torch._C._DisableTorchDispatch.__init__

no_function_modes = torch._C.DisableTorchFunction
"""The switch of function modes, for tacit itself; model and loss are refused it."""


@contextmanager
def trusting_threads(trusted: bool) -> Iterator[None]:
    """Within, threads that were there before a pass do not disturb it, if ``trusted``."""
    before = getattr(_LOCAL, "trusted", False)
    _LOCAL.trusted = trusted
    try:
        yield
    finally:
        _LOCAL.trusted = before


def no_dispatch_modes() -> Any:
    """The switch of dispatch modes, for tacit itself; model and loss are refused it."""
    guard = torch._C._DisableTorchDispatch.__new__(torch._C._DisableTorchDispatch)
    _init(guard)
    return guard


class Confinement:
    """Watches and refuses, within, what leaves the recorded thread.

    ``fault``: the refusal, kept in case that model or loss catch it. ``disturbed``: another thread ran;
    ``others`` are the names of such threads.
    """

    def __init__(self, *, reading: bool) -> None:
        self.fault: Exception | None = None
        self.disturbed = False
        self.others = ""
        self._reading = reading

    def __enter__(self) -> Confinement:
        me = threading.get_ident()
        self._before = _PASSES.get(me)
        with _LOCK:
            if not _PASSES:
                _SWITCHES.close()
            _PASSES[me] = self
        self._clocks = _clocks(me)
        return self

    def __exit__(self, *error: object) -> None:
        me = threading.get_ident()
        now = _clocks(me)
        # Model code that took the guards away may have left the recorded thread without their notice.
        tampered = _PASSES.get(me) is not self or not _SWITCHES.closed
        if now or self._clocks:
            ran = [thread for thread, value in now.items() if value != self._clocks.get(thread)]
            self.others = _names(ran)
            self.disturbed = bool(ran) or not self._clocks.keys() <= now.keys()
        self.disturbed |= tampered
        with _LOCK:
            if self._before is None:
                _PASSES.pop(me, None)
            else:
                _PASSES[me] = self._before
            if not _PASSES:
                _SWITCHES.open()
        self._before = None

    def refuse(self, what: str) -> None:
        """Raise the refusal of something that the recording could not see."""
        self.fault = NotIsolated(
            "model and loss", what, "computed in one thread, by operations of PyTorch that can be recorded",
            "What other threads and processes do with the examples is not known. Compute in the thread that "
            'calls the model; examples="alone" keeps to the same rule.',
        )  # fmt: skip
        raise self.fault

    def read(self) -> None:
        """Values of examples are about to leave PyTorch: nothing can be proved of the pass."""
        if not self._reading:
            self.fault = self.fault or Unproved()
            raise self.fault

    def audit(self, event: str) -> None:
        """Refuse an event that takes the examples elsewhere."""
        if event in _STARTING:
            self.refuse(f"a thread or process started during a pass ({event})")
        self.read()


def _audited(
    event: str, arguments: Any, events: Any = _STARTING | _ADDRESSES, passes: Any = _PASSES,
    me: Callable[[], int] = threading.get_ident,
) -> None:  # fmt: skip
    """Python calls this to its very end, when modules have lost their names: hence the defaults."""
    if passes and event in events:
        running = passes.get(me())
        if running is not None:
            running.audit(event)


sys.addaudithook(_audited)


def _clocks(me: int) -> dict[int, Any]:
    """The processor time of every thread of Python but this one and those that are trusted."""
    every = sys._current_frames()
    if len(every) == 1 or getattr(_LOCAL, "trusted", False):
        return {}
    threads = {each.ident: each for each in threading.enumerate()}
    found: dict[int, Any] = {}
    for ident, frame in every.items():
        if ident != me:
            thread = threads.get(ident)
            if thread is None:
                if not _began_in(frame).startswith(_TRUSTED):
                    found[ident] = object()
            elif not _trusted(thread):
                found[ident] = _clock(thread)
    return found


def _names(idents: list[int]) -> str:
    """The names of these threads, for people."""
    names = {each.ident: each.name for each in threading.enumerate()}
    return ", ".join(sorted(names.get(ident, "a thread of C code") for ident in idents))


def _began_in(frame: Any) -> str:
    """The module whose function a thread runs that ``threading`` does not know."""
    while frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


def _clock(thread: threading.Thread) -> Any:
    """A thread's processor time in nanoseconds; where it cannot be told, what equals nothing."""
    if sys.platform != "linux" or thread.native_id is None:
        return object()
    try:
        # The number under which Linux keeps the clock of one thread: see clock_getcpuclockid(3).
        return time.clock_gettime_ns((~thread.native_id << 3) | 6)
    except OSError:
        return object()


def _trusted(thread: threading.Thread) -> bool:
    if thread in _KNOWN:
        return True
    target = getattr(thread, "_target", None)
    owner = type(getattr(target, "__self__", None)).__module__
    made = (type(thread).__module__, getattr(target, "__module__", None) or "", owner)
    known = any(each.startswith(_TRUSTED) for each in made) or thread in _noise_threads()
    if known:
        _KNOWN.add(thread)
    return known


def _noise_threads() -> set[Any]:
    from tacit.training.noise import _drawer

    return set(_drawer()._threads) if _drawer.cache_info().currsize else set()


_NAMES: tuple[tuple[Any, str], ...] = (
    (torch._C._DisableTorchDispatch, "__init__"),
    (torch._C._ExcludeDispatchKeyGuard, "__init__"),
    (torch._C._ForceDispatchKeyGuard, "__init__"),
    (torch._C, "DisableTorchFunction"),
    (torch, "DisableTorchFunction"),
    (torch._C, "_dispatch_tls_set_dispatch_key_excluded"),
    (_python_dispatch, "_disable_current_modes"),
    (torch._ops.OpOverload, "redispatch"),
    (threading.Thread, "start"),
    (threading, "_start_new_thread"),
    (_thread, "start_new_thread"),
    (_thread, "start_new"),
    (torch._C, "_to_dlpack"),
    (torch._C, "_to_dlpack_versioned"),
    (torch, "to_dlpack"),
    (torch.utils.dlpack, "to_dlpack"),
    (torch.jit.ScriptFunction, "__call__"),
    (torch._C.ScriptMethod, "__call__"),
)


class _Switches:
    """What switches PyTorch's dispatch off or starts a thread, replaced by refusals while any pass runs.

    What is replaced is what is there when the first pass begins, and it is put back when the last one ends,
    unless somebody else, such as a debugger, has replaced it meanwhile.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[Any, str], tuple[Any, Any]] = {}

    def close(self) -> None:
        for owner, name in _NAMES:
            now = getattr(owner, name, None)
            before, refusing = self._made.get((owner, name), (None, None))
            if now is None or now is refusing:
                continue
            if now is not before or refusing is None:
                label = owner.__name__ if name == "__init__" else name
                refusing = _refusing(label, now)
                self._made[owner, name] = now, refusing
            setattr(owner, name, refusing)

    def open(self) -> None:
        for (owner, name), (before, refusing) in self._made.items():
            if getattr(owner, name) is refusing:
                setattr(owner, name, before)

    @property
    def closed(self) -> bool:
        """Whether all refusals are where they were put."""
        return all(getattr(owner, name) is made for (owner, name), (_, made) in self._made.items())


def _refusing(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def refusing(*given: Any, **named: Any) -> Any:
        running = _PASSES.get(threading.get_ident())
        if running is not None and not _harmless(name, given, sys._getframe(1)):
            if name in _READING:
                running.read()
            else:
                running.refuse(f"code that leaves what can be recorded ({name})")
        return call(*given, **named)

    return refusing


def _harmless(name: str, given: tuple[Any, ...], caller: Any) -> bool:
    """Whether a guard leaves the key of Python's dispatch as it is, or is the compiler's own."""
    if name == "__call__":
        return not _reads(given[0])
    if name == "_ForceDispatchKeyGuard":
        return str(caller.f_globals.get("__name__", "")).startswith("torch._")
    if name != "_ExcludeDispatchKeyGuard":
        return False
    keys = [each for each in given if isinstance(each, torch._C.DispatchKeySet)]
    return bool(keys) and not any(each.has(torch._C.DispatchKey.Python) for each in keys)


_READING = {"_to_dlpack", "_to_dlpack_versioned", "to_dlpack", "__call__"}
_SCRIPTED: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def _reads(scripted: Any) -> bool:
    """Whether a scripted function takes values out of tensors past the dispatcher, or starts threads."""
    found = _SCRIPTED.get(scripted)
    if found is None:
        graph = scripted.inlined_graph if hasattr(scripted, "inlined_graph") else scripted.graph
        waiting, found = list(graph.nodes()), False
        for node in waiting:
            found = found or node.kind() in _TAKES_OUT
            waiting.extend(each for block in node.blocks() for each in block.nodes())
        _SCRIPTED[scripted] = found
    return found


_TAKES_OUT = {
    "prim::tolist", "prim::Print", "prim::fork", "prim::awaitable", "aten::str", "aten::format", "aten::save",
    "aten::percentFormat", "aten::tensor", "aten::as_tensor", "aten::tensor_split", "aten::ctc_loss",
    "aten::rnn_tanh", "aten::rnn_relu", "aten::lstm", "aten::gru", "aten::_pad_packed_sequence",
    "prim::PythonOp", "prim::CallMethod", "prim::CallFunction",
}  # fmt: skip

_SWITCHES = _Switches()


def _forked() -> None:
    """The passes of the threads of another process do not run in a process forked off it."""
    global _LOCK
    _LOCK = threading.Lock()
    _PASSES.clear()
    _SWITCHES.open()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
