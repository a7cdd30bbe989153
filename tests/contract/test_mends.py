"""Every attack that once got through, on the code as it is and on a twin without the mend."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from contract.mends import ITEMS, MENDS, Mend, Scene, mend, register_mend, without_mend
from engines import THEIR_WARNINGS

TRAINING = ("test_training_account", "test_training_isolation")
"""Modules that need torch, which may be missing."""

OUR_WARNINGS = ("ignore:Another thread of this program ran:RuntimeWarning",)
pytestmark = [pytest.mark.filterwarnings(line) for line in (*THEIR_WARNINGS, *OUR_WARNINGS)]
for path in sorted((Path(__file__).parents[1] / "adversarial").glob("test_*.py")):
    if path.stem not in TRAINING or find_spec("torch"):
        import_module(f"adversarial.{path.stem}")

ALL = [pytest.param(made, id=f"{made.item}: {made.name}") for made in MENDS.values()]


@pytest.fixture
def scene(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Scene:
    return Scene(tmp_path, monkeypatch, request.getfixturevalue)


@pytest.mark.parametrize("made", ALL)
def test_the_attack_fails(made: Mend, scene: Scene) -> None:
    made.attack(scene)


@pytest.mark.parametrize("made", ALL)
def test_the_attack_succeeds_on_the_twin(made: Mend, scene: Scene) -> None:
    made.twin(scene.patch)
    with pytest.raises(made.shows):
        made.attack(scene)


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
def test_every_item_has_an_attack_and_a_twin() -> None:
    assert not without_mend(MENDS.values())


def test_an_item_without_an_attack_is_noticed() -> None:
    for item in ITEMS:
        others = [made for made in MENDS.values() if made.item != item]
        assert item in without_mend(others)


def test_attacks_are_registered_once_and_for_an_item_that_exists() -> None:
    made = next(iter(MENDS.values()))
    with pytest.raises(ValueError, match="twice"):
        register_mend(made)
    with pytest.raises(ValueError, match="not the number"):
        mend(18, "unheard of", twin=made.twin)(made.attack)
