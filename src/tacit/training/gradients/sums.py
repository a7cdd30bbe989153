"""Sums that one example moves by its own length, up to a thousandth, however many examples there are.

The clipped gradients of N examples have norms of at most C, and their sum one of up to N·C. Added up in
float32 one after the other, whose numbers near N·C lie N·C·u apart (u = 2⁻²³), one more example moves
the sum by C give or take several of these distances; and an example that is put in first moves all others by
a place, so that every block of them is rounded anew. At four million examples that was 1.15 C and 2.6 C.
The noise is calibrated to C, and what has to move by at most C is the sum that is *computed*. So:

- At most :data:`RUN` terms are added up in float32, an example having a term for each of its positions. A
  sum of these is at most RUN·C, and a change of one term changes it by that term and a few distances of
  RUN·C·u = 1.2e-4 C. Runs are added up in float64, whose distance at four million is 1e-9 C.
- The rows of a batch lie in random order (:mod:`tacit.training.sampling`) in parts of a fixed length of
  at most :data:`BLOCK`. A random order of N + 1 rows without one of them, and with the last row in its place,
  is a random order of N: beside every batch with an example there is one without it, as likely as that one,
  in which the row at one place is another and the last part is a row shorter. All other parts are the same
  bit by bit, however their rows are rounded, and so are all other runs of the part with the other row.
- Sums of up to :data:`MANY` expected examples are rounded to float32 once for each part, by 1.2e-4 C at most.
  Sums of more stay in float64, noise is added to them in float64, and the result is rounded after it.
- From :data:`EXACT` expected examples on products are taken in float64 too, in which those of float32 numbers
  are exact: then no order of the rows matters. This is not needed for the argument above, and takes up to
  twice the time.

With the rounding of the norms that examples are clipped by (8.5e-5) and of the factors, one example moves the
sum by less than 1.001 C.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

RUN = 1024
"""Terms that are added up in float32."""
MANY = 2048
"""Expected examples in a step from which on sums are in float64."""
EXACT = 16384
"""Expected examples in a step from which on products are in float64."""
BLOCK = 8192
"""Most examples in a part of a batch."""


def in_runs(product: Callable[..., Tensor], dtype: torch.dtype, *rows: Tensor, run: int = RUN) -> Tensor:
    """``product(*rows)``, a sum over rows, of ``run`` at a time in this precision, then in float64."""
    if len(rows[0]) <= run:
        return product(*(each.to(dtype) for each in rows))
    total: Tensor | None = None
    for parts in zip(*(torch.split(each, run) for each in rows), strict=True):
        part = product(*(each.to(dtype) for each in parts))
        total = part.double() if total is None else total.add_(part)
    assert total is not None
    return total


def weighted_rows(rows: Tensor, factors: Tensor) -> Tensor:
    """Σ factor × row."""
    return in_runs(lambda some, by: torch.mv(some.t(), by), factors.dtype, rows, factors)


def outer_products(one: Tensor, two: Tensor, dtype: torch.dtype) -> Tensor:
    """Σ over rows of the outer products of two."""
    return in_runs(lambda left, right: left.t() @ right, dtype, one, two)


def wide(dtype: torch.dtype, exact: bool = False) -> torch.dtype:
    """The precision in which gradients of a parameter of this one are computed: at least float32."""
    return torch.promote_types(dtype, torch.float64 if exact else torch.float32)


def summed(dtype: torch.dtype, expected: int) -> torch.dtype:
    """The precision in which so many gradients of a parameter of this one are summed."""
    return wide(dtype, expected > MANY)
