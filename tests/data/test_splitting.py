"""A split by hash: which side a row is on depends on that row, or its unit, and on nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tacit.data.reading import UNIT, prepare, private_rows
from tacit.data.splitting import Split
from tacit.errors import InvalidValue, TacitError
from tacit.relations import Relation, Unit
from tacit.schema import Column, Schema

COLUMNS = {
    "age": Column("integer", bounds=(0, 120)),
    "pay": Column("number", bounds=(0, 1e6)),
    "sex": Column("category", categories=("F", "M")),
    "born": Column("date", bounds=("1900-01-01", "2030-01-01")),
}
ROWS = Schema(COLUMNS)
PEOPLE = Schema(COLUMNS, unit=Unit("person", 4))
SPLIT = Split.drawn(0.3, seed=7)


def table(rows: int, seed: int = 1) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    days = pd.to_datetime(generator.integers(0, 20_000, rows), unit="D").strftime("%Y-%m-%d")
    return pd.DataFrame(
        {
            "age": generator.integers(0, 120, rows), "pay": generator.uniform(0, 1e6, rows).round(3),
            "sex": generator.choice(["F", "M", "?"], rows), "born": days, "person": np.arange(rows) // 4,
        }
    )  # fmt: skip


def sides(source: Any, schema: Schema = ROWS, split: Split = SPLIT) -> list[set[Any]]:
    """The rows of either side, as values that can be compared; the side that is set aside comes second."""
    found = []
    for side in (split.rest, split.test):
        opened = prepare(source, schema, list(COLUMNS))
        frame = private_rows(opened, schema, list(COLUMNS), side=side)
        found.append({tuple(map(str, row)) for row in frame.itertuples(index=False)})
    return found


def test_every_row_is_on_one_side_and_the_share_is_about_right() -> None:
    rest, aside = sides(table(4000))
    assert not rest & aside
    assert len(rest) + len(aside) == 4000
    assert abs(len(aside) - 1200) < 5 * (4000 * 0.3 * 0.7) ** 0.5


def test_no_other_row_decides() -> None:
    """Without some rows, in another order and with others added, every row is where it was."""
    whole = table(600)
    rest, aside = sides(whole)
    for other in (whole[1:], whole[::-1], whole.sample(frac=0.5, random_state=1),
                  pd.concat([table(300, seed=2), whole])):  # fmt: skip
        fewer_rest, fewer_aside = sides(other)
        assert not fewer_rest & aside
        assert not fewer_aside & rest


def test_a_unit_is_on_one_side_whatever_its_rows_hold() -> None:
    units: list[set[int]] = []
    for side in (SPLIT.rest, SPLIT.test):
        frame = private_rows(prepare(table(2000), PEOPLE, list(COLUMNS)), PEOPLE, ["age"], side=side)
        units.append(set(frame[UNIT]))
    assert not units[0] & units[1]
    assert units[0] | units[1] == set(range(500))
    changed = table(2000, seed=5)
    frame = private_rows(prepare(changed, PEOPLE, list(COLUMNS)), PEOPLE, ["age"], side=SPLIT.test)
    assert set(frame[UNIT]) == units[1]


def test_files_and_frames_agree(tmp_path: Path) -> None:
    whole = table(500)
    whole.to_csv(tmp_path / "t.csv", index=False)
    typed = whole.assign(born=pd.to_datetime(whole.born).dt.date)
    typed.to_parquet(tmp_path / "t.parquet")
    found = [sides(each) for each in (whole, str(tmp_path / "t.csv"), str(tmp_path / "t.parquet"))]
    assert found[0] == found[1] == found[2]


def test_the_key_decides() -> None:
    whole = table(300)
    assert sides(whole, split=Split.drawn(0.3)) != sides(whole, split=Split.drawn(0.3))
    assert sides(whole, split=Split.drawn(0.3, seed=1)) == sides(whole, split=Split.drawn(0.3, seed=1))


def test_odd_rows_have_a_side() -> None:
    odd = pd.DataFrame(
        {"age": [None, 1, 2], "pay": [np.nan, np.inf, -0.0], "sex": ["\x1f", None, "ä"], "born": [None] * 3}
    )
    rest, aside = sides(odd)
    assert len(rest) + len(aside) == 3


@pytest.mark.parametrize("share", [0, 1, -0.2, 1.5, float("nan"), "0.2", True, None])
def test_shares_that_are_none(share: Any) -> None:
    with pytest.raises(InvalidValue, match="test_share"):
        Split.drawn(share)


def test_a_replaced_row_could_change_sides() -> None:
    with pytest.raises(TacitError, match="change sides"):
        SPLIT.require(Relation.REPLACE_ONE)
    SPLIT.require(Relation.ADD_REMOVE)


def test_what_is_expected_of_a_side() -> None:
    assert (SPLIT.rest.expected(1000), SPLIT.test.expected(1000)) == (700, 300)
    assert SPLIT.test.expected(None) is None


def test_the_key_is_not_shown() -> None:
    assert SPLIT.key not in repr(SPLIT)
    assert SPLIT.key not in repr(SPLIT.test)


@pytest.mark.audit
def test_rows_that_are_cleaned_alike_are_on_one_side() -> None:
    """How a value was written, and whether it was outside of its bounds, is no part of its content."""
    plain = {"age": 120, "pay": 7.0, "sex": None, "born": None}
    twins = [{}, {"age": 230}, {"age": "120.0"}, {"sex": "?"}, {"sex": ""}, {"pay": "7.0"}, {"born": "?"}]
    frame = pd.DataFrame([plain | twin for twin in twins], dtype=object)
    for seed in range(20):
        sizes = [
            len(private_rows(frame, ROWS, list(COLUMNS), side=side))
            for split in [Split.drawn(0.5, seed=seed)]
            for side in (split.rest, split.test)
        ]
        assert sorted(sizes) == [0, len(twins)]
