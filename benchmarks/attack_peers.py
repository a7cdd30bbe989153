"""Attacks beside those of the Adversarial Robustness Toolbox (ART), and tacit's own figures.

    python benchmarks/attack_peers.py [--rounds 9] [--shadows 16]

Both libraries attack the same models, in one process and in turns. A time is CPU time on one thread, the
median over the rounds. ART is installed into ``build/peers/art`` without its dependencies, since it shares
PyTorch and scikit-learn with tacit. It has neither LiRA nor RMIA, no gradient inversion, no linkage and no
attack on statistics, so these have no peer here.

*Membership by an attack model*: a forest of 100 trees, fitted to 2,000 rows of Adult; a second forest of
another 2,000 rows is the shadow model. Logistic regression, then a forest, learns from its predictions of
2,000 members and 2,000 others, and judges 4,000 rows of the first. Both sides get saved predictions. ART has
one attack model for all classes, tacit one for each, as in the paper. *Membership by one rule*: the scaled
logit, against ART's rule that a correct prediction is a member's.
*Extraction*: a victim of two layers, trained on 1,000 of scikit-learn's digits, answers 400 questions with
labels; a network of the same form learns from them, by the same optimiser and for as many epochs. Its
agreement with the victim is counted on the remaining digits. ART: CopycatCNN; tacit: ``distil``, one round,
which keeps a tenth of the answers back to measure the copy.
*Inversion*: the input of each of ten classes from the gradient of a softmax regression on MNIST, 20 steps
from a black image, each side at the better of the rates tried (0.1, 1 and 5; 1 and 2). ART: MIFace, with
threshold 1: version 1.20.1 goes on while its cost is below the threshold, so that with 0.01 it ends after
one step. tacit: ``invert``.

Another peer, breaching 0.1.2, inverts gradients; it needs torchvision, which is not installed here, so that
gradient inversion has no peer below.

Writes ``benchmarks/results/attack_peers.md``.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from torch import nn

import tacit
from tacit import attacks, datasets
from tacit.attacks import gradients
from tacit.estimators import LogisticRegression, Preprocessor, RandomTrees

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "attack_peers.md"
ART = HERE.parent / "build" / "peers" / "art"
PACKAGES = ("adversarial-robustness-toolbox==1.20.1", "six", "tqdm")
MNIST = HERE.parent.parent / "shared" / "data" / "mnist"
Array = np.ndarray


def installed() -> str:
    """Make ART importable, and return its version."""
    if not (ART / "art").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(ART)]
        subprocess.run([*command, *PACKAGES], check=True)
    sys.path.append(str(ART))
    warnings.filterwarnings("ignore", module="art")
    import art

    return str(art.__version__)


def in_turns(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, Any]]:
    """The median CPU seconds of each side over rounds in which they take turns, and its last answer."""
    spent: dict[str, list[float]] = {name: [] for name in sides}
    answers: dict[str, Any] = {}
    for _ in range(rounds):
        for name, side in sides.items():
            began = time.process_time()
            answers[name] = side()
            spent[name].append(time.process_time() - began)
    return {name: (float(np.median(spent[name])), answers[name]) for name in sides}


def adult(rows: int) -> tuple[Array, Array, Any]:
    """Features of Adult, classes 0 and 1, and what made them."""
    files = datasets.adult()
    people = pd.read_csv(files.train, nrows=rows)
    maker = Preprocessor(tacit.Schema.load(files.schema), target="income")
    X = np.asarray(maker.fit_transform(people))
    return X, (np.asarray(maker.target_values(people)) == maker.classes[1]).astype(int), maker


def mnist(rows: int) -> tuple[Array, Array]:
    """Images in [0, 1] and their digits."""
    names = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
    pixels, classes = (gzip.decompress((MNIST / name).read_bytes()) for name in names)
    images = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 28, 28)[:rows] / 255
    return images, np.frombuffer(classes, np.uint8, offset=8)[:rows].astype(np.int64)


def memberships(rounds: int) -> list[tuple[str, ...]]:
    """An attack model, and a rule, on saved predictions of a forest."""
    from art.attacks.inference.membership_inference import (
        MembershipInferenceBlackBox,
        MembershipInferenceBlackBoxRuleBased,
    )
    from art.estimators.classification.scikitlearn import ScikitlearnRandomForestClassifier

    X, y, _ = adult(8000)
    forest = RandomForestClassifier(100, bootstrap=False, random_state=0)
    target, shadow = (clone(forest).fit(X[a : a + 2000], y[a : a + 2000]) for a in (0, 4000))
    seen, own = target.predict_proba(X[:4000]), y[:4000]
    told, theirs = shadow.predict_proba(X[4000:]), y[4000:]
    inside = np.arange(4000) < 2000
    victim = ScikitlearnRandomForestClassifier(target)

    def by_art(kind: str) -> Array:
        attack = MembershipInferenceBlackBox(victim, attack_model_type=kind)
        attack.fit(None, theirs[:2000], None, theirs[2000:], pred=told[:2000], test_pred=told[2000:])
        return np.ravel(attack.infer(None, own, pred=seen, probabilities=True))

    def by_tacit(kind: str) -> Array:
        model = RandomForestClassifier(random_state=0) if kind == "rf" else None
        return attacks.shadow_attack(seen, own, told, theirs, inside, attack_model=model)

    def rule_of_art() -> Array:
        rule = MembershipInferenceBlackBoxRuleBased(victim)
        return np.ravel(rule.infer(X[:4000], own)).astype(float)

    cases: dict[str, dict[str, Callable[[], Any]]] = {
        "membership: logistic attack model": {"art": lambda: by_art("lr"), "tacit": lambda: by_tacit("lr")},
        "membership: forest as attack model": {"art": lambda: by_art("rf"), "tacit": lambda: by_tacit("rf")},
        "membership: one rule": {
            "art": rule_of_art, "tacit": lambda: attacks.signal(target.predict_proba(X[:4000]), own),
        },
    }  # fmt: skip
    rows = []
    for name, sides in cases.items():
        found = in_turns(sides, rounds)
        areas = {side: attacks.MembershipScores(told, inside).auroc for side, (_, told) in found.items()}
        rows.append(line(name, found, {side: f"AUROC {area:.3f}" for side, area in areas.items()}))
    return rows


def line(name: str, found: dict[str, tuple[float, Any]], figure: dict[str, str]) -> tuple[str, ...]:
    """A row of the table."""
    ours, theirs = found["tacit"][0], found["art"][0]
    times = (f"{1e3 * theirs:.1f} ms", f"{1e3 * ours:.1f} ms", f"{theirs / ours:.2g}")
    return name, *times, figure["art"], figure["tacit"]


def small(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def wrapped(network: nn.Module, shape: tuple[int, ...], rate: float = 1e-2) -> Any:
    """A network as ART takes it."""
    from art.estimators.classification import PyTorchClassifier

    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    return PyTorchClassifier(
        network, nn.CrossEntropyLoss(), shape, 10, optimizer=optimizer, clip_values=(0, 1), device_type="cpu"
    )


class Thief:
    """A network of the victim's form that learns from labels; the optimiser and the epochs are ART's."""

    def __init__(self, epochs: int) -> None:
        self.network, self.epochs = small(1), epochs

    def fit(self, rows: Array, labels: Array) -> Thief:
        optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-2)
        inputs, targets = torch.from_numpy(rows).float(), torch.from_numpy(labels)
        for _ in range(self.epochs):
            for part in torch.randperm(len(rows)).split(32):
                optimizer.zero_grad()
                nn.functional.cross_entropy(self.network(inputs[part]), targets[part]).backward()
                optimizer.step()
        return self

    def predict(self, rows: Array) -> Array:
        with torch.no_grad():
            return self.network(torch.from_numpy(rows).float()).argmax(1).numpy()


def extraction(rounds: int) -> tuple[str, ...]:
    from art.attacks.extraction import CopycatCNN

    digits = load_digits()
    X, y = (digits.images / 16).astype(np.float32), digits.target.astype(np.int64)
    victim = wrapped(small(0), (8, 8))
    victim.fit(X[:1000], y[:1000], batch_size=32, nb_epochs=20, verbose=False)
    questions, epochs, unseen = 400, 20, X[1400:]

    def by_art() -> Array:
        thief = wrapped(small(1), (8, 8))
        attack = CopycatCNN(victim, 32, 64, nb_epochs=epochs, nb_stolen=questions)
        copy = attack.extract(X[1000:1400], thieved_classifier=thief)
        return np.asarray(copy.predict(unseen).argmax(1))

    def by_tacit() -> Array:
        given = iter(np.split(X[1000:1400], [questions // 10]))
        copy = attacks.distil(
            lambda rows: victim.predict(rows).argmax(1), Thief(epochs), lambda n, rng: next(given),
            questions=questions, rounds=1,
        )  # fmt: skip
        return copy.model.predict(unseen)

    truth = victim.predict(unseen).argmax(1)
    found = in_turns({"art": by_art, "tacit": by_tacit}, rounds)
    figure = {side: f"{(told == truth).mean():.1%} agreement" for side, (_, told) in found.items()}
    return line("extraction: 400 labels", found, figure)


def inversion(rounds: int) -> tuple[str, ...]:
    from art.attacks.inference.model_inversion import MIFace

    images, classes = mnist(10_000)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    victim = wrapped(network, (1, 28, 28), 1e-3)
    victim.fit(images[:, None].astype(np.float32), classes, batch_size=64, nb_epochs=3, verbose=False)
    answering = wrapped(nn.Sequential(network, nn.Softmax(1)), (1, 28, 28))
    start = np.zeros((10, 1, 28, 28), dtype=np.float32)

    def by_art() -> Array:
        attack = MIFace(answering, max_iter=20, threshold=1.0, learning_rate=5.0, verbose=False)
        return np.asarray(attack.infer(start, np.arange(10)))

    def logs(rows: Array) -> torch.Tensor:
        return network(torch.from_numpy(rows.astype(np.float32))).log_softmax(1)

    def by_tacit() -> Array:
        found = []
        for digit in range(10):

            def score(rows: Array, digit: int = digit) -> Array:
                with torch.no_grad():
                    return logs(rows)[:, digit].numpy()

            def gradient(row: Array, digit: int = digit) -> Array:
                point = torch.from_numpy(row[None].astype(np.float32)).requires_grad_(True)
                network(point).log_softmax(1)[0, digit].backward(inputs=[point])
                return point.grad.numpy()  # type: ignore[union-attr]

            found.append(attacks.invert(score, start[digit], gradient=gradient, steps=20, rate=2.0).input)
        return np.asarray(found)

    found = in_turns({"art": by_art, "tacit": by_tacit}, rounds)
    figure = {}
    for side, (_, made) in found.items():
        chances = logs(np.reshape(made, (10, -1))).exp().diagonal().min().detach()
        figure[side] = f"probability {float(chances):.3f} or more"
    return line("inversion: ten digits", found, figure)


def statistics(rounds: int) -> float:
    """Seconds of LiRA for 64 shadow models × 50,000 examples."""
    generator = np.random.default_rng(0)
    inside = generator.random((64, 50_000)) < 0.5
    shadows = generator.normal(size=inside.shape) + inside
    target = generator.normal(size=50_000)
    spent, _ = in_turns({"": lambda: attacks.lira(target, shadows, inside, variance="each")}, rounds)[""]
    return spent


def image(method: str) -> tuple[float, float]:
    """Seconds, and the likeness, of an MNIST image from its gradient in a convolutional network."""
    images, classes = mnist(1)
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 12, 5, 2, 2), nn.Sigmoid(), nn.Conv2d(12, 12, 5, 2, 2), nn.Sigmoid(),
        nn.Flatten(), nn.Linear(588, 10),
    )  # fmt: skip
    for weight in network.parameters():
        nn.init.uniform_(weight, -0.5, 0.5)
    truth, label = torch.from_numpy(images[None]).float(), torch.from_numpy(classes)
    loss = nn.CrossEntropyLoss()
    seen = gradients.gradients_of(network, loss, truth, label)
    began = time.process_time()
    found = gradients.invert_gradients(network, loss, seen, truth.shape, method=method)
    return time.process_time() - began, gradients.psnr(found.inputs.clamp(0, 1), truth)


def held(make: Callable[[], Any], shadows: int, repeats: int) -> tuple[list[attacks.Found], list[float]]:
    """LiRA against models of 1,000 rows of Adult: what it finds at 1 % of false alarms, and its AUROC."""
    X, y, _ = adult(2000)

    def seen(model: Any) -> Array:
        return attacks.signal(model.predict_proba(X), y)

    signals, inside = attacks.train_shadows(
        lambda rows: make().fit(X[rows], y[rows]), seen, examples=len(X), models=shadows, seed=1
    )
    found, areas = [], []
    for seed in range(repeats):
        member = np.random.default_rng(100 + seed).permutation(len(X)) < len(X) // 2
        target = seen(make().fit(X[member], y[member]))
        scores = attacks.MembershipScores(attacks.lira(target, signals, inside, variance="fixed"), member)
        found.append(scores.found(0.01))
        areas.append(scores.auroc)
    return found, areas


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--shadows", type=int, default=16)
    given = parser.parse_args()
    torch.set_num_threads(1)
    version = installed()
    rows = [*memberships(given.rounds), extraction(given.rounds), inversion(given.rounds)]
    lira = statistics(given.rounds)
    pictures = {method: image(method) for method in ("idlg", "geiping")}
    kinds: dict[str, tuple[Callable[[], Any], int]] = {
        "forest, no privacy": (lambda: RandomForestClassifier(30, bootstrap=False, random_state=0), 5),
        "tacit LogisticRegression, ε = 1": (lambda: LogisticRegression(1.0, classes=[0, 1], norm=1.0), 20),
        "tacit RandomTrees, ε = 1": (lambda: RandomTrees(1.0, classes=[0, 1], bounds=(-1, 1), trees=20), 20),
    }
    attacked = {name: held(make, given.shadows, repeats) for name, (make, repeats) in kinds.items()}
    RESULTS.write_text(page(version, given, rows, lira, pictures, attacked))
    print(RESULTS.read_text())


def page(version: str, given: Any, rows: Any, lira: float, pictures: Any, attacked: Any) -> str:
    """The results as Markdown."""
    about = (__doc__ or "").split("\n\n", 2)[2].rsplit("\n\nWrites", 1)[0].replace("``", "`")
    told = [
        "# Attacks beside ART, and tacit's own figures",
        "",
        f"Made by `python benchmarks/attack_peers.py --rounds {given.rounds} --shadows {given.shadows}`,",
        f"with ART {version}, on one of two busy cores. A ratio above 1 says that tacit is faster.",
        "",
        about,
        "",
        "| attack | ART | tacit | ratio | what ART finds | what tacit finds |",
        "|---|---|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        "## Figures without a peer",
        "",
        "| what | measured | wanted |",
        "|---|---|---|",
        f"| LiRA's statistics, 64 shadow models × 50,000 examples | {lira:.2f} s | < 5 s |",
    ]
    for method, (seconds, likeness) in pictures.items():
        what = f"gradient inversion of one MNIST image, {method}"
        told.append(f"| {what} | {seconds:.1f} s, {likeness:.1f} dB | < 20 s |")
    told += [
        "",
        f"## LiRA with {given.shadows} shadow models on 2,000 rows of Adult",
        "",
        "Each attacked model has another random half of the rows; the shadow models are the same for all.",
        "Of 1,000 members and 1,000 others each; ± is the standard deviation over attacked models. Guessing",
        "finds 1 %, and 2.72 % is the most that ε = 1 allows. The noise of private models is not seeded.",
        "",
        "| model | attacked models | members found at 1 % of false alarms | AUROC |",
        "|---|---|---|---|",
    ]
    for name, (found, areas) in attacked.items():
        shares = [each.rate for each in found]
        told.append(
            f"| {name} | {len(areas)} | {np.mean(shares):.2%} ± {np.std(shares, ddof=1):.2%} "
            f"| {np.mean(areas):.3f} ± {np.std(areas, ddof=1):.3f} |"
        )
    return "\n".join(told) + "\n"


if __name__ == "__main__":
    main()
