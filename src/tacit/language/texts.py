"""Texts: a data set of texts and labels, whose batches are formed by length so that padding is cheap.

What holds, for each row by itself:

- A text becomes at most ``max_length`` tokens by a public rule. The number of its tokens is rounded up to the
  next of a few public :func:`widths`, and the row is padded to that width. So the shape that a row is
  computed in, and with it its rounding, is decided by the row alone, never by its neighbours in a batch.
- No row makes reading fail. None, NaN and anything else that is not text count as the empty text; characters
  that UTF-8 cannot write are replaced; of a very long text the first ``CHARACTERS`` × max_length characters
  are read; a text without tokens is one padding token that is attended to. A label that is not among the
  declared
  classes becomes :data:`UNKNOWN`, which ``CrossEntropyLoss`` ignores: such a row adds zero to every sum.
- Rows are read when the first batch is asked for, which is after the charge. Before that only the number of
  rows is looked at, by the sampler.

What holds for the rows of a batch together. The sampler draws the same rows, with the same event, as for any
other data set, and puts them into random order. Here they are dealt out by width, each width in that order,
and cut into parts of a fixed number of rows. The argument of :mod:`tacit.training.gradients.sums` then holds
within each width: a random order of the rows of a width without one of them, and with the last row of that
width in its place, is a random order of the others. So beside every batch with a row there is a batch
without it, as likely, in which one part holds another row and the last part of that width is a row shorter;
all parts of other widths, and all other parts of this one, are the same bit by bit. The sum has at most one
more part for each width than it would have without widths, each of which is rounded as before.

Lengths stay with the curator, as the rows do: how long a step takes and how many parts it has depends on
them, and neither is written into checkpoints, model files, guarantees or errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit import _validate
from tacit.data.given import column, places
from tacit.errors import InvalidValue
from tacit.language.template import CHARACTERS, attempted, cleaned, several
from tacit.language.tuning import CHUNK, Tuned, precision
from tacit.language.weights import Pretrained
from tacit.training.batches.dataset import Examples, Pair
from tacit.training.sampling import RowNumbers

__all__ = ["UNKNOWN", "Texts", "widths"]

UNKNOWN = -100
"""The target of a row whose label was not declared."""


def widths(max_length: int) -> tuple[int, ...]:
    """The public widths that rows are padded to: 8, 12, 16, 24, 32, 48, … up to ``max_length``.

    >>> widths(40)
    (8, 12, 16, 24, 32, 40)
    """
    found, width = [], 8
    while width < max_length:
        found.append(width)
        width += width // 2 if width & (width - 1) == 0 else width // 3
    return (*found, max_length)


class Texts(Examples):
    """Texts with labels, as :meth:`tacit.training.Trainer.fit` takes them; without labels, for predictions.

    ``tokenizer`` is one of transformers or a :class:`tacit.language.Pretrained`; ``max_length`` and
    ``classes``, the labels in the order of the model's outputs, are public. ``by_length=False`` pads all
    rows to
    ``max_length`` and leaves them in the order of the draw, which a loop of one's own, units of several rows
    and individual accounting need.

    ``above`` is the :class:`~tacit.language.Tuned` module that is to be trained: the blocks below its
    trained part are then computed once for each row, when rows are read, and kept in memory in half
    precision (two bytes × width for each token). What is kept is a function of one row: rows are computed in
    blocks of a fixed number, filled up with padding, so that no row is rounded by how many others there are.
    ``autocast`` is the precision of that computation.

    >>> from tacit.language import Texts, pretrained                         # doctest: +SKIP
    >>> minilm = pretrained("minilm")                                        # doctest: +SKIP
    >>> texts = Texts(reviews, stars, tokenizer=minilm, max_length=64, classes=[0, 1])   # doctest: +SKIP
    """

    def __init__(
        self,
        texts: Sequence[Any],
        labels: Any = None,
        *,
        tokenizer: Any,
        max_length: int = 128,
        classes: Sequence[Any] | None = None,
        by_length: bool = True,
        above: Tuned | None = None,
        autocast: torch.dtype | None = None,
    ) -> None:
        self._texts, self._labels = several("texts", texts), several("labels", labels)
        several("classes", classes)
        if labels is not None:
            if classes is None or len(classes) < 2:
                raise InvalidValue("classes", classes, "the labels that there are, two or more, declared")
            if len(labels) != len(texts):
                raise InvalidValue("labels", "another number of rows", "one for each text")
        self._classes = tuple(classes or ())
        self._tokenizer = tokenizer.tokenizer if isinstance(tokenizer, Pretrained) else tokenizer
        if not callable(self._tokenizer) or not hasattr(self._tokenizer, "pad_token_id"):
            advice = 'Give the model itself: tokenizer=tacit.language.pretrained("minilm").'
            raise InvalidValue("tokenizer", type(tokenizer), "a tokenizer of transformers", advice)
        self.max_length = _validate.count("max_length", max_length, 1)
        if above is not None and max_length > above.longest:
            raise InvalidValue(
                "max_length", max_length, f"at most {above.longest}, as the model has no more positions"
            )
        self._above, self._autocast = above, autocast
        self.in_order = not by_length
        self._widths = np.array(widths(self.max_length) if by_length else (self.max_length,))
        self._read: _Rows | None = None

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def labelled(self) -> bool:
        """Whether there are labels."""
        return self._labels is not None

    def batches(self, draws: Iterable[RowNumbers], size: int) -> Iterator[Iterator[Pair]]:
        for rows in draws:
            yield self._parts(rows, size)

    def like(self) -> Pair:
        """A batch of one row of padding in the largest shape there is, which no row of the data decides."""
        mask = torch.ones(1, self.max_length, dtype=torch.long)
        target = torch.zeros(1, dtype=torch.long)
        if self._above is None:
            return {"input_ids": torch.zeros_like(mask), "attention_mask": mask}, target
        wide, kind = self._above.transformer.width, self._above.head.weight.dtype
        return {"hidden": torch.zeros(1, self.max_length, wide, dtype=kind), "attention_mask": mask}, target

    def _parts(self, rows: RowNumbers, size: int) -> Iterator[Pair]:
        read = self._rows()
        if not len(rows):
            yield read.at(rows, int(self._widths[0]))
            return
        for place, width in enumerate(self._widths):
            some = rows[read.width_of[rows] == place]
            for start in range(0, len(some), size):
                yield read.at(some[start : start + size], int(width))

    def by_width(self, size: int) -> Iterator[tuple[RowNumbers, Any]]:
        """All rows, width by width, with the model's inputs: for predictions."""
        read = self._rows()
        for place, width in enumerate(self._widths):
            some = np.flatnonzero(read.width_of == place)
            for start in range(0, len(some), size):
                part = some[start : start + size]
                yield part, read.at(part, int(width))[0]

    def _rows(self) -> _Rows:
        if self._read is None:
            self._read = _Rows(self._tokens(), self._targets(), self._widths, self._padding)
            if self._above is not None:
                self._read.keep_lower(self._above, self._autocast)
        return self._read

    @property
    def _padding(self) -> int:
        return int(self._tokenizer.pad_token_id or 0)

    def _tokens(self) -> list[list[int]]:
        """The tokens of each row, at least one."""
        most, found = CHARACTERS * self.max_length, []
        every = _in_order(self._texts)
        for start in range(0, len(every), 1024):
            some = [cleaned(every[row], most) for row in range(start, min(start + 1024, len(every)))]
            found += [each[: self.max_length] or [self._padding] for each in self._tokenized(some)]
        return found

    def _tokenized(self, texts: list[str]) -> list[list[int]]:
        """The tokens of each text; none of one that the tokenizer fails on, whatever the others are."""
        given = attempted(lambda: self._ids(texts), None)
        if given is not None:
            return given
        return [[]] if len(texts) == 1 else [self._tokenized([each])[0] for each in texts]

    def _ids(self, texts: list[str]) -> list[list[int]] | None:
        found: list[list[int]] = self._tokenizer(
            texts, truncation=True, max_length=self.max_length, padding=False,
            return_attention_mask=False, return_token_type_ids=False,
        )["input_ids"]  # fmt: skip
        return found

    def _targets(self) -> NDArray[np.int64]:
        if self._labels is None:
            return np.full(len(self._texts), UNKNOWN, np.int64)
        given = self._labels.numpy() if isinstance(self._labels, Tensor) else self._labels
        found = places(column("labels", given, len(self._texts)), self._classes)
        return np.where(found < 0, UNKNOWN, found)


def _in_order(texts: Any) -> Any:
    """The texts by their places: a Series goes by its index otherwise, and an Arrow array has no str."""
    for name in ("to_pylist", "tolist", "to_list"):
        if hasattr(texts, name):
            return getattr(texts, name)()
    return texts


class _Rows:
    """Tokens of all rows one after the other, where each row begins, and its place among the widths."""

    def __init__(
        self, tokens: list[list[int]], targets: NDArray[np.int64], among: NDArray[Any], padding: int
    ) -> None:
        self.lengths = np.array([len(each) for each in tokens], np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])
        flat = (
            np.concatenate([np.array(each, np.int32) for each in tokens]) if tokens else np.empty(0, np.int32)
        )
        # One entry more, which padding is read from.
        self.tokens = torch.from_numpy(np.append(flat, np.int32(padding)))
        self.targets = torch.from_numpy(targets)
        self.width_of = np.searchsorted(among, self.lengths)
        self.among = among
        self.lower: Tensor | None = None
        self.kind = torch.float32

    def at(self, rows: RowNumbers, width: int) -> Pair:
        """The inputs of the model for these rows, padded to ``width``, and their targets."""
        real, places = self._places(rows, width)
        inputs = {"attention_mask": real.long()}
        if self.lower is None:
            inputs["input_ids"] = self.tokens[places].long()
        else:
            inputs["hidden"] = self.lower[places].to(self.kind)
        return inputs, self.targets[torch.from_numpy(np.asarray(rows, np.int64))]

    def _places(self, rows: RowNumbers, width: int) -> tuple[Tensor, Tensor]:
        steps = np.arange(width)
        real = steps < self.lengths[rows][:, None]
        places = np.where(real, self.starts[:-1][rows][:, None] + steps, len(self.tokens) - 1)
        return torch.from_numpy(real), torch.from_numpy(places)

    def keep_lower(self, above: Tuned, autocast: torch.dtype | None) -> None:
        """Compute the frozen blocks of every row, and keep what they give."""
        kept = torch.zeros(len(self.tokens), above.transformer.width, dtype=torch.float16)
        for place, width in enumerate(self.among):
            some = np.flatnonzero(self.width_of == place)
            for start in range(0, len(some), CHUNK):
                part = some[start : start + CHUNK]
                real, places = self._places(part, int(width))
                ids = torch.full((CHUNK, int(width)), int(self.tokens[-1]), dtype=torch.long)
                mask = torch.ones(CHUNK, int(width), dtype=torch.long)
                ids[: len(part)], mask[: len(part)] = self.tokens[places].long(), real.long()
                with torch.no_grad(), precision(autocast):
                    hidden = above.lower(ids, mask)[: len(part)]
                kept[places[real]] = hidden[real].clamp(-60000, 60000).half()
        self.lower, self.kind = kept, above.head.weight.dtype
