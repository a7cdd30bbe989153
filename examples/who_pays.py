"""Who pays for privacy: how models of income at several ε serve groups of people, and why.

Adult is public, so the fits may be compared exactly (``tacit compare`` does the same). The page shows
utility, what an attack finds and the gaps between groups against ε. Then a small network is trained without
privacy, and the norms of its per-example gradients by group say who would be clipped most by DP-SGD: that is
where a disparate impact comes from (Bagdasaryan, Poursaeed and Shmatikov 2019).

Prints two tables, and writes who_pays.html to out/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import tacit
from tacit import datasets, jobs
from tacit.training import norms_by_group

GROUPS = ("sex", "race")
MODELS = ("naive-bayes", "logistic")


def compared(folder: Path, rows: int, seeds: int) -> jobs.Compared:
    """Fits at several ε to the first rows of Adult, measured on as many others."""
    files = datasets.adult()
    train, test = folder / "who_pays_train.csv", folder / "who_pays_test.csv"
    pd.read_csv(files.train, nrows=rows).to_csv(train, index=False)
    pd.read_csv(files.test, nrows=rows).to_csv(test, index=False)
    return jobs.compare(
        train, test, schema=files.schema, target="income", models=MODELS, epsilons=(0.1, 1.0, 8.0),
        delta=1e-6, seeds=seeds, groups_by=GROUPS, public=True, out=folder / "who_pays.html", overwrite=True,
    )  # fmt: skip


def lengths(rows: int, clip_norm: float) -> list[list[str]]:
    """How long the gradients of each group are in a network that was trained for a few epochs."""
    files = datasets.adult()
    frame = pd.read_csv(files.train, nrows=rows)
    maker = tacit.estimators.Preprocessor(tacit.Schema.load(files.schema), target="income")
    inputs = torch.tensor(np.asarray(maker.fit_transform(frame)), dtype=torch.float32)
    targets = torch.tensor((frame["income"].str.strip() == ">50K").to_numpy().astype(np.int64))
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(inputs.shape[1], 16), nn.Tanh(), nn.Linear(16, 2))
    loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    for _ in range(60):
        optimizer.zero_grad()
        loss(network(inputs), targets).backward()
        optimizer.step()
    told = []
    for column in GROUPS:
        for each in norms_by_group(
            network, loss, inputs, targets, frame[column].str.strip().tolist(), clip_norm
        ):
            share = f"{each.clipped:.0%}"
            told.append(
                [column, str(each.group), str(each.examples), f"{each.mean:.2f}", share, f"{each.kept:.0%}"]
            )
    return told


def main(arguments: list[str] | None = None) -> None:
    """Compare, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    found = compared(given.out, given.rows, given.seeds)
    table = Table("model", "ε", found.figure, *(f"gap: {name}" for name in GROUPS))
    for row in found.summary():
        gaps = [f"{row['gaps'][name]:.3f}" for name in GROUPS]
        table.add_row(row["model"], f"{row['epsilon']:g}", f"{row['utility']:.3f}", *gaps)
    console.print(table)
    norms = Table(
        "column", "group", "people", "mean norm", "clipped at 1", "kept", title="Gradients of a network"
    )
    for line in lengths(given.rows, 1.0):
        norms.add_row(*line)
    console.print(norms)
    console.print(f"Page written to {found.path}")


if __name__ == "__main__":
    main()
