"""What is released fits together: versions, links and anchors, the contents of the site, and extras."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
import unicodedata
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import tacit
from tacit import _extras, cli
from tacit.errors import MissingExtra, TacitError

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted(ROOT.glob("docs/*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
]
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
USERS_EXTRAS = set(PROJECT["project"]["optional-dependencies"]) - {"dev", "docs", "peers"}


def constant(path: str, name: str) -> object:
    """The value of a constant in a file that is not imported here: the site needs Sphinx."""
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in node.targets
        ):
            return ast.literal_eval(node.value)
    raise AssertionError(f"{path} has no {name}")


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for line in FENCE.sub("", path.read_text(encoding="utf-8")).splitlines():
        if re.match(r"#{1,6} ", line):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()).lower()
            kept = (c for c in words if c in " -_" or unicodedata.category(c)[0] in "LN")
            found.add("".join(kept).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    wrong = []
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        name, _, anchor = target.partition("#")
        place = page.parent / name if name else page
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
            wrong.append(target)
    assert not wrong


def test_the_site_has_every_guide_and_every_public_package() -> None:
    listed = re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs/index.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.name for path in ROOT.glob("docs/*.md") if path.name != "index.md")
    reference = constant("tools/site/build.py", "REFERENCE")
    assert isinstance(reference, dict)
    pages = [page for pages in reference.values() for page in pages]
    packages = {f"tacit.{path.parent.name}" for path in ROOT.glob("src/tacit/*/__init__.py")}
    modules = {f"tacit.{path.stem}" for path in ROOT.glob("src/tacit/[!_]*.py")}
    assert len(pages) == len(set(pages))
    assert (packages | modules) - set(pages) == {"tacit.cli", "tacit.drawing"}, "a package without a page"
    for page in pages:
        place = ROOT / "src" / page.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def test_the_version_is_the_same_everywhere() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == tacit.__version__
    assert {"cff-version", "message", "title", "authors", "license"} <= set(cited)
    assert cited["license"] == PROJECT["project"]["license"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/tacit/_version.py"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"tacit-([\d.]+)-py3", readme)) == {tacit.__version__}
    assert f"The version is {tacit.__version__.rsplit('.', 1)[0]}:" in readme


def test_the_wheel_is_typed_and_has_all_of_the_package() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/tacit"]}
    assert (ROOT / "src/tacit/py.typed").exists()
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"]
    for name in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]:
        assert (ROOT / name).exists()


def test_every_extra_is_known_where_it_has_to_be() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    checked = constant("tools/check_dist.py", "NAMES")
    assert isinstance(checked, dict)
    assert set(_extras.EXTRAS.values()) == USERS_EXTRAS == set(checked)
    assert all(f"`{extra}`" in readme for extra in USERS_EXTRAS)


WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "safetensors", "flwr", "cryptography", "psycopg"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
for line in sys.stdin.read().splitlines():
    try:
        exec(line)
    except Exception as error:
        print(type(error).__name__, error)
    else:
        print("worked")
"""
NEEDING = {
    "from tacit.training import Trainer": "torch",
    "from tacit.federated import Silo": "torch",
    "from tacit.labels import Perceptron": "torch",
    "from tacit.attacks import gradients": "torch",
    "from tacit.attacks import gan": "torch",
    "import tacit; tacit.load('network.safetensors')": "torch",
    "from tacit.pate import Network; Network(None)._made()": "torch",
    "from tacit.federated import private": "federated",
    "from tacit.federated import clipped": "federated",
    "import tacit.federated.flower": "federated",
    "import tacit.federated.secure": "federated",
    "import tacit; tacit.Ledger.open('postgresql://localhost/none')": "postgres",
}


def test_without_an_extra_every_name_that_needs_it_says_which() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], input="\n".join(NEEDING), capture_output=True, text=True, check=True
    )
    for (line, extra), said in zip(NEEDING.items(), done.stdout.splitlines(), strict=True):
        kind = "LedgerError" if extra == "postgres" else "MissingExtra"
        assert said.startswith(kind), (line, said)
        assert f"pip install 'tacit[{extra}]'" in said, (line, said)


def test_the_error_of_an_absent_package() -> None:
    error = MissingExtra("Folders of images", "PIL", "images")
    assert isinstance(error, TacitError)
    assert isinstance(error, ImportError)
    assert (error.package, error.extra) == ("PIL", "images")  # type: ignore[attr-defined]
    with pytest.raises(ModuleNotFoundError), _extras.needed("Things"):
        raise ModuleNotFoundError("No module named 'spam'", name="spam")


def test_a_command_whose_package_is_absent_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(**_: object) -> None:
        raise ModuleNotFoundError("No module named 'fastapi'", name="fastapi")

    monkeypatch.setattr(cli, "app", absent)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("pip install 'tacit[serve]'\n")


@pytest.fixture
def plots() -> ModuleType:
    """The module that draws the plots of the site."""
    spec = importlib.util.spec_from_file_location("site_plots", ROOT / "tools/site/plots.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_plots_of_the_site_can_be_drawn_from_the_tables(plots: ModuleType, tmp_path: Path) -> None:
    drawn = plots.draw_all(ROOT / "benchmarks/results", tmp_path)
    assert {f"{plot.name}-{theme}.svg" for plot in drawn for theme in ("light", "dark")} == {
        path.name for path in tmp_path.iterdir()
    }
