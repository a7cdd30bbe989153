"""A self-contained HTML page: no scripts, no fonts or files from elsewhere.

Every page of the library is made of these parts. A :class:`Summary` is the box at the top: one sentence, and
facts for whoever reads no further. A :class:`Section` has a heading and, each if given, paragraphs, facts, a
table, a note, a :class:`Picture`, a tree and a part that is folded away. The page is readable from 320 pixels
on, light or dark as the reader's system is, and prints in black on white with everything unfolded.

>>> facts = [("What", "counts by ward"), ("ε", "0.5")]
>>> page = render("Study", "One question.", [Section("Answers", table=(("query",), [["1 < 2"]]))],
...               Summary("The counts reveal little of anybody.", facts))
>>> "<td>1 &lt; 2</td>" in page, '<th scope="row">What</th><td>counts by ward</td>' in page
(True, True)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = [
    "PARTS",
    "STYLE",
    "Branch",
    "Fact",
    "Fold",
    "Picture",
    "Section",
    "Summary",
    "Table",
    "breakable",
    "render",
]

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Column names, and rows of text."""
Fact = tuple[str, str]
"""A name, and what is said of it."""


@dataclass(frozen=True)
class Branch:
    """A line of a tree, and the branches below it."""

    text: str
    below: Sequence[Branch] = ()


@dataclass(frozen=True)
class Fold:
    """Details that are shown when the reader opens them, and in print: paragraphs, facts, a tree, a table."""

    title: str
    paragraphs: Sequence[str] = ()
    facts: Sequence[Fact] = ()
    tree: Branch | None = None
    table: Table | None = None


@dataclass(frozen=True)
class Picture:
    """A drawing in SVG, once for wide and once for narrow screens, with a caption.

    ``wide`` and ``narrow`` go into the page as they are: they come from :func:`tacit.report.plots.embedded`,
    which escapes all text. ``text`` says what is drawn to those who cannot see it.
    """

    wide: str
    narrow: str
    caption: str = ""
    text: str = ""


@dataclass(frozen=True)
class Section:
    """A heading with, each if given: paragraphs, facts, a table, a note, a picture, a tree and a fold.

    A tree beside a picture is what small screens show in place of it.
    """

    heading: str
    paragraphs: Sequence[str] = ()
    facts: Sequence[Fact] = ()
    table: Table | None = None
    note: str | None = None
    figure: Picture | None = None
    tree: Branch | None = None
    fold: Fold | None = None


@dataclass(frozen=True)
class Summary:
    """The box at the top of a page: one sentence, and facts."""

    sentence: str
    facts: Sequence[Fact] = ()


STYLE = """\
  :root { color-scheme: light dark; --ink: #1f2328; --soft: #57606a; --line: #d8dee4; --rule: #8c959f;
          --paper: #ffffff; --box: #f3f8f6; --edge: #009e73; --blue: #0072b2; --sky: #56b4e9;
          --green: #009e73; --deep: #00684b; --orange: #d55e00; --yellow: #e69f00; --pink: #cc79a7; }
  @media screen and (prefers-color-scheme: dark) {
    :root { --ink: #e6edf3; --soft: #a3adb8; --line: #3a424c; --rule: #6e7681; --paper: #14181d;
            --box: #1b2622; --edge: #2bb88a; --blue: #58a6e0; --sky: #3d7ea6; --green: #2bb88a;
            --deep: #6fd8b6; --orange: #f08a45; }
  }
  @media print { :root { color-scheme: light; } body { margin: 0; max-width: none; font-size: 11pt; } }
  * { box-sizing: border-box; }
  body { font: 16px/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; color: var(--ink);
         background: var(--paper); max-width: 46rem; margin: 2.5rem auto; padding: 0 1.2rem;
         overflow-wrap: break-word; }
  h1 { font-size: 1.7rem; line-height: 1.2; margin-bottom: .4rem; }
  h2 { font-size: 1.2rem; margin-top: 2.4rem; break-after: avoid; }
  .lead { color: var(--soft); margin-top: 0; }
  .summary { border: 1px solid var(--line); border-top: 4px solid var(--edge); border-radius: 4px;
             padding: .4rem 1.1rem .7rem; margin: 1.4rem 0; break-inside: avoid; }
  .summary > p { font-size: 1.06rem; font-weight: 600; margin: .6rem 0; }
  .scroll { overflow-x: auto; margin: 1rem 0; }
  table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
  th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
  .scroll td:first-child { overflow-wrap: anywhere; min-width: 7rem; }
  thead th { vertical-align: bottom; font-weight: 600; border-bottom-color: var(--rule); }
  .scroll th:first-child, .scroll td:first-child { text-align: left; padding-left: 0; }
  tr { break-inside: avoid; }
  .facts { width: 100%; margin: .6rem 0; }
  .facts th, .facts td { text-align: left; vertical-align: top; }
  .facts th { font-weight: 600; color: var(--soft); padding-left: 0; width: 9.5rem; }
  .facts tr:last-child > * { border-bottom: 0; }
  figure { margin: 1rem 0; break-inside: avoid; }
  figcaption { font-weight: 600; font-size: .95rem; }
  svg { width: 100%; height: auto; display: block; fill: var(--ink); }
  svg * { stroke-linejoin: round; stroke-linecap: butt; }
  .narrow { display: none; }
  .note { border-left: 4px solid var(--edge); background: var(--box); padding: .6rem 1rem; margin: 1rem 0; }
  details { margin: 1rem 0; }
  summary { cursor: pointer; color: var(--blue); font-weight: 600; }
  ul.tree, ul.tree ul { list-style: none; margin: 0; padding: 0; }
  ul.tree ul { border-left: 2px solid var(--line); padding-left: .9rem; margin-left: .2rem; }
  ul.tree li { margin: .3rem 0; }
  @media screen and (max-width: 37rem) {
    body { margin: 1.2rem auto; padding: 0 1rem; }
    h1 { font-size: 1.45rem; }
    .wide { display: none; }
    .narrow { display: block; }
    table { font-size: .85rem; }
    th, td { padding: .35rem .35rem; }
    .facts { font-size: .95rem; }
    .facts th, .facts td { display: block; width: auto; padding-left: 0; }
    .facts th { border-bottom: 0; padding-bottom: 0; }
    .facts td { padding-top: .1rem; }
  }
  @media print { details::details-content { content-visibility: visible; height: auto; } }
"""

PARTS = """\
{%- macro facts_table(facts) %}
<table class="facts"><tbody>
{%- for name, value in facts %}
<tr><th scope="row">{{ name }}</th><td>{{ value }}</td></tr>
{%- endfor %}
</tbody></table>
{%- endmacro %}
{%- macro data_table(table) %}
<div class="scroll" tabindex="0" role="group" aria-label="Table: {{ table[0] | join(', ') }}"><table>
<thead><tr>{% for name in table[0] %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{%- for row in table[1] %}
<tr>{% for cell in row %}<td>{{ cell | breakable }}</td>{% endfor %}</tr>
{%- endfor %}
</tbody>
</table></div>
{%- endmacro %}
{%- macro branch(one) %}
<li>{{ one.text }}
{%- if one.below %}<ul>{% for each in one.below %}{{ branch(each) }}{% endfor %}</ul>{% endif %}</li>
{%- endmacro %}
{%- macro section_of(section) %}
<h2>{{ section.heading }}</h2>
{%- for paragraph in section.paragraphs %}
<p>{{ paragraph }}</p>
{%- endfor %}
{%- if section.facts %}{{ facts_table(section.facts) }}{% endif %}
{%- if section.table %}{{ data_table(section.table) }}{% endif %}
{%- if section.note %}
<p class="note">{{ section.note }}</p>
{%- endif %}
{%- if section.figure %}
<figure role="img" aria-label="{{ section.figure.text or section.figure.caption }}">
{%- if section.figure.caption %}<figcaption>{{ section.figure.caption }}</figcaption>{% endif %}
<div class="wide">{{ section.figure.wide | safe }}</div>
{%- if section.figure.narrow %}
<div class="narrow">{{ section.figure.narrow | safe }}</div>
{%- endif %}
</figure>
{%- endif %}
{%- if section.tree %}
<ul class="tree{{ ' narrow' if section.figure }}">{{ branch(section.tree) }}</ul>
{%- endif %}
{%- if section.fold %}
<details><summary>{{ section.fold.title }}</summary>
{%- for paragraph in section.fold.paragraphs %}
<p>{{ paragraph }}</p>
{%- endfor %}
{%- if section.fold.facts %}{{ facts_table(section.fold.facts) }}{% endif %}
{%- if section.fold.tree %}<ul class="tree">{{ branch(section.fold.tree) }}</ul>{% endif %}
{%- if section.fold.table %}{{ data_table(section.fold.table) }}{% endif %}
</details>
{%- endif %}
{%- endmacro -%}
"""
"""How facts, tables, trees and sections are written, for every page that is made of them."""

PAGE = (
    PARTS
    + """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
{{ style | safe }}</style>
</head>
<body>
<main>
<h1>{{ title }}</h1>
<p class="lead">{{ lead }}</p>
{%- if summary %}
<div class="summary">
<p>{{ summary.sentence }}</p>
{{- facts_table(summary.facts) }}
</div>
{%- endif %}
{%- for section in sections %}{{ section_of(section) }}
{%- endfor %}
</main>
</body>
</html>
"""
)


def render(title: str, lead: str, sections: Sequence[Section], summary: Summary | None = None) -> str:
    """The page as text. Everything given is escaped, but for the drawings."""
    return _template().render(title=title, lead=lead, sections=sections, summary=summary, style=STYLE)


@cache
def _template() -> Template:
    from jinja2 import Environment

    environment = Environment(autoescape=True, keep_trailing_newline=True)
    environment.filters["breakable"] = breakable
    return environment.from_string(PAGE)


def breakable(text: str) -> str:
    """The text escaped, with places where a long name may go on in the next line."""
    from markupsafe import Markup, escape

    return Markup(re.sub("(?<=[a-z])([=_])(?=[A-Za-z])", r"\1<wbr>", str(escape(text))))
