"""A small self-contained HTML page: no scripts, no fonts or files from elsewhere.

>>> page = render("Study", "One question.", [Section("Answers", table=(("query",), [["1 < 2"]]))])
>>> "<td>1 &lt; 2</td>" in page
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Section", "render"]

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Column names, and rows of text."""


@dataclass(frozen=True)
class Section:
    """A heading with, each if given: paragraphs, a table, a note, a figure (a ``data:`` address)."""

    heading: str
    paragraphs: Sequence[str] = ()
    table: Table | None = None
    note: str | None = None
    figure: str | None = None
    figure_text: str = ""


TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
  body { font: 16px/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; color: #222;
         max-width: 46rem; margin: 2.5rem auto; padding: 0 1.2rem; }
  h1 { font-size: 1.7rem; line-height: 1.2; margin-bottom: .4rem; }
  h2 { font-size: 1.15rem; margin-top: 2.2rem; }
  .lead { color: #555; margin-top: 0; }
  table { border-collapse: collapse; font-variant-numeric: tabular-nums;
          font-size: .92rem; margin: 1rem 0; }
  th, td { padding: .35rem .75rem; border-bottom: 1px solid #ddd; text-align: right; }
  td { white-space: nowrap; }
  th { vertical-align: bottom; font-weight: 600; border-bottom-color: #888; }
  th:first-child, td:first-child { text-align: left; }
  img { max-width: 100%; height: auto; }
  .note { border-left: 4px solid #009E73; background: #f3f8f6; padding: .6rem 1rem; margin: 1rem 0; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p class="lead">{{ lead }}</p>
{%- for section in sections %}
<h2>{{ section.heading }}</h2>
{%- for paragraph in section.paragraphs %}
<p>{{ paragraph }}</p>
{%- endfor %}
{%- if section.table %}
<table>
<thead><tr>{% for name in section.table[0] %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{%- for row in section.table[1] %}
<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{%- endfor %}
</tbody>
</table>
{%- endif %}
{%- if section.note %}
<p class="note">{{ section.note }}</p>
{%- endif %}
{%- if section.figure %}
<p><img src="{{ section.figure }}" alt="{{ section.figure_text }}"></p>
{%- endif %}
{%- endfor %}
</body>
</html>
"""


def render(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The page as text. Everything given is escaped."""
    from jinja2 import Environment

    environment = Environment(autoescape=True, keep_trailing_newline=True)
    return environment.from_string(TEMPLATE).render(title=title, lead=lead, sections=sections)
