"""Parameters a model uses itself, outside any layer: positions, class tokens, scales, shifts.

A table looked up at places that do not depend on the data is such a parameter too.

Where such a parameter, or a function of parameters and public values, meets the examples, in an
elementwise operation or by being expanded over them, it is given a place for each example. The gradient
there is the example's own, and autograd does the rest. Where it is multiplied with the examples
(:mod:`.products`), the gradient follows from the example's input and output gradient. Any other use leaves
the parameter to the fallback.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tacit.training.batches import tree
from tacit.training.gradients.contraction import Product
from tacit.training.gradients.normed import behind, normed
from tacit.training.gradients.pieces import Piece, Plain
from tacit.training.gradients.products import product
from tacit.training.gradients.tape import Pieces, Tape
from tacit.training.gradients.turning import rearranged, turned
from tacit.training.isolation.confinement import no_function_modes
from tacit.training.isolation.recording import active, detached, version_of
from tacit.training.isolation.unproved import Changed, Unproved

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
# Functions that draw random numbers, or give no function of the parameter to derive.
_OTHERWISE = {
    "bernoulli", "multinomial", "normal", "poisson", "rrelu", "rand_like", "randn_like", "randint_like",
    "detach", "data", "grad", "__set__",
}  # fmt: skip
_EXPAND = _functions("expand", "expand_as", "broadcast_to")
_REPEAT = _functions("repeat", "tile")


def name_of(function: Any) -> str:
    """The name a function or a property goes by."""
    owner = getattr(getattr(function, "__self__", None), "__name__", None)
    return str(owner or getattr(function, "__name__", ""))


@dataclass(frozen=True)
class Use:
    """A call in which parameters may meet the examples: whose they are, and the shapes they have.

    ``rows`` are the dimensions of what was made, from its end, along which the examples of a product may lie;
    None where a parameter is spread over the examples.
    """

    parameters: frozenset[int]
    own: tuple[tuple[int, ...], ...]
    made: tuple[int, ...]
    rows: frozenset[int] | None = None


def kind(function: Any, args: Any, kwargs: Any, known: Any) -> str | Product | None:
    """What a call is: a "function" of parameters, a "meeting" with the examples, a product, or None."""
    leaves = list(tree.tensors((args, kwargs)))
    ours = [leaf for leaf in leaves if id(leaf) in known]
    others = [leaf for leaf in leaves if id(leaf) not in known]
    plain = not kwargs and sum(isinstance(each, Tensor) and id(each) in known for each in args) == len(ours)
    if function in _ELEMENTWISE and plain and len(args) == 2 and others:
        # What was computed before a change in place must not be taken for what was changed.
        if len(ours) != 1 or (args[0] is ours[0] and _changes(function)):
            return None
        return "function" if _public(others) and _within(others, ours[0]) else "meeting"
    if function in _EXPAND or function in _REPEAT:
        first = plain and len(ours) == 1 and args[0] is ours[0]
        return "meeting" if first and (function in _EXPAND or not others) else None
    found = product(function, args, kwargs, known)
    if found is not None and not _public(others):
        return found if all(any(each is own for own in found.own) for each in ours) else None
    return "function" if _pure(function, args, kwargs) and _public(others) else None


def _public(others: list[Tensor]) -> bool:
    """Whether none of these was computed from examples."""
    recording = active()
    return not others or (
        recording is not None
        and all(each.layout == torch.strided for each in others)
        and not any(map(recording.tainted, others))
    )


def _within(others: list[Tensor], own: Tensor) -> bool:
    """Whether tensors broadcast to the shape of another, and do not make it larger."""
    return all(
        each.dim() <= own.dim()
        and all(a in (1, b) for a, b in zip(each.shape[::-1], own.shape[::-1], strict=False))
        for each in others
    )


def _pure(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call only computes something new from its arguments, and draws no random numbers."""
    name = str(getattr(function, "__name__", ""))
    if name == "__get__":
        return name_of(function) in ("T", "mT", "H", "mH", "real")
    special = ("out", "generator", "sparse", "scale_grad_by_freq", "max_norm", "inplace")
    return not (
        _changes(function)
        or name in _OTHERWISE
        or "dropout" in name
        or any(kwargs.get(each) is not None and kwargs[each] is not False for each in special)
    )


def _changes(function: Any) -> bool:
    """Whether a function changes its first argument in place."""
    name = str(getattr(function, "__name__", ""))
    changing = name.endswith("_") and not name.endswith("__")
    return changing or name.startswith("__i") or name == "__setitem__"


def place(one: Use, two: Use) -> int | None:
    """Where the examples are in what was made, counted from the end, if a parameter can be served there.

    ``one`` was seen with two examples, ``two`` with three.
    """
    if (one.parameters, one.own, one.rows) != (two.parameters, two.own, two.rows):
        return None
    if len(one.made) != len(two.made):
        return None
    sizes = [pair for pair in zip(one.made, two.made, strict=True) if pair[0] != pair[1]]
    if sizes != [(2, 3)]:
        return None
    at = next(-number for number in range(1, len(one.made) + 1) if one.made[-number] != two.made[-number])
    if one.rows is not None:
        return at if at in one.rows else None
    (own,) = one.own
    return at if len(own) < -at or own[at] == 1 else None


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
        self.known: dict[int, tuple[Tensor, Tensor]] = {
            id(each): (each, leaf) for each, leaf in zip(self.parameters, self.leaves, strict=True)
        }
        # Weights computed by weight normalisation, with their direction and length.
        self.normed: dict[int, tuple[Tensor, Tensor]] = {}
        # Numbers of the storages that functions of parameters read and made, and may read on the way back.
        self.read: set[int] = set()
        self.met = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        known = self.known
        leaves = list(tree.tensors((args, kwargs)))
        if not any(id(leaf) in known for leaf in leaves):
            return func(*args, **kwargs)
        if name_of(func) in QUESTIONS:
            return func(*args, **kwargs)
        found = kind(func, args, kwargs, known)
        if found is None or (found != "function" and self.met >= len(self.places)):
            raise Unproved
        if any(map(self.tape.recording.tainted, (leaf for leaf in leaves if id(leaf) in known))):
            raise Unproved  # Something computed from examples was put there.
        if isinstance(found, Product):
            return self._multiply(found, func, args, kwargs)
        return self._function(func, args, kwargs) if found == "function" else self._meet(func, args)

    def _function(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A function of parameters and public values, of which all is to stay public to the end."""
        if not torch.is_grad_enabled():
            raise Changed  # When the model was watched, gradients went through this function.
        inner, named = tree.mapped(
            lambda leaf: self._value(leaf) if isinstance(leaf, Tensor) else leaf, (args, kwargs)
        )
        recording = self.tape.recording
        first = recording.count()
        made = _FORMULAS.get(func, func)(*inner, **named)
        self.read.update(range(first, recording.count()))
        self.read |= recording.numbers(tree.tensors((inner, named, made)))
        for each in tree.tensors(made):
            self.known[id(each)] = (each, each)
        if func is torch._weight_norm and not named and (len(inner) < 3 or inner[2] == 0):
            self.normed[id(made)] = inner[:2]
        return made

    def _value(self, leaf: Tensor) -> Tensor:
        """What to compute with in place of a tensor."""
        return self.known[id(leaf)][1] if id(leaf) in self.known else leaf

    def _multiply(self, found: Product, func: Any, args: Any, kwargs: Any) -> Tensor:
        """The output of a product, watched: each example's gradient of the operands follows from its own."""
        at = self.places[self.met]
        self.met += 1

        def number(leaf: Any) -> Any:
            return self._value(leaf).detach() if isinstance(leaf, Tensor) and id(leaf) in self.known else leaf

        def call() -> Tensor:
            inner, named = tree.mapped(number, (args, kwargs))
            return func(*inner, **named)  # type: ignore[no-any-return]

        made = found.run(call, number)
        with no_function_modes():
            if at not in found.rows(made) or made.shape[at] != self.examples:
                raise Unproved
            kept = [(detached(each), where) for each, where in found.kept(made, at) if each is not None]
        versions = [version_of(each) for each, _ in kept]
        recording = self.tape.recording
        public = recording.numbers(found.public(at))
        dtype = torch.promote_types(found.own[0].dtype, torch.float32)

        def make(grad: Tensor) -> Pieces:
            if [version_of(each) for each, _ in kept] != versions or recording.examined(public):
                raise Unproved
            return [(self._value(operand), piece) for operand, piece in found.pieces(grad.to(dtype), at)]

        for operand in found.own:
            own = self._value(operand)
            self.tape.behind(own, partial(self._through, own))
        return self.tape.watch(made, make, made.dim() + at, *kept)

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
        return self._through(own, Plain(values.to(torch.promote_types(values.dtype, torch.float32))))

    def _parameter(self, leaf: Tensor) -> Tensor | None:
        """The parameter that a leaf stands for."""
        pairs = zip(self.parameters, self.leaves, strict=True)
        return next((parameter for parameter, each in pairs if each is leaf), None)

    def _through(self, own: Tensor, piece: Piece) -> Pieces:
        """Each example's gradient of the parameters behind ``own``, from that of ``own``."""
        for parameter, leaf in zip(self.parameters, self.leaves, strict=True):
            if leaf is own:
                return [(parameter, piece)]
            if rearranged(own, leaf):
                return [(parameter, turned(piece, own, leaf))]
        if self.tape.recording.examined(self.read):
            raise Unproved
        if id(own) in self.normed:
            parameters = [self._parameter(each) for each in self.normed[id(own)]]
            pair = behind(piece, *self.normed[id(own)])
            if pair is not None and None not in parameters:
                return list(zip(parameters, pair, strict=True))  # type: ignore[arg-type]
        values = piece.gradients().to(own.dtype)
        options = {"retain_graph": True, "allow_unused": True, "is_grads_batched": True}
        with no_function_modes(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # Of operations that vmap runs one after the other.
            found = torch.autograd.grad(own, self.leaves, values, **options)
        return [
            (parameter, Plain(each.to(torch.promote_types(each.dtype, torch.float32))))
            for parameter, each in zip(self.parameters, found, strict=True)
            if each is not None
        ]


_FORMULAS: dict[Any, Any] = {torch._weight_norm: normed}
