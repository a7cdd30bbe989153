"""Several views of each example, which are made before the batch goes through the model.

The gradients of the views of one example are added up by :mod:`tacit.training.gradients.views`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tacit.training.batches import tree
from tacit.training.batches.dataset import Pair

Augment = Callable[[Any], Any]


def viewed(pair: Pair, views: int, augment: Augment | None, *, alone: bool) -> Pair:
    """The pair with each entry repeated ``views`` times in a row, and with its inputs augmented.

    ``augment`` is given all inputs at once, or, if ``alone``, the inputs of one example at a time.
    """
    if views == 1 and augment is None:
        return pair

    def repeat(leaf: Any) -> Any:
        return leaf.repeat_interleave(views, 0) if tree.batched(leaf) else leaf

    inputs, targets = tree.mapped(repeat, pair) if views > 1 else pair
    entries = tree.examples(inputs, targets)
    if augment is None or not entries:
        return inputs, targets
    if not alone:
        return augment(inputs), targets

    def cut(start: int) -> Any:
        return tree.mapped(lambda leaf: leaf[start : start + views] if tree.batched(leaf) else leaf, inputs)

    return joined([augment(cut(start)) for start in range(0, entries, views)]), targets


def joined(parts: list[Any]) -> Any:
    """The entries of several trees, one after the other."""

    def join(leaves: list[Any]) -> Any:
        return torch.cat(leaves) if isinstance(leaves[0], Tensor) and leaves[0].dim() else leaves[0]

    return tree.zipped(join, parts)
