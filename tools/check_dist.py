"""Checks a wheel and an sdist as users meet them: what is in them, and whether an installed tacit works.

    python tools/check_dist.py dist                       the base install
    python tools/check_dist.py dist --extras images serve and one more environment for each extra
    python tools/check_dist.py dist --extras all --python python3.13

Each install goes into a fresh virtual environment under ``--work``. Without an extra, every name and command
that needs it has to say which extra to install; with it, the name has to be there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("py.typed", "datasets/adult.toml", "datasets/adult_train.csv.gz", "datasets/adult_test.csv.gz")
"""Files of the wheel that are no Python."""
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
    "llm": ("transformers:AutoModelForCausalLM", "tacit.training:Trainer"),
}
"""Names that an extra brings. Those of tacit have to name the extra where it is absent."""
REFUSED = {
    "torch": [
        "train",
        "x.npz",
        "--epsilon",
        "1",
        "--delta",
        "1e-5",
        "--population",
        "10",
        "--classes",
        "2",
        "--ledger",
        "n.db",
        "--architecture",
        "linear",
        "--epochs",
        "1",
        "--batch-size",
        "2",
        "--out",
        "n.safetensors",
    ],
    "postgres": ["ledger", "show", "postgresql://localhost/none"],
}
"""Commands that have to name the extra where it is absent."""


class Failed(SystemExit):
    """A check that failed; the message says which."""


def run(*words: str | Path, cwd: Path, code: int | None = 0, seconds: float = 300) -> str:
    """The output of a command, which must end with ``code``."""
    bare = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=bare,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if code is not None and done.returncode != code:
        raise Failed(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def version() -> str:
    """The version, from its one source."""
    line = next(
        line for line in (ROOT / "src/tacit/_version.py").read_text().splitlines() if "__version__ =" in line
    )
    return line.split('"')[1]


def check_contents(dist: Path) -> Path:
    """The wheel, after a look into both archives."""
    wheels, sdists = list(dist.glob("*.whl")), list(dist.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        raise Failed(f"{dist} must have one wheel and one sdist; run make dist again")
    with zipfile.ZipFile(wheels[0]) as wheel, tarfile.open(sdists[0]) as sdist:
        inside = wheel.namelist()
        packed = ["/".join(name.split("/")[1:]) for name in sdist.getnames()]
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/tacit").rglob("*.py")}
    missing = [f"tacit/{name}" for name in SHIPPED if f"tacit/{name}" not in inside] + sorted(
        source - set(inside)
    )
    missing += [name for name in NEEDED if name not in packed]
    stray = [name for name in (*inside, *packed) if any(word in f"/{name}" for word in STRAY)]
    outside = [name for name in inside if not name.startswith(("tacit/", f"tacit-{version()}.dist-info/"))]
    if missing or stray or outside:
        raise Failed(f"missing: {missing}\nstray: {stray + outside}")
    print(f"{wheels[0].name}: {len(inside)} files; {sdists[0].name}: {len(packed)} files")
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


def smoke(bin: Path, folder: Path) -> None:
    """Every command's help, and one road from the bundled table to a page."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tacit = bin / "tacit"
    if run(tacit, "--version", cwd=folder).strip() != f"tacit {version()}":
        raise Failed("tacit --version does not say the version of this tree")
    said = run(bin / "python", "-c", "import tacit; print(tacit.__version__, tacit.__file__)", cwd=folder)
    if not said.startswith(f"{version()} ") or str(bin.parent) not in said:
        raise Failed(f"another tacit was imported: {said}")
    run(tacit, "--help", cwd=folder)
    code = "from tacit.cli.lazy import COMMANDS; print(*COMMANDS)"
    for name in run(bin / "python", "-c", code, cwd=folder).split():
        run(tacit, name, "--help", cwd=folder)
    code = "from tacit import datasets; files = datasets.adult(); print(files.train, files.schema)"
    rows, schema = run(bin / "python", "-c", code, cwd=folder).split()
    run(tacit, "ledger", "init", "adult.db", "--epsilon", "2", "--delta", "1e-6", cwd=folder)
    for words in (
        ("query", rows, "mean(age) by sex", "--schema", schema, "--ledger", "adult.db", "--epsilon", "0.5"),
        (
            "fit",
            rows,
            "--schema",
            schema,
            "--target",
            "income",
            "--model",
            "naive-bayes",
            "--epsilon",
            "1",
            "--ledger",
            "adult.db",
            "--out",
            "adult.tacit",
        ),
        ("inspect", "adult.tacit"),
        ("report", "adult.tacit", "--ledger", "adult.db", "--out", "adult.html"),
        ("ledger", "verify", "adult.db"),
        (
            "plan",
            "--population",
            "1000",
            "--batch-size",
            "50",
            "--epochs",
            "2",
            "--epsilon",
            "1",
            "--delta",
            "1e-5",
        ),
    ):
        run(tacit, *words, cwd=folder)
    if "<html" not in (folder / "adult.html").read_text(encoding="utf-8"):
        raise Failed("tacit report wrote no page")


def check_extras(bin: Path, folder: Path, extra: str) -> None:
    """The names of the installed extra are there; others are there too, or say what to install."""
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
    for other, words in REFUSED.items():
        said = run(bin / "tacit", *words, cwd=folder, code=2)
        told = f"tacit[{other}]" in said and said.count("\n") == 1
        if told != (other != extra) and not (extra == "llm" and other == "torch"):
            raise Failed(f"with {extra or 'no extra'}, tacit {' '.join(words)} says:\n{said}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dist", type=Path, help="the folder with the wheel and the sdist")
    parser.add_argument(
        "--extras", nargs="*", default=[], help="extras to install, each by itself; all for all of them"
    )
    parser.add_argument("--no-base", action="store_true", help="leave the install without extras out")
    parser.add_argument("--python", default=sys.executable, help="the Python to install for")
    parser.add_argument("--work", type=Path, default=ROOT / "build/check_dist")
    arguments = parser.parse_args()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    public = [name for name in declared if name not in ("dev", "docs", "peers")]
    if sorted(public) != sorted(NAMES):
        raise Failed(f"tools/check_dist.py checks {sorted(NAMES)}, pyproject.toml declares {sorted(public)}")
    extras = public if arguments.extras == ["all"] else arguments.extras
    wheel = check_contents(arguments.dist.resolve()).resolve()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    for extra in [*([] if arguments.no_base else [""]), *extras]:
        bin = install(wheel, extra, arguments.python, work)
        smoke(bin, work / "smoke")
        check_extras(bin, work / "smoke", extra)
        release = run(bin / "python", "-V", cwd=work).strip()
        print(f"{extra or 'base'}: installed for {release}, every command works")
        shutil.rmtree(bin.parent)


if __name__ == "__main__":
    main()
