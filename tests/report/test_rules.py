"""Rules compared for intended releases are what ledgers of these rules then allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit import accounting, events
from tacit.errors import InvalidValue, TacitError
from tacit.ledger import Budget, Ledger
from tacit.report.rules import compare_rules, parse_release

BUDGET = Budget(2.0, 1e-6)


@pytest.mark.parametrize("lines", [
    ["ages 0.1 x 30"],
    ["means 0.1 1e-8 x 40"],
    ["counts 0.05 x 10", "means noise_multiplier=30 delta=1e-9 × 60"],
    ["big 1.5", "means 0.1 9e-7", "more 0.1 9e-7"],
    ["model noise_multiplier=2 delta=1e-7 population=6000 batch_size=60 epochs=2", "ages 0.1"],
], ids=str)  # fmt: skip
def test_what_is_foretold_is_what_a_ledger_allows(lines: list[str], tmp_path: Path) -> None:
    for one in compare_rules(lines, BUDGET):
        made = 0
        with Ledger.open(tmp_path / f"{one.name}.db", BUDGET, filter=one.name) as ledger:
            try:
                for line in lines:
                    intended = parse_release(line)
                    for _ in range(intended.times):
                        ledger.charge(intended.event, label=intended.name, delta=intended.delta)
                        made += 1
            except TacitError:
                assert one.refused == intended.name
            spent = ledger.spent()
        assert one.fits == made
        assert (one.epsilon, one.delta) == (pytest.approx(spent.epsilon), pytest.approx(spent.delta))


def test_releases_are_read() -> None:
    assert parse_release("mean age 0.25").event == events.Laplace(4.0)
    gaussian = parse_release("means epsilon=0.2 delta=1e-8 x3")
    assert gaussian.times == 3
    run = parse_release("model epsilon=1 delta=1e-6 population=6000 batch_size=60 epochs=2")
    assert accounting.epsilon(run.event, 1e-6) <= 1.0


@pytest.mark.parametrize(
    "text", ["", "0.1", "ages", "ages x 3", "ages 0.1 1e-8 7", "ages size=3", "ages epsilon=lots", "ages -1",
             "ages 0.1 x 0", "ages 1 noise_multiplier=3", "model epsilon=1 population=3"]
)  # fmt: skip
def test_other_texts_are_refused_with_the_way_to_write_them(text: str) -> None:
    with pytest.raises(InvalidValue):
        parse_release(text)


def test_a_budget_without_delta_has_one_rule() -> None:
    with pytest.raises(InvalidValue, match="With δ = 0 the ε's add up"):
        compare_rules(["ages 0.1"], Budget(1.0))
