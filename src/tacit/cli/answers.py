"""Answers as they are printed and written: rich tables, JSON, CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from tacit.tables.lines import AnswerLines, Line, shown

__all__ = ["to_csv", "to_json", "to_tables"]


def to_json(answers: Sequence[AnswerLines]) -> list[dict[str, Any]]:
    """The answers as JSON: a single one as value, low and high, a table as rows of these with keys."""
    return [{"label": answer.label, **_body(answer), "guarantee": _guarantee(answer)} for answer in answers]


def _guarantee(answer: AnswerLines) -> Any:
    return json.loads(answer.guarantee.to_json())


def _body(answer: AnswerLines) -> dict[str, Any]:
    def numbers(line: Line) -> dict[str, Any]:
        edges = {} if line.edges is None else {"edges": list(line.edges)}
        return {**edges, "value": line.value, "low": line.low, "high": line.high}

    if not answer.names:
        return numbers(answer.lines[0])
    return {
        "rows": [
            {"keys": dict(zip(answer.names, line.keys, strict=True)), **numbers(line)}
            for line in answer.lines
        ]
    }


def to_csv(answers: Sequence[AnswerLines]) -> str:
    """One line per number: the question, the keys of all questions, value, low, high."""
    names = list(dict.fromkeys(name for answer in answers for name in answer.names))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["question", *names, "value", "low", "high"])
    for answer in answers:
        for line in answer.lines:
            keys = dict(zip(answer.names, line.keys, strict=True))
            found = [*(keys.get(name) for name in names), line.value, line.low, line.high]
            writer.writerow([answer.label, *found])
    return text.getvalue()


def to_tables(answers: Sequence[AnswerLines], confidence: float) -> Iterator[str | Table]:
    """The answers for people: all single values in one table, then a title and a table for each other."""
    single = [answer for answer in answers if not answer.names]
    if single:
        rows = [(answer.label, *shown(answer.lines)[0]) for answer in single]
        yield _table(["question"], rows, confidence)
    for answer in answers:
        if answer.names:
            written = zip(answer.lines, shown(answer.lines), strict=True)
            yield answer.label
            yield _table(
                answer.names, [(*map(str, line.keys), *numbers) for line, numbers in written], confidence
            )
        if not answer.lines:
            yield "Nothing passed the threshold."


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], confidence: float) -> Table:
    table = Table()
    for name in names:
        table.add_column(escape(name), overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    intervals = any(row[-1] for row in rows)
    if intervals:
        table.add_column(f"{100 * confidence:.6g} % interval", no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row if intervals else row[:-1]))
    return table
