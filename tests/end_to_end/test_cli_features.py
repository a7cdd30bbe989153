"""``tacit train --features``, as a newcomer meets it: images and texts, mistakes, and the saved network."""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if not find_spec("torch"):
    pytest.skip("torch is not installed", allow_module_level=True)

import numpy as np

import tacit
from commands import Run, commands
from tacit.errors import ModelUnreadable
from tacit.training.features import registry
from training.features.made_up import Letters

pytestmark = pytest.mark.usefixtures("tested_once")

SCHEMA = """
population = 120

[columns.review]
type = "text"

[columns.note]
type = "text"

[columns.liked]
type = "category"
categories = ["no", "yes"]
"""
ONE = ["--epsilon", "8", "--delta", "1e-5", "--ledger", "study.db"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in a folder with a ledger, images, texts and features of letters."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    registry.register("letters", "text", Letters)
    tacit.Ledger.open("study.db", budget=tacit.Budget(epsilon=9.0, delta=1e-4)).close()
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 160)
    images = draw.integers(0, 100, (160, 16, 16), dtype=np.uint8)
    images[labels == 1, :8] += 150
    np.savez("images.npz", x=images, y=labels)
    Path("schema.toml").write_text(SCHEMA)
    with Path("texts.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["review", "note", "liked"])
        said = [("ab a", "yes"), ("bc d", "no")] * 59
        lines.writerows([text + " x" * (row % 5), "", liked] for row, (text, liked) in enumerate(said))
        lines.writerows([["", "", "yes"], ["aa", "", "perhaps"]])
    return commands(monkeypatch, capsys)


def test_images_from_file_to_prediction(run: Run) -> None:
    told = run(
        "train", "images.npz", "--features", "scattering", "--population", "160", "--classes", "2", *ONE,
        "--out", "images.safetensors", "--report", "images.html", "--batch-size", "160",
    ).good().out  # fmt: skip
    assert "linear classifier on scattering features" in told
    assert "as private as the examples" in " ".join(told.split())
    kept = [path for path in Path("caches/tacit/features").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o077 for path in kept} == {0}
    run("predict", "images.safetensors", "images.npz", "--out", "said.csv").good()
    with np.load("images.npz") as arrays:
        labels = arrays["y"]
    said = np.loadtxt("said.csv", skiprows=1)
    assert (said == labels).mean() > 0.8
    shown = run("inspect", "images.safetensors").good().out
    assert "scattering" in shown
    run("report", "images.safetensors", "--out", "again.html").good()
    network = tacit.load("images.safetensors")
    with pytest.raises(tacit.errors.InvalidValue, match="16, 16"):
        network.predict(np.zeros((3, 1, 8, 8), np.uint8))


def test_texts_from_file_to_prediction(run: Run) -> None:
    arguments = [
        "train", "texts.csv", "--schema", "schema.toml", "--target", "liked", "--features", "letters",
        "--text", "review", *ONE, "--out", "texts.safetensors", "--cache", "kept", "--batch-size", "120",
    ]  # fmt: skip
    plan = run(*arguments, "--dry-run", "--format", "json").json
    assert plan["settings"]["one example"] == "the text of review"
    assert not Path("kept").exists()
    told = run(*arguments, "--test", "texts.csv", "--test-public")
    assert told.code != 0
    assert "other rows" in told.err
    assert not tacit.Ledger.open("study.db").entries()
    run(*arguments).good()
    assert [path for path in Path("kept").rglob("*") if path.is_file()]
    network = tacit.load("texts.safetensors")
    assert network.predict(["a b a", "d c b", None]).tolist()[:2] == ["yes", "no"]
    with pytest.raises(tacit.errors.InvalidValue, match="a list of texts"):
        network.predict("a b a")
    Path("others.csv").write_text("review\na a\nd d d\n")
    assert run("predict", "texts.safetensors", "others.csv").good().out == "liked\nyes\nno\n"
    assert Letters().digest[:12] in run("inspect", "texts.safetensors", "--format", "json").good().out


def test_other_weights_are_refused_when_they_are_needed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run(
        "train", "texts.csv", "--schema", "schema.toml", "--target", "liked", "--features", "letters",
        "--text", "review", *ONE, "--out", "texts.safetensors", "--cache", "none", "--batch-size", "120",
    ).good()  # fmt: skip
    assert not Path("caches").exists()
    monkeypatch.setattr(Letters, "version", "2")
    network = tacit.load("texts.safetensors")
    assert "letters" in network.title
    with pytest.raises(ModelUnreadable, match="other weights"):
        network.predict(["a"])
    assert "other weights" in run("predict", "texts.safetensors", "texts.csv").err


TABLE = ["texts.csv", "--schema", "schema.toml", "--target", "liked"]
IMAGES = ["images.npz", "--population", "160", "--classes", "2"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (IMAGES, "--architecture"),
        ([*IMAGES, "--features", "resnet50"], "efficientnet-lite0"),
        ([*IMAGES, "--features", "minilm"], "efficientnet-lite0, scattering"),
        ([*IMAGES, "--features", "scattering", "--architecture", "cnn"], "'linear' or 'mlp'"),
        ([*IMAGES, "--features", "scattering", "--pixels", "64"], "pixels"),
        ([*IMAGES, "--features", "efficientnet-lite0", "--pixels", "33"], "multiple of 32"),
        ([*IMAGES, "--features", "scattering", "--mean", "0.5"], "--std do not go with --features"),
        ([*IMAGES, "--architecture", "linear", "--pixels", "64"], "--pixels is for features"),
        ([*IMAGES, "--architecture", "linear", "--cache", "here"], "--cache is for features"),
        ([*IMAGES, "--features", "scattering", "--text", "review"], "--text"),
        ([*TABLE, "--features", "scattering"], "minilm"),
        ([*TABLE, "--features", "letters"], "review, note"),
        ([*TABLE, "--features", "letters", "--text", "liked"], "It is declared as category"),
        ([*TABLE, "--features", "letters", "--text", "nothing"], "declared in the schema"),
        ([*TABLE, "--features", "letters", "--text", "review", "--exclude", "note"], "--exclude"),
        ([*TABLE, "--architecture", "linear"], "text"),
        (["texts.csv", "--features", "letters"], "needs a schema"),
        (["texts.csv", "--schema", "schema.toml", "--features", "letters"], "--target"),
        (
            ["texts.csv", "--schema", "schema.toml", "--target", "note", "--features", "letters"],
            "declared with categories or bounds",
        ),
    ],
)
def test_mistakes_are_named_and_cost_nothing(run: Run, arguments: list[str], says: str) -> None:
    refused = run("train", *arguments, *ONE, "--out", "network.safetensors")
    assert refused.code != 0
    assert says in " ".join(refused.err.split())
    assert not Path("network.safetensors").exists()
    assert not tacit.Ledger.open("study.db").entries()


def test_a_table_without_text_is_told_how_to_declare_one(run: Run) -> None:
    Path("plain.toml").write_text('population = 9\n[columns.liked]\ntype = "boolean"\n')
    refused = run(
        "train", "texts.csv", "--schema", "plain.toml", "--target", "liked", "--features", "letters", *ONE,
        "--out", "network.safetensors",
    )  # fmt: skip
    assert 'type = "text"' in refused.err


def test_a_run_goes_on_from_its_checkpoint(run: Run) -> None:
    from tacit import jobs

    options: dict[str, Any] = {
        "schema": "schema.toml", "target": "liked", "features": "letters", "text": "review", "epsilon": 8.0,
        "delta": 1e-5, "ledger": "study.db", "cache": "none", "batch_size": 40,
        "checkpoint": "run.safetensors",
    }  # fmt: skip
    with jobs.plan_train("texts.csv", **options) as job:
        job.check()
        job.run()
    made = jobs.train(
        "texts.csv", epsilon=8.0, delta=1e-5, ledger="study.db", checkpoint="run.safetensors", resume=True,
        cache="none", out="network.safetensors",
    )  # fmt: skip
    assert made.model.features is not None
    assert made.model.features.digest == Letters().digest
