"""The answer of a model for each row, computed from that row alone.

A count over rows has sensitivity 1 only if a row more or less leaves the cells of all other rows as they
are. A model that is called with all rows at once does not promise that: a product of matrices rounds a row
by how many rows there are and where it stands, one value that overflows makes the call fail for
everybody, and code that nobody has read may do anything. Here a row's answer depends, bit by bit, on
that row, on the model and on public facts:

* Models whose every part is in the closed table of :mod:`tacit.evaluation.rowlocal` are called with blocks of
  exactly :data:`BLOCK` rows, in one memory layout, filled up with rows of zeros. Before that, public random
  rows have to get the same answers, to the last bit, wherever in the block and beside whichever others
  they stand. Matrix products are computed in tiles, and rows at the edge of a tile are rounded differently;
  :data:`BLOCK` is a multiple of the size of a tile. Models that compute no products, such as trees, take
  longer blocks.
* Any other model is called with one row at a time, each row being answered by a copy of its own of the
  model as it was handed over, and with the generators of random numbers that a process shares as they were.
  State that a model keeps elsewhere (in its class, a module, a function, a file) cannot be copied. A model
  that gives public rows other answers the second time is refused; that all others keep no such state is an
  assumption of the guarantee, :data:`FORGETFUL`.

A row for which the model raises, or gives an answer of another shape or type, has no answer (NaN), and no
other row is affected: the failing row is found by halving the block, with zeros in place of the other half,
so that all other rows get the answers they would have got without it.
"""

from __future__ import annotations

import copy
import pickle
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy import special
from threadpoolctl import ThreadpoolController

from tacit.errors import EngineFailed, InvalidValue
from tacit.evaluation.rowlocal import parts_with_products

__all__ = ["BLOCK", "FORGETFUL", "MatrixScorer", "Read", "called", "copied", "one_by_one", "silence"]

Array = NDArray[Any]
Float64 = NDArray[np.float64]
Read = Callable[[Any, int], Float64]

BLOCK = 384
"""Rows that a model in the table is called with: 2⁷·3, which tiles of 4, 6, 8, 12, 16, 24, 32 … divide."""
LONG_BLOCK = 8 * BLOCK
"""The same for models without products, which round every row by itself in a block of any length."""
FEW = 2
"""Rows that a model in the table must have answers for too: an array with an entry for each place of a block,
which public rows may not show, fits no other number of rows."""
SHUFFLES = 4
"""How often the public rows of a test are put into another order."""
FORGETFUL = "the model keeps nothing, outside of the object handed over, from one row to the next"
"""An assumption about models of unknown classes."""
_ASKED_TWICE = 8
"""Public rows that a model of unknown class is asked about twice, in another order."""
_LINE = 64


@dataclass(frozen=True)
class MatrixScorer:
    """Calls a ``method`` of a model with rows of a matrix, and reads ``width`` numbers for each row.

    ``read(output, rows)`` turns the method's output into numbers, each row by itself, and raises where there
    is not one answer per row. ``frame`` makes a frame of a matrix of so many ``columns``, where the model
    takes a frame and no array.
    """

    model: Any
    method: str
    read: Read
    width: int
    columns: int
    frame: Callable[[Float64], Any] | None = None

    def check(self) -> None:
        """Refuse a model that cannot answer for public rows of this shape; no private row is needed."""
        with silence():
            if self._answers_made_up_rows(self.model):
                return
        raise self._useless()

    def _useless(self) -> EngineFailed:
        return EngineFailed(
            f"The model has no answer, by {self.method}, for rows of {self.columns} columns: not even for "
            "zeros and other numbers made up for a test. What it said is withheld, for it may quote rows.",
            "Check on public rows that the model takes input of this shape.",
            engine=type(self.model).__name__,
        )

    def of(self, matrix: Float64) -> Float64:
        """The answers for all rows, NaN where there is none."""
        with silence():
            size = self._block()
            if size == 1:
                model = copied(self.model)
                if not self._answers_made_up_rows(model):
                    raise self._useless()
                self._refuse_memory(model)
                return one_by_one(model, len(matrix), self.width, lambda model, i: self._answers(
                    matrix[i : i + 1], model
                ))  # fmt: skip
            return self._blockwise(matrix, size)

    def _answers_made_up_rows(self, model: Any) -> bool:
        """Whether a model has an answer for any of the public rows; it may set itself up meanwhile."""
        return any(self._answers(rows, model) is not None for rows in _public_rows(1, self.columns))

    def _refuse_memory(self, model: Any) -> None:
        """Refuse a model that gives public rows other answers the second time, copied or not."""
        rows = np.vstack([next(_public_rows(_ASKED_TWICE, self.columns)), np.zeros((1, self.columns))])
        order = [*range(len(rows)), *reversed(range(len(rows)))]
        found = one_by_one(model, len(order), self.width, lambda each, i: self._answers(
            rows[order[i] : order[i] + 1], each
        ))  # fmt: skip
        if found.tobytes() != found[::-1].tobytes():
            raise InvalidValue(
                "model", type(self.model).__name__, "one that gives a row the same answer every time",
                "It draws at random, or keeps what it was asked in its class, a module or a function.",
            )  # fmt: skip

    def _answers(self, rows: Float64, model: Any) -> Float64 | None:
        """The model's answers for these rows, which it gets in an array of their own; None if it fails."""
        given = aligned(len(rows), self.columns)
        given[...] = rows
        handed = given if self.frame is None else self.frame(given)
        return called(model, self.method, handed, self.read, (len(rows), self.width))

    def _block(self) -> int:
        """How many rows the model may be called with, by its class and by a test on public rows."""
        parts = parts_with_products(self.model)
        if parts is None:
            return 1
        fitted = [part for part in parts if any(name.endswith("_") for name in vars(part))]
        if any(not hasattr(part, "n_features_in_") and part is not self.model for part in fitted):
            return 1
        distinct = {_signature(part): part for part in fitted if hasattr(part, "n_features_in_")}
        apart = all(_keeps_rows_apart(_method_of(part), part.n_features_in_) for part in distinct.values())
        apart = apart and any(
            _same_anywhere(lambda rows: self._answers(rows, self.model), rows, SHUFFLES if fitted else 1)
            and self._answers(rows[:FEW], self.model) is not None
            for rows in _public_rows(BLOCK, self.columns)
        )
        return 1 if not apart else BLOCK if fitted else LONG_BLOCK

    def _blockwise(self, matrix: Float64, size: int) -> Float64:
        found = np.full((len(matrix), self.width), np.nan)
        for start in range(0, len(matrix), size):
            block = np.zeros((size, self.columns))
            part = matrix[start : start + size]
            block[: len(part)] = part
            found[start : start + size] = self._halving(block, 0, size)[: len(part)]
        return found

    def _halving(self, block: Float64, first: int, last: int) -> Float64:
        """Answers for the rows from ``first`` to ``last`` of a block that is zero elsewhere."""
        answers = self._answers(block, self.model)
        found = np.full((len(block), self.width), np.nan)
        if answers is not None:
            found[first:last] = answers[first:last]
        elif last - first > 1:
            middle = (first + last) // 2
            for low, high in ((first, middle), (middle, last)):
                half = np.zeros_like(block)
                half[low:high] = block[low:high]
                found[low:high] = self._halving(half, low, high)[low:high]
        return found


def called(model: Any, method: str, X: Any, read: Read, shape: tuple[int, int]) -> Float64 | None:
    """The output of a model's method for rows, read as numbers; None where the model fails in any way."""
    try:
        found = np.asarray(read(getattr(model, method)(X), shape[0]), dtype=np.float64)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None
    return found if found.shape == shape else None


def one_by_one(model: Any, rows: int, width: int, ask: Callable[[Any, int], Float64 | None]) -> Float64:
    """``ask(model, i)`` for each row i, each time with another copy of the model."""
    found = np.full((rows, width), np.nan)
    another, back = _copies_of(model), _generators()
    for i in range(rows):
        found[i] = _or_nothing(ask(another(), i))
        back()
    return found


def _copies_of(model: Any) -> Callable[[], Any]:
    """A function that makes copies of a model: from its pickle, which is faster, or by ``deepcopy``."""
    try:
        stored = pickle.dumps(model, protocol=pickle.HIGHEST_PROTOCOL)
        if type(pickle.loads(stored)) is type(model):
            return lambda: pickle.loads(stored)
    except Exception:
        pass
    return lambda: copied(model)


def _generators() -> Callable[[], None]:
    """A function that puts the random generators of the process back to where they are now."""
    plain, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch = getattr(sys.modules.get("torch"), "random", None)
    tensors = None if torch is None else torch.get_rng_state()

    def back() -> None:
        random.setstate(plain)
        np.random.set_state(arrays)  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(tensors)

    return back


def copied(model: Any) -> Any:
    """A copy of a model, which must be possible: refused by the model's class, whatever the rows."""
    try:
        return copy.deepcopy(model)
    except Exception:
        pass
    raise InvalidValue(
        "model", type(model).__name__, "one that can be copied, or of scikit-learn's own classes",
        "Take what cannot be copied (connections, locks) out of it, or wrap its predictions in an estimator.",
    )  # fmt: skip


def aligned(rows: int, columns: int) -> Float64:
    """A new array in row order that begins at a multiple of 64 bytes, so that loops start alike."""
    size = rows * columns * 8
    memory = np.empty(size + _LINE, dtype=np.uint8)
    start = -memory.ctypes.data % _LINE
    return memory[start : start + size].view(np.float64).reshape(rows, columns)


def _or_nothing(answers: Float64 | None) -> Any:
    return np.nan if answers is None else answers[0]


@cache
def _libraries() -> Any:
    return ThreadpoolController()


@contextmanager
def silence() -> Iterator[None]:
    """Hide warnings, which depend on rows, and compute in one thread, so that sums have one order.

    Afterwards the random generators of the process are where they were, however much the model drew.
    """
    back = _generators()
    with (
        np.errstate(all="ignore"),
        special.errstate(all="ignore"),
        warnings.catch_warnings(),
        joblib.parallel_config(backend="sequential"),
        _libraries().limit(limits=1, user_api="blas"),
    ):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            back()


def _public_rows(rows: int, columns: int) -> Iterator[Float64]:
    """Made-up rows: of all sizes and signs, then zeros and ones for models that take nothing else."""
    generator = np.random.default_rng(20)
    sizes = 10.0 ** generator.uniform(-2, 1, size=(rows, 1))
    yield generator.normal(size=(rows, columns)) * sizes
    yield generator.integers(0, 2, size=(rows, columns)).astype(np.float64)
    yield np.zeros((rows, columns)) if rows == 1 else generator.uniform(size=(rows, columns))


def _signature(part: Any) -> tuple[Any, ...]:
    """Parts of one class and one shape are computed alike."""
    shapes = [
        (name, np.shape(value)) for name, value in sorted(vars(part).items()) if isinstance(value, np.ndarray)
    ]
    return type(part), part.n_features_in_, tuple(shapes)


def _method_of(part: Any) -> Callable[[Float64], Any]:
    """The method of a part whose output shows how it rounds."""
    for name in ("transform", "decision_function", "predict_proba", "predict"):
        if hasattr(part, name):
            method: Callable[[Float64], Any] = getattr(part, name)
            return method
    raise TypeError(type(part).__name__)


def _keeps_rows_apart(method: Callable[[Float64], Any], columns: int) -> bool:
    """Whether a part gives public rows the same answers anywhere in a block, in either memory layout."""

    def ask(rows: Float64) -> Float64 | None:
        try:
            output = method(rows)
            return np.asarray(output.toarray() if hasattr(output, "toarray") else output)
        except Exception:
            return None

    def other_layout(rows: Float64) -> Float64 | None:
        return ask(np.asfortranarray(rows))

    return any(
        _same_anywhere(ask, rows, SHUFFLES) and _same_anywhere(other_layout, rows, SHUFFLES)
        for rows in _public_rows(BLOCK, columns)
    )


def _same_anywhere(ask: Callable[[Float64], Float64 | None], rows: Float64, shuffles: int) -> bool:
    """Whether rows get the same answers in any order, and beside zeros."""
    first = ask(rows)
    if first is None or len(first) != len(rows):
        return False
    generator = np.random.default_rng(21)
    for place in range(shuffles):
        order = generator.permutation(len(rows))
        shuffled = rows[order]
        shown = np.ones(len(rows), dtype=bool)
        if place == 0:
            shown = generator.random(len(rows)) < 0.5
            shuffled = np.where(shown[:, None], shuffled, 0.0)
        again = ask(shuffled)
        if again is None or again.shape != first.shape:
            return False
        same = again[shown] == first[order][shown]
        if first.dtype.kind == "f":
            same |= np.isnan(again[shown]) & np.isnan(first[order][shown])
        if not same.all():
            return False
    return True
