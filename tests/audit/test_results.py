"""What an audit says in words, which claims it is compared with, and what is read back from a file."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tacit import audit, events
from tacit.errors import InvalidValue
from tacit.guarantee import Guarantee
from tacit.relations import LABEL, Unit
from tacit.report.audits import audited

THREE = "patient (at most 3 rows)"
SOME = {"true_positives": 900, "positives": 1000, "false_positives": 100, "negatives": 1000}


def found(**more: Any) -> audit.AuditResult:
    return audit.clopper_pearson(**{**SOME, **more}, delta=0.0, confidence=0.95)


def test_a_refutation_names_what_it_assumes() -> None:
    """Laplace noise with ε = 1, whose trade-off is not Gaussian: the Gaussian bound is above 4."""
    generator = np.random.default_rng(1)
    inside, outside = 1 + generator.laplace(size=20_000), generator.laplace(size=20_000)
    options: dict[str, Any] = {"rule": audit.Fixed(0.5), "delta": 1e-5, "confidence": 0.95}
    wrong = audit.from_scores(inside, outside, method="gaussian", **options).against(1.0)
    assert wrong.contradicts(1.0)
    assert "refuted if the mechanism is Gaussian" in wrong.verdict
    canaries = audit.one_run(canaries=500, guesses=500, correct=480, delta=1e-5, confidence=0.95)
    assert "refuted if an independent fair coin" in canaries.against(1.0).verdict
    assert "refuted: ε is at least 1.98" in found().against(1.0).verdict


@pytest.mark.parametrize(
    "result",
    [
        found(positives=10, true_positives=10, negatives=10, false_positives=0),
        audit.one_run(canaries=40, guesses=20, correct=20, delta=0.0, confidence=0.95),
        audit.one_run_fdp(canaries=40, guesses=20, correct=20, delta=1e-5, confidence=0.95),
        audit.gaussian(
            true_positives=3, positives=3, false_positives=0, negatives=3, delta=1e-5, confidence=0.95
        ),
    ],
    ids=lambda result: result.method,
)
def test_an_audit_without_power_supports_no_claim(result: audit.AuditResult) -> None:
    """All guesses were right, and yet larger claims stand: the audit had no way to refute them."""
    assert result.epsilon == result.most
    told = result.against(result.epsilon + 1).verdict
    assert "cannot judge" in told
    assert "consistent" not in told


def test_an_audit_that_found_nothing_says_so() -> None:
    told = found(true_positives=100).against(1.0).verdict
    assert "nothing about the claim" in told
    assert "consistent" not in told
    assert "consistent" in found().against(3.0).verdict


def test_more_right_guesses_prove_no_more_than_the_most() -> None:
    for right in range(0, 201, 10):
        for bound in (audit.one_run, audit.one_run_fdp):
            result = bound(canaries=1000, guesses=200, correct=right, delta=1e-5, confidence=0.95)
            assert 0 <= result.epsilon <= (result.most or 0)
    grid = audit.Bonferroni([-1.0, 0.0, 1.0])
    scores = np.linspace(-2, 2, 50)
    options: dict[str, Any] = {"method": "clopper_pearson", "delta": 0.0, "confidence": 0.95}
    shared = audit.from_scores(scores, scores, rule=grid, **options)
    assert shared.epsilon == 0
    assert shared.most == audit.clopper_pearson(
        true_positives=50, positives=50, false_positives=0, negatives=50, delta=0.0, confidence=1 - 0.05 / 3
    ).epsilon  # fmt: skip


def guarantee(**more: Any) -> Guarantee:
    return Guarantee(1.0, 0.0, events.Pure(1.0), **more)


@pytest.mark.parametrize(
    ("audit_of", "promise", "compared"),
    [
        ({"relation": "add_remove", "unit": "row"}, guarantee(), True),
        ({"relation": "replace_one", "unit": "row"}, guarantee(), False),
        ({"relation": "add_remove", "unit": THREE}, guarantee(), False),
        ({"relation": "add_remove", "unit": THREE}, guarantee(unit=Unit("patient", 3)), True),
        ({"relation": "replace_one", "unit": "row"}, guarantee(relation="replace_one", unit=LABEL), False),
        ({"relation": None, "unit": "row"}, guarantee(), False),
        ({"relation": "add_remove", "unit": None}, guarantee(), False),
        ({"relation": "add_remove", "unit": "row", "delta": 1e-5}, guarantee(), False),
        (
            {"relation": "add_remove", "unit": "row"},
            Guarantee(float("inf"), 0.0, events.Pure(1.0)),
            False,
        ),
    ],
)  # fmt: skip
def test_an_audit_is_held_against_the_same_promise_only(
    audit_of: dict[str, Any], promise: Guarantee, compared: bool
) -> None:
    """Every bound is above the claim, but of other neighbours it refutes nothing."""
    result = audit.AuditResult.from_dict({**found().to_dict(), **audit_of})
    (section,) = audited([result], promise)
    assert section.table is not None
    (row,) = section.table[1]
    assert ("is refuted" in row[-1]) is compared
    assert ("compared with no claim" in row[-1]) is not compared


@pytest.mark.parametrize(
    "wrong",
    [
        {"counts": {"guesses": "many"}}, {"counts": {"guesses": -3}}, {"counts": {"guesses": 1.5}},
        {"counts": [["guesses", 3]]}, {"counts": None}, {"method": 7}, {"assumption": None}, {"rule": None},
        {"relation": "both"}, {"unit": ["row"]}, {"hypotheses": 0}, {"hypotheses": 2.5}, {"confidence": 1},
        {"confidence": "0.9"}, {"epsilon": -1}, {"epsilon": True}, {"delta": 1}, {"claimed": "1"},
        {"claimed": -1}, {"most": 0.1}, {"most": "much"}, {"more": 1},
    ],
)  # fmt: skip
def test_nonsense_is_no_result(wrong: dict[str, Any]) -> None:
    whole = json.loads(json.dumps(found().against(1.0).to_dict()))
    assert audit.AuditResult.from_dict(whole) == found().against(1.0)
    with pytest.raises(InvalidValue, match="audit"):
        audit.AuditResult.from_dict({**whole, **wrong})


def test_ties_are_broken_by_draws_of_their_own() -> None:
    """The order of equal scores comes from other draws than the coins, though both come from one seed."""
    seeds: list[int] = []
    real = audit.models.from_canaries

    def noting(*given: Any, **options: Any) -> audit.AuditResult:
        seeds.append(options["seed"])
        return real(*given, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit.models, "from_canaries", noting)
        for seed in (0, 1):
            audit.audit_training(
                lambda included: np.zeros(included.size), canaries=40, rule=audit.Extremes(10, 10),
                method="one_run", delta=0.0, confidence=0.95, runs=2, seed=seed,
            )  # fmt: skip
    assert len(set(seeds)) == 4
    assert not {0, 1} & set(seeds)


def test_a_target_keeps_its_value() -> None:
    """A longer word or a fraction is not cut to the type of the other targets."""
    X = np.zeros((2, 1))
    (_, more), (_, fewer) = audit.neighbouring(X, ["a", "b"], [1.0], "perhaps", relation="add_remove")
    assert (more[-1], fewer.tolist()) == ("perhaps", ["a", "b"])
    (_, more), (_, fewer) = audit.neighbouring(X, [0, 1], [1.0], 0.5, relation="replace_one")
    assert (more.tolist(), fewer.tolist()) == ([0, 0.5], [0, 1])
    for y, target in (([0, 1], "1"), (["a", "b"], 1), ([0, 1], None)):
        with pytest.raises(InvalidValue):
            audit.neighbouring(X, y, [1.0], target, relation="add_remove")


def test_options_are_refused_before_the_first_run() -> None:
    def never(data: Any) -> float:
        raise AssertionError("the mechanism was run")

    good: dict[str, Any] = {"runs": 40, "delta": 0.0, "confidence": 0.95}
    for wrong in ({"claimed": -1.0}, {"relation": "both"}, {"method": "gaussian"}, {"delta": 1.0}):
        with pytest.raises(InvalidValue):
            audit.audit_mechanism(never, (0, 1), **{**good, **wrong})


def test_neighbours_with_outputs_of_two_shapes_are_refused() -> None:
    with pytest.raises(InvalidValue, match="one shape"):
        audit.audit_mechanism(np.zeros, (2, 3), runs=40, delta=0.0, confidence=0.95)
