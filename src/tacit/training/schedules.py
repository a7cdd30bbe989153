"""Schedules of the learning rate: moved by public facts and by releases, and by nothing else.

A schedule of ``torch.optim.lr_scheduler`` counts its own moves. It is moved once a step or once an epoch of
the plan, whatever the batches hold, so the learning rate is a function of public facts, and the steps remain
post-processing of the noisy gradients. ``ReduceLROnPlateau`` looks at a metric besides. If the metric is a
release or a public number, the learning rate is a function of releases. A loss without noise is neither: the
rate would tell what the private examples hold, and nobody would have paid for it. So the metric has to say
where it comes from: an :class:`~tacit.evaluation.Evaluation`, or a :class:`PublicMetric`.

A private evaluation may be of people who are in the training data too. Its cost is composed with that of the
run in the run's guarantee, and a run that is charged to a ledger takes only evaluations that the ledger was
charged for (:meth:`tacit.training.account.Account.count_metric`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.evaluation import Evaluation
from tacit.guarantee import Guarantee

if TYPE_CHECKING:
    from tacit.training.account import Account
    from tacit.training.plan import Plan

EVERY = ("step", "epoch")

_RELEASED = (
    "Return tacit.evaluate(..., epsilon=, ledger=) for private examples, or "
    "tacit.training.PublicMetric(value) for a number from examples that anyone may see. A loss on private "
    "examples, such as private_diagnostics, has no noise, and the learning rate would tell of it."
)


@dataclass(frozen=True)
class PublicMetric:
    """A number that was computed from public examples alone, declared so by whoever computed it.

    The guarantee of the run then states the declaration as an assumption.

    >>> PublicMetric(0.25).value
    0.25
    """

    value: float

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise InvalidValue("value", type(self.value), "a number, from public examples")


Released = Evaluation | PublicMetric | tuple[Evaluation, str]
Metric = Callable[[nn.Module], Released]
"""Is given the model, and returns a released figure of it: an evaluation, whose first figure is taken, an
evaluation with the name of a figure, or a public number."""


class Schedule:
    """A scheduler, when it is moved, and by which metric, if it takes one."""

    def __init__(
        self, scheduler: Any, optimizer: torch.optim.Optimizer, plan: Plan, every: str, metric: Metric | None
    ) -> None:
        self.scheduler, self.plan, self.metric = scheduler, plan, metric
        self.every = _validate.choice("schedule_every", every, EVERY)
        if not callable(getattr(scheduler, "step", None)) or not hasattr(scheduler, "state_dict"):
            raise InvalidValue("schedule", type(scheduler), "a scheduler of torch.optim.lr_scheduler")
        if getattr(scheduler, "optimizer", optimizer) is not optimizer:
            raise InvalidValue(
                "schedule", f"{type(scheduler).__name__} of another optimiser",
                "made for the trainer's optimiser",
            )  # fmt: skip
        self._check_metric()
        moves = plan.steps // self._stride
        if moves > getattr(scheduler, "total_steps", moves):
            raise InvalidValue(
                "schedule.total_steps", scheduler.total_steps, f"at least {moves}, as often as it is moved",
                f"Make it with total_steps={moves}, or move it less often.",
            )  # fmt: skip
        self._known = self._moves

    def _check_metric(self) -> None:
        plateau = isinstance(self.scheduler, ReduceLROnPlateau)
        if plateau and self.metric is None:
            raise InvalidValue(
                "metric", None, "given with ReduceLROnPlateau: a function of the model",
                "It returns a released figure, never a loss on private examples. " + _RELEASED,
            )  # fmt: skip
        if self.metric is not None and not (plateau and callable(self.metric)):
            raise InvalidValue(
                "metric", type(self.metric), "a function of the model, and only with ReduceLROnPlateau"
            )

    @property
    def kind(self) -> str:
        """What it is, as a checkpoint notes it."""
        return f"{type(self.scheduler).__name__} by {self.every}"

    @property
    def _stride(self) -> int:
        return 1 if self.every == "step" else self.plan.steps_per_epoch

    @property
    def _moves(self) -> int | None:
        return getattr(self.scheduler, "last_epoch", None)

    def follow(self, taken: int, model: nn.Module, account: Account) -> None:
        """Move the schedule, if it is due after so many steps."""
        if self._moves != self._known:
            raise InvalidValue(
                "schedule", "moved by other code", "moved by the trainer alone",
                "Leave schedule.step() out: schedule_every= and metric= say when and by what it is moved.",
            )  # fmt: skip
        if taken % self._stride:
            return
        if self.metric is None:
            self.scheduler.step()
        else:
            metric = self.metric
            value, guarantee, label = account.group.together(lambda: _released(metric(model)))
            account.count_metric(guarantee, label)
            self.scheduler.step(value)
        self._known = self._moves

    def state_dict(self) -> dict[str, Any]:
        """The scheduler's state, for a checkpoint."""
        state: dict[str, Any] = self.scheduler.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the state that :meth:`state_dict` gave."""
        self.scheduler.load_state_dict(state)
        self._known = self._moves


def _released(found: Any) -> tuple[float, Guarantee | None, str]:
    """The number that was released, what was promised for it, and its label; refuses what is no release."""
    if isinstance(found, PublicMetric):
        return float(found.value), None, ""
    evaluation, name = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    if not isinstance(evaluation, Evaluation):
        raise InvalidValue("metric", f"a {type(found).__name__}", "a released figure", _RELEASED)
    names = tuple(evaluation.figures)
    value = evaluation.figures[names[0] if name is None else _validate.choice("metric", name, names)]
    return math.nan if value is None else float(value), evaluation.guarantee, evaluation.label
