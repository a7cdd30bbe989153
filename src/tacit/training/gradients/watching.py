"""What a model does with its examples, found by watching a tiny batch go through it.

Book-keeping by layer is right only if row i of whatever a layer is called on comes from example i
and from no other. A model may break that without one example reaching another's loss: it may
sort its rows and sort them back, run a layer on chosen rows only, or choose by value what to run. So
everything that selects or moves rows, and everything that reads a value of the data into Python, is
noted here, and such a model is left to the fallback, which sees each example alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tacit.errors import InvalidValue
from tacit.training.batches import tree
from tacit.training.gradients.contraction import Product
from tacit.training.gradients.direct import QUESTIONS, Use, kind

# Values of the data that come out as numbers of Python, as shapes, or as chosen rows.
_VALUES = {
    "item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__",
    "__array__", "is_nonzero", "equal", "allclose", "nonzero", "argwhere", "masked_select", "unique",
    "unique_consecutive", "bincount", "multinomial", "masked_scatter", "masked_scatter_", "histc",
}  # fmt: skip

# Operations that move, pick or split along a dimension: where that argument is, and its default.
_ALONG: dict[str, tuple[int, Any]] = {
    **dict.fromkeys(("flip",), (1, None)),
    **dict.fromkeys(("sort", "argsort"), (1, -1)),
    **dict.fromkeys(("topk", "kthvalue", "diff"), (2, -1)),
    **dict.fromkeys(("index_select", "gather", "narrow", "select", "unbind", "unfold"), (1, 0)),
    **dict.fromkeys(("scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce"), (1, 0)),
    **dict.fromkeys(("index_add", "index_add_", "index_copy", "index_copy_"), (1, 0)),
    **dict.fromkeys(("index_fill", "index_fill_", "cumsum", "cumprod", "cummax", "cummin"), (1, 0)),
    **dict.fromkeys(("logcumsumexp",), (1, 0)),
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "tensor_split"), (2, 0)),
    **dict.fromkeys(("roll", "take_along_dim", "repeat_interleave"), (2, None)),
    **dict.fromkeys(("take", "index_put", "index_put_", "_pack_padded_sequence"), (9, None)),
    **dict.fromkeys(("msort", "flipud", "vsplit", "__reversed__"), (9, 0)),
    **dict.fromkeys(("fliplr", "hsplit"), (9, 1)),
    "dsplit": (9, 2),
    "rot90": (2, (0, 1)),
}

_DERIVING = {"grad", "backward", "requires_grad_", "jacobian", "hessian"}


@dataclass
class WatchedPass:
    """What was observed of one pass of a tiny batch: shapes of layer calls, and operations outside of layers.

    ``alone``: parameters used where no layer with a rule answers for them; ``direct``: those used there in
    ways that are not understood; ``uses``: the ways that are. ``moved``: operations after which a row may
    be no single example, or a layer may not run as it did in this pass.
    """

    calls: dict[str, list[tuple[int, ...]]]
    direct: set[int] = field(default_factory=set)
    alone: set[int] = field(default_factory=set)
    uses: list[Use] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    buffers: dict[str, Tensor] = field(default_factory=dict)
    reached: set[int] = field(default_factory=set)
    nodes: dict[Any, list[Any]] = field(default_factory=dict)

    def accounts_for(self, made: Any, nodes: list[Any]) -> None:
        """Note that the uses of parameters in what was just made are known; it was made from these nodes."""
        for each in tree.tensors(made):
            if each.grad_fn is not None:
                self.nodes[each.grad_fn] = nodes

    def hidden(self, losses: Tensor) -> set[int]:
        """The parameters that gradients reach other than by known uses, as by a function of one's own."""
        found: set[int] = set()
        passed: set[Any] = set()
        waiting = [losses.grad_fn]
        while waiting:
            node = waiting.pop()
            if node is None or node in passed:
                continue
            passed.add(node)
            if node in self.nodes:
                waiting.extend(self.nodes[node])
                continue
            if type(node).__name__ == "AccumulateGrad":
                found.add(id(getattr(node, "variable")))  # noqa: B009
            waiting.extend(each for each, _ in node.next_functions)
        return found


class Watching(TorchFunctionMode):
    """Notes, within, what is done with the parameters and with what comes from the data."""

    def __init__(self, parameters: set[int], seen: WatchedPass, examples: int, data: Any) -> None:
        super().__init__()
        self.seen, self.examples = seen, examples
        self.behind = {each: frozenset({each}) for each in parameters}
        self.in_loss = False
        self._parameters = parameters
        self.answered: list[set[int]] = []
        self.entered: list[list[Any]] = []
        self._alive: list[Tensor] = []
        self._data: set[int] = set()
        self._counted: set[int] = set()
        self.taint(data)

    def taint(self, values: Any) -> None:
        """Note that these come from the data."""
        for each in tree.tensors(values):
            if id(each) not in self._data:
                self._alive.append(each)
                self._data.add(id(each))

    def tainted(self, values: Any) -> bool:
        """Whether any of these comes from the data."""
        return any(id(each) in self._data for each in tree.tensors(values))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        owner = getattr(getattr(func, "__self__", None), "__name__", None)
        own = getattr(func, "__name__", "")
        name = owner if own in ("__get__", "__set__") and owner else own
        if name in QUESTIONS and own != "__set__":
            return func(*args, **kwargs)
        if self.in_loss and any(id(leaf) in self._parameters for leaf in tree.tensors((args, kwargs))):
            raise InvalidValue(
                "loss", "one that uses the model's parameters", "a function of outputs and targets alone",
                "Penalise weights by the optimiser's weight_decay; what has layers belongs in the model.",
            )  # fmt: skip
        tainted = self.tainted((args, kwargs))
        if not self.answered and (tainted or name in _DERIVING) and self._moves(name, own, args, kwargs):
            self.seen.moved.append(name)
        before = [(leaf, leaf.grad_fn) for leaf in tree.tensors((args, kwargs))]
        result = func(*args, **kwargs)
        self._note_parameters(func, args, kwargs, result, before)
        if name == "arange" and isinstance(result, Tensor):
            self._alive.append(result)
            self._counted.add(id(result))
        if tainted:
            self.taint(result)
            if name.endswith("_") or name == "__setitem__":
                self.taint(args[:1])
            if "out" in kwargs:
                self.taint(kwargs["out"])
        return result

    def _note_parameters(self, func: Any, args: Any, kwargs: Any, result: Any, before: list[Any]) -> None:
        """Note a use of a parameter, or of what was computed from parameters alone."""
        touched = [
            leaf
            for leaf in tree.tensors((args, kwargs))
            if id(leaf) in self.behind and not any(id(leaf) in own for own in self.answered)
        ]
        if not touched:
            return
        parameters = frozenset[int]().union(*(self.behind[id(leaf)] for leaf in touched))
        self.seen.alone |= parameters
        # Within a function of its own, or where gradients are off, what is seen is not what is derived.
        made = list(tree.tensors(result))
        derived = bool(made) and all(each.requires_grad for each in made)
        found = kind(func, args, kwargs, self.behind) if derived else None
        if found == "function":
            self._alive.extend(made)
            self.behind.update(dict.fromkeys(map(id, made), parameters))
        elif found is not None:
            rows = found.rows(result) if isinstance(found, Product) else None
            own = tuple(tuple(each.shape) for each in touched)
            self.seen.uses.append(Use(parameters, own, tuple(result.shape), rows))
            self.seen.accounts_for(result, [node for leaf, node in before if id(leaf) not in self.behind])
        else:
            self.seen.direct |= parameters

    def _moves(self, name: str, own: str, args: Any, kwargs: Any) -> bool:
        if name in _VALUES or name in _DERIVING or (name == "requires_grad" and own == "__set__"):
            return True
        if name == "where" and len(args) == 1:
            return True
        subject = next(iter(tree.tensors((args, kwargs))), None)
        if subject is None:
            return False
        if name in ("__getitem__", "__setitem__"):
            return self._index_moves(args[0], args[1])
        if name in _ALONG:
            place, default = _ALONG[name]
            along = kwargs.get("dim", kwargs.get("dims", kwargs.get("axis", default)))
            along = args[place] if len(args) > place else along
            along = args[1:] if name == "flip" and len(args) > 2 else along
            return self._touches(subject, along)
        return False

    def _touches(self, subject: Tensor, along: Any) -> bool:
        """Whether one of these dimensions is as long as the batch; None stands for all."""
        if along is None:
            return self.examples in subject.shape or subject.numel() % self.examples == 0
        chosen = along if isinstance(along, tuple | list) else (along,)
        return any(
            isinstance(each, int)
            and -subject.dim() <= each < subject.dim()
            and subject.shape[each] == self.examples
            for each in chosen
        )

    def _index_moves(self, subject: Tensor, index: Any) -> bool:
        parts = list(index) if isinstance(index, tuple) else [index]
        used = sum(
            each.dim() if isinstance(each, Tensor) and each.dtype == torch.bool else 1
            for each in parts
            if each is not None and each is not Ellipsis and not isinstance(each, bool)
        )
        place = 0
        for each in parts:
            if each is None:
                continue
            if each is Ellipsis:
                place += subject.dim() - used
                continue
            if isinstance(each, bool):
                return True
            if isinstance(each, Tensor) and each.dtype == torch.bool:
                covered = subject.shape[place : place + each.dim()]
                if id(each) in self._data or self.examples in covered:
                    return True
                place += each.dim()
                continue
            size = subject.shape[place] if place < subject.dim() else 0
            place += 1
            if size != self.examples:
                continue
            if isinstance(each, slice):
                whole = each.start in (None, 0) and each.step in (None, 1)
                if not whole or not (each.stop is None or (isinstance(each.stop, int) and each.stop >= size)):
                    return True
            elif not (isinstance(each, Tensor) and id(each) in self._counted and _in_order(each, size)):
                return True
        return False


def _in_order(index: Tensor, size: int) -> bool:
    """Whether an index is 0, 1, 2 … in its first dimension."""
    return index.numel() == size and index.flatten().tolist() == list(range(size))
