"""Drawings for pages, as SVG without styles of its own: the page's stylesheet colours it, light or dark.

A budget is a bar, with its numbers beside it in the text; what was spent over time is a line of steps, with a
table beside it. Charts of answers are those of the reports, which are drawn one at a time: matplotlib has
settings that all threads share.

>>> print(bar(1.0, 4.0))
<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">...
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from markupsafe import Markup, escape

from tacit.report.page import Picture, Section, Table

__all__ = ["bar", "course", "plain", "sections"]

MOST_ROWS = 1000
"""Lines of a table on a page."""
_LOCK = threading.Lock()
_STYLE = re.compile(r' style="([^"]*)"')


def bar(spent: float, budget: float, cost: float = 0.0) -> Markup:
    """A bar of what is spent, what a request would spend, and what is left; numbers stand beside it."""
    whole = budget if budget > 0 else 1.0
    done = 100 * min(1.0, max(0.0, spent / whole))
    more = min(100 - done, 100 * max(0.0, cost / whole))
    parts = ['<rect class="left" width="100" height="8"/>']
    parts.append(f'<rect class="spent" width="{done:.2f}" height="8"/>')
    if more > 0:
        parts.append(f'<rect class="cost" x="{done:.2f}" width="{more:.2f}" height="8"/>')
        parts.append(f'<rect class="edge" x="{done:.2f}" width="0.5" height="8"/>')
    return Markup(
        f'<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(parts)}</svg>"
    )


def course(points: Sequence[tuple[str, float]], budget: float, about: str, now: float) -> Markup:
    """What was spent in all after each time, as steps below the budget; for wide and for narrow screens."""
    drawn = "".join(
        f'<div class="{name}">{_course(points, budget, about, now, width)}</div>'
        for name, width in (("wide", 460), ("narrow", 320))
    )
    return Markup(f'<div class="course">{drawn}</div>')


def _course(points: Sequence[tuple[str, float]], budget: float, about: str, now: float, width: int) -> str:
    height, left, right, top, bottom = 190, 44, 12, 20, 26
    times = [datetime.fromisoformat(time).timestamp() for time, _ in points]
    first = times[0] if times else now - 60
    last = max(now, first + 1)
    first -= 0.04 * (last - first)

    def x(time: float) -> float:
        return left + (width - left - right) * (time - first) / (last - first)

    def y(epsilon: float) -> float:
        return height - bottom - (height - bottom - top) * min(1.0, epsilon / budget)

    steps = [f"M{left} {y(0):.1f}"]
    for time, (_, total) in zip(times, points, strict=True):
        steps.append(f"H{x(time):.1f} V{y(total):.1f}")
    line = " ".join([*steps, f"H{width - right}"])
    lines = []
    for level in _levels(budget):
        kind = "limit" if level == budget else "grid"
        place = y(level)
        lines.append(f'<path class="{kind}" d="M{left} {place:.1f}H{width - right}"/>')
        lines.append(f'<text x="{left - 6}" y="{place + 4:.1f}" text-anchor="end">{level:g}</text>')
    lines.append(f'<text x="{left}" y="{top - 8}">budget, ε</text>')
    for time, anchor in ((first, "start"), ((first + last) / 2, "middle"), (last, "end")):
        text = _tick(time, last - first)
        place = {"start": float(left), "middle": x(time), "end": float(width - right)}[anchor]
        lines.append(f'<text x="{place:.1f}" y="{height - 6}" text-anchor="{anchor}">{text}</text>')
    final = points[-1][1] if points else 0.0
    dot = f'<circle class="dot" cx="{width - right}" cy="{y(final):.1f}" r="3.5"/>'
    area = f"{line} V{y(0):.1f} Z"
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" class="steps"><title>{escape(about)}</title>'
        f"<desc>Steps: ε spent in all after each charge; the numbers are in the list of charges.</desc>"
        f'<path class="area" d="{area}"/>{"".join(lines)}<path class="line" d="{line}"/>{dot}</svg>'
    )


def _levels(budget: float) -> list[float]:
    """Zero, the budget, and round numbers in between."""
    step = 10.0 ** math.floor(math.log10(budget))
    while budget / step < 3:
        step /= 2
    while budget / step > 6:
        step *= 2
    inner = [number * step for number in range(1, math.ceil(budget / step)) if number * step < 0.9 * budget]
    return [0.0, *inner, budget]


def _tick(time: float, span: float) -> str:
    moment = datetime.fromtimestamp(time, UTC)
    if span < timedelta(minutes=20).total_seconds():
        return f"{moment:%H:%M:%S}"
    if span < timedelta(days=2).total_seconds():
        return f"{moment:%H:%M}"
    return f"{moment.day} {moment:%b}" if span < timedelta(days=300).total_seconds() else f"{moment:%b %Y}"


def plain(drawn: str) -> str:
    """A drawing with attributes in place of styles, which the page's policy does not let through.

    >>> plain('<path d="M0 0" style="fill: none; stroke: var(--ink)"/>')
    '<path d="M0 0" fill="none" stroke="var(--ink)"/>'
    """

    def attributes(found: re.Match[str]) -> str:
        pairs = [part.partition(":") for part in found.group(1).split(";") if ":" in part]
        return "".join(f' {name.strip()}="{value.strip()}"' for name, _, value in pairs)

    return _STYLE.sub(attributes, drawn)


def _short(section: Section) -> Section:
    """A section whose tables have no more rows than a page can show; the release itself has them all."""

    def cut(table: Table | None) -> Table | None:
        return None if table is None else (table[0], table[1][:MOST_ROWS])

    fold = section.fold
    most = max((len(one.table[1]) for one in (section, fold) if one and one.table), default=0)
    if most <= MOST_ROWS:
        return section
    note = f"The first {MOST_ROWS:,} of {most:,} numbers are shown; the download has them all."
    shorter = None if fold is None else replace(fold, table=cut(fold.table))
    return replace(section, table=cut(section.table), fold=shorter, note=note)


@lru_cache(maxsize=64)
def sections(number: str, answers: tuple[str, ...], confidence: float) -> tuple[Section, ...]:
    """The answers of a request, drawn and as tables; ``answers`` are its releases as JSON."""
    from tacit.report.answers import answer_sections
    from tacit.tables.wire import release_from

    releases = [release_from(json.loads(answer)) for answer in answers]
    with _LOCK:
        made = [_short(section) for section in answer_sections(releases, confidence)]

    def coloured(section: Section) -> Section:
        figure = section.figure
        if figure is None:
            return section
        drawn = Picture(plain(figure.wide), plain(figure.narrow), figure.caption, figure.text)
        return replace(section, figure=drawn)

    return tuple(map(coloured, made))
