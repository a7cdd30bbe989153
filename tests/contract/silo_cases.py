"""A silo in the registry: one round of a federation in which every silo trains on its own rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from contract import training_cases
from contract.registry import Case, Make, Noise, Pair, register
from contract.training_cases import COORDINATES, DELTA, FAR, NOTHING, Coordinates, Expected, descent, examples
from tacit import events
from tacit.errors import InvalidValue
from tacit.federated import FederatedPlan, Silo
from tacit.randomness import Source
from tacit.training import Plan
from tacit.training.step import PrivateStep

PLAN = training_cases.TRAINING["training_flat"]
FEDERATION = FederatedPlan(clients=3, cohort=3, rounds=2, epsilon=1.0, delta=1e-5, trust="silo")


@dataclass(frozen=True)
class Training:
    """A silo as a mechanism: from its rows to the update that it sends, along each row's coordinate."""

    plan: Plan
    source: Source
    noise_factor: float = 1.0

    @property
    def event(self) -> events.Event:
        return self.plan.event

    @property
    def noise(self) -> str:
        return "seeded" if self.source.seeded else "float64"

    def silo(self, rows: Any, **options: Any) -> Silo:
        model = Coordinates()
        optimizer = torch.optim.SGD(model.parameters(), lr=float(self.plan.batch_size))
        seed = self.source.bits(63) if self.source.seeded else None
        return Silo(
            model, descent, optimizer, self.plan, rows, local_steps=1, random_state=seed, **options
        )

    def __call__(self, rows: np.ndarray, silo: Silo | None = None) -> np.ndarray:
        dataset = torch.from_numpy(rows), torch.zeros(len(rows))
        factor = self.noise_factor

        def share(step: PrivateStep) -> float:
            return factor

        with training_cases.noise_times(share):
            silo = silo or self.silo(dataset)
            moved = silo.update([np.zeros((COORDINATES, 1))] * 2)
        return -sum(moved).T / np.sqrt(2) / self.plan.clip_norm


class Later(torch.utils.data.Dataset):
    """Rows that are read when they are asked for, and not before."""

    def __init__(self, read: Any) -> None:
        self._read, self._rows = read, None

    def _found(self) -> np.ndarray:
        if self._rows is None:
            self._rows = self._read()
        return self._rows

    def __len__(self) -> int:
        return len(self._found())

    def __getitem__(self, place: int) -> Any:
        return torch.from_numpy(self._found()[place]), torch.zeros(())


def making(noise_factor: float = 1.0) -> Make:
    def make(random_state: Any) -> Training:
        source = random_state if isinstance(random_state, Source) else Source(random_state)
        return Training(PLAN, source, noise_factor)

    return make


def released(ledger: Any, made: Training, data_access: Any) -> Any:
    """A silo charges its ledger itself, before it reads its first row."""
    return made(NOTHING, made.silo(Later(data_access), ledger=ledger))


expected = Expected(PLAN)
model = Coordinates()
BAD = tuple(
    (what, call, InvalidValue)
    for what, call in {
        "no plan": partial(Silo, model, descent, None, None, NOTHING, local_steps=1),
        "no local steps": partial(FEDERATION.silo, population=10, batch_size=2, local_steps=0),
        "a silo's plan from a server's": partial(
            FederatedPlan(clients=3, cohort=3, rounds=2, epsilon=1.0, delta=1e-5, trust="server").silo,
            population=10, batch_size=2, local_steps=1,
        ),
        "parameters of other shapes": lambda: making()(1).silo(NOTHING).update([np.zeros(3)]),
        "parameters that are not finite": lambda: making()(1).silo(NOTHING).update(
            [np.full((COORDINATES, 1), np.nan)] * 2
        ),
    }.items()
)  # fmt: skip
register(
    Case(
        name="federated_silo",
        event=PLAN.event,
        delta=DELTA,
        make=making(),
        broken=making(2 / 3),
        data=examples(FAR, 20),
        pair=Pair(examples(FAR), NOTHING, expected.loss, training_cases.runs, (40_000, 40_000)),
        noise=Noise(expected.draw, expected.cdf, 8000),
        bad_inputs=BAD,
        release=released,
        covers=frozenset({"Silo"}),
    )
)
