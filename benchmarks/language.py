"""Accuracy of privately tuned all-MiniLM-L6-v2 on SST-2 (dev) and AG News (test), by method and ε.

Every method is trained by :class:`tacit.training.Trainer` on a frozen transformer, at δ = 1e-5, under
add_remove of one row. ε = inf is the same recipe with a noise multiplier of 1e-3 and the same clipping; where
a recipe has a ``rate_without_noise``, that is its learning rate there. The recipes of "last layers" and of
"public start, LoRA of all maps" were chosen on held-out training rows of SST-2 (``--held-out``), never on
dev or test rows; the others are first guesses. ``results/language.md`` says how.

    python benchmarks/language.py --rated rated                     # every cell: hours on two cores
    python benchmarks/language.py --only "last layers" --epsilons 8 1
    python benchmarks/language.py --only head --held-out            # accuracy on 2,000 held-out training rows
    python benchmarks/language.py --only LoRA --held-out --both     # and of the same model on the test rows
    python benchmarks/language.py --states states --epsilons 8      # keep states of frozen blocks in a folder
    python benchmarks/language.py --table                           # the table of the cells that were run

A cell that was run is a line of ``results/language.jsonl``; the table shows these and no others. On a machine
with other work, one thread for each process (``OMP_NUM_THREADS=1``) is several times faster than two; with
``--states`` each cell can have a process of its own.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import lzma
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _public_texts import PUBLIC, labelled, rated
from safetensors.torch import load_file, save_file
from torch import nn

from tacit.errors import WeakPrivacy
from tacit.language import LastLayers, LoRA, Prefix, SoftPrompt, Texts, Tuned, pretrained, start_on_public
from tacit.training import Plan, Trainer

HERE = Path(__file__).parent
DATA = HERE.parent.parent / "shared" / "data"
LINES, TABLE = HERE / "results" / "language.jsonl", HERE / "results" / "language.md"
NOTES = HERE / "_language_notes.md"
"""How recipes were chosen, and what others published: the end of the table's page."""
DELTA, EPSILONS = 1e-5, ("1", "3", "8", "inf")
Rows = tuple[list[str], list[int]]


@dataclass(frozen=True)
class Recipe:
    """How a method is made and trained.

    ``kept`` says whether the frozen blocks are computed once; ``public`` how many public phrases the trained
    part starts from; ``whole`` whether all blocks learn from them before most are frozen, and from rated
    sentences (``--rated``); ``again`` whether the trained part then learns from the phrases once more, as
    virtual tokens must, which change the scores from the start; ``falling`` in which last share of the
    steps the learning rate falls to a tenth.
    Noise is most of what Adam divides by; without it, a smaller rate (``rate_without_noise``) moves as far.
    """

    make: Callable[[Any, int], Tuned]
    rate: float
    batch: int
    epochs: float
    kept: bool = False
    clip_norm: float = 0.1
    head_rate: float = 1e-2
    public: int = 0
    whole: bool = False
    again: bool = False
    falling: float = 0.0
    average: float | str | None = "tail"
    rate_without_noise: float | None = None


BEST = "public start, LoRA of all maps"
TARGETS = {
    ("sst2", method, epsilon): aim
    for method in (BEST, "last layers")
    for epsilon, aim in (("1", 83.0), ("8", 86.0))
}
"""Accuracies that were aimed at, in percent."""

RECIPES = {
    "head": Recipe(
        lambda model, k: LastLayers(model, 0, classes=k), 1e-2, 4096, 5, kept=True, public=2000, whole=True
    ),
    "last layers": Recipe(
        lambda model, k: LastLayers(model, 2, classes=k), 1.5e-3, 2048, 4, kept=True, head_rate=3e-3,
        public=2000, falling=0.3, average=None, rate_without_noise=3e-4,
    ),
    "LoRA": Recipe(
        lambda model, k: LoRA(model, 16, classes=k, layers=2, targets=("query", "key", "value")),
        3e-3, 1024, 2, kept=True, clip_norm=4.0, head_rate=3e-3, public=2000, whole=True,
    ),
    BEST: Recipe(
        lambda model, k: LoRA(model, 16, classes=k, layers=2, targets="all", alpha=16),
        3e-3, 1024, 6, kept=True, clip_norm=4.0, head_rate=3e-3, public=2000, whole=True, falling=0.3,
        average=None, rate_without_noise=1e-3,
    ),
    "soft prompt": Recipe(
        lambda model, k: SoftPrompt(model, 10, classes=k), 3e-3, 512, 0.5, head_rate=3e-3,
        public=2000, whole=True, again=True,
    ),
    "prefix": Recipe(
        lambda model, k: Prefix(model, 10, classes=k), 3e-3, 512, 0.5, head_rate=3e-3,
        public=2000, whole=True, again=True,
    ),
}  # fmt: skip

CHANGED: dict[tuple[str, str], dict[str, Any]] = {
    ("agnews", BEST): {
        "make": lambda model, k: LoRA(model, 4, classes=k, layers=2, targets="all", alpha=4), "epochs": 8,
    },
}  # fmt: skip
"""What differs in the recipe of a data set: AG News has an eighth of the rows, so less is trained."""


def sst2() -> tuple[Rows, Rows, int, int]:
    def read(name: str) -> Rows:
        with lzma.open(DATA / "sst2" / name, "rt", encoding="utf8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file][1:]
        return [row[0].strip() for row in rows], [int(row[1]) for row in rows]

    return read("train.tsv.xz"), read("dev.tsv.xz"), 2, 64


def agnews() -> tuple[Rows, Rows, int, int]:
    """Descriptions alone; the training rows that are test rows too are left out."""
    names = ["World", "Sports", "Business", "Sci/Tech"]
    with lzma.open(DATA / "agnews" / "test.csv.xz", "rt", encoding="utf8") as file:
        test = [(row[2], int(row[0]) - 1) for row in csv.reader(file)]
    seen = {text.strip() for text, _ in test}
    with lzma.open(DATA / "agnews" / "train_subset_10k.tsv.xz", "rt", encoding="utf8", newline="\n") as file:
        train = [line.rstrip("\n").rsplit("\t", 1) for line in file]
    kept = [(text, names.index(name)) for text, name in train if text.strip() not in seen]
    return unzipped(kept), unzipped(test), 4, 128


def unzipped(rows: list[tuple[str, int]]) -> Rows:
    return [text for text, _ in rows], [label for _, label in rows]


SETS = {"sst2": sst2, "agnews": agnews}


def some(rows: Rows, places: Any) -> Rows:
    return [rows[0][place] for place in places], [rows[1][place] for place in places]


class StoredTexts(Texts):
    """Texts whose states above the frozen blocks are kept in a folder, for the processes of other cells.

    The file is named after the texts, the model and the number of frozen blocks. It is as private as the
    texts.
    """

    folder: Path | None = None

    def _rows(self) -> Any:
        if self._read is not None or self.folder is None or self._above is None:
            return super()._rows()
        known = [list(self._texts), self.max_length, self._above.digest, self._above.frozen_blocks]
        path = self.folder / f"{hashlib.sha256(json.dumps(known).encode()).hexdigest()[:24]}.safetensors"
        if path.exists():
            above, self._above = self._above, None
            read, self._above = super()._rows(), above
            read.lower, read.kind = load_file(path)["lower"], above.head.weight.dtype
            return read
        read = super()._rows()
        self.folder.mkdir(parents=True, exist_ok=True)
        save_file({"lower": read.lower}, path)
        return read


@dataclass
class Bench:
    """One data set, and the texts of it as each method takes them, read once."""

    name: str
    rows: int | None
    held_out: bool
    states: Path | None = None
    rated: Path | None = None

    def __post_init__(self) -> None:
        train, test, self.classes, self.longest = SETS[self.name]()
        order = np.random.default_rng(0).permutation(len(train[0]))
        self.real = test
        if self.held_out:
            test, order = some(train, order[:2000]), order[2000:]
        self.train = some(train, order[: self.rows])
        self.test = test
        self.model = pretrained("minilm")
        self.texts: dict[int, tuple[Texts, Texts]] = {}

    def of(self, tuned: Tuned, kept: bool) -> tuple[Texts, Texts]:
        """Training and test texts; states above the frozen blocks are shared by methods that keep them."""
        key = tuned.frozen_blocks if kept else -1
        if key not in self.texts:
            self.texts[key] = self.read(self.train, tuned, kept), self.read(self.test, tuned, kept)
        return self.texts[key]

    def read(self, rows: Rows, tuned: Tuned, kept: bool) -> Texts:
        texts = StoredTexts(
            *rows, tokenizer=self.model, max_length=self.longest, classes=range(self.classes),
            above=tuned if kept else None, autocast=torch.bfloat16,
        )  # fmt: skip
        texts.folder = self.states
        return texts

    def started(self, recipe: Recipe) -> Tuned:
        """The module before it sees a private row: with a head of zeros, or trained on public texts."""
        if recipe.whole:
            base, head = self.publicly_tuned(recipe.public)
            tuned = recipe.make(base, self.classes)
            tuned.head.load_state_dict(head)
        else:
            tuned = _zeroed(recipe.make(self.model, self.classes))
        if recipe.public and (recipe.again or not recipe.whole):
            texts = self.read(PUBLIC[self.name](recipe.public), tuned, recipe.kept)
            start_on_public(tuned, texts, autocast=torch.bfloat16)
        return tuned

    def publicly_tuned(self, phrases: int) -> tuple[Any, dict[str, Any]]:
        """The transformer after all of its blocks learned from public texts, and the head on it.

        Sentences about films count twice.
        """
        rows = PUBLIC[self.name](phrases)
        if self.name == "sst2":
            if self.rated is None:
                raise SystemExit("Name the folder of rated sentences: --rated. _public_texts.py says whence.")
            more, films = rated(self.rated), labelled(self.rated, "imdb")
            rows = more[0] + rows[0] + films[0], more[1] + rows[1] + films[1]
        whole = _zeroed(LastLayers(self.model, len(self.model.model.encoder.layer), classes=self.classes))
        digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:24]
        path = None if self.states is None else self.states / f"public-{digest}.safetensors"
        if path is not None and path.exists():
            whole.load_state_dict(load_file(path))
        else:
            start_on_public(whole, self.read(rows, whole, False), epochs=2, autocast=torch.bfloat16)
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                save_file(whole.state_dict(), path)
        return whole.transformer.base, whole.head.state_dict()

    def cells(
        self, method: str, epsilon: str, changed: dict[str, float], both: bool = False
    ) -> list[dict[str, Any]]:
        """The accuracy of a run; with ``both``, on the held-out rows and then on the test rows."""
        recipe = replace(RECIPES[method], **CHANGED.get((self.name, method), {}))
        start = time.perf_counter()
        torch.manual_seed(0)
        tuned = self.started(recipe)
        train, test = self.of(tuned, recipe.kept)
        facts: dict[str, Any] = {
            "population": len(train), "batch_size": min(len(train), int(changed.get("batch", recipe.batch))),
            "epochs": changed.get("epochs", recipe.epochs), "clip_norm": recipe.clip_norm, "delta": DELTA,
        }  # fmt: skip
        noise = {"noise_multiplier": 1e-3} if epsilon == "inf" else {"epsilon": float(epsilon)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WeakPrivacy)
            plan = Plan(**facts, **noise)
        trained = [each for each in tuned.parameters() if each.requires_grad]
        usual = (recipe.rate_without_noise or recipe.rate) if epsilon == "inf" else recipe.rate
        rate, head = changed.get("rate", usual), set(tuned.head.parameters())
        groups = [
            {"params": list(head), "lr": recipe.head_rate},
            {"params": [each for each in trained if each not in head], "lr": rate},
        ]
        optimizer = torch.optim.Adam([group for group in groups if group["params"]])
        falling = recipe.falling * plan.steps

        def share(step: int) -> float:
            return min(1.0, 0.1 + 0.9 * (plan.steps - step) / falling) if falling else 1.0

        trainer = Trainer(
            tuned, nn.CrossEntropyLoss(), optimizer, plan,
            physical_batch=512, autocast=torch.bfloat16, average=recipe.average, progress=False,
            threads="trusted", schedule=torch.optim.lr_scheduler.LambdaLR(optimizer, share),
        )  # fmt: skip
        trainer.fit(train)
        cell = {
            "data": self.name, "method": method, "epsilon": epsilon, "accuracy": 0.0,
            "rows": len(train), "held_out": self.held_out, "batch": plan.batch_size, "steps": plan.steps,
            "noise_multiplier": round(plan.noise_multiplier, 4), "rate": rate,
            "trained": sum(map(torch.numel, trained)),
            "minutes": round((time.perf_counter() - start) / 60, 1),
        }  # fmt: skip
        found = [{**cell, "accuracy": _accuracy(tuned, test, self.test[1])}]
        if both and self.held_out:
            real = self.read(self.real, tuned, recipe.kept)
            found.append({**cell, "held_out": False, "accuracy": _accuracy(tuned, real, self.real[1])})
        return found


def _zeroed(tuned: Tuned) -> Tuned:
    """The module with a head of zeros."""
    nn.init.zeros_(tuned.head.weight)
    nn.init.zeros_(tuned.head.bias)
    return tuned


def _accuracy(tuned: Tuned, texts: Texts, labels: list[int]) -> float:
    return round(100 * float((tuned.predict(texts, torch.bfloat16) == np.array(labels)).mean()), 2)


def table() -> str:
    """The cells that were run, the last of each; anchors from papers, on other models, below."""
    lines = LINES.read_text(encoding="utf-8").splitlines() if LINES.exists() else []
    every = list(map(json.loads, lines))
    cells = [cell for cell in every if not cell["held_out"]]
    held_out = {_run(cell): cell["accuracy"] for cell in every if cell["held_out"]}
    text = [
        "# Privately tuned MiniLM", "",
        "all-MiniLM-L6-v2 (22.7 million parameters, frozen but for what is named), δ = 1e-5 under add_remove "
        "of one row. SST-2: accuracy on the 872 dev rows; AG News: on the 7,600 test rows. ε = ∞ is the same "
        "recipe, clipped alike, with a noise multiplier of 0.001. A dash is a cell that was not run; a "
        "method that is not named was not run. Of the 67,349 SST-2 rows, a run on 65,349 leaves out the "
        "2,000 for choosing a recipe; so does one on AG News. Behind an accuracy is what was aimed at, the "
        "accuracy on those 2,000 rows, and steps × batch size. Made by `python benchmarks/language.py "
        "--held-out --both`, a process for each cell (`--states`); every run is a line of `language.jsonl`.",
        "",
    ]  # fmt: skip
    privacy = [f"ε = {each}".replace("inf", "∞") for each in EPSILONS]
    head = ["data", "training rows", "method", "trained numbers", *privacy, "minutes a run"]
    text += ["| " + " | ".join(head) + " |", "|---|---:|---|" + "---:|" * (len(EPSILONS) + 2)]
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for cell in cells:
        groups.setdefault((cell["data"], cell["rows"], cell["method"]), {})[cell["epsilon"]] = cell
    for (data, rows, method), found in groups.items():
        each = next(iter(found.values()))
        shown = [_shown(found[name], held_out) if name in found else "–" for name in EPSILONS]
        longest = max(cell["minutes"] for cell in found.values())
        line = [data, f"{rows:,}", method, f"{each['trained']:,}", *shown, f"{longest:g}"]
        text.append(f"| {' | '.join(line)} |")
    return "\n".join([*text, "", NOTES.read_text(encoding="utf-8")])


def _run(cell: dict[str, Any]) -> str:
    """What tells a run from others, in both of its lines."""
    return json.dumps({name: cell[name] for name in cell if name not in ("accuracy", "held_out")})


def _shown(cell: dict[str, Any], held_out: dict[str, float]) -> str:
    """An accuracy, whether it reached what was aimed at, that on held-out rows, and steps × batch size."""
    target = TARGETS.get((cell["data"], cell["method"], cell["epsilon"]))
    notes = [f"{cell['steps']} × {cell['batch']:,}"]
    if _run(cell) in held_out:
        notes.insert(0, f"held out {held_out[_run(cell)]:.1f}")
    if target is not None:
        notes.insert(0, f"{'reached' if cell['accuracy'] >= target else 'missed'} {target:g}")
    return f"**{cell['accuracy']:.1f}** ({'; '.join(notes)})"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", nargs="+", default=["sst2"], choices=SETS)
    options.add_argument("--only", nargs="+", default=list(RECIPES), choices=RECIPES)
    options.add_argument("--epsilons", nargs="+", default=list(EPSILONS), choices=EPSILONS)
    options.add_argument("--rows", type=int, help="so many training rows in place of all")
    options.add_argument("--held-out", action="store_true")
    options.add_argument("--both", action="store_true", help="with --held-out: on the test rows too")
    options.add_argument("--states", type=Path, help="a folder that keeps states of the frozen blocks")
    options.add_argument("--rated", type=Path, help="the folder of rated sentences: see _public_texts.py")
    options.add_argument("--table", action="store_true")
    for name in ("rate", "batch", "epochs"):
        options.add_argument(f"--{name}", type=float)
    given = options.parse_args()
    every = {name: getattr(given, name) for name in ("rate", "batch", "epochs")}
    changed = {name: value for name, value in every.items() if value is not None}
    if not given.table:
        for name in given.data:
            bench = Bench(name, given.rows, given.held_out, given.states, given.rated)
            for method in given.only:
                for epsilon in given.epsilons:
                    for cell in bench.cells(method, epsilon, changed, given.both):
                        print(json.dumps(cell), flush=True)
                        with LINES.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(cell) + "\n")
    TABLE.write_text(table(), encoding="utf-8")


if __name__ == "__main__":
    main()
