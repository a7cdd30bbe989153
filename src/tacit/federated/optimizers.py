"""Server optimisers: how a released update moves the model. All of them are post-processing.

===================  ================================================================  ====================
optimiser            step from the released update u                                   paper
===================  ================================================================  ====================
:class:`Averaging`   w + η·u; η = 1 is federated averaging                             McMahan et al. 2017
:class:`Momentum`    m ← β·m + u, w + η·m                                              Hsu et al. 2019
:class:`Adam`        as Adam, with −u for the gradient                                 Reddi et al. 2021
===================  ================================================================  ====================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidValue

__all__ = ["Adam", "Averaging", "Momentum", "ServerOptimizer"]

Arrays = list[NDArray[np.float64]]
Given = Sequence[NDArray[np.float64]]


class ServerOptimizer(Protocol):
    """Moves parameters by a released update; ``state`` are the arrays that it keeps between rounds."""

    state: dict[str, NDArray[Any]]

    def move(self, parameters: Given, update: Given) -> Arrays:
        """New parameters; the given ones stay as they are."""


@dataclass
class Averaging:
    """w + learning_rate × update.

    >>> Averaging().move([np.zeros(2)], [np.ones(2)])
    [array([1., 1.])]
    """

    learning_rate: float = 1.0
    state: dict[str, NDArray[Any]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        _validate.positive("learning_rate", self.learning_rate)

    def move(self, parameters: Given, update: Given) -> Arrays:
        """New parameters."""
        return [old + self.learning_rate * new for old, new in zip(parameters, update, strict=True)]


@dataclass
class Momentum:
    """m ← beta × m + update, then w + learning_rate × m.

    >>> momentum = Momentum(beta=0.5)
    >>> once = momentum.move([np.zeros(1)], [np.ones(1)])
    >>> momentum.move(once, [np.ones(1)])
    [array([2.5])]
    """

    learning_rate: float = 1.0
    beta: float = 0.9
    state: dict[str, NDArray[Any]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        _validate.positive("learning_rate", self.learning_rate)
        _checked_decay("beta", self.beta)

    def move(self, parameters: Given, update: Given) -> Arrays:
        """New parameters."""
        moved = []
        for place, (old, new) in enumerate(zip(parameters, update, strict=True)):
            name = f"momentum {place}"
            self.state[name] = self.beta * self.state.get(name, np.zeros_like(new)) + new
            moved.append(old + self.learning_rate * self.state[name])
        return moved


@dataclass
class Adam:
    """Adam on the server, with the update as the descent direction (Reddi et al. 2021, FedAdam).

    >>> Adam(learning_rate=0.1).move([np.zeros(2)], [np.array([3.0, -5.0])])[0].round(4)
    array([ 0.1, -0.1])
    """

    learning_rate: float = 0.01
    betas: tuple[float, float] = (0.9, 0.99)
    stability: float = 1e-8
    state: dict[str, NDArray[Any]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        _validate.positive("learning_rate", self.learning_rate)
        _validate.positive("stability", self.stability)
        for each in self.betas:
            _checked_decay("betas", each)

    def move(self, parameters: Given, update: Given) -> Arrays:
        """New parameters."""
        steps = int(self.state.get("steps", np.zeros(()))) + 1
        self.state["steps"] = np.array(steps)
        first, second = self.betas
        moved = []
        for place, (old, new) in enumerate(zip(parameters, update, strict=True)):
            mean, square = f"mean {place}", f"square {place}"
            nothing = np.zeros_like(new)
            self.state[mean] = first * self.state.get(mean, nothing) + (1 - first) * new
            self.state[square] = second * self.state.get(square, nothing) + (1 - second) * new**2
            scale = np.sqrt(self.state[square] / (1 - second**steps)) + self.stability
            moved.append(old + self.learning_rate * self.state[mean] / (1 - first**steps) / scale)
        return moved


def _checked_decay(name: str, value: float) -> None:
    if not 0 <= _validate.finite(name, value) < 1:
        raise InvalidValue(name, value, "in [0, 1)")
