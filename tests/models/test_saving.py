"""Model files: what is saved loads again, and nothing else does."""

from __future__ import annotations

import datetime
import hashlib
import io
import json
import math
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from tacit import Budget, Column, Guarantee, Ledger, Schema, events
from tacit.data.features import Features
from tacit.data.preprocessor import Preprocessor
from tacit.errors import InvalidValue, ModelUnreadable, TacitError
from tacit.estimators import LinearRegression, LinearSVC, LogisticRegression, Ridge
from tacit.evaluation import evaluate, evaluations_of
from tacit.models import container, describe, load, register, save
from tacit.models import registry as registered

GUARANTEE = Guarantee(0.5, 1e-6, events.Gaussian(9.0), noise="float64", assumptions=("n is public",))
SCHEMA = Schema({"age": Column("integer", bounds=(0, 99)), "sex": Column("category", categories=("F", "M"))})


class Fake(BaseEstimator):
    """A model of its own kind: it adds up weighted columns."""

    def __init__(self, odd: Any = None, ledger: Any = None, random_state: Any = None) -> None:
        self.odd, self.ledger, self.random_state = odd, ledger, random_state

    def fit(self, X: Any, y: Any = None) -> Fake:
        self.weights_ = np.arange(X.shape[1], dtype=float)
        self.rows_ = len(X)
        self.guarantee_, self.event_ = GUARANTEE, GUARANTEE.event
        return self

    def predict(self, X: Any) -> Any:
        return np.asarray(X) @ self.weights_


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    registered.require(registered.ARCHIVE)
    monkeypatch.setattr(registered, "_kinds", dict(registered._kinds))
    register("fake", Fake, ("weights_",))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.tacit"


@pytest.fixture
def saved(path: Path) -> Path:
    save(Fake(odd=(1, "é")).fit(np.zeros((3, 2))), path)
    return path


X = np.random.default_rng(0).uniform(-1, 1, (60, 3))
COMMON = {"epsilon": 2.0, "bounds": (-1.0, 1.0), "random_state": 3}


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(**COMMON, classes=["no", "yes"]),
        LogisticRegression(**COMMON, classes=np.array([0, 1, 2])),
        LinearSVC(**COMMON, classes=[False, True]),
        Ridge(**{**COMMON, "epsilon": math.inf}, target_bounds=(-2, 2)),
        LinearRegression(**{**COMMON, "epsilon": math.inf}, target_bounds=(-2, 2)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_estimators_load_as_they_were(model: Any, path: Path) -> None:
    y = X[:, 0]
    if getattr(model, "classes", None) is not None:
        y = np.asarray(model.classes)[(X[:, 0] > 0).astype(int)]
    save(model.fit(X, y), path)
    again = load(path)
    assert type(again) is type(model)
    assert again.guarantee_ == model.guarantee_
    assert again.guarantee_.noise == "seeded"
    assert again.event_ == model.event_
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.random_state is None
    ours, theirs = again.get_params(), model.get_params()
    for name in set(theirs) - {"random_state"}:
        np.testing.assert_equal(ours[name], theirs[name])


def test_pipelines_are_saved_step_by_step(path: Path) -> None:
    frame = {"age": [10, 90, 50, None], "sex": ["F", "M", "?", "F"], "y": [0, 1, 0, 1]}
    maker = Preprocessor(SCHEMA, norm=1.0, transforms={"age": "sqrt"})
    model = make_pipeline(maker, LogisticRegression(epsilon=1.0, classes=[0, 1], random_state=1))
    model.fit(frame, frame["y"])
    save(model, path)
    again = load(path)
    assert isinstance(again, Pipeline)
    assert [name for name, _ in again.steps] == [name for name, _ in model.steps]
    assert again[-1].guarantee_ == model[-1].guarantee_
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    steps = describe(path)["steps"]
    assert steps[0]["guarantee"] is None
    assert Schema.from_toml(steps[0]["state"]["state"]["schema"]) == SCHEMA
    assert "SEEDED" in steps[1]["statement"]


def test_only_public_facts_are_written(tmp_path: Path, path: Path) -> None:
    with Ledger.open(tmp_path / "study.db", budget=Budget(1.0)) as ledger:
        model = Fake(odd=1.5, ledger=ledger, random_state=77).fit(np.full((12345, 2), 0.123456789))
        save(model, path)
    text = zipfile.ZipFile(path).read("tacit.json").decode()
    assert "77" not in text
    assert "12345" not in text
    assert "study" not in text
    assert json.loads(text)["steps"][0]["state"]["state"]["params"] == {"odd": 1.5}
    assert not hasattr(load(path), "rows_")


@pytest.mark.parametrize(
    "odd",
    [
        None, True, 3, 2**80, 0.1, math.inf, -math.inf, "ε ~", "", [1, (2, [3.5])], (),
        {"a": {"b": (1,)}, "c": []}, SCHEMA, Features(("a",), (0.0,), (1.0,), None), np.float64(2.5),
        np.int32(4), datetime.date(2020, 1, 2),
    ],
)  # fmt: skip
def test_parameters_survive(odd: Any, path: Path) -> None:
    save(Fake(odd=odd).fit(np.zeros((3, 2))), path)
    assert load(path).odd == odd


@pytest.mark.parametrize(
    "array",
    [
        np.array(3.5), np.arange(6).reshape(2, 3), np.asfortranarray(np.ones((2, 3))), np.zeros(0, bool),
        np.array(["a", "bcé"]), np.array([1, 2], ">i4"), np.array(["x", None, 3], dtype=object),
        np.array([np.nan, np.inf]),
    ],
    ids=str,
)  # fmt: skip
def test_arrays_survive(array: Any, path: Path) -> None:
    save(Fake(odd={"deep": [array]}).fit(np.zeros((3, 2))), path)
    again = load(path).odd["deep"][0]
    np.testing.assert_array_equal(again, array)
    assert again.shape == array.shape
    assert again.dtype == array.dtype.newbyteorder("=")
    assert again.flags.writeable


@pytest.mark.parametrize("odd", [object(), {1: 2}, {"~tuple": 1}, np.array([1j]), {3}, lambda x: x])
def test_what_cannot_be_saved_is_refused_and_nothing_written(odd: Any, path: Path) -> None:
    with pytest.raises(InvalidValue):
        save(Fake(odd=odd).fit(np.zeros((3, 2))), path)
    assert not list(path.parent.iterdir())


def test_models_without_a_guarantee_are_refused(path: Path) -> None:
    with pytest.raises(InvalidValue, match="Call fit first"):
        save(Fake(), path)
    with pytest.raises(InvalidValue, match="StandardScaler"):
        save(make_pipeline(StandardScaler(), Fake()).fit(X), path)
    with pytest.raises(InvalidValue, match="private estimator"):
        save(Preprocessor(SCHEMA), path)
    assert not path.exists()


def test_evaluations_travel_with_the_model(path: Path) -> None:
    y = (X[:, 0] > 0).astype(int)
    model = LogisticRegression(epsilon=2.0, norm=2.0, classes=[0, 1]).fit(X, y)
    result = evaluate(model, X, y, epsilon=1.0)
    save(model, path, evaluations=[result])
    again = load(path)
    assert evaluations_of(again) == (result,)
    save(again, path, overwrite=True)
    assert evaluations_of(load(path)) == (result,)


def test_files_are_replaced_only_when_told_and_whole(saved: Path) -> None:
    before = saved.read_bytes()
    model = Fake(odd=2).fit(np.zeros((3, 2)))
    with pytest.raises(TacitError, match="exists"):
        save(model, saved)
    assert saved.read_bytes() == before
    saved.chmod(0o640)
    save(model, saved, overwrite=True)
    assert load(saved).odd == 2
    assert stat.S_IMODE(saved.stat().st_mode) == 0o640
    assert [entry.name for entry in saved.parent.iterdir()] == [saved.name]
    with pytest.raises(TacitError, match="cannot be written"):
        save(model, saved.parent / "none" / "model.tacit")


def test_the_same_model_makes_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    save(Fake(odd=(1, "é")).fit(np.zeros((3, 2))), tmp_path / "twin")
    assert (tmp_path / "twin").read_bytes() == saved.read_bytes()


def test_a_file_altered_in_any_byte_does_not_load(saved: Path) -> None:
    whole = saved.read_bytes()
    for place in range(len(whole)):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :])
        with pytest.raises(ModelUnreadable):
            load(saved)


def test_a_file_cut_or_lengthened_does_not_load(saved: Path) -> None:
    whole = saved.read_bytes()
    for cut in [*range(0, len(whole), 37), len(whole) - 1]:
        saved.write_bytes(whole[:cut])
        with pytest.raises(ModelUnreadable, match="cut short"):
            load(saved)
    for more in (whole + b"\0", b"\0" + whole, whole + whole[-64:]):
        saved.write_bytes(more)
        with pytest.raises(ModelUnreadable):
            describe(saved)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(ModelUnreadable, match="cannot be read"):
        load(tmp_path / "none")
    with pytest.raises(ModelUnreadable, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ModelUnreadable, match="no model"):
        load(tmp_path / "text")


def forged(path: Path, change: Any = None, members: Any = None, method: int = zipfile.ZIP_STORED) -> Path:
    """The file with other facts or members, under a digest that is right."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    facts = json.loads(content["tacit.json"])
    if change is not None:
        change(facts)
    content["tacit.json"] = json.dumps(facts).encode()
    content.update(members or {})
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in content.items():
            if data is not None:
                archive.writestr(name, data)
        archive.comment = b"tacit sha256 " + b"0" * 64
    body = file.getvalue()[:-64]
    path.write_bytes(body + hashlib.sha256(body).hexdigest().encode())
    return path


def test_a_forgery_with_nothing_changed_loads(saved: Path) -> None:
    assert load(forged(saved)).odd == (1, "é")


def changes() -> dict[str, Any]:
    def step(facts: Any) -> Any:
        return facts["steps"][0]

    def huge(value: Any) -> Any:
        for _ in range(50):
            value = [value]
        return value

    return {
        "no guarantee": lambda facts: step(facts).update(guarantee=None),
        "guarantee gone": lambda facts: step(facts).pop("guarantee"),
        "guarantee empty": lambda facts: step(facts).update(guarantee={}),
        "negative epsilon": lambda facts: step(facts)["guarantee"].update(epsilon=-1),
        "public tag": lambda facts: step(facts).update(tag="preprocessor"),
        "unknown tag": lambda facts: step(facts).update(tag="os.system"),
        "tag of another type": lambda facts: step(facts).update(tag=["fake"]),
        "newer format": lambda facts: facts.update(format=2),
        "no format": lambda facts: facts.pop("format"),
        "no steps": lambda facts: facts.update(steps=[]),
        "steps of another type": lambda facts: facts.update(steps=5),
        "too many arrays": lambda facts: facts.update(arrays=10**12),
        "no array": lambda facts: step(facts)["state"]["state"]["attributes"].update(weights_={"~array": 9}),
        "array from behind": lambda facts: step(facts)["state"]["state"]["attributes"].update(
            weights_={"~array": -1}
        ),
        "unknown code": lambda facts: step(facts)["state"]["state"]["params"].update(odd={"~eval": "1"}),
        "unknown parameter": lambda facts: step(facts)["state"]["state"]["params"].update(more=1),
        "unknown attribute": lambda facts: step(facts)["state"]["state"]["attributes"].update(predict=1),
        "bad schema": lambda facts: step(facts)["state"]["state"]["params"].update(odd={"~schema": "="}),
        "bad evaluation": lambda facts: facts.update(evaluations=[{}]),
    }


@pytest.mark.parametrize("name", changes())
def test_forged_facts_are_refused_with_a_clear_error(name: str, saved: Path) -> None:
    with pytest.raises(ModelUnreadable) as caught:
        load(forged(saved, changes()[name]))
    assert caught.value.next_step
    expected = {"no guarantee": "no guarantee", "newer format": "format 2", "unknown tag": "os.system"}
    assert expected.get(name, "") in str(caught.value)


def test_parameters_of_another_version_are_named_and_what_to_do_is_said(path: Path) -> None:
    """Files written while ``population`` was called ``n`` have a parameter that no class has any more."""
    save(LogisticRegression(**COMMON, classes=[0, 1]).fit(X, X[:, 0] > 0), path)

    def older(facts: Any) -> None:
        params = facts["steps"][0]["state"]["state"]["params"]
        params["n"] = params.pop("population")

    with pytest.raises(ModelUnreadable, match="LogisticRegression does not have: n\\.") as caught:
        load(forged(path, older))
    assert "fit or save the model again with this one" in caught.value.next_step


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.ljust(117) + "\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text.encode() + data


HEADER = "{'descr': %r, 'fortran_order': %s, 'shape': %s}"


@pytest.mark.parametrize(
    "members",
    [
        {"../evil": b"x"},
        {"/etc/evil": b"x"},
        {"arrays/1.npy": npy(HEADER % ("<f8", False, "(1,)"), b"\0" * 8)},
        {"arrays/0.npy": None},
        {"arrays/0.npy": b""},
        {"arrays/0.npy": b"not an array"},
        {"arrays/0.npy": npy(HEADER % ("<f8", False, "(1000000000000,)"))},
        {"arrays/0.npy": npy(HEADER % ("<f8", False, "(-2, -1)"), b"\0" * 16)},
        {"arrays/0.npy": npy(HEADER % ("<U0", False, "(1000000000000,)"))},
        {"arrays/0.npy": npy(HEADER % ("|O", False, "(1,)"), b"\x80\x04N.")},
        {"arrays/0.npy": npy(HEADER % ("<f8", True, "(1,)"), b"\0" * 8)},
        {"arrays/0.npy": npy("__import__('os').getcwd()")},
        {"arrays/0.npy": npy(HEADER % ("<f8", False, "(1,)"), b"\0" * 8, b"\x09\x00")},
        {"tacit.json": b"[]"},
        {"tacit.json": b"[" * 100_000},
        {"tacit.json": b'{"format": 1, "format": 1}'},
        {"tacit.json": b'{"format": NaN}'},
        {"tacit.json": b"\xff"},
        {"tacit.json": None},
    ],
    ids=lambda members: next(iter(members)) + " " + str(next(iter(members.values())))[:60][-30:],
)
def test_forged_members_are_refused(members: Any, saved: Path) -> None:
    with pytest.raises(ModelUnreadable):
        load(forged(saved, members=members))
    assert sorted(entry.name for entry in saved.parent.iterdir()) == [saved.name]


def test_compressed_members_are_refused_unread(saved: Path) -> None:
    with pytest.raises(ModelUnreadable):
        load(forged(saved, method=zipfile.ZIP_DEFLATED))
    bomb = forged(saved, members={"arrays/0.npy": b"\0" * 10**7}, method=zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 10**5
    with pytest.raises(ModelUnreadable):
        load(bomb)


def test_files_larger_than_any_model_are_refused_unread(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "LARGEST_FILE", 100)
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("read"))
    with pytest.raises(ModelUnreadable, match="larger"):
        load(saved)


def test_describe_builds_nothing(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "__init__", lambda self: pytest.fail("built"))
    facts = describe(saved)
    assert facts["made_by"].startswith("tacit ")
    assert facts["format"] == 1
    step = facts["steps"][0]
    assert step["tag"] == "fake"
    assert step["statement"] == GUARANTEE.statement()
    assert step["state"]["state"] == {"params": {"odd": (1, "é")}, "attributes": {"weights_": "float64 (2,)"}}


def test_a_tag_keeps_its_meaning() -> None:
    register("fake", Fake, ("weights_",))
    with pytest.raises(InvalidValue, match="stands for Fake"):
        register("fake", StandardScaler)


def test_no_pickle_in_the_file(saved: Path) -> None:
    assert os.path.getsize(saved) < 5000
    for name in zipfile.ZipFile(saved).namelist():
        assert name == "tacit.json" or name.endswith(".npy")
