"""Settings of a run of a named architecture, and the plan and the trainer that they make."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from tacit import _validate
from tacit.errors import InvalidValue, ModelUnreadable
from tacit.training import saving
from tacit.training.clipping import CLIPPINGS, Quantile
from tacit.training.networks.architectures import Recipe, recipe_of
from tacit.training.networks.network import Network
from tacit.training.plan import Plan
from tacit.training.trainer import Trainer

if TYPE_CHECKING:
    from tacit.ledger import Ledger
    from tacit.relations import Relation, Unit

OPTIMIZERS = ("sgd", "adam", "adamw")
FADINGS = ("none", "to zero")
"""What the learning rate does over a run: it stays, or it falls in equal steps to 0."""
_ADAPTIVE_LR = 0.001
_RECIPE_POPULATION = 60_000
_LONG = 100
_ADDED_LATER = {"fading": "none"}
"""Options that older checkpoints do not have, as they were then."""


@dataclass(frozen=True, kw_only=True)
class RunPlan(Plan):
    """A plan that also keeps the options of ``tacit train``, so that a checkpoint alone suffices to go on."""

    started: Mapping[str, Any] = field(hash=False)
    """Options by name, of types that JSON has; public like the rest of the plan."""

    def __post_init__(self) -> None:
        self._set("started", _plain(self.started))
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a network is trained; public, and nothing here is read from data."""

    batch_size: int
    epochs: float
    lr: float
    momentum: float
    optimizer: str
    clip_norm: float
    clipping: str
    average: float | str | None
    fading: str
    sampling: str
    noise: str
    bands: int | None

    @classmethod
    def of(
        cls, architecture: str, population: int, on_features: bool = False, **chosen: Any
    ) -> Settings:  # fmt: skip
        """The recipe of the architecture, with each setting in ``chosen`` that is not None in its place.

        A run of more steps than the recipe has gets a learning rate that is smaller in proportion.
        """
        recipe = recipe_of(architecture, on_features)
        made: dict[str, Any] = {each.name: getattr(recipe, each.name, None) for each in fields(cls)}
        cyclic = chosen.get("noise") == "correlated"
        made |= {"clipping": "flat", "sampling": "cyclic" if cyclic else "poisson", "noise": "independent"}
        made["batch_size"] = min(recipe.batch_size, population)
        made |= {name: value for name, value in chosen.items() if value is not None}
        _validate.choice("optimizer", made["optimizer"], OPTIMIZERS)
        _validate.choice("fading", made["fading"], FADINGS)
        _validate.choice("clipping", made["clipping"], (*CLIPPINGS, "quantile"))
        if made["optimizer"] != "sgd":
            if chosen.get("momentum"):
                raise InvalidValue("momentum", chosen["momentum"], f"left out for {made['optimizer']}")
            made["momentum"] = 0.0
            made["lr"] = made["lr"] if chosen.get("lr") is not None else _ADAPTIVE_LR
        elif chosen.get("lr") is None:
            made["lr"] *= _share(recipe, population, made["batch_size"], made["epochs"])
        _validate.positive("lr", made["lr"])
        if not 0 <= _validate.finite("momentum", made["momentum"]) < 1:
            raise InvalidValue("momentum", made["momentum"], "in [0, 1)")
        made["average"] = average_of(made["average"])
        return cls(**made)

    @property
    def options(self) -> dict[str, Any]:
        """Options from which :meth:`of` makes these settings again, whatever the recipe says."""
        return asdict(self) | {"average": self.average or "none"}

    def plan(
        self, *, population: int, epsilon: float, delta: float, relation: Relation, unit: Unit,
        started: Mapping[str, Any],
    ) -> RunPlan:  # fmt: skip
        """The plan of the run, with noise for this ε; clipping to a quantile adds at most 6 % to the noise.

        ``started`` holds the other options that the run is started with.
        """
        plain = self.clipping != "quantile"
        made = RunPlan(
            population=population, batch_size=self.batch_size, epochs=self.epochs,
            clip_norm=self.clip_norm, epsilon=epsilon, delta=delta, sampling=self.sampling,
            noise=self.noise, bands=self.bands,
            clipping=self.clipping if plain else "flat", relation=relation, unit=unit,
            started={**started, **self.options},
        )  # fmt: skip
        if plain:
            return made
        count_noise = max(Quantile().count_noise, 1.5 * made.noise_multiplier / self.batch_size)
        return replace(
            made, clipping=Quantile(count_noise=count_noise), steps=0, noise_multiplier=0.0, epsilon=epsilon
        )

    def described(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """What the run does, in words."""
        batch = {
            "poisson": f"each example with probability {plan.sampling_rate:.4g}, {plan.batch_size} expected",
            "shuffle": f"one random part of the epoch's examples, about {plan.batch_size}",
            "fixed": f"{plan.batch_size} drawn at random",
            "cyclic": f"one part of the examples, about {plan.batch_size}, the same in every epoch",
            "ordered": f"about {plan.batch_size} examples, in their order",
        }[plan.sampling]
        clip = {
            "flat": "gradients longer than {0:g} shortened to it",
            "per-layer": "gradients shortened to {0:g} in all, with an equal share for each parameter",
            "automatic": "every gradient made about {0:g} long",
            "quantile": "gradients longer than a noisy median, {0:g} at first, shortened to it",
        }[self.clipping]
        momentum = f", momentum {self.momentum:g}" if self.optimizer == "sgd" else ""
        falling = ", falling to 0" if self.fading == "to zero" else ""
        average: dict[Any, str] = {None: "none", "tail": "of the second half of the steps"}
        return (
            ("population", f"{plan.population}, as declared"),
            ("steps", f"{plan.steps} ({self.epochs:g} epochs)"),
            ("a step sees", batch),
            ("clipping", clip.format(plan.clip_norm)),
            ("noise multiplier", f"{plan.noise_multiplier:.4g}"),
            ("noise on the sum", _noise_on_the_sum(plan)),
            ("optimiser", f"{self.optimizer}, lr {self.lr:g}{falling}{momentum}"),
            ("average", average.get(self.average, f"with decay {self.average}")),
        )

    def trainer(self, network: Network, plan: Plan, ledger: Ledger | None, **options: Any) -> Trainer:
        """The trainer of the trainable part of a network; ``options`` are handed to :class:`Trainer`."""
        _, model = network.split()
        makers: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
        optimizer = (
            torch.optim.SGD(model.parameters(), lr=self.lr, momentum=self.momentum)
            if self.optimizer == "sgd"
            else makers[self.optimizer](model.parameters(), lr=self.lr)
        )
        falling = None
        if self.fading == "to zero":
            falling = LambdaLR(optimizer, lambda step: max(0.0, 1 - step / plan.steps))
        return Trainer(
            model, network.loss, optimizer, plan, ledger, average=self.average, schedule=falling, **options
        )


def _share(recipe: Recipe, population: int, batch_size: Any, epochs: Any) -> float:
    steps = _validate.positive("epochs", epochs) * population / _validate.count("batch_size", batch_size, 1)
    share = min(1.0, recipe.epochs * _RECIPE_POPULATION / recipe.batch_size / steps)
    return float(f"{share:.2g}")


def seeded_start(network: Network, seed: int) -> None:
    """Draw the first weights anew from a seed, for tests."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in network.model.modules():
            reset: Any = getattr(layer, "reset_parameters", None)
            if reset is not None:
                reset()


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def resumed(path: saving.PATH, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the run in a checkpoint was started with; options given now must not differ."""
    _, kept = saving.read(path)
    try:
        started: dict[str, Any] = {
            **_ADDED_LATER, **json.loads(kept["checkpoint"])["plan"]["started"]
        }
    except KeyError:
        raise ModelUnreadable(
            f"{str(path)!r} is not the checkpoint of a run of tacit train.", "Name another file.", path=path
        ) from None
    for name, value in given.items():
        if value is not None and _plain(value) != started.get(name):
            raise InvalidValue(
                f"{name}=", _short(value),
                f"{_shown(started.get(name))}, with which the run in {path} was started",
                "Leave it out to go on with that run; for another value start another, with a checkpoint= "
                "of its own.",
            )  # fmt: skip
    return started


def _shown(value: Any) -> str:
    if value is None or value is False:
        return "left out"
    shown = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return shown if len(shown) <= _LONG else "as it was"


def _short(value: Any) -> Any:
    """The value, unless it is as long as a schema."""
    return value if len(str(value)) <= _LONG else "another"


def average_of(given: float | str | None) -> float | str | None:
    """A decay, "tail" or None, given as such or as the text of an option."""
    if given in (None, "tail"):
        return given
    if given == "none":
        return None
    try:
        return _validate.open_probability("average", float(given or 0))
    except ValueError:
        raise InvalidValue("average", given, "a decay in (0, 1), 'tail' or 'none'") from None


def _noise_on_the_sum(plan: Plan) -> str:
    fresh = f"standard deviation {plan.step_noise * plan.sensitivity:.4g}"
    if plan.noise == "independent":
        return fresh
    return f"{fresh}, less what {plan.bands} steps take back of each other's"
