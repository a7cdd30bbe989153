"""The trainer in the registry, under every rule of clipping: one step on everything, and a sampled run.

Each example has a coordinate of its own in both of the model's parameters, along which its gradient points.
There examples are sampled, clipped and covered with noise independently of each other, so one run with
many examples is many runs with one. The audit sees every step, of which the weights are post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor, nn

from contract import registry
from contract.cases import BAD_PARAMETERS, INF, NAN
from contract.registry import Case, Make, Noise, Pair, register
from tacit import events
from tacit.errors import InvalidValue
from tacit.ledger import Ledger
from tacit.randomness import Source
from tacit.training import Plan, Quantile, Trainer, step
from tacit.training.step import PrivateStep

COORDINATES = 20_000
FAR, SECRET = 100.0, float(registry.SECRET)
DELTA, STEPS = 0.05, 3
NOISE_MULTIPLIER, COUNT_MULTIPLIER = 1.0, 5.0
NOTHING = np.zeros((0, 2))


def examples(scale: float, number: int = COORDINATES) -> np.ndarray:
    """The first so many examples, their coordinates and the lengths of their gradients side by side."""
    return np.column_stack([np.arange(number), np.full(number, scale)])


class Coordinates(nn.Module):
    """Two numbers for each coordinate, added and multiplied by the scale of whoever owns it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (nn.Embedding(COORDINATES, 1, dtype=torch.float64) for _ in range(2))
        for each in self.parameters():
            nn.init.zeros_(each)

    def forward(self, rows: Tensor) -> Tensor:
        owned = rows[:, 0].long()
        return rows[:, 1] * (self.one(owned) + self.two(owned))[:, 0]

    def along(self) -> np.ndarray:
        """How far each coordinate has moved, along the gradient of its example."""
        return -sum(each.detach().numpy()[:, 0] for each in self.parameters()) / math.sqrt(2)


def descent(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs


@contextmanager
def noise_times(factor: Callable[[PrivateStep], float]) -> Iterator[None]:
    """Steps whose noise on the sum is so many times as large as it should be."""
    sound = PrivateStep.noise_multiplier.fget
    with mock.patch.object(
        PrivateStep, "noise_multiplier", property(lambda step: factor(step) * sound(step))
    ):
        yield


@dataclass(frozen=True)
class Training:
    """A run of the trainer as a mechanism: from examples to how far each step moves each coordinate.

    That is told in units of the step's clip_norm, which is released as well. ``by_hand`` has the steps
    taken in a loop outside of the trainer; ``late`` is by how many steps an example leaves too late, where it
    pays for its own gradients.
    """

    plan: Plan
    source: Source
    noise_factor: Callable[[PrivateStep], float] | None = None
    by_hand: bool = False
    late: float = 0.0

    @property
    def event(self) -> events.Event:
        return self.plan.event

    @property
    def noise(self) -> str:
        return self.trainer()._run.state.core.noise_kind

    def trainer(self, ledger: Ledger | None = None, **options: Any) -> Trainer:
        model = Coordinates()
        optimizer = torch.optim.SGD(model.parameters(), lr=float(self.plan.batch_size))
        options = {"physical_batch": COORDINATES, "progress": False, **options}
        seed = self.source.bits(63) if self.source.seeded else None
        return Trainer(model, descent, optimizer, self.plan, ledger, random_state=seed, **options)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        norms, places = [self.plan.clip_norm], [np.zeros(COORDINATES)]

        def look(progress: Any) -> None:
            norms.append(progress.trainer.clip_norm)
            places.append(progress.trainer.model.along())

        trainer = self.trainer(callbacks=[look])
        dataset = torch.from_numpy(rows), torch.zeros(len(rows))
        if trainer._run.state.core.individual is not None:
            trainer._run.state.core.individual._budget += self.late
        once = mock.patch.object(step, "_TESTS", 1)
        with once, noise_times(self.noise_factor or (lambda step: 1.0)):
            if self.by_hand:
                for inputs, targets in trainer.batches(dataset):
                    trainer.step(inputs, targets)
            else:
                trainer.fit(dataset)
        return np.diff(places, axis=0) / np.array(norms)[:-1, np.newaxis]


def making(plan: Plan, **options: Any) -> Make:
    def make(random_state: Any) -> Training:
        source = random_state if isinstance(random_state, Source) else Source(random_state)
        return Training(plan, source, **options)

    return make


def runs(make: Make, rows: np.ndarray, times: int, seed: int | None) -> np.ndarray:
    """As many runs of one example each, the steps of each run in one line."""
    training = make(seed)
    return np.concatenate([training(rows).T for _ in range(-(-times // COORDINATES))])[:times]


@dataclass(frozen=True)
class Expected:
    """What a step should show of one example, from relation and rule alone."""

    plan: Plan

    @property
    def spread(self) -> float:
        """The noise on the sum in units of clip_norm; a quantile has its count paid for by more of it."""
        total = NOISE_MULTIPLIER**-2
        if isinstance(self.plan.clipping, Quantile):
            total -= COUNT_MULTIPLIER**-2
        return (1 if self.plan.relation == "add_remove" else 2) / math.sqrt(total)

    @property
    def without(self) -> float:
        """What there is instead of an example of length 1: nothing, or one that points the other way."""
        return 0.0 if self.plan.relation == "add_remove" else -1.0

    def loss(self, seen: np.ndarray) -> np.ndarray:
        """The log-likelihood ratio of a run with the example and without it."""
        rate = self.plan.sampling_rate
        ratio = np.exp(((seen - self.without) ** 2 - (seen - 1) ** 2) / (2 * self.spread**2))
        return np.log(1 - rate + rate * ratio).sum(axis=1)

    def cdf(self, points: np.ndarray, factor: float) -> np.ndarray:
        return ndtr(points / (factor * self.spread))

    def draw(self, make: Make, runs: int, seed: int | None) -> np.ndarray:
        """The noise of two runs, on examples without a gradient, and on none where that is allowed."""
        training, still = make(seed), examples(0.0)
        few = still if self.plan.relation == "replace_one" else NOTHING
        return np.concatenate([training(rows).T.ravel()[: -(-runs // 2)] for rows in (still, few)])


GOOD: dict[str, Any] = {
    "population": 2, "batch_size": 2, "steps": 1, "clip_norm": 1.0, "noise_multiplier": 1.0, "delta": DELTA,
}  # fmt: skip
BAD_PLANS: dict[str, tuple[Any, ...]] = {
    "population": (0, -1, 1, 2.5, "2", None, True, NAN),
    "batch_size": (0, -1, 3, 1.5, "2", None, True),
    "steps": (-1, 1.5, "1", True, 0),
    "epochs": (0, -1, NAN, INF, "1", True),
    "clip_norm": (0.0, -1.0, 1e-10, 1e10, NAN, INF, "1", None, True),
    "noise_multiplier": BAD_PARAMETERS["noise_multiplier"],
    "epsilon": BAD_PARAMETERS["epsilon"],
    "delta": (*BAD_PARAMETERS["delta"], 0.0),
    "sampling": ("fixed", "random", None, 1),
    "clipping": ("none", None, 1.0, ()),
    "relation": ("both", None),
    "charge": ("step", None),
    "noise": ("correlated", "none", None),
    "bands": (1, 2),
    "accounting": ("none", None, 1),
    "participations": (1, 0, "2"),
}
INSTEAD_OF = {"epochs": "steps", "epsilon": "noise_multiplier"}
BAD_QUANTILES: dict[str, tuple[Any, ...]] = {
    "share": (0.0, 1.0, NAN, "half", None),
    "learning_rate": (0.0, -1.0, NAN, INF, "1"),
    "count_noise": (0.0, -1.0, NAN, INF, "1"),
}
PRIVATE = examples(SECRET, 2)
BAD_DATA: Mapping[str, Any] = {
    "nothing": None,
    "text": registry.SECRET,
    "numbers": [SECRET, SECRET],
    "one array": torch.from_numpy(PRIVATE),
    "pairs in a list": [(PRIVATE[0], 0.0), (PRIVATE[1], 0.0)],
    "a mapping": {"rows": torch.from_numpy(PRIVATE)},
    "a stream": iter([(torch.from_numpy(PRIVATE), torch.zeros(2))]),
    "other lengths": (torch.from_numpy(PRIVATE), torch.zeros(3)),
}
BAD_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "random_state": BAD_PARAMETERS["random_state"],
    "physical_batch": (0, -1, 1.5, "1"),
    "views": (0, 1.5, None),
    "average": (0.0, 1.0, "mean", NAN),
    "autocast": (torch.float64, "bfloat16"),
    "label": ("", None, "x" * 200),
}


def bad_inputs(plan: Plan) -> tuple[tuple[str, Callable[[], Any], type[Exception]], ...]:
    """Each fact of a plan, each option of a trainer and the data made bad in turn."""
    calls: list[tuple[str, Callable[[], Any]]] = [
        (f"Plan({name} and {instead})", partial(Plan, **GOOD, **{name: 1.0}))
        for name, instead in INSTEAD_OF.items()
    ]
    for name, values in BAD_PLANS.items():
        rest = {fact: value for fact, value in GOOD.items() if fact != INSTEAD_OF.get(name)}
        calls += [(f"Plan({name}={value!r})", partial(Plan, **{**rest, name: value})) for value in values]
    if isinstance(plan.clipping, Quantile):
        calls += [
            (f"Quantile({name}={value!r})", partial(Quantile, **{name: value}))
            for name, values in BAD_QUANTILES.items()
            for value in values
        ]
        dear = replace(plan.clipping, count_noise=NOISE_MULTIPLIER / (2.1 * plan.batch_size))
        calls.append(("a count dearer than a step", lambda: replace(plan, epsilon=0.0, clipping=dear)))

    def trained(data: Any = None, **options: Any) -> Any:
        model = Coordinates()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        return Trainer(model, descent, optimizer, plan, progress=False, **options).fit(data)

    calls += [(f"fit({what})", partial(trained, data)) for what, data in BAD_DATA.items()]
    if plan.relation == "replace_one":
        dataset = torch.from_numpy(PRIVATE), torch.zeros(2)
        calls.append(("fit(another number of examples)", partial(trained, dataset)))
    calls += [
        (f"Trainer({name}={value!r:.20})", partial(trained, **{name: value}))
        for name, values in BAD_OPTIONS.items()
        for value in values
    ]
    return tuple((what, call, InvalidValue) for what, call in calls)


def quantile(batch_size: int) -> Quantile:
    """One whose count has COUNT_MULTIPLIER; it moves clip_norm fast, so that noise has to follow."""
    return Quantile(learning_rate=2.0, count_noise=COUNT_MULTIPLIER / (2 * batch_size))


KINDS: dict[str, dict[str, Any]] = {
    "training": {"population": 1, "batch_size": 1, "steps": 1},
    "training_sampled": {"population": 2, "batch_size": 1, "steps": STEPS},
    "training_replaced": {
        "population": COORDINATES, "batch_size": COORDINATES, "steps": 1, "relation": "replace_one",
    },
}  # fmt: skip
"""Under add_remove the number of examples is private, and the plan need not know it."""

EVENTS: dict[str, events.Event] = {
    "training": events.Repeat(events.Gaussian(NOISE_MULTIPLIER), 1),
    "training_sampled": events.Repeat(events.PoissonSampled(0.5, events.Gaussian(NOISE_MULTIPLIER)), STEPS),
    "training_replaced": events.Repeat(events.Gaussian(NOISE_MULTIPLIER), 1),
}
TRAINING: dict[str, Plan] = {}
"""The plans of the registry, by name."""

for kind, facts in KINDS.items():
    for rule in ("flat", "per-layer", "automatic", quantile(facts["batch_size"])):
        made = Plan(**facts, clipping=rule, noise_multiplier=NOISE_MULTIPLIER, delta=DELTA)
        called = f"{kind}_{'quantile' if isinstance(rule, Quantile) else rule.replace('-', '_')}"
        expected = Expected(made)
        other = NOTHING if made.relation == "add_remove" else examples(-FAR)
        TRAINING[called] = made
        register(
            Case(
                name=called,
                event=EVENTS[kind],
                delta=DELTA,
                make=making(made),
                broken=making(made, noise_factor=lambda step: 2 / 3),
                data=examples(FAR),
                pair=Pair(examples(FAR), other, expected.loss, runs, (40_000, 40_000)),
                noise=Noise(expected.draw, expected.cdf, 8000),
                bad_inputs=bad_inputs(made),
                relation=str(made.relation),
                covers=frozenset({"Trainer"}),
            )
        )


@dataclass(frozen=True)
class ExpectedCorrelated(Expected):
    """What a run with correlated noise should show: C times the released sums has independent noise."""

    @property
    def spread(self) -> float:
        seen = self.plan.steps // self.plan.steps_per_epoch
        norm = math.hypot(*self.plan.correlation.coefficients)
        return (1 if self.plan.relation == "add_remove" else 2) * NOISE_MULTIPLIER * math.sqrt(seen) * norm

    @property
    def matrix(self) -> np.ndarray:
        """The band matrix C."""
        steps, bands = self.plan.steps, enumerate(self.plan.correlation.coefficients)
        return sum(value * np.eye(steps, k=-place) for place, value in bands)  # type: ignore[return-value]

    def loss(self, seen: np.ndarray) -> np.ndarray:
        """The log-likelihood ratio of a run with the example, in whichever step of an epoch, and without."""
        epoch = self.plan.steps_per_epoch
        free, ratios = seen @ self.matrix.T, []
        for place in range(epoch):
            moved = self.matrix @ (np.arange(self.plan.steps) % epoch == place)
            ratios.append(((free - self.without * moved) ** 2 - (free - moved) ** 2).sum(axis=1))
        exponents = np.array(ratios) / (2 * self.spread**2)
        return np.logaddexp.reduce(exponents, axis=0) - math.log(epoch)

    def draw(self, make: Make, runs: int, seed: int | None) -> np.ndarray:
        training, still = make(seed), examples(0.0)
        few = still if self.plan.relation == "replace_one" else NOTHING
        free = [(self.matrix @ training(rows)).T.ravel()[: -(-runs // 2)] for rows in (still, few)]
        return np.concatenate(free)


def register_whole_run(name: str, made: Plan, expected: Expected) -> None:
    """A run that is one Gaussian release, however many steps it has."""
    TRAINING[name] = made
    register(
        Case(
            name=name,
            event=events.Gaussian(NOISE_MULTIPLIER),
            delta=DELTA,
            make=making(made),
            broken=making(made, noise_factor=lambda step: 2 / 3),
            data=examples(FAR),
            pair=Pair(
                examples(FAR), NOTHING if made.relation == "add_remove" else examples(-FAR), expected.loss,
                runs, (40_000, 40_000),
            ),
            noise=Noise(expected.draw, expected.cdf, 8000),
            bad_inputs=bad_inputs(made),
            relation=str(made.relation),
            covers=frozenset({"Trainer"}),
        )
    )  # fmt: skip


CORRELATED: dict[str, dict[str, Any]] = {
    "training_correlated": {"population": 3, "batch_size": 1, "steps": 6, "sampling": "cyclic"},
    "training_correlated_ordered": {
        "population": COORDINATES, "batch_size": COORDINATES // 2, "steps": 4, "sampling": "ordered",
        "relation": "replace_one",
    },
}  # fmt: skip

for called, facts in CORRELATED.items():
    made = Plan(**facts, noise="correlated", noise_multiplier=NOISE_MULTIPLIER, delta=DELTA)
    register_whole_run(called, made, ExpectedCorrelated(made))


@dataclass(frozen=True)
class ExpectedIndividual(Expected):
    """What a run shows of an example that adds gradients of full norm until its budget is spent."""

    @property
    def spread(self) -> float:
        factor = 1 if self.plan.relation == "add_remove" else 2
        return factor * NOISE_MULTIPLIER * math.sqrt(self.plan.participations or 1)

    def loss(self, seen: np.ndarray) -> np.ndarray:
        """The log-likelihood ratio of a run with the example and without it, by the steps that it stays."""
        return self.loss_to_the_end(seen[:, : self.plan.participations])

    def loss_to_the_end(self, seen: np.ndarray) -> np.ndarray:
        """The same of an example that stays to the end, for a twin in which it leaves too late."""
        return (((seen - self.without) ** 2 - (seen - 1) ** 2) / (2 * self.spread**2)).sum(axis=1)


INDIVIDUAL: dict[str, dict[str, Any]] = {
    "training_individual": {"population": 1, "batch_size": 1, "steps": 3, "participations": 2},
    "training_individual_replaced": {
        "population": COORDINATES, "batch_size": COORDINATES, "steps": 2, "participations": 1,
        "relation": "replace_one",
    },
}  # fmt: skip

for called, facts in INDIVIDUAL.items():
    made = Plan(**facts, accounting="individual", noise_multiplier=NOISE_MULTIPLIER, delta=DELTA)
    register_whole_run(called, made, ExpectedIndividual(made))
