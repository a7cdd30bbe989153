"""Checks a wheel and an sdist as users meet them: what is in them, and whether an installed tacit works.

    python tools/check_dist.py dist                       the base install, for every supported Python
    python tools/check_dist.py dist --extras images serve and one more environment for each extra
    python tools/check_dist.py dist --extras all --python ~/python3.13/bin/python3

The supported versions of Python are those that ``pyproject.toml`` lists. Each is looked for among
``--python``, the Python that runs this script, and the commands ``python3.11``, ``python3.12``, … on the
PATH; a version that is not found is named at the end as skipped. Extras are tried with the Python that runs
this script.

Each install goes into a fresh virtual environment under ``--work``. In that of the base, the first example of
the README and every command are run, on tables of a few rows, and every name and command that needs an extra
has to say which one to install. In that of an extra, what the extra is for is tried (``dist_extras.py``); the
other packages have the versions of ``constraints.txt`` there too, so commands of the base are not run again.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

from dist_extras import NAMES, WITH_EXTRAS, check_extras, requirements, trains
from dist_running import ROOT, Failed, first_example, run, words_of

NEEDED = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "Makefile",
    "constraints.txt",
    "conftest.py",
    "SECURITY.md",
    "CITATION.cff",
    "src/tacit/py.typed",
    "docs/index.md",
    "tests/conftest.py",
    "tools/check_dist.py",
)
"""Files without which an sdist could be neither built nor tested."""
STRAY = (
    "__pycache__",
    ".pyc",
    ".egg-info",
    ".venv",
    "/out/",
    "/build/",
    "/dist/",
    ".mypy_cache",
    ".ruff_cache",
    ".db",
)
ROAD = """
plan --population 1000 --batch-size 50 --epochs 2 --epsilon 1 --delta 1e-5
schema init small.csv --out draft.toml
schema check small.toml --source small.csv
ledger init small.db --epsilon 100 --delta 1e-3
query small.csv 'mean(age) by ward' --schema small.toml --ledger small.db --epsilon 1 --page answers.html
fit small.csv --schema small.toml --target income --model naive-bayes --epsilon 1
    --ledger small.db --out small.tacit
predict small.tacit small.csv --out predicted.csv
inspect small.tacit
report small.tacit --ledger small.db --out small.html
report small.db --out ledger.html
synthesize small.csv --schema small.toml --epsilon 1 --ledger small.db --out synthetic.csv
local randomize small.csv --column ward --schema small.toml --epsilon 1 --ledger small.db --out reports.csv
local estimate reports.csv
pate answer votes.csv --aggregator gnmax --sigma 40 --delta 1e-5 --queries 20 --classes 2 --ledger small.db
pate fit small.csv --schema small.toml --target income --queries small.csv --teachers 20
    --epsilon 5 --delta 1e-5 --ledger small.db --out student.tacit
attack small.tacit --members small.csv --others other.csv
audit scores scores.csv scores.csv --method clopper_pearson --threshold 0.5
audit canaries canaries.csv --method one_run --highest 5 --lowest 5
compare small.csv other.csv --schema small.toml --target income --model naive-bayes --epsilon 1
    --seeds 1 --public
ledger show small.db
ledger verify small.db
ledger export small.db
"""
"""Every command that needs no extra, in an order in which each finds the files that it reads."""
PAGES = ("answers.html", "small.html", "ledger.html")
SMALL = """
population = 400

[columns.age]
type = "integer"
bounds = [0, 110]

[columns.ward]
type = "category"
categories = ["north", "south"]

[columns.income]
type = "category"
categories = ["high", "low"]
"""
COMMANDS = """
from tacit.cli.lazy import COMMANDS
for name, command in COMMANDS.items():
    inner = getattr(command.loaded(), "commands", None)
    print(*([name] if inner is None else [f"{name} {each}" for each in inner]), sep="\\n")
"""


def project() -> dict[str, object]:
    """What ``pyproject.toml`` says of the project."""
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def version() -> str:
    """The version, from its one source."""
    text = (ROOT / "src/tacit/_version.py").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if "__version__ =" in line)
    return line.split('"')[1]


def supported() -> list[str]:
    """The versions of Python that the project lists as supported, such as ``3.11``."""
    listed = re.findall(r"Python :: (3\.\d+)", "\n".join(project()["classifiers"]))  # type: ignore[arg-type]
    if not listed:
        raise Failed("pyproject.toml lists no version of Python among its classifiers")
    return listed


def release_of(python: str) -> str | None:
    """The version of an interpreter, such as ``3.11.7``; None if it is not there, or does not run."""
    code = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def interpreters(named: Sequence[str], versions: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The interpreter for each version that has one, and the versions that have none.

    Those that are named are taken first, then the one that runs this script, then commands on the PATH.
    """
    found: dict[str, str] = {}
    for python in (*named, sys.executable, *(f"python{each}" for each in versions)):
        release = release_of(os.path.expanduser(python))
        if release is None and python in named:
            raise Failed(f"{python} does not run; name an interpreter that does")
        short = ".".join((release or "").split(".")[:2])
        if short in versions:
            found.setdefault(short, os.path.expanduser(python))
        elif python in named:
            raise Failed(f"{python} is Python {release}; supported are {', '.join(versions)}")
    return {each: found[each] for each in versions if each in found}, [
        each for each in versions if each not in found
    ]


def check_contents(dist: Path) -> Path:
    """The wheel, after a look into both archives."""
    wheels, sdists = list(dist.glob("*.whl")), list(dist.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        raise Failed(f"{dist} must have one wheel and one sdist; run make dist again")
    with zipfile.ZipFile(wheels[0]) as wheel, tarfile.open(sdists[0]) as sdist:
        inside = wheel.namelist()
        packed = ["/".join(name.split("/")[1:]) for name in sdist.getnames()]
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/tacit").rglob("*")
        if path.is_file() and not any(word in path.name or word in path.parts for word in STRAY)
    }
    missing = sorted(source - set(inside)) + [name for name in NEEDED if name not in packed]
    stray = [name for name in (*inside, *packed) if any(word in f"/{name}" for word in STRAY)]
    outside = [name for name in inside if not name.startswith(("tacit/", f"tacit-{version()}.dist-info/"))]
    if missing or stray or outside:
        raise Failed(f"missing: {missing}\nstray: {stray + outside}")
    print(f"{wheels[0].name}: {len(inside)} files; {sdists[0].name}: {len(packed)} files", flush=True)
    return wheels[0]


def install(wheel: Path, extra: str, python: str, work: Path) -> Path:
    """A fresh environment with the wheel and one extra (none if empty); its folder of commands."""
    place = work / (extra or "base")
    shutil.rmtree(place, ignore_errors=True)
    run(python, "-m", "venv", place, cwd=work)
    pip = [
        place / "bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-c",
        ROOT / "constraints.txt",
    ]
    if trains(extra):
        run(*pip, *os.environ.get("TORCH_PIP_ARGS", "").split(), "torch==2.13.0", cwd=work, seconds=1800)
    extras, besides = requirements(extra)
    run(*pip, f"{wheel}[{extras}]" if extra else wheel, cwd=work, seconds=1800)
    run(place / "bin/python", "-m", "pip", "check", cwd=work)
    if besides:
        run(*pip, *besides, cwd=work, seconds=1800)
    return place / "bin"


def lay_out(folder: Path) -> None:
    """The small files that the commands read."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = [
        f"{20 + n % 60},{'north' if n % 3 else 'south'},{'high' if n % 60 > 30 else 'low'}"
        for n in range(400)
    ]
    files = {
        "small.csv": ["age,ward,income", *rows],
        "other.csv": ["age,ward,income", *(f"{90 - n % 60},north,low" for n in range(100))],
        "small.toml": SMALL.splitlines(),
        "votes.csv": [f"{n % 50},{50 - n % 50}" for n in range(20)],
        "scores.csv": [f"{n / 100}" for n in range(100)],
        "canaries.csv": [f"{n / 40},{n % 2}" for n in range(40)],
    }
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def steps() -> list[tuple[str, ...]]:
    """The words of each command of the road."""
    return words_of(ROAD)


def check_installed(bin: Path, folder: Path) -> None:
    """The tacit of the environment is the one of the wheel."""
    tacit = bin / "tacit"
    if run(tacit, "--version", cwd=folder).strip() != f"tacit {version()}":
        raise Failed("tacit --version does not say the version of this tree")
    said = run(bin / "python", "-c", "import tacit; print(tacit.__version__, tacit.__file__)", cwd=folder)
    if not said.startswith(f"{version()} ") or str(bin.parent) not in said:
        raise Failed(f"another tacit was imported: {said}")


def check_commands(bin: Path, folder: Path) -> None:
    """Every command's help, the first example of the README, and every command on few rows."""
    tacit = bin / "tacit"
    code, printed = first_example("README.md")
    if (said := run(bin / "python", "-W", "error", "-c", code, cwd=folder)) != printed:
        raise Failed(f"the first example of the README prints\n{said}")
    run(tacit, "--help", cwd=folder)
    commands = run(bin / "python", "-c", COMMANDS, cwd=folder).splitlines()
    for name in commands:
        run(tacit, *name.split(), "--help", cwd=folder)
    tried = {" ".join(words[:count]) for words in steps() for count in (1, 2)}
    if forgotten := set(commands) - tried - set(WITH_EXTRAS):
        raise Failed(f"tools/check_dist.py runs no {sorted(forgotten)}; add them to ROAD")
    for words in steps():
        run(tacit, *words, cwd=folder)
    for page in PAGES:
        if "<html" not in (folder / page).read_text(encoding="utf-8"):
            raise Failed(f"{page} is no page")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dist", type=Path, help="the folder with the wheel and the sdist")
    parser.add_argument(
        "--extras", nargs="*", default=[], help="extras to install, each by itself; all for all of them"
    )
    parser.add_argument("--no-base", action="store_true", help="leave the installs without extras out")
    parser.add_argument(
        "--python", nargs="*", default=[], help="interpreters to install for, besides those that are found"
    )
    parser.add_argument("--work", type=Path, default=ROOT / "build/check_dist")
    arguments = parser.parse_args()
    declared = project()["optional-dependencies"]
    public = [name for name in declared if name not in ("dev", "docs", "peers")]  # type: ignore[attr-defined]
    if sorted(public) != sorted(NAMES):
        raise Failed(f"tools/check_dist.py checks {sorted(NAMES)}, pyproject.toml declares {sorted(public)}")
    extras = public if arguments.extras == ["all"] else arguments.extras
    if unknown := sorted(set(extras) - set(public)):
        raise Failed(f"pyproject.toml declares no extra {unknown}; it declares {public}")
    pythons, absent = interpreters(arguments.python, supported())
    wheel = check_contents(arguments.dist.resolve()).resolve()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    base = [] if arguments.no_base else [("", python) for python in pythons.values()]
    for extra, python in [*base, *((extra, sys.executable) for extra in extras)]:
        began = time.monotonic()
        bin = install(wheel, extra, python, work)
        folder = work / "smoke"
        lay_out(folder)
        check_installed(bin, folder)
        if not extra:
            check_commands(bin, folder)
        check_extras(bin, folder, extra)
        release = run(bin / "python", "-V", cwd=work).strip()
        took = f"{(time.monotonic() - began) / 60:.1f} minutes"
        works = f"what {extra} brings works" if extra else "every command works"
        print(f"{extra or 'base'}: installed for {release}, {works} ({took})", flush=True)
        shutil.rmtree(bin.parent)
    if absent and not arguments.no_base:
        advice = "name one with --python, or make dist PYTHONS=…"
        print(f"skipped: Python {' and '.join(absent)}, of which no interpreter was found; {advice}")


if __name__ == "__main__":
    main()
