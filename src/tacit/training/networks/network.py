"""Trained networks of named architectures: they predict, describe themselves, and are kept in one file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from torch import Tensor, nn

from tacit.data.preprocessor import Preprocessor
from tacit.data.texts import TextColumn
from tacit.errors import InvalidValue, ModelUnreadable, TacitError
from tacit.events import Event
from tacit.guarantee import Guarantee
from tacit.models.claims import checked_evaluations
from tacit.models.container import Reading
from tacit.models.description import Description
from tacit.models.registry import SAFETENSORS, maker_of, register_reader, register_writer
from tacit.training import past, saving
from tacit.training.features.registry import Chosen
from tacit.training.networks import tabular
from tacit.training.networks.architectures import architecture, fixed_part, made, recipe_of
from tacit.training.networks.autoencoder import combined, cross_entropy, learning
from tacit.training.networks.later import tensor_of

Array = NDArray[Any]

TITLES = {
    "linear": "linear classifier",
    "mlp": "network with a hidden layer",
    "autoencoder": "auto-encoder with a softmax head",
    "cnn": "convolutional network",
    "scattering": "linear classifier on scattering features",
    "patches": "linear classifier on patch features",
    "resnet": "residual network",
}
_CHUNK = 192
"""Examples that are scored together, always so many; tiles of matrix products divide 2⁶·3."""
_ROUNDED_BY_PLACE = ("scattering", "patches")
"""Architectures whose Fourier transforms or convolutions round an example by its place among the others."""


@dataclass(frozen=True)
class Preparation:
    """What is done to the numbers of an example: bytes ÷ 255, then (x − mean) ÷ std by channel.

    ``mean`` and ``std`` are public: one for all, or one for each channel, or none.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __call__(self, inputs: Tensor) -> Tensor:
        """The inputs as the network takes them, float32."""
        values = inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs.float()
        if (self.mean, self.std) == ((0.0,), (1.0,)):
            return values
        shape = (1, -1, *[1] * (values.dim() - 2))
        mean, std = (torch.tensor(each).reshape(shape) for each in (self.mean, self.std))
        return (values - mean) / std

    def check(self, shape: Sequence[int]) -> None:
        """Refuse numbers of channels that are not those of the examples."""
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, shape[0]):
                raise InvalidValue(name, values, f"one number, or one for each of {shape[0]} channels")
        if min(self.std) <= 0:
            raise InvalidValue("std", self.std, "above 0")


@dataclass
class Network:
    """A trained network of a named architecture, with its guarantee and what is public about its run."""

    architecture: str
    shape: tuple[int, ...]
    classes_: tuple[Any, ...]
    prepare: Preparation
    model: nn.Sequential
    run: tuple[tuple[str, str], ...] = ()
    """What the run did, in words, for people to read."""
    maker: Preprocessor | None = None
    """What makes examples of the rows of a table, and knows the target; None for images and arrays."""
    features: Chosen | None = None
    """The fixed features that the network stands on, made of each raw example; None if it takes it itself."""
    guarantee_: Guarantee | None = None
    evaluations_: tuple[Any, ...] = ()

    @classmethod
    def new(cls, name: str, shape: Sequence[int], classes: Sequence[Any], prepare: Preparation) -> Network:
        """A network not trained yet."""
        prepare.check(shape)
        return cls(name, tuple(shape), tuple(classes), prepare, architecture(name, shape, len(classes)))

    @classmethod
    def of_table(cls, name: str, maker: Preprocessor, features: Chosen | None = None) -> Network:
        """A network of the features and the declared target of a preprocessor, not trained yet.

        With a column of texts it stands on ``features`` of the texts.
        """
        classes, _ = tabular.declared_target(maker)
        sides = (len(maker.features.names),) if features is None else (features.width,)
        model = made(recipe_of(name, features is not None), name, sides, len(classes) or 1)
        shape = sides if features is None else ()
        return cls(name, shape, classes, Preparation(), model, maker=maker, features=features)

    @classmethod
    def on_features(cls, name: str, features: Chosen, classes: Sequence[Any]) -> Network:
        """A network on fixed features of images, not trained yet; ``name`` is that of its trained part."""
        model = made(recipe_of(name, True), name, (features.width,), len(classes))
        return cls(name, features.shape, tuple(classes), Preparation(), model, features=features)

    @property
    def steps(self) -> list[tuple[str, Any]]:
        """The preprocessor of a table, if there is one, and the network, as the steps of a pipeline."""
        return [*([] if self.maker is None else [("preprocessor", self.maker)]), ("model", self)]

    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:
        """What it learns to make small, by example."""
        learnt = cross_entropy if self.classes_ else tabular.squared_error
        return combined(learnt) if self.architecture == "autoencoder" else learnt

    @property
    def event_(self) -> Event:
        """The event of the private runs that the weights come from."""
        return _trained(self.guarantee_).event

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        on = "" if self.features is None else f" on {self.features.name} features"
        if self.maker is None:
            return f"{TITLES[self.architecture]}{on} of {len(self.classes_)} classes"
        titles = TITLES if self.classes_ else tabular.TITLES
        return f"{titles[self.architecture]}{on} of {self.maker.target}"

    def describe(self) -> Description:
        """What may be said of it: architecture, run, classes, names and shapes of what was trained."""
        shapes = tuple((name, tuple(each.shape)) for name, each in self.model.named_parameters())
        return Description(self.title, self.made_of, tuple(self.classes_), tensors=shapes, run=self.run)

    @property
    def made_of(self) -> tuple[tuple[str, str], ...]:
        """Public facts about the network, in words."""
        pixels = "bytes ÷ 255, other numbers as they are"
        if self.prepare != Preparation():
            mean, std = (", ".join(f"{x:g}" for x in each) for each in (self.prepare.mean, self.prepare.std))
            pixels += f"; less {mean}, divided by {std}"
        names = ", ".join(map(str, self.classes_))
        example = " × ".join(map(str, self.shape))
        says = ("classes", f"{len(self.classes_)}: {names}" if len(names) < 60 else str(len(self.classes_)))
        if self.features is not None:
            pixels = self.features.described()
        if self.maker is not None:
            if self.features is not None:
                example = f"the text of {', '.join(self.maker.columns)}"
            else:
                example += f" features of {len(self.maker.columns)} columns"
                pixels = "scaled to [−1, 1] by their declared bounds; a category is 0 or 1"
            if not self.classes_:
                low, high = self.maker.target_bounds or (0.0, 1.0)
                says = ("predicts", f"{self.maker.target}, a number from {low:g} to {high:g}")
        return (
            ("architecture", self.architecture),
            ("one example", example),
            ("numbers" if self.features is None else "features", pixels),
            says,
            ("parameters", f"{sum(each.numel() for each in self.model.parameters()):,}"),
        )

    def split(self) -> tuple[nn.Sequential | None, nn.Module]:
        """The part to be computed once, if any, and the part to be trained, which share their layers."""
        fixed = fixed_part(self.model)
        return fixed, learning(self.model) if fixed is None else self.model[len(fixed) :]

    def predict(self, inputs: Any) -> Array:
        """The most probable class of each example, or its number; raises where the inputs are not finite.

        The inputs of a network of a table are rows of that table, as its preprocessor takes them; those of a
        network on features are raw images, or texts.
        """
        if not self.classes_ and self.maker is not None:
            bounds = self.maker.target_bounds or (0.0, 1.0)
            return tabular.unscaled(self._outputs(inputs)[:, 0], bounds)
        chances = self.predict_proba(inputs)
        if not np.isfinite(chances).all():
            advice = "predict_proba gives NaN for the examples concerned."
            raise InvalidValue("inputs", "other numbers", "finite", advice)
        best: Array = np.asarray(self.classes_)[chances.argmax(axis=1)]
        return best

    @available_if(lambda self: bool(self.classes_))  # type: ignore[untyped-decorator]
    def predict_proba(self, inputs: Any) -> NDArray[np.float64]:
        """The probability of each class for each example; NaN where the numbers of one are not finite.

        The answer for an example does not depend on the others, to the last bit.
        """
        return self._outputs(inputs, lambda scores: scores.softmax(1))

    def _outputs(
        self, inputs: Any, of: Callable[[Tensor], Tensor] = lambda scores: scores
    ) -> NDArray[np.float64]:
        """A function of the network's outputs for each example; NaN where its numbers are not finite.

        The answer for an example does not depend on the others, to the last bit. A product of matrices may
        round an example by how many there are, so the network is called with blocks of one size, filled up
        with zeros; fixed features round it by its place too, so there a block is one example.
        """
        parts = []
        if self.maker is not None:
            inputs = self.maker.transform(inputs)
        if self.features is not None:
            inputs = self.features.adapter.rows(inputs)
        if self.maker is not None:
            inputs = np.asarray(inputs, dtype=np.float32)
        size = 1 if self.architecture in _ROUNDED_BY_PLACE else _CHUNK
        with torch.no_grad():
            for start in range(0, len(inputs), size):
                ready = self.prepare(tensor_of(inputs[start : start + size]))
                filled = ready.new_zeros(size, *ready.shape[1:])
                filled[: len(ready)] = ready
                scores = of(self.model(filled)[: len(ready)].double())
                scores[~ready.flatten(1).isfinite().all(1)] = torch.nan
                parts.append(scores.numpy())
        return np.concatenate(parts) if parts else np.zeros((0, len(self.classes_) or 1))


@dataclass(frozen=True)
class Weights:
    """Weights with a guarantee whose architecture is somebody's own code, so that no file can name it.

    :func:`tacit.training.load_weights` puts them into a module.
    """

    tensors: Mapping[str, Tensor]
    facts: Mapping[str, str]
    guarantee_: Guarantee
    evaluations_: tuple[Any, ...] = ()

    @property
    def event_(self) -> Event:
        """The event of the private runs that the weights come from."""
        return self.guarantee_.event

    def describe(self) -> Description:
        """What may be said of them: how many numbers, and the names and shapes of the tensors."""
        count = sum(each.numel() for each in self.tensors.values())
        facts = (("architecture", "not named in the file"), ("parameters and buffers", f"{count:,}"))
        shapes = tuple((name, tuple(each.shape)) for name, each in self.tensors.items())
        return Description("network", facts, tensors=shapes)

    def predict(self, inputs: Array) -> Array:
        """Raises: weights alone do not say how a prediction is computed."""
        raise TacitError(
            "These weights do not name their architecture.",
            "Put them into a module of that architecture: tacit.training.load_weights(path, module).",
        )


def _trained(guarantee: Guarantee | None) -> Guarantee:
    if guarantee is None:
        raise InvalidValue("network", "not trained", "trained first")
    return guarantee


def _save_network(
    network: Network, path: saving.PATH, *, overwrite: bool, evaluations: Sequence[Mapping[str, Any]]
) -> None:
    """Write weights, guarantee and public facts into one safetensors file."""
    facts = saving.kept_facts(network.model, _trained(network.guarantee_))
    known = {
        "architecture": network.architecture, "shape": network.shape, "classes": network.classes_,
        "mean": network.prepare.mean, "std": network.prepare.std, "run": network.run,
        "evaluations": list(evaluations),
    } | ({} if network.maker is None else {"preprocessor": network.maker.to_dict()})  # fmt: skip
    if network.features is not None:
        known["features"] = network.features.to_dict()
    facts["network"] = json.dumps(known, ensure_ascii=False)
    saving.write(path, network.model.state_dict(), facts, overwrite=overwrite)


def _save_weights(
    weights: Weights, path: saving.PATH, *, overwrite: bool, evaluations: Sequence[Mapping[str, Any]]
) -> None:
    facts = {name: text for name, text in weights.facts.items() if name != "evaluations"}
    if evaluations:
        facts["evaluations"] = json.dumps(evaluations, ensure_ascii=False)
    saving.write(path, weights.tensors, facts, overwrite=overwrite)


def _load(path: saving.PATH) -> Network | Weights:
    """The network in a file; its weights alone where the file does not name the architecture."""
    tensors, facts, guarantee = saving.read_model(path)
    if "network" not in facts:
        with Reading(path):
            stored = checked_evaluations(json.loads(facts.get("evaluations", "[]")))
        make = maker_of(facts) or Weights
        found: Weights = make(tensors, facts, guarantee, stored)
        return found
    try:
        known = json.loads(facts["network"])
        features, shape = None, tuple(known["shape"])
        if "features" in known:
            features = Chosen.from_dict(known["features"], shape)
        if "preprocessor" in known and features is not None:
            texts = TextColumn.from_dict(known["preprocessor"])
            network = Network.of_table(known["architecture"], texts, features)
        elif features is not None:
            network = Network.on_features(known["architecture"], features, known["classes"])
        elif "preprocessor" in known:
            network = Network.of_table(known["architecture"], Preprocessor.from_dict(known["preprocessor"]))
        else:
            prepare = Preparation(tuple(known["mean"]), tuple(known["std"]))
            network = Network.new(known["architecture"], known["shape"], known["classes"], prepare)
        network.run = tuple((name, value) for name, value in known["run"])
        with Reading(path):
            network.evaluations_ = checked_evaluations(known["evaluations"])
    except (KeyError, TypeError, ValueError):
        raise ModelUnreadable(
            f"{os.fspath(path)!r} is of an architecture that this version of tacit does not know.",
            "Update tacit.", path=path,
        ) from None  # fmt: skip
    saving.put(network.model, tensors)
    past.mark(network.model, saving.runs_of(tensors, facts, guarantee))
    network.guarantee_ = guarantee
    return network


def _describe(path: saving.PATH) -> dict[str, Any]:
    """What a file says; tensors appear as their type and shape."""
    tensors, facts, guarantee = saving.read_model(path)
    with Reading(path):
        known = json.loads(facts.get("network", "{}"))
        stored = known.pop("evaluations", None) or json.loads(facts.get("evaluations", "[]"))
        return {
            "format": SAFETENSORS,
            "network": known or json.loads(facts.get("tuned", "{}")),
            "tensors": {name: f"{each.dtype} {tuple(each.shape)}" for name, each in tensors.items()},
            "guarantee": json.loads(facts["guarantee"]),
            "statement": guarantee.statement(),
            "evaluations": list(checked_evaluations(stored)),
        }




register_reader(SAFETENSORS, _load, _describe)
register_writer(Network, _save_network)
register_writer(Weights, _save_weights)
