"""Trainer: DP-SGD for any PyTorch network, charged to a ledger.

What users call is here; :mod:`tacit.training.run` has the order in which things happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.guarantee import Guarantee
from tacit.models.registry import register_writer
from tacit.randomness import Source
from tacit.training.account import Account
from tacit.training.averaging import Average
from tacit.training.batches.dataset import Pair
from tacit.training.batches.units import weighted
from tacit.training.batches.views import Augment
from tacit.training.checkpoint import Checkpoint
from tacit.training.gradients.losses import per_example
from tacit.training.individual import PrivateCosts
from tacit.training.isolation.checking import check_model, check_sound
from tacit.training.isolation.confinement import THREADS
from tacit.training.parallel.distributed import process_group_of
from tacit.training.parallel.turns import Turn
from tacit.training.plan import Plan
from tacit.training.progress import Bar, Interrupts, Progress
from tacit.training.run import TrainingRun
from tacit.training.saving import PATH, kept_facts, under_plain_names, write
from tacit.training.schedules import Metric, Schedule
from tacit.training.state import RunState
from tacit.training.step import PrivateDiagnostics, PrivateStep

if TYPE_CHECKING:
    from tacit.ledger import Ledger

Callback = Callable[[Progress], None]
EXAMPLES = ("together", "alone")


class Trainer:
    """Trains a model with DP-SGD as a :class:`Plan` says, and charges the ledger for it.

    ``loss`` is a loss of ``torch.nn`` or a function that returns one number for each example;
    ``optimizer`` any of ``torch.optim`` over the model's parameters. Model and optimiser are used as
    they are, and changed in place.

    Guarantee: :attr:`guarantee`, for one :attr:`Plan.unit` under the plan's relation. The run is a
    composition of sampled Gaussian releases (:class:`tacit.training.step.PrivateStep`); optimiser state,
    schedules, averages, checkpoints and saved files are post-processing of them. What is neither, and must
    stay with the curator, is :class:`PrivateDiagnostics` and the length of the data set.
    The ledger is charged before the first example is read. Abadi et al. 2016.

    Who keeps examples apart: the trainer does, in every pass, for model and loss, their hooks and functions
    with a backward of their own. A pass in which one example changes what another adds to the sum, or that
    writes examples into a parameter, a buffer or another tensor, is refused. The run then has no
    guarantee: :attr:`guarantee` and :meth:`save` raise :class:`tacit.errors.GuaranteeVoid`, and what was
    charged stays charged. Attributes that a pass changes are put back after it. ``examples="alone"`` is safe
    for any code that keeps its data in model and loss: each example is computed by itself, and model and loss
    are put back between examples. The guarantee states what is assumed: data set, ``collate_fn``, ``augment``
    (which is given one example at a time with ``examples="alone"``) and loops of one's own treat each example
    by itself; no code computes with examples in other threads, keeps them in globals, files or memory that
    PyTorch does not see, or changes PyTorch's dispatcher.

    Under ``torchrun`` the same lines train one model in several processes, with the same guarantee and one
    charge: :mod:`tacit.training.parallel.distributed`. A model under FSDP2 needs no change.

    ==================  ================================================================================
    ``physical_batch``  the most examples in memory at once; measured if not given. It changes neither
                        the result nor ε
    ``views, augment``  ``views`` copies of each example, each passed through ``augment``; an example's
                        gradient is the mean over its copies (De et al. 2022)
    ``average``         0.99: exponential average of the parameters; "tail": mean over the second half
                        of the run. The model holds the average when the run ends
    ``schedule``        any scheduler of ``torch.optim.lr_scheduler``, moved by the trainer alone, and kept in
                        checkpoints. ``ReduceLROnPlateau`` needs a ``metric``
    ``schedule_every``  "step" or "epoch": when the schedule is moved
    ``metric``          a function of the model that returns a released figure of it: an evaluation of
                        :func:`tacit.evaluate`, or one with the name of a figure, or a
                        :class:`PublicMetric`. A loss on private examples is refused
                        (:mod:`tacit.training.schedules`); a private evaluation counts in the guarantee
    ``autocast``        ``torch.bfloat16``: layers run in that precision; norms and sums do not
    ``callbacks``       called with a :class:`Progress` after every step
    ``progress``        a bar on the terminal, by default where there is one; "public": a bar without the
                        private diagnostics
    ``examples``        "together": a batch goes through the model at once if the pass is proved to keep
                        its examples apart, and one by one if it cannot be proved. "alone": always one
                        by one, in a plain loop, whatever model and loss compute
    ``threads``         "watched": a batch during which another thread of the program ran is computed one by
                        one, for that thread may have computed with its examples. "trusted": threads that
                        were there before the run leave the examples alone, as the guarantee assumes
    ``checkpoint``      a file to write the run to, every ``checkpoint_every`` steps (an epoch)
    ``earlier``         "composed": runs that the weights come from (:mod:`tacit.training.past`) are part of
                        the guarantee. "disjoint": they were on other people, which is then an assumption
    ``random_state``    a seed, for tests: noise that can be reproduced protects nobody, and the guarantee
                        says "seeded"
    ==================  ================================================================================

    >>> import torch
    >>> from torch import nn
    >>> plan = Plan(population=200, batch_size=20, epochs=2, clip_norm=1.0, epsilon=1.0, delta=1e-5)
    >>> model = nn.Linear(3, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, plan)
    >>> trainer = trainer.fit((torch.randn(200, 3), torch.randint(0, 2, (200,))))
    >>> print(trainer.guarantee)
    (ε = 1, δ = 1e-05)-differentially private under add_remove of one row; float32 noise. Assuming: ...
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        optimizer: torch.optim.Optimizer,
        plan: Plan,
        ledger: Ledger | None = None,
        *,
        label: str = "training",
        physical_batch: int | None = None,
        views: int = 1,
        augment: Augment | None = None,
        average: float | str | None = None,
        schedule: Any = None,
        schedule_every: str = "step",
        metric: Metric | None = None,
        autocast: torch.dtype | None = None,
        examples: str = "together",
        threads: str = "watched",
        callbacks: Iterable[Callback] = (),
        progress: bool | str | None = None,
        checkpoint: PATH | None = None,
        checkpoint_every: int | None = None,
        earlier: str = "composed",
        random_state: int | None = None,
    ) -> None:
        check_model(model)
        check_sound(model)
        group = process_group_of(model)
        if not isinstance(plan, Plan):
            raise InvalidValue("plan", type(plan), "a tacit.training.Plan")
        _check_optimizer(model, optimizer)
        if physical_batch is not None:
            _validate.count("physical_batch", physical_batch, 1)
        if autocast not in (None, torch.bfloat16, torch.float16):
            raise InvalidValue("autocast", autocast, "torch.bfloat16, torch.float16 or None")
        each = per_example(loss)
        _validate.count("views", views, 1)
        if plan.unit.rows > 1:
            if views > 1 or augment is not None:
                raise InvalidValue("views", views, "1, without augment=, where a unit has several rows")
            each, views = weighted(each), plan.unit.rows
        core = PrivateStep(
            model, each, plan, Source(group.seed(random_state)),
            physical_batch=physical_batch, views=views, autocast=autocast,
            group=group, alone=_validate.choice("examples", examples, EXAMPLES) == "alone",
        )  # fmt: skip
        averaged = None if average is None else Average(model, average)
        file = None
        if checkpoint is not None:
            every = plan.steps_per_epoch if checkpoint_every is None else checkpoint_every
            file = Checkpoint(checkpoint, _validate.count("checkpoint_every", every, 1))
        place = None if file is None else file.place
        account = Account(plan, ledger, label, core.noise_kind, group, place, earlier)
        if schedule is None and (metric is not None or schedule_every != "step"):
            raise InvalidValue("schedule", None, "given with schedule_every= or metric=")
        moved = None if schedule is None else Schedule(schedule, optimizer, plan, schedule_every, metric)
        state = RunState(model, optimizer, moved, averaged, account, core, group)
        trusted = _validate.choice("threads", threads, THREADS) == "trusted"
        self._run = TrainingRun(state, file, augment, trusted_threads=trusted)
        self._progress = progress
        self.callbacks = tuple(callbacks)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InvalidValue(
            "trainer", "copied or pickled", "begun once, where it was made: its steps are paid for once",
            "Copy the model, or write a checkpoint and go on from it.",
        )  # fmt: skip

    def fit(self, dataset: Any, *, resume: bool = False) -> Trainer:
        """Train on a data set: (inputs, targets), a map-style data set or a DataLoader of one.

        With ``resume`` a run goes on from its checkpoint, if there is one. The first Ctrl-C ends the run
        after the current step, with a checkpoint; the second ends it at once.
        """
        group = self._run.state.group
        shown = self._progress if group.rank == 0 else False
        with group.failing(), Turn(self.model), Interrupts(self.stop), Bar(self, shown) as bar:
            for parts in self._run.steps(dataset, resume=resume):
                with group.failing():
                    self._take(parts)
                bar.show()
        return self

    def batches(self, dataset: Any, *, resume: bool = False) -> Iterator[Pair]:
        """Batches as the plan draws them, for a loop of your own: one :meth:`step` for each.

        ``for inputs, targets in trainer.batches(dataset): trainer.step(inputs, targets)``. A batch may
        be empty; take the step all the same. End the loop early by :meth:`stop`: after ``break`` the model
        is not averaged, and a checkpoint counts its whole block as taken.
        """
        for parts in self._run.steps(dataset, resume=resume, own_loop=True):
            with self._run.state.group.failing():
                inputs, targets = self._run.hand_out(parts)
                yield inputs, targets
                # Not held on to while the next batch is read.
                del inputs, targets

    def step(self, inputs: Any, targets: Any) -> None:
        """Take the step for the batch last drawn by :meth:`batches`; inputs may be transformed row by row."""
        with self._run.state.group.failing(), Turn(self.model):
            self._run.take_back(inputs, targets)
            self._take([(inputs, targets)])

    def stop(self) -> None:
        """End the run after the current step; what is not charged yet stays in the budget."""
        self._run.stopping = True

    def _save(self, path: PATH, *, overwrite: bool, evaluations: Sequence[Any]) -> None:
        """Write the model's weights and the guarantee into one safetensors file, for :func:`tacit.save`.

        Of several processes the first writes it. A sharded model has to be saved by all of them.
        """
        self._run.check_sound()
        group = self._run.state.group
        whole = under_plain_names(group.gathered(self.model.state_dict()))
        if group.rank == 0:
            write(path, whole, kept_facts(self.model, self.guarantee, evaluations), overwrite=overwrite)

    @property
    def guarantee(self) -> Guarantee:
        """What may be promised about the model, the average and every checkpoint of this run.

        It covers all steps charged, taken or not. A run charged by the epoch and stopped
        early is charged for the epochs begun. It also covers every other private run that the model's
        weights come from: those before this one, those that a callback made or loaded, and those
        that went on with the model since (:mod:`tacit.training.past`). A run among them under another
        relation or of another unit raises :class:`tacit.errors.InvalidValue`. Once a fault was found, this
        raises :class:`tacit.errors.GuaranteeVoid`.
        """
        self._run.check_sound()
        stopped = self._run.finished and self.step_number < self.plan.steps
        return self._run.state.account.guarantee(self._run.arrived(), stopped=stopped)

    def epsilon(self) -> float:
        """ε of the steps taken so far."""
        self._run.check_sound()
        if not self.step_number:
            return 0.0
        return self._run.state.account.epsilon(self.step_number, self._run.arrived())

    @property
    def plan(self) -> Plan:
        """What the run does, as it is charged."""
        return self._run.state.plan

    @property
    def model(self) -> nn.Module:
        """The model, which is trained in place."""
        return self._run.state.model

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimiser, which moves the model's parameters by noisy gradients."""
        return self._run.state.optimizer

    @property
    def schedule(self) -> Any:
        """The schedule of the learning rate, if there is one."""
        moved = self._run.state.schedule
        return None if moved is None else moved.scheduler

    @property
    def clip_norm(self) -> float:
        """The current clip_norm, which only :class:`Quantile` moves; released, hence public."""
        return self._run.state.core.clip_norm

    @property
    def step_number(self) -> int:
        """Steps taken: counted by the trainer alone, since charges and checkpoints go by it."""
        return self._run.state.taken

    @property
    def private_diagnostics(self) -> PrivateDiagnostics | None:
        """Loss and clipped share of the last batch, without noise: for the curator, never to be published."""
        return self._run.diagnostics

    @property
    def private_costs(self) -> PrivateCosts:
        """What each example has spent, with ``Plan(accounting="individual")``: for the curator alone."""
        individual = self._run.state.core.individual
        if individual is None:
            raise InvalidValue(
                "plan.accounting", "worst-case", "'individual'", "In this run the plan's ε is that of all."
            )
        return individual.costs

    def _take(self, parts: Iterable[Pair]) -> None:
        self._run.take(parts)
        if self.callbacks:
            progress = Progress(self)
            for callback in self.callbacks:
                callback(progress)


def _check_optimizer(model: nn.Module, optimizer: Any) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidValue("optimizer", type(optimizer), "an optimiser of torch.optim")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidValue(
            "optimizer", "LBFGS", "one that takes a gradient and no closure",
            "It evaluates the loss several times a step, which is not private.",
        )  # fmt: skip
    trained = {id(each) for each in model.parameters() if each.requires_grad}
    given = {id(each) for group in optimizer.param_groups for each in group["params"]}
    if not given & trained or given - {id(each) for each in model.parameters()}:
        raise InvalidValue(
            "optimizer", type(optimizer), "over the parameters of this model and no others",
            "Make it after the last change to the model, from model.parameters().",
        )  # fmt: skip


register_writer(Trainer, Trainer._save)
