"""Rows on disk: found by content, private, and never stale."""

from __future__ import annotations

import os
import stat
from importlib.util import find_spec
from pathlib import Path

import pytest

if not find_spec("torch"):
    pytest.skip("torch is not installed", allow_module_level=True)

import numpy as np

from tacit.errors import TacitError
from tacit.training.features import cache
from tacit.training.features.cache import FeatureCache, usual_folder
from training.features.made_up import Letters, Pixels

SHAPE = (1, 4, 4)


def images(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, *SHAPE), dtype=np.uint8)


@pytest.fixture
def kept(tmp_path: Path) -> FeatureCache:
    made = FeatureCache(tmp_path / "kept")
    made.check(Pixels(SHAPE))
    return made


def files(kept: FeatureCache) -> list[Path]:
    return sorted(path for path in kept.folder.rglob("*") if path.is_file())


def test_rows_are_computed_once_whatever_their_order(
    kept: FeatureCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_PER_FILE", 16)
    features, given, told = Pixels(SHAPE), images(40), []
    first = kept.rows(features, given, lambda done, total: told.append((done, total)))
    assert np.array_equal(first, features.rows(given))
    assert told[-1] == (40, 40)
    before, turned = features.calls, np.random.default_rng(2).permutation(40)
    assert np.array_equal(kept.rows(features, given[turned]), first[turned])
    assert features.calls == before
    assert len(files(kept)) == 3


def test_an_example_that_changed_is_computed_again(kept: FeatureCache) -> None:
    features, given = Pixels(SHAPE), images(10)
    first = kept.rows(features, given)
    given[3, 0, 0, 0] ^= 255
    again = kept.rows(features, given)
    assert np.array_equal(again, features.rows(given))
    assert not np.array_equal(again[3], first[3])
    floats = given.astype(np.float32) / 255
    assert np.array_equal(kept.rows(features, floats), features.rows(floats))


def test_other_weights_do_not_share_rows(kept: FeatureCache) -> None:
    class Others(Letters):
        version = "2"

        def rows(self, examples, seen=None):  # type: ignore[no-untyped-def]
            return super().rows(examples) * np.float16(0.5)

    texts = ["abba", "", "cd", "abba"]
    assert np.array_equal(kept.rows(Letters(), texts), Letters().rows(texts))
    assert np.array_equal(kept.rows(Others(), texts), Others().rows(texts))


def test_a_damaged_file_is_computed_again(kept: FeatureCache) -> None:
    features, given = Pixels(SHAPE), images(10)
    first = kept.rows(features, given)
    (path,) = files(kept)
    for content in (path.read_bytes()[:-7], b"", path.read_bytes()[:-1] + b"x"):
        path.write_bytes(content)
        assert np.array_equal(kept.rows(features, given), first)
        assert len(files(kept)) == 1


def test_rows_of_another_width_under_a_good_name_are_not_taken(kept: FeatureCache) -> None:
    features, given = Pixels(SHAPE), images(3)
    wrong = np.zeros((3, 9), np.float16)
    kept._keep(kept._place(features), kept._keys(features, given), wrong)
    assert np.array_equal(kept.rows(features, given), features.rows(given))


def test_only_the_owner_may_read(kept: FeatureCache) -> None:
    kept.rows(Pixels(SHAPE), images(3))
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files(kept))
    folders = [kept.folder, *(path for path in kept.folder.rglob("*") if path.is_dir())]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in folders)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TacitError, match="cache="):
        FeatureCache(tmp_path / "file" / "kept").check(Pixels(SHAPE))


def test_names_of_files_tell_nothing_of_examples(kept: FeatureCache) -> None:
    """Whoever sees a list of the files cannot look a guessed example up in it."""
    other = FeatureCache(kept.folder.parent / "other")
    given = images(1)
    for each in (kept, other):
        each.rows(Pixels(SHAPE), given)
    (one,), (two,) = files(kept), files(other)
    assert one.read_bytes() == two.read_bytes()
    assert one.name != two.name


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    """Rows that somebody else put there would be trained on."""
    features = Pixels(SHAPE)
    shared = FeatureCache(tmp_path / "shared")
    shared.folder.mkdir()
    shared.folder.chmod(0o777)
    elsewhere = FeatureCache(tmp_path / "linked")
    elsewhere.folder.mkdir()
    (tmp_path / "theirs").mkdir()
    elsewhere._place(features).symlink_to(tmp_path / "theirs")
    planted = FeatureCache(tmp_path / "planted")
    planted.check(features)
    planted._place(features).chmod(0o770)
    for each in (shared, elsewhere, planted):
        with pytest.raises(TacitError, match="cache="):
            each.check(features)
        assert np.array_equal(each.rows(features, images(3)), features.rows(images(3)))
        assert not files(each)
    assert not list((tmp_path / "theirs").iterdir())


def test_a_folder_that_others_may_read_is_locked(kept: FeatureCache) -> None:
    place = kept._place(Pixels(SHAPE))
    place.chmod(0o755)
    kept.check(Pixels(SHAPE))
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_rows_that_no_features_make_are_not_taken(kept: FeatureCache) -> None:
    features, given = Pixels(SHAPE), images(3)
    for wrong in (np.float16(100), np.float16("inf")):
        rows = np.full((3, features.width), wrong, np.float16)
        kept._keep(kept._place(features), kept._keys(features, given), rows)
        assert np.array_equal(kept.rows(features, given), features.rows(given))


def test_a_full_disk_does_not_lose_the_run(kept: FeatureCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise TacitError("It cannot be written: No space left on device.", "Name another file.")

    monkeypatch.setattr(cache._writing, "write", full)
    features, given = Pixels(SHAPE), images(3)
    assert np.array_equal(kept.rows(features, given), features.rows(given))
    assert not files(kept)


def test_the_usual_folder_is_among_the_caches_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path))
    assert usual_folder() == tmp_path / "tacit" / "features"
