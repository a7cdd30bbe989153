"""Attacks on model files and tests: claims below the cost, and training rows that pass for public ones."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import shutil
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import Run, commands
from contract.mends import Scene, mend, replacing
from tacit import Budget, Guarantee, Ledger, events
from tacit.accounting import check_claim
from tacit.errors import InvalidValue, ModelUnreadable
from tacit.estimators import LogisticRegression
from tacit.evaluation import evaluate
from tacit.models import claims, describe, load, save

X = np.random.default_rng(0).uniform(-1, 1, (60, 3))
Y = (X[:, 0] > 0).astype(int)


# --------------------------------------------------------------------------------- claims below the cost


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(tmp_path / "model.tacit")


def saved(path: Path) -> Path:
    """A logistic regression with a guarantee and two evaluations, one with Gaussian noise."""
    fitted = LogisticRegression(2.0, 1e-6, bounds=(-1, 1), classes=[0, 1]).fit(X, Y)
    many = {f"by {i}": (Y, [0, 1]) for i in range(30)}
    tests = [
        evaluate(fitted, X, Y, epsilon=1.0),
        evaluate(fitted, X, Y, epsilon=0.5, delta=1e-6, groups=many),
        evaluate(fitted, X, Y, public=True),
    ]
    save(fitted, path, evaluations=tests)
    return path


def forged(path: Path, change: Any) -> Path:
    """The file with other facts, under a digest that is right."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    facts = json.loads(content["tacit.json"])
    change(facts)
    content["tacit.json"] = json.dumps(facts).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
        archive.comment = b"tacit sha256 " + b"0" * 64
    body = file.getvalue()[:-64]
    path.write_bytes(body + hashlib.sha256(body).hexdigest().encode())
    return path


def states(where: Any, **changed: Any) -> Any:
    def change(facts: Any) -> None:
        where(facts).update(changed)

    return change


def of_the_fit(facts: Any) -> Any:
    return facts["steps"][0]["guarantee"]


FORGERIES = {
    "ε": states(of_the_fit, epsilon=0.2),
    "a little less": states(of_the_fit, epsilon=1.8),
    "δ": states(of_the_fit, delta=1e-9),
    "no δ": states(of_the_fit, delta=0.0),
    "ε = 0": states(of_the_fit, epsilon=0.0),
    "test": lambda facts: facts["evaluations"][0]["guarantee"].update(epsilon=0.01),
    "test with δ": lambda facts: facts["evaluations"][1]["guarantee"].update(epsilon=0.1),
    "an event that costs more": states(of_the_fit, event=json.loads(events.Pure(3.0).to_json())),
    "no finite cost": states(of_the_fit, event=json.loads(events.Gaussian(0.001).to_json()), delta=0.0),
}


@pytest.mark.parametrize("name", [name for name in FORGERIES if name != "ε"])
def test_a_file_may_not_state_less_than_its_event_costs(name: str, model: Path) -> None:
    assert len(load(model).evaluations_) == 3
    forged(model, FORGERIES[name])
    for read in (load, describe):
        with pytest.raises(ModelUnreadable, match="event costs"):
            read(model)


@pytest.mark.parametrize("command", ["inspect", "report", "predict"])
def test_commands_refuse_it_too(
    command: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(model.parent)
    run = commands(monkeypatch, capsys)
    words = {"inspect": (), "report": ("--out", "page.html"), "predict": ("rows.csv",)}[command]
    forged(model, FORGERIES["ε"])
    refused = run(command, "model.tacit", *words)
    assert refused.code != 0
    assert "event costs" in " ".join(refused.err.split())
    assert not Path("page.html").exists()


def test_more_may_be_stated_than_it_costs(model: Path) -> None:
    forged(model, states(of_the_fit, epsilon=5.0, delta=1e-3))
    assert load(model).guarantee_.epsilon == 5.0


@mend(11, "a file that states too little", twin=replacing(claims, "check_claim", lambda guarantee: None))
def states_too_little(scene: Scene) -> None:
    path = forged(saved(scene.path / "model.tacit"), FORGERIES["ε"])
    for read in (load, describe):
        with pytest.raises(ModelUnreadable, match="event costs"):
            read(path)


def test_claims() -> None:
    sampled = events.Repeat(events.PoissonSampled(0.01, events.Gaussian(1.0)), 500)
    for event, epsilon, delta in (
        (events.Pure(1.0), 0.999, 0.0), (sampled, 0.5, 1e-5), (events.Gaussian(1.0), 50.0, 0.0),
        (events.Approximate(1.0, 1e-3), 1.0, 1e-6),
    ):  # fmt: skip
        with pytest.raises(InvalidValue, match="event costs"):
            check_claim(Guarantee(epsilon, delta, event))
    check_claim(Guarantee(1.0, 0.0, events.Pure(1.0 + 1e-12)))
    check_claim(Guarantee(float("inf"), 0.0, events.Gaussian(1.0)))


def test_networks_may_not_either(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from tacit.training import load_weights, save_weights
    from tacit.training.networks.network import Network, Preparation

    made = Network.new("linear", (1, 4, 4), range(3), Preparation())
    honest = Guarantee(1.0, 0.0, events.Pure(1.0))
    path = tmp_path / "network.safetensors"
    test = json.loads(honest.to_json())
    for epsilon, tested, good in ((1.0, 1.0, True), (0.5, 1.0, False), (1.0, 0.5, False)):
        made.guarantee_ = Guarantee(epsilon, 0.0, events.Pure(1.0))
        made.evaluations_ = ({"guarantee": {**test, "epsilon": tested}},)
        save(made, path, overwrite=True)
        if good:
            assert load(path).guarantee_ == honest
            continue
        for read in (load, describe):
            with pytest.raises(ModelUnreadable, match="event costs"):
                read(path)
    save_weights(torch.nn.Linear(2, 2), path, Guarantee(0.1, 0.0, events.Pure(1.0)), overwrite=True)
    with pytest.raises(ModelUnreadable, match="event costs"):
        load_weights(path, torch.nn.Linear(2, 2))


@pytest.mark.parametrize("name", ["linear", "mlp", "cnn", "scattering", "patches"])
def test_a_network_scores_an_example_by_itself(name: str) -> None:
    pytest.importorskip("torch")
    from tacit.training.networks.network import Network, Preparation

    made = Network.new(name, (1, 16, 16), range(3), Preparation())
    x = np.random.default_rng(1).normal(size=(230, 1, 16, 16)).astype(np.float32)
    whole = made.predict_proba(x)
    for start in (1, 100, 229):
        assert made.predict_proba(x[start:]).tobytes() == whole[start:].tobytes()


# ------------------------------------------------------------------ training rows that pass for public ones

SCHEMA = """
[columns.age]
type = "integer"
bounds = [0, 99]

[columns.sex]
type = "category"
categories = ["F", "M"]

[columns.ill]
type = "boolean"
"""


def rows_of(seed: int) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [
        [str(rng.integers(99)), "FM"[rng.integers(2)], str(bool(rng.integers(2))).lower()] for _ in range(80)
    ]


def write(path: str, rows: list[list[str]], delimiter: str = ",", names: Any = ("age", "sex", "ill")) -> None:
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([list(names), *rows])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return prepared(tmp_path, monkeypatch, capsys)


def prepared(folder: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command, in a folder with the training rows in many files."""
    patch.chdir(folder)
    Path("schema.toml").write_text(SCHEMA, encoding="utf-8")
    rows = rows_of(1)
    write("people.csv", rows)
    write("others.csv", rows_of(2))
    shutil.copy("people.csv", "copy.csv")
    Path("packed.csv.gz").write_bytes(gzip.compress(Path("people.csv").read_bytes()))
    Path("link.csv").symlink_to("people.csv")
    write("ordered.csv", sorted(rows))
    write("turned.csv", [row[::-1] for row in rows], names=("ill", "sex", "age"))
    write("written.csv", [[f" {age}.0 ", sex, ill.upper()] for age, sex, ill in rows])
    write("twice.csv", [*rows, *rows])
    write("beyond.csv", [["-7" if age == "0" else age, *rest] for age, *rest in rows])
    write("signs.csv", [[f"+{age}", f" {sex}", "1" if ill == "true" else "0"] for age, sex, ill in rows])
    frame = pd.DataFrame(rows, columns=["age", "sex", "ill"])
    frame.assign(age=frame.age.astype(float), ill=frame.ill == "true").to_parquet("frame.parquet")
    for part in range(2):
        write(f"part-{part}.csv", rows[part::2])
    write("more.csv", [[*row, "x"] for row in rows], names=("age", "sex", "ill", "job"))
    Ledger.open("study.db", Budget(epsilon=3.0)).close()
    Ledger.open("study.db", Budget(epsilon=3.0), dataset="others").close()
    return commands(patch, capsys)


def fit(run: Run, *more: str) -> Any:
    return run(
        "fit", "people.csv", "--schema", "schema.toml", "--target", "ill", "--model", "logistic", "--epsilon",
        "1", "--ledger", "study.db", "--out", "model.tacit", "--overwrite", *more,
    )  # fmt: skip


def charges() -> int:
    with Ledger.open("study.db") as book:
        return len(book.entries())


@pytest.mark.parametrize("paid", [("--test-public",), ("--test-epsilon", "0.5", "--test-dataset", "others")])
@pytest.mark.parametrize("test", ["people.csv", "copy.csv", "packed.csv.gz", "link.csv"])
def test_the_same_file_is_refused_before_the_charge(test: str, paid: Any, run: Run) -> None:
    refused = fit(run, "--test", test, *paid)
    assert refused.code != 0
    assert "other rows" in " ".join(refused.err.split())
    assert charges() == 0
    assert not Path("model.tacit").exists()


SAME_ROWS = (
    "ordered.csv", "turned.csv", "written.csv", "more.csv", "twice.csv", "signs.csv", "beyond.csv",
    "frame.parquet", "part-*.csv",
)  # fmt: skip


def same_rows(scene: Scene, test: str) -> None:
    """Training rows in another file are no public test."""
    refused = fit(
        prepared(scene.path, scene.patch, scene.fixture("capsys")), "--test", test, "--test-public"
    )
    assert refused.code != 0
    assert "other rows" in " ".join(refused.err.split())
    assert charges() == 1
    assert not hasattr(load("model.tacit"), "evaluations_")


def compares_no_content(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tacit.jobs.testing.digest", lambda frame, maker: str(id(frame)))


for test in SAME_ROWS:
    mend(11, f"training rows as a public test: {test}", twin=compares_no_content)(
        partial(same_rows, test=test)
    )


def test_other_rows_and_tests_that_are_paid_for(run: Run) -> None:
    fit(run, "--test", "others.csv", "--test-public").good()
    fit(run, "--test", "copy.csv", "--test-epsilon", "0.5").good()
