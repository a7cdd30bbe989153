"""A public start: the trained part learns from public texts before it sees a private row.

DP-SGD spends most of a small budget on what a few public sentences say just as well: which direction of the
hidden states is meant by a class. Sentences written by hand for each class, or put together from lists of
words, are enough to begin with, and cost no privacy.

Guarantee: none is needed, and none is given. Nothing here reads a private row, no event is made, and no
ledger is charged; a later run of :class:`tacit.training.Trainer` has the guarantee that it has from any other
public start. The texts must not come from the people that the run protects. What was looked at to write them
counts as well: sentences that were copied from private rows, or chosen by how well they do on private rows,
are not public.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.language.texts import Texts
from tacit.language.tuning import Tuned, precision

__all__ = ["start_on_public"]


def start_on_public(
    tuned: Tuned, texts: Texts, *, epochs: int = 1, batch_size: int = 32, rate: float = 1e-4,
    smoothing: float = 0.1, seed: int = 0, autocast: torch.dtype | None = None,
) -> Tuned:  # fmt: skip
    """Train what ``tuned`` trains on public texts, without noise and clipping, in place.

    AdamW, with a learning rate that rises to ``rate`` over the first tenth of the steps and falls to nothing;
    ``smoothing`` of the labels keeps the scores moderate, so that private rows can still move them.

    >>> from tacit.language import LastLayers, Texts, pretrained, start_on_public        # doctest: +SKIP
    >>> minilm = pretrained("minilm")                                                    # doctest: +SKIP
    >>> tuned = LastLayers(minilm, 2, classes=2)                                         # doctest: +SKIP
    >>> public = Texts(["a dull film", "a moving film"], [0, 1], tokenizer=minilm,
    ...                classes=[0, 1])                                                   # doctest: +SKIP
    >>> start_on_public(tuned, public, epochs=50)                                        # doctest: +SKIP
    """
    _validate.count("epochs", epochs, 1)
    _validate.count("batch_size", batch_size, 1)
    _validate.positive("rate", rate)
    if not len(texts):
        raise InvalidValue("texts", "no rows", "public texts, with labels")
    if not texts.labelled:
        raise InvalidValue("texts", "without labels", "public texts with labels", "Give Texts the labels.")
    trained = [each for each in tuned.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate)
    loss = nn.CrossEntropyLoss(reduction="sum", label_smoothing=smoothing)
    drawn = np.random.default_rng(seed)
    order = np.concatenate([drawn.permutation(len(texts)) for _ in range(epochs)])
    draws = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    for number, parts in enumerate(texts.batches(draws, batch_size)):
        share = (number + 0.5) / len(draws)
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, share / 0.1) * (1 - share)
        optimizer.zero_grad()
        for inputs, targets in parts:
            with precision(autocast):
                scores = tuned(**inputs)
            (loss(scores.float(), targets) / len(draws[number])).backward()
        optimizer.step()
    optimizer.zero_grad()
    return tuned
