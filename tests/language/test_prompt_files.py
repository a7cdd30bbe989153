"""A public prompt in a file: its guarantee, the digest of its model, and no private demonstration."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tacit
from tacit.errors import InvalidValue
from tacit.language import PromptPATE, Template
from tacit.pate import GNMax
from tiny_language import WORDS, decoder, encoder

CANARY = "canary 31415"
TEXTS = [f"{CANARY} of patient {i}" for i in range(30)]
LABELS = [i % 2 for i in range(30)]
PUBLIC = ["good thing", "bad thing", "other", "fourth"]
MODELS = {"encoder": encoder, "decoder": decoder}


def fitted(model, **changed):
    given = {
        "template": Template("T:{text}\nL:{label}\n", "Say yes or no.\n"), "verbalizer": WORDS,
        "n_teachers": 10, "aggregator": GNMax(4.0), "epsilon": 1e4, "delta": 1e-5, "prompt_shots": 2,
        "text_tokens": 20, "random_state": 1,
    }  # fmt: skip
    return PromptPATE(model, **given | changed).fit(TEXTS, LABELS, PUBLIC)


@pytest.fixture(scope="module", params=list(MODELS))
def kept(request, tmp_path_factory):
    """A fitted prompt, its file, and what makes its model."""
    make = MODELS[request.param]
    private, path = fitted(make()), tmp_path_factory.mktemp("prompts") / "prompt.tacit"
    tacit.save(private, path)
    return private, path, make


def test_a_prompt_comes_back_with_its_guarantee(kept):
    private, path, make = kept
    loaded = tacit.load(path)
    assert loaded.guarantee_ == private.guarantee_
    assert loaded.event_ == private.event_
    assert str(loaded.prompt_) == str(private.prompt_)
    assert str(loaded.prompt_).startswith("Say yes or no.")
    assert str(loaded.describe()) == str(private.describe())
    asked = ["good", "bad", "neither"]
    with pytest.raises(InvalidValue, match="onto"):
        loaded.predict(asked)
    loaded.onto(make())
    assert np.array_equal(loaded.predict_proba(asked), private.predict_proba(asked))
    assert loaded.teach().prompt_.demonstrations == private.prompt_.demonstrations


def test_a_file_holds_no_private_demonstration(kept):
    """Members of the archive are not compressed, so that a text in it would be found by its bytes."""
    _, path, _ = kept
    content = path.read_bytes()
    assert PUBLIC[0].encode() in content
    for hidden in (CANARY, "31415", "patient"):
        assert hidden.encode() not in content
        assert hidden.encode("utf-16-le") not in content
    assert "random_state" not in str(tacit.models.describe(path)["steps"][0]["state"])


def test_a_loaded_prompt_is_saved_again_without_its_model(kept, tmp_path):
    _, path, make = kept
    tacit.save(tacit.load(path), tmp_path / "again.tacit")
    tacit.load(tmp_path / "again.tacit").onto(make())


def test_another_model_is_refused(kept):
    _, path, make = kept
    loaded = tacit.load(path)
    with pytest.raises(InvalidValue, match="chosen for"):
        loaded.onto(make(1))
    assert loaded.model is None
    with pytest.raises(InvalidValue, match="onto"):
        loaded.predict(["good"])


def test_a_head_of_its_own_belongs_to_the_digest():
    private = fitted(decoder())
    head, before = private.model.model.get_output_embeddings(), private.prompt_.reader
    with torch.no_grad():
        head.weight[5, 5] += 1.0
        changed = private.prompt_.reader
        head.weight[5, 5] -= 1.0
    assert changed != before


def test_what_is_not_fitted_is_not_saved(tmp_path):
    with pytest.raises(InvalidValue, match="fit"):
        tacit.save(PromptPATE(encoder(), verbalizer=WORDS), tmp_path / "none.tacit")


def test_a_subclass_is_not_saved(tmp_path):
    class Keeps(PromptPATE):
        pass

    with pytest.raises(InvalidValue):
        tacit.save(Keeps(encoder(), verbalizer=WORDS), tmp_path / "none.tacit")
