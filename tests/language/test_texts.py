"""Texts as a data set: odd rows, widths that a row decides alone, and rows read after the charge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

pytest.importorskip("transformers")

import torch
from torch import nn

from language import tiny
from tacit.errors import BudgetExceeded, InvalidValue
from tacit.language import LastLayers, Texts
from tacit.language.template import cleaned
from tacit.language.texts import UNKNOWN, widths
from tacit.ledger import Budget, Ledger
from tacit.relations import Unit
from tacit.training import ByUnit, Plan, Trainer
from tacit.training.gradients import routes

WORDS = tiny.tokenizer()


class Unseen:
    """A value whose class cannot be asked for."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("private")


ODD: list[Any] = [
    "w1 w2", "", None, float("nan"), b"w1", 7, "\ud800 w3", "\x00 \u200f w4", "🙂" * 500, "w5 " * 10_000,
    "[PAD] [CLS] w6", " \n\t ", ["w1"], "w7", Unseen(),
]  # fmt: skip
LABELS: list[Any] = [
    "yes",
    "no",
    "yes",
    "no",
    "maybe",
    None,
    "yes",
    3,
    "no",
    "yes",
    "no",
    "yes",
    "no",
    "",
    "no",
]


def texts(rows: list[Any], labels: Any = None, **options: Any) -> Texts:
    given: dict[str, Any] = {"tokenizer": WORDS, "max_length": 24, "classes": ["no", "yes"], **options}
    return Texts(rows, ["no"] * len(rows) if labels is None else labels, **given)


def of_length(*lengths: int) -> list[str]:
    return [" ".join(f"w{(row + word) % 40}" for word in range(long)) for row, long in enumerate(lengths)]


def parts(data: Texts, rows: Any, size: int) -> list[Any]:
    return list(next(data.batches([np.asarray(rows, np.int64)], size)))


class Unread(list):
    """Rows that may be counted but not read."""

    def __getitem__(self, place: Any) -> Any:
        pytest.fail("a row was read before the charge")

    def __iter__(self) -> Any:
        pytest.fail("rows were read before the charge")


def trainer(model: Any, rows: int, **options: Any) -> Trainer:
    facts = {"population": rows, "batch_size": 4, "steps": 2, "noise_multiplier": 1.0, "delta": 1e-5}
    plan = Plan(**{**facts, **options.pop("plan", {})})
    trained = [each for each in model.parameters() if each.requires_grad]
    given: dict[str, Any] = {"progress": False, "random_state": 1, **options}
    return Trainer(model, nn.CrossEntropyLoss(), torch.optim.SGD(trained, lr=0.1), plan, **given)


def test_widths_are_a_public_ladder() -> None:
    assert widths(100) == (8, 12, 16, 24, 32, 48, 64, 96, 100)
    assert widths(8) == (8,)
    assert widths(5) == (5,)


def test_odd_rows_are_read_by_a_public_rule() -> None:
    for special in (True, False):
        data = texts(ODD, LABELS, tokenizer=tiny.tokenizer(special=special))
        found = data._rows()
        assert found.lengths.min() >= 1
        assert found.lengths.max() <= 24
        wanted = [{"no": 0, "yes": 1}.get(label, UNKNOWN) for label in LABELS]
        assert found.targets.tolist() == wanted
    assert cleaned("w" * 100, 10) == "w" * 10


def test_rows_go_by_their_places() -> None:
    """Whatever the index of a Series says, and in an Arrow array too."""
    rows, labels = of_length(2, 4, 1), ["no", "yes", "no"]
    wanted = texts(rows, labels)._rows()
    index = [2, 0, 1]
    for given in (pd.Series(rows, index=index), pd.Series(rows, index=[5, 5, 9]), pa.array(rows)):
        found = texts(given, pd.Series(labels, index=index))._rows()
        assert found.lengths.tolist() == wanted.lengths.tolist()
        assert found.targets.tolist() == wanted.targets.tolist()


def test_a_label_that_is_a_list_is_unknown() -> None:
    found = texts(of_length(1, 1, 1), ["no", ["no", "yes"], "yes"])._rows()
    assert found.targets.tolist() == [0, UNKNOWN, 1]


def test_a_text_that_the_tokenizer_fails_on_is_empty() -> None:
    """And the others keep their tokens."""
    plain = tiny.tokenizer(special=False)

    def failing(given: list[str], **options: Any) -> Any:
        if any("w9" in each for each in given):
            raise RuntimeError("w9")
        return plain(given, **options)

    failing.pad_token_id = 0  # type: ignore[attr-defined]
    rows = ["w1 w2", "w9 w1 w2", "w3 w4 w5"]
    assert texts(rows, tokenizer=failing)._rows().lengths.tolist() == [2, 1, 3]


def test_a_tokenizer_that_panics_on_a_text() -> None:
    """What Rust raises then is no ``Exception``."""

    class PanicException(BaseException):
        pass

    class Panics:
        pad_token_id = 0

        def __call__(self, given: list[str], **options: Any) -> Any:
            if any("w9" in each for each in given):
                raise PanicException
            return tiny.tokenizer(special=False)(given, **options)

    assert texts(["w1 w2", "w9 w1"], tokenizer=Panics())._rows().lengths.tolist() == [2, 1]


@pytest.mark.parametrize("method", tiny.METHODS)
@pytest.mark.parametrize("model", tiny.MODELS)
def test_a_long_row_is_cut_where_the_positions_end(model: str, method: str) -> None:
    """Where a declared ``max_length`` is beyond them, one long row must not make a run fail."""
    tuned = tiny.METHODS[method](tiny.MODELS[model]())
    most = tuned.longest
    assert most == 80 - (model == "roberta") * 2 - (method == "soft prompt") * 3
    long, cut = ({"tokenizer": tiny.tokenizer(special=False), "max_length": each} for each in (200, most))
    rows = of_length(190, 4)
    assert np.array_equal(tuned.predict_proba(texts(rows, **long)), tuned.predict_proba(texts(rows, **cut)))
    trainer(tuned, 2, physical_batch=2, plan={"batch_size": 2}).fit(texts(rows, **long))


@pytest.mark.parametrize("model", ["bert", "llama"])
def test_odd_rows_train(model: str) -> None:
    """No row makes a run fail, and a row with an unknown label adds nothing to any sum."""
    tuned = tiny.soft_prompt(tiny.MODELS[model]())
    data = texts(ODD, LABELS, tokenizer=tiny.tokenizer(special=False))
    run = trainer(tuned, len(ODD), plan={"batch_size": len(ODD)}, physical_batch=64)
    run.fit(data)
    norms = run.private_diagnostics._norms
    assert norms.isfinite().all()
    assert len(norms) == len(ODD)
    assert (norms < 1e-12).sum() == sum(label not in ("no", "yes") for label in LABELS)
    assert all(each.isfinite().all() for each in tuned.state_dict().values() if each.is_floating_point())


def test_a_row_decides_its_width_alone() -> None:
    """Whoever else is drawn, a row has the same shape, the same tokens and the same mask."""
    rows = of_length(1, 3, 9, 20, 21, 22, 50, 5)
    data = texts(rows)
    alone = {row: parts(data, [row], 4)[0][0] for row in range(len(rows))}
    drawn = np.random.default_rng(0).permutation(len(rows))
    seen = 0
    for inputs, _ in parts(data, drawn, 3):
        for ids, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True):
            assert any(
                torch.equal(ids, one["input_ids"][0]) and torch.equal(mask, one["attention_mask"][0])
                for one in alone.values()
            )
            seen += 1
    assert seen == len(rows)


def test_one_row_changes_one_part_and_shortens_one() -> None:
    """With the last row of its width in its place, a row leaves all parts but two as they were."""
    rows = of_length(*[1 + 5 * (row % 4) for row in range(40)])
    data = texts(rows)
    drawn = np.random.default_rng(1).permutation(40)
    width = data._rows().width_of
    gone = drawn[7]
    last = [row for row in drawn if width[row] == width[gone]][-1]
    without = np.array([last if row == gone else row for row in drawn if row != last or row == gone])

    def shown(draw: Any) -> list[bytes]:
        return [inputs["input_ids"].numpy().tobytes() for inputs, _ in parts(data, draw, 4)]

    before, after = shown(drawn), shown(without)
    assert len(set(before) - set(after)) <= 2
    assert len(set(after) - set(before)) <= 2


def test_a_draw_of_nobody_is_one_empty_part() -> None:
    found = parts(texts(of_length(3)), [], 4)
    assert len(found) == 1
    assert found[0][0]["input_ids"].shape == (0, 8)


def test_memory_is_measured_on_a_public_shape() -> None:
    """The example that memory is measured with is padding of the largest width, whatever the rows are."""
    short, long = texts(Unread(of_length(1))), texts(Unread(of_length(30)))
    one, other = short.like(), long.like()
    assert one[0]["input_ids"].shape == other[0]["input_ids"].shape == (1, 24)
    assert torch.equal(one[0]["input_ids"], other[0]["input_ids"])


def test_rows_are_read_after_the_charge(tmp_path: Path) -> None:
    tuned = tiny.soft_prompt(tiny.bert())
    with Ledger.open(tmp_path / "poor.db", budget=Budget(epsilon=0.01, delta=1e-5)) as ledger:
        run = trainer(tuned, 8, ledger=ledger)
        with pytest.raises(BudgetExceeded):
            run.fit(texts(Unread(of_length(*range(1, 9)))))
        assert not ledger.entries()


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_kept_states_are_functions_of_one_row(autocast: torch.dtype | None) -> None:
    """What is kept of a row has the same bits, whoever else is in the data."""
    rows = of_length(*[1 + row % 22 for row in range(300)])
    tuned = LastLayers(tiny.bert(), layers=1, classes=2)
    every = texts(rows, above=tuned, autocast=autocast)
    some = [3, 40, 250, 299]
    few = texts([rows[row] for row in some], above=tuned, autocast=autocast)
    for place, row in enumerate(some):
        one, two = parts(every, [row], 1)[0][0], parts(few, [place], 1)[0][0]
        assert torch.equal(one["hidden"], two["hidden"])


def test_training_above_kept_states_is_the_same_training() -> None:
    """Up to the half precision in which they are kept."""
    rows, labels = of_length(*[1 + row % 15 for row in range(12)]), ["no", "yes"] * 6
    moved = []
    for kept in (False, True):
        torch.manual_seed(0)
        tuned = LastLayers(tiny.bert(), layers=1, classes=2)
        run = trainer(tuned, 12, plan={"batch_size": 12, "noise_multiplier": 1e-4})
        run.fit(texts(rows, labels, above=tuned if kept else None))
        moved.append(torch.cat([each.flatten() for each in tuned.parameters() if each.requires_grad]))
    torch.testing.assert_close(moved[0], moved[1], rtol=0, atol=2e-3)


def test_predictions_do_not_depend_on_other_texts() -> None:
    tuned = tiny.soft_prompt(tiny.bert())
    rows = of_length(*[1 + row % 20 for row in range(50)])
    every = tuned.predict_proba(texts(rows))
    for row in (0, 17, 49):
        assert np.array_equal(tuned.predict_proba(texts([rows[row]]))[0], every[row])
    assert np.array_equal(tuned.predict(texts(rows)), every.argmax(1))


def test_what_needs_rows_in_order() -> None:
    """Rows dealt out by length are refused where a place in the batch has to mean a row."""
    rows = of_length(*range(1, 9))
    mixed, ordered = texts(rows), texts(rows, by_length=False)
    unit = Unit("author", rows=2)
    with pytest.raises(InvalidValue, match="by_length=False"):
        ByUnit(mixed, np.arange(8) // 2, rows_per_unit=2)
    individual = {"accounting": "individual", "noise_multiplier": 2.0, "batch_size": 8}
    with pytest.raises(InvalidValue, match="by_length=False"):
        trainer(tiny.soft_prompt(tiny.bert()), 8, plan=individual).fit(mixed)
    with pytest.raises(InvalidValue, match="by_length=False"):
        next(trainer(tiny.soft_prompt(tiny.bert()), 8).batches(mixed))
    trainer(tiny.soft_prompt(tiny.bert()), 8, plan=individual).fit(ordered)
    run = trainer(tiny.soft_prompt(tiny.bert()), 4, plan={"unit": unit, "batch_size": 2})
    run.fit(ByUnit(ordered, np.arange(8) // 2, rows_per_unit=2))
    run = trainer(tiny.soft_prompt(tiny.bert()), 8)
    for inputs, targets in run.batches(ordered):
        run.step(inputs, targets)


def test_what_is_refused() -> None:
    with pytest.raises(InvalidValue, match="classes"):
        Texts(["w1"], [0], tokenizer=WORDS)
    with pytest.raises(InvalidValue, match="a tokenizer of transformers"):
        texts(["w1"], tokenizer="minilm")
    with pytest.raises(InvalidValue, match="one for each text"):
        texts(["w1"], ["no", "yes"])
    with pytest.raises(InvalidValue, match="at most 80"):
        texts(["w1"], max_length=81, above=LastLayers(tiny.bert(), classes=2))


def test_a_row_with_an_unknown_label_does_not_choose_how_all_are_computed() -> None:
    """It adds zero to every sum, and leaves the way in which the rows of its width are computed as it was."""
    rows = of_length(*[5] * 8)
    for unknown in (0, 4, 7):
        labels = ["maybe" if row == unknown else "no" for row in range(8)]
        model = LastLayers(tiny.bert(), layers=1, classes=2)
        made = trainer(model, 8, plan={"batch_size": 8, "steps": 1}, physical_batch=8)
        made.fit(texts(rows, labels, above=model))
        assert [each.fallback for each in routes._ROUTES[model].values()] == [()]
