"""What is released fits together: versions, links and anchors, the contents of the site, and extras."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tarfile
import tomllib
import unicodedata
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import tacit
from tacit import _extras, cli
from tacit.cli import lazy
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
    assert {"tacit.serve.client", "tacit.training.features"} <= set(pages), "public modules of packages"
    for page in pages:
        place = ROOT / "src" / page.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def test_the_index_says_how_much_there_is_to_type() -> None:
    listed = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    for name, said in re.findall(r"\]\((\w+\.md)\) \|[^|]*\|([^|]*)\|", listed):
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        blocks = re.findall(r"^```(python|console)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        typed = [(kind, line) for kind, body in blocks for line in body.splitlines() if line.strip()]
        lines = sum(kind == "python" for kind, _ in typed)
        commands = sum(kind == "console" and line.startswith("$ tacit") for kind, line in typed)
        counted = [f"{lines} lines"] + [f"{commands} command{'s' * (commands > 1)}"] * (commands > 0)
        assert said.partition("·")[2].strip() == ", ".join(counted) if typed else said.strip() == "to read", (
            name
        )


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


def test_the_files_that_come_first_are_there() -> None:
    listed = constant("conftest.py", "LONG")
    assert isinstance(listed, tuple)
    assert [name for name in listed if not (ROOT / name).is_file()] == []


def test_every_extra_is_known_where_it_has_to_be(extras: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(_extras.EXTRAS.values()) == USERS_EXTRAS == set(extras.NAMES) == set(extras.CHECKS)
    assert all(f"`{extra}`" in readme for extra in USERS_EXTRAS)


WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        absent = {"torch", "safetensors", "flwr", "cryptography", "psycopg", "transformers", "gguf"}
        if name.partition(".")[0] in absent:
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
    "from tacit.language import SoftPrompt": "llm",
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


def test_a_path_that_the_system_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "study").write_text("no folder")

    def refused(**_: object) -> None:
        (tmp_path / "study").mkdir()

    monkeypatch.setattr(cli, "app", refused)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said == f"tacit: {tmp_path / 'study'} cannot be used: File exists. Name another file or folder.\n"

    def broken(**_: object) -> None:
        raise OSError("no path is to blame")

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(OSError, match="no path"):
        cli.main()


def module_at(path: str) -> ModuleType:
    """A script of the tree as a module."""
    spec = importlib.util.spec_from_file_location(f"released_{Path(path).stem}", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The check of a wheel that make dist runs."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    return module_at("tools/check_dist.py")


@pytest.fixture
def extras(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The part of that check that is about extras."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    return module_at("tools/dist_extras.py")


def test_the_check_of_a_wheel_runs_every_command(check: ModuleType, extras: ModuleType) -> None:
    every = {
        f"{name} {inner}".strip()
        for name, command in lazy.COMMANDS.items()
        for inner in getattr(command.loaded(), "commands", [""])
    }
    tried = {" ".join(words[:count]) for words in check.steps() for count in (1, 2)}
    assert every - tried == set(check.WITH_EXTRAS), "ROAD of tools/check_dist.py lacks a command"
    assert {words[0] for words in extras.REFUSED} >= set(check.WITH_EXTRAS)


def interpreter(path: Path, release: str) -> str:
    """A command that answers as a Python of that version would; one that does not run, of none."""
    path.write_text(f"#!/bin/sh\necho {release}\n" if release else "#!/bin/sh\nexit 127\n")
    path.chmod(0o755)
    return str(path)


def test_the_check_of_a_wheel_takes_every_python_that_runs(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert check.supported() == ["3.11", "3.12", "3.13"]
    monkeypatch.setenv("PATH", str(tmp_path))
    interpreter(tmp_path / "python3.97", "3.97.2")
    interpreter(tmp_path / "python3.98", "")  # on the PATH, and only a stand-in that does not run
    named = interpreter(tmp_path / "mine", "3.99.0")
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    versions = [mine, "3.96", "3.97", "3.98", "3.99"]
    found, absent = check.interpreters([named], versions)
    assert found == {mine: sys.executable, "3.97": "python3.97", "3.99": named}
    assert absent == ["3.96", "3.98"]
    with pytest.raises(check.Failed, match="does not run"):
        check.interpreters([str(tmp_path / "nowhere")], versions)
    with pytest.raises(check.Failed, match=r"supported are 3\.97"):
        check.interpreters([named], ["3.97"])


def test_the_check_of_a_wheel_misses_any_file_of_the_package(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("src/tacit/__init__.py", "src/tacit/pages/base.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "src/tacit/_version.py").write_text('__version__ = "7"\n')
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "NEEDED", ())
    with tarfile.open(tmp_path / "tacit-7.tar.gz", "w:gz"):
        pass
    with zipfile.ZipFile(tmp_path / "tacit-7.whl", "w") as wheel:
        for name in ("__init__.py", "_version.py"):
            wheel.writestr(f"tacit/{name}", "")
    with pytest.raises(check.Failed, match=r"missing: \['tacit/pages/base\.html'\]"):
        check.check_contents(tmp_path)
    with zipfile.ZipFile(tmp_path / "tacit-7.whl", "a") as wheel:
        wheel.writestr("tacit/pages/base.html", "")
    assert check.check_contents(tmp_path).name == "tacit-7.whl"


@pytest.fixture
def plots() -> ModuleType:
    """The module that draws the plots of the site."""
    return module_at("tools/site/plots.py")


def test_the_plots_of_the_site_can_be_drawn_from_the_tables(plots: ModuleType, tmp_path: Path) -> None:
    drawn = plots.draw_all(ROOT / "benchmarks/results", tmp_path)
    assert {f"{plot.name}-{theme}.svg" for plot in drawn for theme in ("light", "dark")} == {
        path.name for path in tmp_path.iterdir()
    }
