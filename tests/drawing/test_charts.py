"""Charts of plain numbers, small and large, and what they say of what they leave out."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from tacit.drawing import charts, files
from tacit.drawing.charts import Chart, Panel, figure_of
from tacit.errors import InvalidValue


def panel(number: int, title: str = "", name: str = "name") -> Panel:
    values = list(range(number))
    return Panel(
        [f"{name} {i}" for i in values], values, [v - 1 for v in values], [v + 1 for v in values], title
    )


def texts(figure: charts.Figure) -> str:
    from matplotlib.text import Text

    figure.draw_without_rendering()
    return "\n".join(found.get_text() for found in figure.findobj(Text))


@pytest.mark.parametrize("number", [3, 39, 400])
@pytest.mark.parametrize("kind", ["bars", "bins"])
@pytest.mark.parametrize("width", [charts.WIDE, charts.NARROW])
def test_any_number_of_bars_is_drawn_without_overlapping_names(kind: str, number: int, width: float) -> None:
    chart = Chart("count() by x", kind, (panel(number),), width=width)
    figure = figure_of([chart])
    figure.draw_without_rendering()
    (axes,) = figure.get_axes()
    assert axes.get_title(loc="left") == "count() by x"
    names = axes.get_xticklabels() if chart.upright else axes.get_yticklabels()
    boxes = [name.get_window_extent() for name in names]
    assert boxes
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
    assert all(figure.bbox.padded(2).contains(*corner) for box in boxes for corner in box.corners())


def test_long_names_are_shortened_and_dollars_are_letters() -> None:
    shown = texts(figure_of([Chart("", "bars", (Panel(["x" * 90, "$a$ $"], [1, 2]),))]))
    assert "x" * 33 + "…" in shown
    assert "x" * 40 not in shown
    assert "$a$ $" in shown


@pytest.mark.parametrize(("kind", "most"), [("bins", 24), ("heatmap", 12)])
def test_groups_that_are_not_drawn_are_told_of(kind: str, most: int) -> None:
    columns = ["a", "b"] if kind == "heatmap" else []
    one = Panel(["r", "s"], [1, 2, 3, 4] if columns else [1, 2], columns=columns)
    many = Chart("q", kind, tuple(replace(one, title=f"group {i}") for i in range(40)), "A note.")
    shown = texts(figure_of([many]))
    assert f"The first {most} of 40 groups. A note." in shown
    assert f"group {most - 1}" in shown
    assert f"group {most}" not in shown
    assert "The first" not in texts(figure_of([replace(many, panels=many.panels[:3])]))


def test_sums_do_not_drown_the_colours_of_a_heatmap() -> None:
    table = Panel(["a", "All"], [3, 4, 7, 300, 400, 700], columns=["x", "y", "All"], sums=True)
    _, norm = charts._scale([table], signed=False)
    assert norm.vmax < 10
    _, both = charts._scale([replace(table, sums=False)], signed=True)
    assert both.vmin == -both.vmax


def test_files(tmp_path: Path) -> None:
    figure = figure_of([Chart("a <b> & c", "bars", (panel(3),)), Chart("second", "points", (panel(2),))])
    for name in ("a.png", "a.svg", "a.pdf"):
        files.save(figure, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    assert "a &lt;b&gt; &amp; c" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    with pytest.raises(InvalidValue, match=r"Use \.png, \.svg or \.pdf"):
        files.save(figure, tmp_path / "a.docx")
