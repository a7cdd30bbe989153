"""Parameters a model uses itself, outside any layer: positions, class tokens, scales, shifts.

A table looked up at places that do not depend on the data is such a parameter too.

Where such a parameter, or a view or simple function of it, meets the examples, in an elementwise
operation or by being expanded over them, it is given a place for each example. The gradient there
is the example's own, and autograd does the rest. Any other use leaves the parameter to the
fallback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from tacit.training.batches import tree
from tacit.training.gradients.pieces import Plain
from tacit.training.gradients.tape import Pieces, Tape
from tacit.training.isolation.confinement import no_function_modes
from tacit.training.isolation.unproved import Unproved

# Questions about a tensor that are no use of its values.
QUESTIONS = {"shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "layout", "size", "dim"}


def _functions(*names: str) -> frozenset[Any]:
    found = {getattr(where, name, None) for where in (torch, torch.Tensor) for name in names}
    return frozenset(found - {None})


# Of two operands, broadcast against each other.
_ELEMENTWISE = _functions(
    "add", "__add__", "__radd__", "add_", "sub", "__sub__", "__rsub__", "sub_", "subtract",
    "mul", "__mul__", "__rmul__", "mul_", "multiply", "div", "__truediv__", "__rtruediv__", "divide",
    "div_", "true_divide", "maximum", "minimum",
)  # fmt: skip
# Of the tensor that comes first, and of no other.
_FUNCTIONS = _functions(
    "__getitem__", "unsqueeze", "squeeze", "view", "reshape", "flatten", "transpose", "permute", "t",
    "exp", "sigmoid", "tanh", "relu", "neg", "__neg__", "square", "abs", "clamp", "narrow", "contiguous",
)  # fmt: skip
_EXPAND = _functions("expand", "expand_as", "broadcast_to")
_REPEAT = _functions("repeat", "tile")


def name_of(function: Any) -> str:
    """The name a function or a property goes by."""
    owner = getattr(getattr(function, "__self__", None), "__name__", None)
    return str(owner or getattr(function, "__name__", ""))


@dataclass(frozen=True)
class Use:
    """A call in which a parameter may meet the examples: whose it is, and the shapes it has."""

    parameters: frozenset[int]
    own: tuple[int, ...]
    made: tuple[int, ...]


def kind(function: Any, args: Any, kwargs: Any, known: Any) -> str | None:
    """What a call is: a "function" of parameters, a "meeting" of one with the examples, or neither."""
    if function is F.embedding:
        return _lookup(args, kwargs, known)
    ours = [number for number, each in enumerate(args) if isinstance(each, Tensor) and id(each) in known]
    if kwargs or not ours or len(ours) != sum(id(leaf) in known for leaf in tree.tensors(args)):
        return None
    others = [leaf for leaf in tree.tensors(args) if id(leaf) not in known]
    if function in _ELEMENTWISE and len(args) == 2:
        if not others:
            return "function"
        return "meeting" if len(ours) == 1 else None
    if ours != [0]:
        return None
    if function in _FUNCTIONS and not others and not _lists(args):
        return "function"
    if function in _EXPAND or (function in _REPEAT and not others):
        return "meeting"
    return None


def _lookup(args: Any, kwargs: Any, known: Any) -> str | None:
    if len(args) != 2 or id(args[1]) not in known or id(args[0]) in known:
        return None
    special = ("sparse", "scale_grad_by_freq", "max_norm")
    return None if any(kwargs.get(each) for each in special) else "function"


def _lists(args: Any) -> bool:
    """Whether a tensor is picked from by a list of numbers."""
    return any(isinstance(each, list) for each in (args[1] if _tuple(args) else args[1:]))


def _tuple(args: Any) -> bool:
    return len(args) == 2 and isinstance(args[1], tuple)


def place(one: Use, two: Use) -> int | None:
    """Where the examples are in what was made, counted from the end, if a parameter can be spread there.

    ``one`` was seen with two examples, ``two`` with three.
    """
    if one.parameters != two.parameters or one.own != two.own or len(one.made) != len(two.made):
        return None
    sizes = [pair for pair in zip(one.made, two.made, strict=True) if pair[0] != pair[1]]
    if sizes != [(2, 3)]:
        return None
    at = next(-number for number in range(1, len(one.made) + 1) if one.made[-number] != two.made[-number])
    return at if len(one.own) < -at or one.own[at] == 1 else None


@contextmanager
def direct(
    places: tuple[int, ...], parameters: dict[str, nn.Parameter], tape: Tape, examples: int
) -> Iterator[None]:
    """Uses of these parameters are on the tape, within."""
    if not parameters:
        yield
        return
    with _Direct(places, parameters, tape, examples):
        yield


class _Direct(TorchFunctionMode):
    """Spreads parameters over the examples where they meet."""

    def __init__(
        self, places: tuple[int, ...], parameters: dict[str, nn.Parameter], tape: Tape, examples: int
    ) -> None:
        super().__init__()
        self.places, self.tape, self.examples = places, tape, examples
        self.parameters = list(parameters.values())
        self.leaves = [each.detach().requires_grad_() for each in self.parameters]
        # By identity: the tensor the model holds, kept so that the identity stays, and what to compute with.
        self.known = {id(each): (each, leaf) for each, leaf in zip(self.parameters, self.leaves, strict=True)}
        self.met = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        known = self.known
        if not any(id(leaf) in known for leaf in tree.tensors((args, kwargs))):
            return func(*args, **kwargs)
        if name_of(func) in QUESTIONS:
            return func(*args, **kwargs)
        found = kind(func, args, kwargs, known)
        if found is None or (found == "meeting" and self.met >= len(self.places)):
            raise Unproved
        if found == "function":
            made = func(*(known[id(each)][1] if id(each) in known else each for each in args), **kwargs)
            known[id(made)] = (made, made)
            return made
        return self._meet(func, args)

    def _meet(self, func: Any, args: Any) -> Tensor:
        at = self.places[self.met]
        self.met += 1
        number = next(number for number, each in enumerate(args) if id(each) in self.known)
        own = self.known[id(args[number])][1]
        lengths = [1] * (-at - own.dim()) + list(own.shape)
        if lengths[at] != 1:
            raise Unproved
        value = own.detach().reshape(lengths)
        lengths[at] = self.examples
        value = value.expand(lengths)
        spread = self.tape.leaf(
            value.requires_grad_(), lambda grad: self._pieces(grad, own, at), value.dim() + at
        )
        made: Tensor
        if func in _REPEAT:
            counts = list(args[1] if isinstance(args[1], tuple | list | torch.Size) else args[1:])
            counts = [1] * (spread.dim() - len(counts)) + counts
            if counts[at] != self.examples:
                raise Unproved
            counts[at] = 1
            return spread.repeat(counts)
        made = func(*(spread if place == number else each for place, each in enumerate(args)))
        if made.dim() < -at or made.shape[at] != self.examples:
            raise Unproved
        return made

    def _pieces(self, grad: Tensor, own: Tensor, at: int) -> Pieces:
        """Each example's gradient of the parameters behind ``own``, from that of ``own`` spread out."""
        values = grad.movedim(at, 0).reshape(self.examples, *own.shape)
        for parameter, leaf in zip(self.parameters, self.leaves, strict=True):
            if leaf is own:
                return [(parameter, Plain(values.to(torch.promote_types(values.dtype, torch.float32))))]
        options = {"retain_graph": True, "allow_unused": True, "is_grads_batched": True}
        with no_function_modes():
            found = torch.autograd.grad(own, self.leaves, values.to(own.dtype), **options)
        return [
            (parameter, Plain(each.to(torch.promote_types(each.dtype, torch.float32))))
            for parameter, each in zip(self.parameters, found, strict=True)
            if each is not None
        ]
