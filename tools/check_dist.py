"""Checks a wheel and an sdist as users meet them: what is in them, and whether an installed tacit works.

    python tools/check_dist.py dist                       the base install, for every supported Python
    python tools/check_dist.py dist --extras images serve and one more environment for each extra
    python tools/check_dist.py dist --extras all --python ~/python3.13/bin/python3

The supported versions of Python are those that ``pyproject.toml`` lists. Each is looked for among
``--python``, the Python that runs this script, and the commands ``python3.11``, ``python3.12``, … on the
PATH; a version that is not found is named at the end as skipped. Extras are tried with the Python that runs
this script.

Each install goes into a fresh virtual environment under ``--work``. There, the first example of the README
and every command are run, on tables of a few rows. Without an extra, every name and command that needs it
has to say which extra to install; with it, the name has to be there.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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
NAMES = {
    "torch": (
        "tacit.training:Trainer",
        "tacit.labels:Perceptron",
        "tacit.federated:Silo",
        "tacit.attacks.gradients:psnr",
    ),
    "images": ("PIL:Image",),
    "postgres": ("psycopg:connect",),
    "spark": ("pyspark:sql",),
    "federated": ("tacit.federated:private", "tacit.federated.secure:aggregate"),
    "simulation": ("tacit.federated:private", "ray:init"),
    "serve": ("fastapi:FastAPI", "uvicorn:run"),
    "llm": ("transformers:AutoModelForCausalLM", "tacit.training:Trainer", "tacit.language:SoftPrompt"),
}
"""Names that an extra brings. Those of tacit have to name the extra where it is absent."""
TRAIN = (
    "train small.csv --schema small.toml --target income --architecture linear --epochs 1 --batch-size 50"
    " --epsilon 1 --delta 1e-5 --ledger small.db --out small.safetensors"
)
REFUSED = {
    "torch": TRAIN,
    "postgres": "ledger show postgresql://localhost/none",
    "serve": "serve --home study --host 0.0.0.0",
}
"""Commands that have to name the extra where it is absent."""
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
WITH_EXTRAS = {"train": "torch", "serve": "serve"}
"""Commands that need an extra."""
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
ASK = """
import sys, time
import tacit
from tacit.serve.client import Session
url, token = sys.argv[1:]
curator = Session(url, token)
for _ in range(600):  # it may still be starting
    try:
        curator.call("GET", "/health")
        break
    except tacit.errors.TacitError:
        time.sleep(0.1)
schema = open("small.toml").read()
curator.call("POST", "/datasets", {"name": "small", "source": "small.csv", "schema": schema, "epsilon": 2.0})
curator.call("POST", "/users", {"name": "ada", "role": "analyst"})
analyst = curator.call("POST", "/users/ada/tokens", {"days": 1})["token"]
curator.call("POST", "/grants", {"analyst": "ada", "dataset": "small", "epsilon": 1.0})
print(tacit.connect(url, token=analyst, dataset="small").count(epsilon=1.0).guarantee.epsilon)
"""
"""A curator registers a table and an analyst asks it one question."""


class Failed(SystemExit):
    """A check that failed; the message says which."""


def bare() -> dict[str, str]:
    """The environment of this process without what would lead to another tacit."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}


def run(*words: str | Path, cwd: Path, code: int | None = 0, seconds: float = 300) -> str:
    """The output of a command, which must end with ``code``."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=bare(),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if code is not None and done.returncode != code:
        raise Failed(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


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
    if extra in ("torch", "llm"):
        run(*pip, *os.environ.get("TORCH_PIP_ARGS", "").split(), "torch==2.13.0", cwd=work, seconds=1800)
    run(*pip, f"{wheel}[{extra}]" if extra else wheel, cwd=work, seconds=1800)
    run(place / "bin/python", "-m", "pip", "check", cwd=work)
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


def first_example() -> tuple[str, str]:
    """The first block of Python in the README, and what it says that it prints."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```\n+```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise Failed("README.md begins with no example that is followed by what it prints")
    return found.group(1), found.group(2)


def steps() -> list[list[str]]:
    """The words of each command of the road."""
    return [shlex.split(line) for line in ROAD.replace("\n    ", " ").strip().splitlines()]


def smoke(bin: Path, folder: Path) -> None:
    """The version, every command's help, the first example of the README, and every command on few rows."""
    lay_out(folder)
    tacit = bin / "tacit"
    if run(tacit, "--version", cwd=folder).strip() != f"tacit {version()}":
        raise Failed("tacit --version does not say the version of this tree")
    said = run(bin / "python", "-c", "import tacit; print(tacit.__version__, tacit.__file__)", cwd=folder)
    if not said.startswith(f"{version()} ") or str(bin.parent) not in said:
        raise Failed(f"another tacit was imported: {said}")
    code, printed = first_example()
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


def check_serving(bin: Path, folder: Path) -> None:
    """The service starts, an analyst asks it one question, and it ends when it is told to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "study/data").mkdir(parents=True)
    shutil.copy(folder / "small.csv", folder / "study/data/small.csv")
    with subprocess.Popen(
        [str(bin / "tacit"), "serve", "--home", "study", "--port", str(port)],
        cwd=folder,
        env=bare(),
        stdout=subprocess.PIPE,
        text=True,
    ) as served:
        try:
            assert served.stdout is not None
            token = served.stdout.readline().split()[-1]
            said = run(bin / "python", "-c", ASK, f"http://127.0.0.1:{port}", token, cwd=folder)
        finally:
            served.terminate()
            served.wait(120)
    if said.strip() != "1.0":
        raise Failed(f"a question through the service says:\n{said}")


def check_extras(bin: Path, folder: Path, extra: str) -> None:
    """The names and commands of the installed extra work; others do too, or say what to install."""
    for other, names in NAMES.items():
        for name in names:
            module, _, attribute = name.partition(":")
            code = f"from {module} import {attribute}"
            if other == extra:
                run(bin / "python", "-W", "error", "-c", code, cwd=folder)
            elif module.startswith("tacit"):
                said = run(bin / "python", "-c", code, cwd=folder, code=None)
                if said and "tacit.errors.MissingExtra" not in said:
                    raise Failed(f"without the extra {other}, {code!r} says:\n{said}")
    trains = extra in ("torch", "llm")
    for other, words in REFUSED.items():
        there = other == extra or (other == "torch" and trains)
        said = run(bin / "tacit", *shlex.split(words), cwd=folder, code=0 if there and trains else 2)
        if (f"tacit[{other}]" in said and said.count("\n") == 1) == there:
            raise Failed(f"with {extra or 'no extra'}, tacit {words} says:\n{said}")
    if trains:
        run(bin / "tacit", "inspect", "small.safetensors", cwd=folder)
    if extra == "serve":
        check_serving(bin, folder)


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
        bin = install(wheel, extra, python, work)
        smoke(bin, work / "smoke")
        check_extras(bin, work / "smoke", extra)
        release = run(bin / "python", "-V", cwd=work).strip()
        print(f"{extra or 'base'}: installed for {release}, every command works", flush=True)
        shutil.rmtree(bin.parent)
    if absent and not arguments.no_base:
        advice = "name one with --python, or make dist PYTHONS=…"
        print(f"skipped: Python {' and '.join(absent)}, of which no interpreter was found; {advice}")


if __name__ == "__main__":
    main()
