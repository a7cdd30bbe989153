"""Builds the site: the guides, the reference, the benchmarks with their plots, and the pages of the project.

    python tools/site/build.py --out build/docs

The pages keep the places that they have in the repository, so that their links hold. The reference has a page
for each public package, made from its docstrings. A warning of Sphinx or docutils, a link or an anchor that
leads nowhere, and anything that a page would load from another host are errors: a table that docutils cannot
read is absent from its page.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path

from sphinx.cmd.build import build_main
from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
import checking  # noqa: E402
import plots  # noqa: E402

REFERENCE = {
    "Words": ["tacit", "tacit.events", "tacit.relations", "tacit.guarantee", "tacit.schema", "tacit.errors"],
    "The account": ["tacit.accounting", "tacit.accounting.filters", "tacit.ledger"],
    "Noise": ["tacit.mechanisms", "tacit.randomness"],
    "Data": ["tacit.data", "tacit.datasets"],
    "Statistics": ["tacit.tables", "tacit.tables.questions"],
    "Models": ["tacit.estimators", "tacit.models", "tacit.evaluation"],
    "Networks and language": ["tacit.training", "tacit.training.features", "tacit.language"],
    "Teachers, labels, local privacy": ["tacit.pate", "tacit.labels", "tacit.local"],
    "Federated learning": ["tacit.federated", "tacit.federated.flower", "tacit.federated.secure"],
    "Attacks and audits": ["tacit.attacks", "tacit.attacks.gradients", "tacit.attacks.gan", "tacit.audit"],
    "Whole jobs and pages": ["tacit.jobs", "tacit.report"],
    "The service": ["tacit.serve", "tacit.serve.client"],
}
"""The public packages, in the order of the reference; a test compares them with the tree."""
PROJECT = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
PICTURE = re.compile(r"<picture>.*?</picture>", re.DOTALL)


def guides() -> list[str]:
    """The guides in reading order, as docs/index.md lists them."""
    return [f"docs/{name}" for name in LINK.findall((ROOT / "docs/index.md").read_text(encoding="utf-8"))]


def themed(path: str, alternative: str) -> str:
    """A picture of which there is one for light and one for dark pages; ``path`` has ``{}`` for the word."""
    return "\n".join(
        f"![{alternative}]({path.format(theme)}){{.only-{theme}}}" for theme in ("light", "dark")
    )


def lay_out(source: Path) -> None:
    """The files of the repository that are pages, or that pages link to, in their places."""
    for folder in ("docs", "examples", "benchmarks", "tests/federated/flower_app"):
        shutil.copytree(
            ROOT / folder,
            source / folder,
            ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "_*.md"),  # parts of other pages
        )
    for guide in (source / "docs").glob("*.md"):  # the README is the front page of the site
        text = guide.read_text(encoding="utf-8")
        guide.write_text(text.replace("](../README.md", "](../index.md"), encoding="utf-8")
    for name in (*PROJECT, "CITATION.cff", "LICENSE"):
        shutil.copy(ROOT / name, source / name)


def write_front(source: Path) -> None:
    """The front page: the README, and the table of contents of the whole site."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    picture = PICTURE.search(text)
    if picture is None:
        raise SystemExit("README.md has no <picture>; tell tools/site/build.py what to show instead")
    alternative = re.search(r'alt="([^"]*)"', picture.group())
    text = text.replace(
        picture.group(), themed("docs/pictures/epsilon-{}.svg", alternative.group(1) if alternative else "")
    )
    text += contents("Guides", ["docs/index.md", *guides()])
    text += contents("Benchmarks", ["benchmarks/results/index.md"])
    text += contents("Reference", ["reference/index.md"])
    text += contents("Project", PROJECT)
    (source / "index.md").write_text(text, encoding="utf-8")


def contents(caption: str, pages: list[str]) -> str:
    """A part of the table of contents at the side."""
    return "\n".join(
        ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *(f"/{p}" for p in pages), "```", ""]
    )


def write_benchmarks(source: Path) -> None:
    """The page of benchmarks: the main plots, drawn from the tables, and a list of all tables."""
    results = source / "benchmarks/results"
    drawn = plots.draw_all(results, results / "plots")
    lines = [
        "# Benchmarks",
        "",
        "Each page below is the table that a script of `benchmarks/` wrote, with its command and with the"
        " targets that were reached or missed. The plots are drawn from these tables when the site is built.",
        "",
    ]
    for plot in drawn:
        lines += [
            f"## {plot.title}",
            "",
            plot.says,
            "",
            themed(f"plots/{plot.name}-{{}}.svg", plot.says),
            "",
            f"From [{plot.table}]({plot.table}).",
            "",
        ]
    titles = {path.name: heading(path) for path in sorted(results.glob("*.md"))}
    for name, title in titles.items():
        if list(titles.values()).count(title) > 1:
            titles[name] = f"{title} ({Path(name).stem.replace('_', ' ')})"
    lines += ["## All tables", "", *(f"- [{title}]({name})" for name, title in titles.items())]
    listed = (f"{title} <{name}>" for name, title in titles.items())
    text = "\n".join([*lines, "", "```{toctree}", ":hidden:", "", *listed, "```", ""])
    (results / "index.md").write_text(text, encoding="utf-8")


def heading(path: Path) -> str:
    """The first heading of a page; one is added to a page without."""
    text = path.read_text(encoding="utf-8")
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    if found:
        return found.group(1)
    title = path.stem.replace("_", " ").capitalize()
    path.write_text(f"# {title}\n\n{text}", encoding="utf-8")
    return title


def write_reference(source: Path) -> None:
    """A page for each public package, from its docstrings."""
    folder = source / "reference"
    folder.mkdir()
    lines = [
        "# Reference",
        "",
        "Every public name, with its guarantee, its paper and an example that the tests run.",
        "",
    ]
    for title, packages in REFERENCE.items():
        lines += [f"## {title}", "", "| package | what it holds |", "|---|---|"]
        for package in packages:
            module = import_module(package)
            (folder / f"{package}.rst").write_text(reference(package, module), encoding="utf-8")
            lines.append(f"| [{package}]({package}.rst) | {first_sentence(module)} |")
        lines.append("")
    pages = [package for packages in REFERENCE.values() for package in packages]
    lines += ["```{toctree}", ":hidden:", "", *pages, "```", ""]
    (folder / "index.md").write_text("\n".join(lines), encoding="utf-8")


def first_sentence(module: object) -> str:
    """The first line of a docstring, with its roles as plain code."""
    line = (module.__doc__ or "").strip().split("\n")[0].replace("::", ".")
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", line).replace("``", "`").replace("|", "\\|")


def reference(package: str, module: object) -> str:
    """The page of one package: what it says of itself, then every name that it exports."""
    lines = [package, "=" * len(package), "", f".. automodule:: {package}", "   :no-members:", ""]
    exported = [name for name in getattr(module, "__all__", ()) if not name.startswith("__")]
    modules = [name for name in exported if inspect.ismodule(getattr(module, name))]
    if modules:
        pages = {page for pages in REFERENCE.values() for page in pages}
        linked = [
            f":doc:`{name} <{package}.{name}>`" if f"{package}.{name}" in pages else f"``{name}``"
            for name in modules
        ]
        lines += ["Packages and modules: " + ", ".join(linked) + ".", ""]
    for name in (name for name in exported if name not in modules):
        value = getattr(module, name)
        home = home_of(package, name, value)
        if not inspect.isclass(value) and not inspect.isroutine(value):
            lines += [
                f".. py:data:: {package}.{name}",
                "",
                *(f"   {line}" for line in said_of(package, name)),
                "",
            ]
        elif home != package:
            lines += [f"- ``{package}.{name}`` is :py:obj:`{home}.{name}`", ""]
        else:
            lines += [f".. auto{'class' if inspect.isclass(value) else 'function'}:: {package}.{name}", ""]
    return "\n".join(lines)


def home_of(package: str, name: str, value: object) -> str:
    """The package whose page describes a name: of all that export it, the one in which it is defined."""
    defined = getattr(value, "__module__", None) or ""
    pages = sorted((page for pages in REFERENCE.values() for page in pages), key=len, reverse=True)
    exporting = [page for page in pages if page != "tacit" and name in import_module(page).__all__]
    inside = [page for page in exporting if f"{defined}.".startswith(f"{page}.")]
    return next(iter([*inside, *([] if package != "tacit" else exporting)]), package)


def said_of(package: str, name: str) -> list[str]:
    """The docstring under a constant, from the module of the package that assigns it."""
    for module in [each for each in sys.modules if f"{each}.".startswith(f"{package}.")]:
        try:
            said = ModuleAnalyzer.for_module(module).find_attr_docs().get(("", name))
        except PycodeError:
            continue
        if said:
            return said
    return []


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build/docs")
    arguments = parser.parse_args()
    source, html = arguments.out / "source", arguments.out / "html"
    shutil.rmtree(arguments.out, ignore_errors=True)
    source.mkdir(parents=True)
    lay_out(source)
    write_benchmarks(source)
    write_reference(source)
    write_front(source)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        failed = build_main(["-b", "html", "-q", "-N", "-c", str(HERE), str(source), str(html)])
    found = checking.warnings(said.getvalue()) + checking.problems(html)
    if failed or found:
        print("\n".join(found), file=sys.stderr)
        return 1
    print(f"The site is in {html}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
