"""Releases as JSON and back, so that an answer can be stored, sent and used as if it had been asked here.

What is written was released: the value, its intervals at some confidences, the guarantee, and how the
numbers are laid out, which is public. The release that is read back shows the same value, and at these
confidences the same intervals. In between it gives the next wider one, which holds with at least the
probability asked for; above the largest it refuses.

>>> import tempfile, pathlib, json
>>> import pandas as pd
>>> import tacit
>>> schema = tacit.Schema({"smoker": tacit.Column("boolean")})
>>> ledger = tacit.Ledger.open(pathlib.Path(tempfile.mkdtemp()) / "s.db", budget=tacit.Budget(epsilon=1.0))
>>> people = pd.DataFrame({"smoker": [True, False, False] * 100})
>>> with tacit.tables.open(people, schema=schema, ledger=ledger) as table:
...     asked = table.count(by="smoker", epsilon=0.5)
>>> sent = release_from(json.loads(json.dumps(release_to(asked))))
>>> bool((sent.value == asked.value).all()), sent.interval(0.9)[0].equals(asked.interval(0.9)[0])
(True, True)
>>> ledger.close()
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tacit.errors import InvalidValue, TacitError
from tacit.guarantee import Guarantee
from tacit.tables.release import Answer, Release

__all__ = ["LEVELS", "release_from", "release_to"]

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
"""The confidences whose intervals are written, besides the one that is asked for."""


def release_to(release: Release, confidence: float = 0.95) -> dict[str, Any]:
    """The release as values that JSON has; ``confidence`` is one more level of its intervals."""
    answer, shown = release.filled(), release.value
    wanted = sorted({*LEVELS, confidence})
    levels, refusal = _levels(answer, wanted)
    return {
        "label": release.label,
        "guarantee": json.loads(release.guarantee.to_json()),
        "layout": _layout(shown),
        "values": _numbers(shown),
        "intervals": levels,
        "refusal": refusal,
        "bounds": None if release.bounds is None else {k: list(v) for k, v in release.bounds.items()},
        "kind": {
            "cells": answer.cells, "whole": answer.whole, "margins": answer.margins, "groups": answer.groups,
            "shape": list(answer.values.shape),
            "bins": None if answer.bins is None else list(answer.bins.texts()),
        },
    }  # fmt: skip


def _levels(answer: Answer, wanted: Sequence[float]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The intervals at these confidences, up to the first that is refused, and why it is."""
    plain, many = _in_order(answer), getattr(answer.interval, "many", None)
    kinds = (False, True) if answer.values.size > 1 else (False,)
    if many is not None:
        asked = [(level, simultaneous) for simultaneous in kinds for level in wanted]
        found, refusal = dict(zip(asked, many(asked), strict=True)), None
    else:
        found, refusal = _one_by_one(answer, wanted, kinds)
    levels: list[dict[str, Any]] = []
    for (level, simultaneous), pair in sorted(found.items()):
        ends = _ends(answer, pair, plain)
        if simultaneous:
            levels[-1]["simultaneous"] = ends
        else:
            levels.append({"confidence": level, **ends})
    return levels, refusal


def _one_by_one(
    answer: Answer, wanted: Sequence[float], kinds: Sequence[bool]
) -> tuple[dict[tuple[float, bool], Any], dict[str, Any] | None]:
    """The intervals up to the confidence at which one is refused for itself, and why it is."""
    found: dict[tuple[float, bool], Any] = {}
    for level in wanted:
        for simultaneous in kinds:
            try:
                found[level, simultaneous] = answer.interval(level, simultaneous)
            except InvalidValue as error:
                if not simultaneous:
                    told = {"requirement": error.requirement, "next": error.next_step}  # type: ignore[attr-defined]
                    return found, told
    return found, None


def _in_order(answer: Answer) -> bool:
    """Whether numbers are shown as they are, one after the other: tried on numbers of our own."""
    tried = np.arange(answer.values.size) + 0.5
    try:
        return bool(_numbers(answer.show(tried.reshape(answer.values.shape))) == tried.tolist())
    except (TypeError, ValueError, LookupError, ArithmeticError):
        return False


def _ends(answer: Answer, pair: Any, plain: bool) -> dict[str, Any]:
    shown = [end if plain else answer.show(end) for end in pair]
    return {"low": _numbers(shown[0]), "high": _numbers(shown[1])}


def release_from(sent: Mapping[str, Any]) -> Release:
    """The release that :func:`release_to` wrote; TacitError if it is none."""
    try:
        shape, layout, kind = sent["kind"]["shape"], sent["layout"], sent["kind"]
        values = _array(sent["values"], shape)
        intervals = _Intervals(tuple(sent["intervals"]), sent["refusal"], tuple(shape))
        bins = None if kind["bins"] is None else _SentBins(tuple(kind["bins"]))
        answer = Answer(
            values, intervals, _Show(layout), kind["cells"], kind["whole"], kind["margins"], kind["groups"],
            bins,  # type: ignore[arg-type]
        )  # fmt: skip
        made = Release(sent["label"], Guarantee.from_json(json.dumps(sent["guarantee"])), answer)
        if sent["bounds"] is not None:
            made.bounds = {name: tuple(pair) for name, pair in sent["bounds"].items()}
        answer.show(answer.values)
        return made
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TacitError(f"This is not a release: {error}.", "Ask the service for it again.") from error


@dataclass(frozen=True)
class _SentBins:
    """The bins of a histogram, known by what they are called."""

    names: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.names)

    def texts(self) -> tuple[str, ...]:
        return self.names


@dataclass(frozen=True)
class _Intervals:
    """The intervals that were sent, by confidence."""

    levels: tuple[Mapping[str, Any], ...]
    refusal: Mapping[str, Any] | None
    shape: tuple[int, ...]

    def __call__(self, confidence: float, simultaneous: bool) -> tuple[Any, Any]:
        for level in self.levels:
            single = not math.prod(self.shape) > 1
            found = level if single or not simultaneous else level.get("simultaneous")
            if level["confidence"] >= confidence and found is not None:
                return _array(found["low"], self.shape), _array(found["high"], self.shape)
        if self.refusal is not None:
            raise InvalidValue("confidence", confidence, self.refusal["requirement"], self.refusal["next"])
        most = max((level["confidence"] for level in self.levels), default=0.0)
        raise InvalidValue(
            "confidence", confidence, f"at most {most:g}, the largest that was sent",
            "Ask with this confidence= to be sent its interval.",
        )  # fmt: skip


@dataclass(frozen=True)
class _Show:
    """Lays numbers out as the table did that was asked."""

    layout: Mapping[str, Any]

    def __call__(self, values: Any) -> Any:
        form, layout = self.layout["form"], self.layout
        if form == "scalar":
            return values.item()
        if form == "pair":
            return tuple(values.tolist())
        if form == "array":
            return values
        rows = _index(layout["rows"])
        if form == "frame":
            columns = _index(layout["columns"])
            return pd.DataFrame(values.reshape(len(rows), len(columns)), index=rows, columns=columns)
        flat = values.ravel()
        return pd.Series(list(flat) if flat.dtype == object else flat, index=rows)


def _layout(shown: Any) -> dict[str, Any]:
    if isinstance(shown, pd.DataFrame):
        return {"form": "frame", "rows": _labels(shown.index), "columns": _labels(shown.columns)}
    if isinstance(shown, pd.Series):
        return {"form": "series", "rows": _labels(shown.index)}
    if isinstance(shown, tuple):
        return {"form": "pair"}
    return {"form": "array" if isinstance(shown, np.ndarray) and shown.ndim else "scalar"}


def _labels(index: pd.Index) -> dict[str, Any]:
    if isinstance(index, pd.RangeIndex):
        return {"range": [index.start, index.stop, index.step], "names": list(index.names)}
    if isinstance(index, pd.MultiIndex):
        levels = [index.get_level_values(place) for place in range(index.nlevels)]
    else:
        levels = [index]
    return {
        "levels": [
            {"dtype": str(level.dtype), "closed": getattr(level, "closed", None), "labels": _plain(level)}
            for level in levels
        ],
        "names": [None if name is None else str(name) for name in index.names],
    }


def _index(labels: Mapping[str, Any]) -> pd.Index:
    if "range" in labels:
        return pd.RangeIndex(*labels["range"], name=labels["names"][0])
    levels, names = [], labels["names"]
    for level, name in zip(labels["levels"], names, strict=True):
        read: list[Any] = list(map(_value, level["labels"]))
        if level["closed"] is not None:
            breaks = [pd.Interval(*ends, closed=level["closed"]) for ends in read]
            levels.append(pd.IntervalIndex(breaks, dtype=level["dtype"], name=name))
        else:
            levels.append(pd.Index(read, dtype=level["dtype"], name=name))
    if len(levels) == 1:
        return levels[0]
    return pd.MultiIndex.from_arrays(levels, names=names)


def _plain(values: Any) -> list[Any]:
    return [_written(value) for value in values]


def _written(value: Any) -> Any:
    """A label or number as JSON has it: dates, intervals and what is not finite as words with a tag."""
    if isinstance(value, pd.Interval):
        return {"ends": [_written(value.left), _written(value.right)]}
    if isinstance(value, pd.Timestamp):
        return {"time": value.isoformat()}
    if isinstance(value, datetime.date):
        return {"date": value.isoformat()}
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _value(written: Any) -> Any:
    if not isinstance(written, dict):
        return written
    ((tag, text),) = written.items()
    readers: dict[str, Any] = {
        "date": datetime.date.fromisoformat, "time": pd.Timestamp, "float": float,
        "ends": lambda ends: tuple(map(_value, ends)),
    }  # fmt: skip
    return readers[tag](text)


def _numbers(shown: Any) -> list[Any]:
    """The values in a row, in the order of the layout."""
    if isinstance(shown, pd.DataFrame | pd.Series):
        return _plain(shown.to_numpy().ravel().tolist())
    if isinstance(shown, tuple | np.ndarray):
        return _plain(np.asarray(shown).ravel().tolist())
    return [_written(shown)]


def _array(numbers: Sequence[Any], shape: Sequence[int]) -> Any:
    read = [_value(one) for one in numbers]
    plain = all(type(one) in (int, float, bool) for one in read)
    made = np.empty(len(read), dtype=object)
    made[:] = read
    return (np.array(read) if plain and read else made).reshape(tuple(shape))
