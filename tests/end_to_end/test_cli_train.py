"""``tacit train`` as its users run it, and what other commands make of its networks."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import struct
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from commands import Outcome, Run, commands  # noqa: E402
from tacit import Budget, Ledger, Unit  # noqa: E402
from tacit.data.examples import Found, Where, find, valid_labels  # noqa: E402
from tacit.models import load, save  # noqa: E402
from tacit.training import Plan, Trainer, load_weights, save_weights  # noqa: E402
from tacit.training.networks import later  # noqa: E402
from tacit.training.networks.architectures import RECIPES, architecture, fixed_part  # noqa: E402
from tacit.training.networks.network import Network  # noqa: E402

pytestmark = pytest.mark.usefixtures("tested_once")

SIDE = 12


def drawn(rows: int, seed: int) -> tuple[Any, Any]:
    """Images of three classes, told apart by which third of them is bright."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, rows)
    images = rng.integers(0, 80, (rows, SIDE, SIDE)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[4 * label : 4 * label + 4] += 150
    return images, labels


def write_idx(path: str, values: Any) -> None:
    content = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    content += values.astype(np.uint8).tobytes()
    Path(path).write_bytes(gzip.compress(content) if path.endswith(".gz") else content)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``tacit`` in a folder with data.npz, test.npz and study.db (ε = 5, δ = 1e-4)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "220")
    for name, rows, seed in (("data", 400, 1), ("test", 300, 2)):
        images, labels = drawn(rows, seed)
        np.savez(f"{name}.npz", x=images, y=labels)
    Ledger.open("study.db", Budget(epsilon=5.0, delta=1e-4)).close()

    return commands(monkeypatch, capsys)


def train(run: Run, *more: str, **changed: str) -> Outcome:
    options = {
        "architecture": "mlp", "epsilon": "3", "delta": "1e-5", "population": "400", "classes": "3",
        "epochs": "5", "batch-size": "80", "ledger": "study.db", "out": "model.safetensors",
    } | changed  # fmt: skip
    data = options.pop("data", "data.npz")
    given = [word for name, value in options.items() for word in (f"--{name}", value) if value]
    return run("train", *([data] if data else []), *given, *more)


def charges(ledger: str = "study.db") -> int:
    with Ledger.open(ledger) as book:
        return len(book.entries())


def unreadable(self: Any) -> Any:
    raise AssertionError("examples were read")


def test_from_arrays_to_a_report(run: Run) -> None:
    done = train(
        run, "--test", "test.npz", "--test-epsilon", "1.5", "--report", "report.html", architecture="cnn"
    ).good()
    assert "(ε = 3, δ = 1e-05)-differentially private under add_remove of one row" in done.out
    assert "Taken as public: array 'x' of 1 × 12 × 12 uint8, labels in 'y'." in done.out
    assert "An example whose label is not from 0 to 2 adds nothing." in done.out
    assert "and ε = 1.5 for the test" in done.out
    with Ledger.open("study.db") as ledger:
        labels = [entry.label for entry in ledger.entries()]
        assert labels[0].startswith("cnn run [")
        assert labels[1:] == ["test of the cnn run"]
        assert [entry.noise for entry in ledger.entries()] == ["float32", "exact"]
        assert 4.49 < ledger.spent().epsilon <= 4.5

    predicted = run("predict", "model.safetensors", "test.npz", "--out", "guess.csv", "--proba").good()
    assert "Nothing was charged" in predicted.out
    with Path("guess.csv").open(encoding="utf-8") as stream:
        guesses = list(csv.DictReader(stream))
    truth = np.load("test.npz")["y"]
    right = np.mean([int(row["class"]) for row in guesses] == truth)
    assert right > 0.8
    assert all(abs(sum(float(row[f"p({k})"]) for k in range(3)) - 1) < 1e-4 for row in guesses)
    assert charges() == 2

    shown = run("inspect", "model.safetensors").good().out
    assert "convolutional network of 3 classes" in shown
    assert "ε = 3, δ = 1e-05" in shown
    assert "PoissonSampled(0.2, Gaussian(" in shown
    assert "by a factor of at most e^ε = 20.1" in shown
    facts = json.loads(run("inspect", "model.safetensors", "--format", "json").good().out)
    assert facts["guarantee"]["epsilon"] == 3.0
    assert facts["network"]["architecture"] == "cnn"
    assert facts["parameters"]["0.weight"] == [16, 1, 3, 3]
    found = facts["evaluations"][0]["figures"]["accuracy"]
    assert abs(found - right) < 0.18  # noise of scale 4/3 on 20 cells: beyond 3e-8 of the time

    page = Path("report.html").read_text(encoding="utf-8")
    assert "(ε = 3, δ = 1e-05)-differentially private" in page
    for heading in ("ε for every δ", "The best attack there can be", "The run", "What was trained"):
        assert f"<h2>{heading}</h2>" in page
    assert "test of the cnn run" in page
    assert "ε = 0.5 remains" in page
    assert "<script" not in page
    assert "http" not in page
    again = run("report", "model.safetensors", "--out", "again.html", "--ledger", "study.db").good()
    assert "Report written" in again.out
    assert Path("again.html").read_text(encoding="utf-8") == page


def test_dry_run_reads_charges_and_writes_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later.Later, "_loaded", unreadable)
    before = sorted(path.name for path in Path().iterdir())
    shown = train(run, "--dry-run").good()
    assert "noise multiplier" in shown.out
    assert "25 (5 epochs)" in shown.out
    assert "25 × PoissonSampled(0.2, Gaussian(" in shown.out
    assert "Nothing was charged, and no examples were read." in shown.out
    assert charges() == 0
    assert sorted(path.name for path in Path().iterdir()) == before
    refused = train(run, "--dry-run", epsilon="6")
    assert (refused.code, charges()) == (2, 0)
    assert "would not fit" in refused.err


def test_spent_budget_is_refused_before_examples_are_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    train(run, "--label", "first try", epsilon="4.5").good()
    monkeypatch.setattr(later.Later, "_loaded", unreadable)
    again = train(run, out="second.safetensors")
    assert again.code == 2
    assert "remaining: ε = 0.5" in again.err
    assert "first try" in again.err
    assert charges() == 1
    assert not Path("second.safetensors").exists()


def test_a_refusal_says_when_it_is_for_delta(run: Run) -> None:
    train(run, epsilon="1", delta="1e-4").good()
    again = train(run, "--dry-run", out="second.safetensors", epsilon="1", delta="1e-4")
    assert again.code == 2
    assert "remaining: ε = 4" in again.err
    shared = "ε alone would fit, but charges share the δ = 0.0001 of the ledger too, of which 0 is left."
    assert shared in again.err
    assert "ε alone" not in train(run, "--dry-run", epsilon="6", out="second.safetensors").err


def test_the_charge_comes_before_the_examples(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    def count(self: Any) -> Any:
        counted.append(charges())
        return original(self)

    original = later.Later._loaded
    monkeypatch.setattr(later.Later, "_loaded", count)
    train(run).good()
    assert counted == [1]


def test_what_is_printed_does_not_depend_on_the_examples(run: Run) -> None:
    first = train(run).good()
    assert "accuracy on the examples it was trained on would leak" in first.out
    assert "accuracy " not in first.out.replace("accuracy on the examples", "")
    Path("model.safetensors").unlink()
    Path("study.db").unlink()
    Ledger.open("study.db", Budget(epsilon=5.0, delta=1e-4)).close()
    images, labels = drawn(7, 3)
    np.savez("data.npz", x=images, y=labels * 100 - 50)
    second = train(run).good()
    assert first.out == second.out


def test_labels_and_numbers_that_mean_nothing_add_nothing(run: Run) -> None:
    """Seeded runs on as many examples differ in what the examples add, and in nothing else."""
    images, labels = drawn(60, 4)
    nowhere = np.where(labels == 0, np.nan, np.where(labels == 1, np.inf, -1e300))
    weights = []
    for inputs, targets in (
        (images, np.full(60, 3)),
        (images, labels + 0.5),
        (images, nowhere),
        (np.full(images.shape, np.nan, np.float32), labels),
        (images, labels),
        (images[:0], labels[:0]),
    ):
        np.savez("odd.npz", x=inputs, y=targets)
        train(run, "--seed", "1", "--overwrite", data="odd.npz", epsilon="0.5", epochs="1").good()
        weights.append(load("model.safetensors").model[1].weight.detach().numpy())
    for each in weights[1:4]:
        np.testing.assert_array_equal(each, weights[0])
    assert not np.array_equal(weights[4], weights[0])
    assert np.isfinite(weights[5]).all()


def test_labels_are_whole_numbers_of_classes() -> None:
    odd = np.array([0, 2, 3, -1, 1.5, np.nan, np.inf, 1e300])
    assert valid_labels(odd, 3).tolist() == [0, 2, -1, -1, -1, -1, -1, -1]
    assert valid_labels(np.array([True, False]), 2).tolist() == [1, 0]
    assert valid_labels(np.array([2**63, 1], np.uint64), 3).tolist() == [-1, 1]


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 16, 20)])
def test_every_architecture_takes_every_usual_shape(name: str, shape: tuple[int, ...]) -> None:
    model = architecture(name, shape, 4)
    inputs = torch.rand(2, *shape)
    assert model(inputs).shape == (2, 4)
    fixed = fixed_part(model)
    assert (fixed is not None) == (name in ("scattering", "patches"))
    if fixed is not None:
        torch.testing.assert_close(model[len(fixed) :](fixed(inputs)), model(inputs))


@pytest.mark.parametrize("name", ["scattering", "patches", "resnet", "linear", "autoencoder"])
def test_the_other_architectures_train_and_load(run: Run, name: str) -> None:
    train(run, "--test", "test.npz", "--test-public", architecture=name, epochs="0.2").good()
    network = load("model.safetensors")
    assert isinstance(network, Network)
    assert network.architecture == name
    other = architecture(name, (1, SIDE, SIDE), 3)
    assert load_weights("model.safetensors", other) == network.guarantee_
    inputs = torch.rand(2, 1, SIDE, SIDE)
    torch.testing.assert_close(other(inputs), network.model(inputs))


def test_idx_files_alone_in_pairs_and_in_folders(run: Run) -> None:
    Path("mnist").mkdir()
    for name, suffix, seed in (("train", ".gz", 1), ("t10k", "", 2)):
        images, labels = drawn(200, seed)
        write_idx(f"mnist/{name}-images-idx3-ubyte{suffix}", images)
        write_idx(f"mnist/{name}-labels-idx1-ubyte{suffix}", labels)
    images, labels = ("mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz")
    folder = train(run, "--test", "mnist", "--test-public", data="mnist", epsilon="1").good()
    assert "images of 1 × 12 × 12 uint8" in folder.out
    train(run, "--overwrite", data=images, epsilon="1").good()
    train(run, "--overwrite", "--images", images, "--labels", labels, data="", epsilon="1").good()
    assert charges() == 3
    lines = run("predict", "model.safetensors", "mnist/t10k-images-idx3-ubyte").good().out.splitlines()
    assert (lines[0], len(lines)) == ("class", 201)
    found = find(Path("mnist"), Where(test=True))
    assert found.name.endswith("t10k-images-idx3-ubyte")
    read, truth = found.read()
    np.testing.assert_array_equal(read[:, 0], drawn(200, 2)[0])
    np.testing.assert_array_equal(truth, drawn(200, 2)[1])


def test_folders_of_images(run: Run) -> None:
    image = pytest.importorskip("PIL.Image")
    images, labels = drawn(60, 5)
    for place, (pixels, label) in enumerate(zip(images, labels, strict=True)):
        folder = Path("pictures") / ("high", "low", "middle")[label]
        folder.mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels).save(folder / f"{place:02}.{('png', 'jpg')[place % 2]}")
    Path("pictures/low/broken.png").write_bytes(b"no image")
    Path("pictures/low/notes.txt").write_text("no image")
    done = train(run, "--size", "12", "--grey", data="pictures", classes="", population="90").good()
    assert "names of the folders as classes" in done.out
    assert "3: high, low, middle" in done.out
    read, truth = find(Path("pictures"), Where(size=(12, 12), grey=True)).read()
    assert read.shape == (61, 1, 12, 12)
    assert sorted(truth) == sorted([*labels, -1])
    lines = run("predict", "model.safetensors", "pictures").good().out.splitlines()
    assert lines[0] == "file,class"
    assert lines[1].split(",")[1] in ("high", "low", "middle")
    assert len(lines) == 62
    without = train(run, data="pictures", classes="", out="b.safetensors")
    assert (without.code, "--size 32" in without.err) == (2, True)
    other = train(run, "--size", "12", data="pictures", classes="4", out="b.safetensors")
    assert (other.code, "the number of folders" in other.err) == (2, True)


def pictures(place: str, names: tuple[str, ...], seed: int) -> None:
    """Images in folders by class; the first third of an image is bright in the first class, and so on."""
    image = pytest.importorskip("PIL.Image")
    images, labels = drawn(60, seed)
    for number, (pixels, label) in enumerate(zip(images, labels, strict=True)):
        folder = Path(place) / names[label]
        folder.mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels).save(folder / f"{number:02}.png")


OF_PICTURES = {"data": "pictures", "classes": "", "population": "60", "batch-size": "20"}


def test_folders_to_test_on_are_matched_by_name(run: Run) -> None:
    """Folders that are not one for each class, in order, mean what their names say."""

    def accuracy() -> float:
        words = ("--seed", "1", "--overwrite", "--test", "pictures", "--test-public")
        train(run, *words, epsilon="2").good()
        return float(load("model.safetensors").evaluations_[0]["figures"]["accuracy"])

    pictures("pictures", ("0", "1", "2"), 5)
    assert accuracy() > 0.8
    Path("pictures/0").rename("gone")
    assert accuracy() > 0.8
    Path("pictures/1").rename("pictures/10")
    twelve = tuple(map(str, range(12)))
    found = find(Path("pictures"), Where(size=(12, 12), test=True, classes=twelve))
    assert set(found.read()[1]) == {2, 10}


def test_folders_of_unknown_classes_are_refused_before_anything_is_charged(run: Run) -> None:
    pictures("pictures", ("high", "low", "middle"), 5)
    pictures("other", ("high", "low", "centre"), 6)
    Path("empty").mkdir()
    shape = ("--size", "12", "--grey")
    for words in (("--test-public",), ("--test-epsilon", "0.5")):
        for dry in ((), ("--dry-run",)):
            told = train(run, *shape, "--test", "other", *words, *dry, **OF_PICTURES)
            assert told.code == 2
            assert "holds a folder 'centre', which is no class of the network" in told.err
            assert "high, low, middle" in told.err
    numbers = train(run, "--test", "pictures", "--test-public")
    assert (numbers.code, "holds a folder 'high'" in numbers.err) == (2, True)
    nothing = train(run, *shape, "--test", "empty", "--test-public", **OF_PICTURES)
    assert (nothing.code, "a folder for each" in nothing.err) == (2, True)
    assert charges() == 0
    Path("other/centre").rename("other/middle")
    train(run, *shape, "--test", "other", "--test-public", **OF_PICTURES).good()


def test_a_run_on_folders_goes_on_with_their_names(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures("pictures", ("high", "low", "middle"), 5)
    begun(run, monkeypatch, "--size", "12", "--grey", **OF_PICTURES)
    Path("pictures/else").mkdir()
    other = train(run, *RESUME, **OF_PICTURES)
    assert (other.code, "'else', which is no class" in other.err) == (2, True)
    Path("pictures/else").rmdir()
    Path("pictures/high").rename("gone")
    train(run, *RESUME, **OF_PICTURES).good()
    network = load("model.safetensors")
    assert (network.classes_, network.shape) == (("high", "low", "middle"), (1, 12, 12))


def test_arrays_of_several_kinds(run: Run) -> None:
    def seen(**arrays: Any) -> Found:
        np.savez("kind.npz", **arrays)
        return find(Path("kind.npz"), Where())

    y = np.zeros(5)
    assert seen(x=np.zeros((5, 7)), y=y).shape == (7,)
    assert seen(images=np.zeros((5, 8, 9)), labels=y[:, None]).shape == (1, 8, 9)
    assert seen(x=np.zeros((5, 8, 9, 3)), y=y).read()[0].shape == (5, 3, 8, 9)
    assert seen(x=np.zeros((5, 3, 8, 9)), y=y).read()[0].shape == (5, 3, 8, 9)
    rng = np.random.default_rng(0)
    np.savez("table.npz", features=rng.normal(size=(400, 5)) * 4 + 7, groups=rng.integers(0, 3, 400))
    done = train(
        run, "--inputs", "features", "--targets", "groups", "--mean", "7", "--std", "4", data="table.npz",
    ).good()  # fmt: skip
    assert "less 7, divided by 4" in done.out
    assert (
        run("predict", "model.safetensors", "table.npz", "--inputs", "features").good().out.count("\n") == 401
    )


@pytest.mark.parametrize(
    ("words", "changed", "told"),
    [
        ((), {"data": "absent.npz"}, "absent.npz"),
        ((), {"data": ""}, "must be named once"),
        ((), {"data": "study.db"}, "neither an .npz file nor an idx file"),
        ((), {"data": "."}, "a folder for each of two classes"),
        ((), {"data": "strange.npz"}, "Say which: --inputs NAME"),
        ((), {"data": "strings.npz"}, "from 0 to classes − 1"),
        ((), {"data": "short.npz"}, "as many labels as examples"),
        ((), {"data": "flat.npz"}, "Each example must be"),
        ((), {"data": "cut.npz"}, "cannot be read as .npz"),
        ((), {"data": "table.npz", "architecture": "cnn"}, "channels, height and width"),
        (("--inputs", "z"), {}, "an array of data.npz: 'x', 'y'"),
        (("--labels", "data.npz"), {}, "--images"),
        (("--images", "lone-images-idx3"), {"data": ""}, "'lone-labels-idx1' does not exist"),
        ((), {"data": "pixels"}, "Add --labels"),
        (
            (), {"architecture": "forest"},
            "one of 'linear', 'mlp', 'autoencoder', 'cnn', 'scattering', 'patches', 'resnet'",
        ),
        ((), {"classes": "1"}, "classes"),
        ((), {"population": "0"}, "population"),
        ((), {"batch-size": "401"}, "at most the population"),
        ((), {"epochs": "0"}, "epochs"),
        ((), {"epsilon": "0"}, "epsilon"),
        ((), {"delta": "0"}, "above 0"),
        ((), {"delta": "1e-3"}, "more than the ledger allows"),
        ((), {"ledger": "absent.db"}, "tacit ledger init"),
        ((), {"ledger": "person.db"}, "The ledger protects one person"),
        ((), {"out": "absent/model.safetensors"}, "cannot be written"),
        ((), {"out": "test.npz"}, "exists"),
        (("--report", "test.npz"), {}, "exists"),
        (("--report", "model.safetensors"), {}, "same file"),
        (("--checkpoint", "test.npz"), {}, "holds a run already"),
        (("--resume",), {}, "no --checkpoint"),
        (("--resume", "--checkpoint", "absent"), {}, "no file absent"),
        (("--optimizer", "lbfgs"), {}, "'sgd', 'adam', 'adamw'"),
        (("--optimizer", "adam", "--momentum", "0.5"), {}, "left out for adam"),
        (("--momentum", "1"), {}, "momentum"),
        (("--lr", "-1"), {}, "lr"),
        (("--clip-norm", "0"), {}, "clip_norm"),
        (("--clipping", "none"), {}, "'quantile'"),
        (("--average", "mean"), {}, "average"),
        (("--sampling", "fixed"), {}, "replace_one"),
        (("--mean", "a"), {}, "a number"),
        (("--mean", "1,2"), {}, "one for each of 1 channels"),
        (("--std", "0"), {}, "above 0"),
        (("--size", "3x"), {}, "28x32"),
        (("--test", "test.npz"), {}, "--test-epsilon"),
        (("--test-epsilon", "1"), {}, "--test"),
        (("--test", "absent.npz", "--test-public"), {}, "absent.npz"),
        (("--test", "table.npz", "--test-public"), {}, "examples of the shape (1, 12, 12)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_anything_is_charged(
    run: Run, words: tuple[str, ...], changed: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(later.Later, "_loaded", unreadable)
    Ledger.open("person.db", Budget(epsilon=5.0, delta=1e-4), unit=Unit("person", 2)).close()
    images, labels = drawn(10, 1)
    write_idx("lone-images-idx3", images)
    write_idx("pixels", images)
    np.savez("strange.npz", a=images, b=labels)
    np.savez("strings.npz", x=images, y=labels.astype(str))
    np.savez("short.npz", x=images, y=labels[1:])
    np.savez("flat.npz", x=labels, y=labels)
    np.savez("table.npz", x=images.reshape(10, -1), y=labels)
    Path("cut.npz").write_bytes(b"PK\5\6" + Path("data.npz").read_bytes()[-18:])
    before = Path("test.npz").read_bytes()
    outcome = train(run, *words, **changed)
    assert outcome.code == 2
    assert outcome.err.startswith("tacit: ")
    assert told in outcome.err
    assert outcome.err.count("\n") == 1
    assert charges() == charges("person.db") == 0
    assert not Path("model.safetensors").exists()
    assert Path("test.npz").read_bytes() == before


def test_without_torch_it_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.models import registry

    def absent(module: str) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(registry, "import_module", absent)
    outcome = train(run)
    assert outcome.code == 2
    assert outcome.err == (
        "tacit: Private networks need the package torch, which is not installed. "
        "Install it: pip install 'tacit[torch]'\n"
    )


def test_without_pillow_it_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        Path("pictures", name).mkdir(parents=True)
    monkeypatch.setitem(sys.modules, "PIL", None)
    outcome = train(run, "--size", "12", data="pictures", classes="")
    assert (outcome.code, outcome.err.count("pip install 'tacit[images]'"), charges()) == (2, 1, 0)


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """A shell that starts the tests in the background has them ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_stopped_and_resumed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Trainer._take

    def interrupted(self: Trainer, parts: Any) -> None:
        original(self, parts)
        if self.step_number == 12:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "_take", interrupted)
    stopped = train(run, "--checkpoint", "run.safetensors")
    assert stopped.code == 130
    assert "Stopped after step 12 of 25" in stopped.out
    assert not Path("model.safetensors").exists()
    unsaved = run("inspect", "run.safetensors")
    assert (unsaved.code, "checkpoint of a run" in unsaved.err) == (2, True)
    monkeypatch.setattr(Trainer, "_take", original)
    other = train(run, "--checkpoint", "run.safetensors", "--resume", epochs="6")
    assert (other.code, "--epochs must be 5.0" in other.err) == (2, True)
    done = train(run, "--checkpoint", "run.safetensors", "--resume").good()
    assert "Charged for the whole run: ε = 3, δ = 1e-05" in done.out
    with Ledger.open("study.db") as ledger:
        assert 2.99 < ledger.spent().epsilon <= 3.0
    again = train(run, "--checkpoint", "run.safetensors", "--resume", out="again.safetensors").good()
    assert again.out.replace("again.safetensors", "model.safetensors") == done.out
    with Ledger.open("study.db") as ledger:
        assert ledger.spent().epsilon <= 3.0
    one, two = (load(name) for name in ("model.safetensors", "again.safetensors"))
    for mine, other in zip(one.model.parameters(), two.model.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


def begun(
    run: Run, monkeypatch: pytest.MonkeyPatch, *words: str, entries: int = 3, **changed: str
) -> None:
    """A run stopped after a step, with its checkpoint in run.safetensors.

    It has three entries: it was charged, a block was claimed, and the rest of the block given back.
    """
    original = Trainer._take

    def stop(self: Trainer, parts: Any) -> None:
        original(self, parts)
        self.stop()

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_take", stop)
        stopped = train(run, "--checkpoint", "run.safetensors", *words, **changed)
    assert (stopped.code, charges()) == (130, entries)


RESUME = ("--checkpoint", "run.safetensors", "--resume")


def test_a_run_goes_on_with_what_it_was_started_with(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options left out are what they were, in what is done, shown and recorded."""
    begun(
        run, monkeypatch, "--lr", "0.3", "--momentum", "0.5", "--mean", "0.4", "--std", "0.3", "--average",
        "none", "--label", "mine", "--clip-norm", "0.7", "--inputs", "x",
    )  # fmt: skip
    rates = []
    original = Trainer._take

    def noting(self: Trainer, parts: Any) -> None:
        original(self, parts)
        rates.append((self.optimizer.param_groups[0]["lr"], self._run.state.average))

    monkeypatch.setattr(Trainer, "_take", noting)
    bare = {"epochs": "", "batch-size": "", "classes": ""}
    train(run, *RESUME, "--dry-run", **bare).good()
    done = train(run, *RESUME, **bare).good()
    assert rates
    assert set(rates) == {(0.3, None)}
    network = load("model.safetensors")
    assert (network.prepare.mean, network.prepare.std) == ((0.4,), (0.3,))
    said = dict(network.run)
    assert said["optimiser"] == "sgd, lr 0.3, momentum 0.5"
    assert said["average"] == "none"
    assert said["steps"] == "25 (5 epochs)"
    assert "longer than 0.7" in said["clipping"]
    assert len(network.classes_) == 3
    assert "less 0.4, divided by 0.3" in done.out
    with Ledger.open("study.db") as ledger:
        assert all(entry.label.startswith("mine [") for entry in ledger.entries())


@pytest.mark.parametrize(
    ("flag", "value", "recorded"),
    [
        ("lr", "0.2", "0.3"), ("mean", "0.5", "0.4"), ("std", "1", "0.3"), ("momentum", "0.1", "0.9"),
        ("optimizer", "adam", "sgd"), ("average", "tail", "none"), ("average", "0.9", "none"),
        ("clip-norm", "0.2", "0.1"), ("clipping", "automatic", "flat"), ("sampling", "shuffle", "poisson"),
        ("label", "other", "mlp run"), ("seed", "1", "left out"), ("inputs", "y", "left out"),
        ("epochs", "4", "5.0"), ("batch-size", "40", "80"), ("classes", "4", "3"), ("epsilon", "2", "3.0"),
        ("delta", "1e-6", "1e-05"), ("population", "500", "400"), ("architecture", "cnn", "mlp"),
        ("dataset", "elsewhere", "default"), ("size", "12", "left out"), ("bands", "2", "left out"),
        ("noise", "correlated", "independent"),
    ],
)  # fmt: skip
def test_another_option_than_the_run_was_started_with_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch, flag: str, value: str, recorded: str
) -> None:
    begun(run, monkeypatch, "--lr", "0.3", "--mean", "0.4", "--std", "0.3", "--average", "none")
    before = Path("run.safetensors").read_bytes()
    for dry in ((), ("--dry-run",)):
        outcome = train(run, *RESUME, *dry, **{flag: value})
        assert outcome.code == 2
        assert f"--{flag} must be {recorded}, with which the run in run.safetensors" in outcome.err
        assert "Leave it out to go on" in outcome.err
        assert outcome.err.count("\n") == 1
    assert charges() == 3
    assert Path("run.safetensors").read_bytes() == before
    assert not Path("model.safetensors").exists()


def test_the_same_options_again_are_no_others(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    same = ("--optimizer", "adam", "--average", "0.90", "--mean", "0.50", "--clipping", "quantile")
    begun(run, monkeypatch, *same)
    more = ("--lr", "0.001", "--std", "1", "--dataset", "default", "--label", "mlp run")
    train(run, *RESUME, *same, *more, "--sampling", "poisson").good()
    assert dict(load("model.safetensors").run)["optimiser"] == "adam, lr 0.001"


def test_only_the_examples_and_the_checkpoint_of_a_run_go_on(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(run, monkeypatch)
    np.savez("flat.npz", x=np.zeros((400, SIDE * SIDE), np.uint8), y=np.zeros(400))
    other = train(run, *RESUME, data="flat.npz")
    assert (other.code, "of the shape (1, 12, 12), as when" in other.err) == (2, True)
    model = torch.nn.Linear(2, 3)
    plan = Plan(population=9, batch_size=3, steps=1, noise_multiplier=1.0, delta=1e-5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    own = Trainer(model, torch.nn.CrossEntropyLoss(), optimizer, plan, checkpoint="own.safetensors")
    own.fit((torch.zeros(9, 2), torch.zeros(9, dtype=torch.long)))
    save(own, "weights.safetensors")
    for name, told in (
        ("own.safetensors", "not the checkpoint of a run of tacit train"),
        ("weights.safetensors", "not the checkpoint of a run of tacit train"),
        ("data.npz", "cannot be read as safetensors"),
    ):
        outcome = train(run, "--resume", "--checkpoint", name)
        assert (outcome.code, told in outcome.err) == (2, True)
    assert charges() == 3


def test_a_test_on_the_dataset_of_the_run_is_charged_beside_it(run: Run) -> None:
    """To name the run's own dataset is to leave the option out: both charges have to fit."""
    words = ("--test", "test.npz", "--test-epsilon", "3")
    told = set()
    for more in ((), ("--test-dataset", "default")):
        for dry in ("--dry-run", "-q"):
            outcome = train(run, *words, *more, dry)
            assert outcome.code == 2
            told.add(outcome.err)
    assert len(told) == 1
    assert "ε = 3 for the test would not fit" in told.pop()
    assert charges() == 0
    train(run, "--test", "data.npz", "--test-epsilon", "1", "--test-dataset", "default").good()
    assert charges() == 2


def test_a_test_that_would_not_fit_is_refused_before_a_run_goes_on(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(run, monkeypatch)
    for dry in ("--dry-run", "-q"):
        outcome = train(run, *RESUME, "--test", "test.npz", "--test-epsilon", "3", dry)
        assert outcome.code == 2
        assert "ε = 3 for the test of the mlp run would not fit" in outcome.err
    assert charges() == 3
    train(run, *RESUME, "--test", "test.npz", "--test-epsilon", "1").good()


def test_stopped_without_a_checkpoint_keeps_what_was_paid(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Trainer._take

    def stop(self: Trainer, parts: Any) -> None:
        original(self, parts)
        self.stop()

    monkeypatch.setattr(Trainer, "_take", stop)
    stopped = train(run)
    assert stopped.code == 130
    assert "Stopped after step 1 of 25; all are charged." in stopped.out
    assert dict(load("model.safetensors").run)["stopped"] == "after step 1"


def test_every_setting_is_used_and_a_seed_repeats(run: Run) -> None:
    words = (
        "--seed", "5", "--optimizer", "adam", "--lr", "0.01", "--clipping", "quantile", "--average", "0.9",
        "--sampling", "shuffle", "--clip-norm", "0.5", "-q",
    )  # fmt: skip
    first = train(run, *words, epsilon="1").good()
    train(run, *words, epsilon="1", out="again.safetensors").good()
    assert (first.out, first.err) == ("", "")
    one, two = (load(name) for name in ("model.safetensors", "again.safetensors"))
    for mine, other in zip(one.model.parameters(), two.model.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)
    said = dict(one.run)
    assert said["optimiser"] == "adam, lr 0.01"
    assert said["average"] == "with decay 0.9"
    assert "0.5 at first" in said["clipping"]
    assert said["a step sees"] == "one random part of the epoch's examples, about 80"
    assert "SEEDED" in run("inspect", "model.safetensors").good().out


def test_correlated_noise_is_trained_with_and_gone_on_with(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--noise", "correlated", "--bands", "3")
    begun(run, monkeypatch, *words, entries=2)  # an epoch is claimed whole
    train(run, *RESUME, *words).good()
    said = dict(load("model.safetensors").run)
    assert said["a step sees"] == "one part of the examples, about 80, the same in every epoch"
    assert said["noise on the sum"].endswith("less what 3 steps take back of each other's")
    wrong = train(run, "--noise", "correlated", "--sampling", "poisson", out="b.safetensors")
    assert (wrong.code, "sampling must be 'cyclic' or 'ordered'" in wrong.err) == (2, True)


def test_replace_one_takes_the_number_of_examples_as_public(run: Run) -> None:
    with Ledger.open("swap.db", Budget(epsilon=5.0, delta=1e-4), relation="replace_one"):
        pass
    train(run, "--sampling", "fixed", ledger="swap.db").good()
    assert "replace_one" in run("inspect", "model.safetensors").good().out
    wrong = train(run, ledger="swap.db", population="401", out="b.safetensors")
    assert (wrong.code, charges("swap.db")) == (2, 1)
    assert "the number of examples in the file" in wrong.err


def test_weights_of_other_models_are_inspected_but_not_used(run: Run) -> None:
    train(run).good()
    guarantee = load("model.safetensors").guarantee_
    save_weights(torch.nn.Linear(3, 2), "own.safetensors", guarantee)
    shown = run("inspect", "own.safetensors").good().out
    assert "ε = 3, δ = 1e-05" in shown
    assert "not named in the file" in shown
    assert "2 × 3" in shown
    run("report", "own.safetensors", "--out", "own.html").good()
    refused = run("predict", "own.safetensors", "test.npz")
    assert (refused.code, "does not name its architecture" in refused.err) == (2, True)
    np.savez("wide.npz", x=np.zeros((2, 5, 5)))
    other = run("predict", "model.safetensors", "wide.npz")
    assert (other.code, "shape (1, 12, 12)" in other.err) == (2, True)
    content = bytearray(Path("model.safetensors").read_bytes())
    content[-1] ^= 1
    Path("model.safetensors").write_bytes(bytes(content))
    altered = run("inspect", "model.safetensors")
    assert (altered.code, "altered" in altered.err) == (2, True)


def damage(name: str, place: int | None = None) -> None:
    """Change a byte of a file, or cut its end off."""
    content = bytearray(Path(name).read_bytes())
    if place is None:
        del content[-60:]
    else:
        content[place] ^= 255
    Path(name).write_bytes(bytes(content))


@pytest.mark.parametrize("kind", ["arrays", "packed arrays", "short array", "idx", "packed idx", "labels"])
@pytest.mark.parametrize("tested", [False, True], ids=["run", "test"])
def test_a_damaged_file_is_told_before_anything_is_charged(run: Run, kind: str, tested: bool) -> None:
    """It is told without what the file holds; a dry run reads no more than headers."""
    images, labels = drawn(400, 7)
    name = {"idx": "a-images-idx3", "packed idx": "a-images-idx3.gz", "labels": "a-images-idx3"}.get(kind)
    if name is not None:
        write_idx(name, images)
        write_idx(name.replace("images-idx3", "labels-idx1"), labels)
        damage("a-labels-idx1" if kind == "labels" else name, 30_000 if kind == "packed idx" else None)
    else:
        name = "odd.npz"
        (np.savez_compressed if kind == "packed arrays" else np.savez)(name, x=images, y=labels)
        if kind == "short array":
            with zipfile.ZipFile("data.npz") as old, zipfile.ZipFile(name, "w") as new:
                new.writestr("x.npy", old.read("x.npy")[:-500])
                new.writestr("y.npy", old.read("y.npy"))
        else:
            damage(name, 5000)
    words = ("--test", name, "--test-public") if tested else ()
    changed = {} if tested else {"data": name}
    outcome = train(run, *words, "--checkpoint", "run.safetensors", **changed)
    assert outcome.code == 2
    assert "is damaged" in outcome.err
    assert outcome.err.count("\n") == 1
    assert charges() == 0
    assert not Path("run.safetensors").exists()
    train(run, *words, "--dry-run", **changed).good()


def test_an_image_that_cannot_be_opened_is_told_before_anything_is_charged(run: Run) -> None:
    """Unlike one that cannot be decoded, which adds nothing."""
    pictures("pictures", ("high", "low", "middle"), 5)
    Path("pictures/low/lost.png").symlink_to("nowhere.png")
    outcome = train(run, "--size", "12", "--grey", **OF_PICTURES)
    assert (outcome.code, charges()) == (2, 0)
    assert "lost.png' cannot be opened" in outcome.err


def test_a_locked_archive_is_told_in_a_line(run: Run) -> None:
    content = bytearray(Path("data.npz").read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + flags] |= 1
    Path("data.npz").write_bytes(bytes(content))
    outcome = train(run)
    assert (outcome.code, outcome.err.count("\n"), charges()) == (2, 1, 0)
    assert "cannot be read as .npz" in outcome.err


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_run_goes_on_with_a_free_test(
    run: Run, monkeypatch: pytest.MonkeyPatch, dry: tuple[str, ...]
) -> None:
    begun(run, monkeypatch)
    told = train(run, *RESUME, *dry, "--test", "test.npz", "--test-public")
    assert told.code == 0, told.err
    assert Path("model.safetensors").exists() == (not dry)


def test_a_network_is_attacked(run: Run) -> None:
    """A network of images: the files have no columns, and the scores no schema."""
    train(run, epochs="1").good()
    words = ("attack", "model.safetensors", "--members", "data.npz", "--others")
    found = run(*words, "test.npz", "--format", "json").good().json
    assert found["found"][0]["members"] == 400
    assert found["found"][0]["others"] == 300
    assert found["shared"] == 0
    assert 0.3 < found["auroc"] < 0.7
    assert "--others" in run(*words, "data.npz").err
