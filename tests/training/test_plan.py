"""Plans: the public facts of a run, their noise and their event."""

from __future__ import annotations

import math

import pytest

from tacit import accounting, events
from tacit.accounting import filters
from tacit.errors import CalibrationError, InvalidValue
from tacit.relations import Unit
from tacit.training import Plan, Quantile

FACTS = {"population": 1000, "batch_size": 50, "epochs": 3, "clip_norm": 1.0, "delta": 1e-5}


def test_noise_spends_what_was_asked_and_no_more() -> None:
    plan = Plan(**FACTS, epsilon=2.0)
    assert plan.steps == 60
    assert plan.event == events.Repeat(
        events.PoissonSampled(0.05, events.Gaussian(plan.noise_multiplier)), 60
    )
    spent = accounting.epsilon(plan.event, 1e-5)
    assert 1.98 < spent <= 2.0 == plan.epsilon
    assert plan.spent == spent


def test_noise_that_spends_more_than_was_asked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "calibrate", lambda make_event, **target: 0.5)
    with pytest.raises(CalibrationError, match="more than 2"):
        Plan(**FACTS, epsilon=2.0)


@pytest.mark.parametrize(("epochs", "steps"), [(1, 234), (2, 469), (15, 3516), (0.001, 1)])
def test_epochs_are_rounded_once_to_the_nearest_step(epochs: float, steps: int) -> None:
    plan = Plan(population=60000, batch_size=256, epochs=epochs, delta=1e-5, noise_multiplier=1.0)
    assert plan.steps == plan.steps_in(epochs) == steps


def test_given_noise_finds_epsilon() -> None:
    plan = Plan(**FACTS, noise_multiplier=1.5)
    assert plan.epsilon == accounting.epsilon(plan.event, 1e-5)


def test_the_sampler_makes_the_event() -> None:
    poisson = Plan(**FACTS, noise_multiplier=1.5)
    shuffled = Plan(**FACTS, noise_multiplier=1.5, sampling="shuffle")
    fixed = Plan(**FACTS, noise_multiplier=1.5, sampling="fixed", relation="replace_one")
    assert shuffled.event == events.Repeat(events.Gaussian(1.5), 3)
    assert fixed.event == events.Repeat(events.SampledWithoutReplacement(50, 1000, events.Gaussian(1.5)), 60)
    assert poisson.epsilon < shuffled.epsilon
    full = Plan(population=50, batch_size=50, steps=7, delta=1e-5, noise_multiplier=3.0)
    assert full.event == events.Repeat(events.Gaussian(3.0), 7)


@pytest.mark.parametrize("steps", [1, 19, 20, 21, 59, 61])
def test_an_epoch_begun_is_charged_whole(steps: int) -> None:
    plan = Plan(
        population=1000, batch_size=50, steps=steps, delta=1e-5, noise_multiplier=2.0, sampling="shuffle"
    )
    assert plan.event == events.Repeat(events.Gaussian(2.0), math.ceil(steps / 20))


def test_sensitivity_follows_the_relation() -> None:
    assert Plan(**FACTS, epsilon=1.0).sensitivity == 1.0
    assert Plan(**FACTS, epsilon=1.0, relation="replace_one").sensitivity == 2.0


def test_epochs_fit_into_a_renyi_filter_and_just_so() -> None:
    plan = Plan(**FACTS, epsilon=2.0, charge="epoch")
    whole = Plan(**FACTS, epsilon=2.0)
    assert plan.noise_multiplier > whole.noise_multiplier
    within = filters.RenyiFilter.for_budget(2.0, 1e-5 / 2)
    costs = sum(
        within.price(plan.sampler.event(events.Gaussian(plan.noise_multiplier), n)) for n in plan.stages()
    )
    assert 0.98 * within.limit < costs <= within.limit
    assert sum(plan.stages()) == plan.steps


def test_quantile_pays_for_its_count() -> None:
    quantile = Quantile(share=0.5, count_noise=0.05)
    noise = quantile.noise_for_sum(1.0, 50)
    # Sum and count, each in units of its noise, move together by at most 1/z.
    assert math.hypot(1 / noise, 0.5 / (0.05 * 50)) == pytest.approx(1.0)
    with pytest.raises(InvalidValue, match="count_noise"):
        Plan(**FACTS, noise_multiplier=6.0, clipping=quantile)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"population": 0}, "population"),
        ({"population": 10.5}, "population"),
        ({"batch_size": 1001}, "batch_size"),
        ({"epochs": None}, "epochs and steps"),
        ({"steps": 4}, "epochs and steps"),
        ({"epochs": -1}, "epochs"),
        ({"clip_norm": 0}, "clip_norm"),
        ({"clip_norm": 1e-12}, "clip_norm"),
        ({"clip_norm": math.inf}, "clip_norm"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"noise_multiplier": 1.0}, "epsilon and noise_multiplier"),
        ({"epsilon": 0.0}, "epsilon and noise_multiplier"),
        ({"sampling": "sequential"}, "sampling"),
        ({"sampling": "fixed"}, "sampling"),
        ({"clipping": "none"}, "clipping"),
        ({"relation": "swap"}, "relation"),
        ({"charge": "step"}, "charge"),
        ({"unit": Unit(part="label")}, "unit"),
    ],
    ids=str,
)
def test_bad_facts_are_named(changes: dict[str, object], name: str) -> None:
    with pytest.raises(InvalidValue, match=name):
        Plan(**{**FACTS, "epsilon": 1.0, **changes})  # type: ignore[arg-type]
