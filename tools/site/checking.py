"""What is wrong with a built site: links and anchors that lead nowhere, and what other hosts would see."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["problems", "warnings"]

_LOADS = {"script": "src", "img": "src", "link": "href", "source": "srcset", "iframe": "src"}
"""The attribute by which an element loads something when a page is shown."""


class _Page(HTMLParser):
    """The anchors of a page, what it links to and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and given.get("href"):
            self.links.add(given["href"])
        if given.get(_LOADS.get(tag, "")) and given.get("rel") not in ("canonical", "search", "index"):
            self.loads.add(given[_LOADS[tag]])


def warnings(text: str) -> list[str]:
    """The warnings of Sphinx, each once; one may have several lines."""
    starts = [found.start() for found in re.finditer(r"^.*(?:WARNING|ERROR|CRITICAL): ", text, re.MULTILINE)]
    return list(dict.fromkeys(text[a:b].rstrip() for a, b in pairwise([*starts, len(text)])))


def problems(site: Path) -> list[str]:
    """One line for each fault."""
    pages = {path: _Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        here = path.relative_to(site)
        for target in sorted(page.links | page.loads):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.loads and parts.scheme != "data":
                    found.append(f"{here} loads {target} from another host")
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not place.exists():
                found.append(f"{here} links to {target}, which is not there")
            elif parts.fragment and place in pages and unquote(parts.fragment) not in pages[place].anchors:
                found.append(f"{here} links to {target}, where there is no such anchor")
    for sheet in sorted(site.rglob("*.css")):
        text = sheet.read_text(encoding="utf-8")
        if any(
            word in text.replace("'", "").replace('"', "") for word in ("url(http", "@import http", "url(//")
        ):
            found.append(f"{sheet.relative_to(site)} loads something from another host")
    return found
