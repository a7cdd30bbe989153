"""Trainer: DP-SGD for any PyTorch network, charged to a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn

from tacit import _validate
from tacit.errors import InvalidValue, NotIsolated, SelfTestFailed
from tacit.guarantee import Guarantee
from tacit.models.registry import register_writer
from tacit.randomness import Source
from tacit.relations import Relation
from tacit.training import past, tree
from tacit.training.account import Account
from tacit.training.checkpoint import Checkpoint
from tacit.training.data import Pair, examples_of
from tacit.training.gradients.views import Augment, joined, viewed
from tacit.training.isolation.checking import check_model, check_sound, mark_unsound, unsound
from tacit.training.losses import per_example
from tacit.training.memory import first_pair, fitting_batch
from tacit.training.parallel import sharding
from tacit.training.parallel.distributed import facts_of, group_for
from tacit.training.parallel.turns import Turn
from tacit.training.plan import Plan
from tacit.training.progress import Bar, Interrupts, Progress
from tacit.training.sampling import disordered
from tacit.training.saving import PATH, kept_facts, write
from tacit.training.step import PrivateStep, Seen

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
    composition of sampled Gaussian releases (:class:`tacit.training.step.PrivateStep`), everything else
    is post-processing of them: optimiser state, schedules, averages, checkpoints and saved files. What
    is not, and stays with the curator, is marked so: :class:`Seen` and the length of the data set.
    The ledger is charged before the first example is read. Abadi et al. 2016.

    Who keeps examples apart: the trainer does, in every pass, for model and loss, their hooks and functions
    with a backward of their own. A pass in which one example changes what another adds, or that writes
    something of them into a parameter, a buffer or another tensor, is refused, and the run then has no
    guarantee: :attr:`guarantee` and :meth:`save` raise :class:`tacit.errors.GuaranteeVoid`, and what was
    charged stays charged. Attributes that a pass changes are put back after it. ``examples="alone"`` is safe
    for any code that keeps its data in model and loss: each example is computed by itself, and both are put
    back between examples. Assumed, and said in the guarantee: data set, ``collate_fn``, ``augment`` (which
    is given one example at a time with ``examples="alone"``) and loops of one's own treat each example by
    itself; nothing computes with examples in other threads, keeps them in globals, files or memory that
    PyTorch does not see, or takes its dispatcher apart.

    Under ``torchrun`` the same lines train one model in several processes, with the same guarantee and one
    charge: :mod:`tacit.training.parallel.distributed`. A model under FSDP2 is taken as it is.

    ==================  ================================================================================
    ``physical_batch``  most examples in memory at once; found by itself if not given. It never changes
                        what is computed, nor ε
    ``views, augment``  so many copies of each example, each passed through ``augment``; an example's
                        gradient is their mean (De et al. 2022)
    ``average``         0.99: exponential average of the parameters; "tail": mean over the second half
                        of the run. The model holds the average when the run ends
    ``schedule``        a scheduler of ``torch.optim.lr_scheduler``, moved once a step
    ``autocast``        ``torch.bfloat16``: layers run in that precision; norms and sums do not
    ``callbacks``       called with a :class:`Progress` after every step
    ``progress``        a bar on the terminal, by default where there is one; "public": without what
                        is for the curator
    ``examples``        "together": a batch goes through the model at once, where every pass is proved to
                        keep its examples apart, and one by one where it cannot be. "alone": always one
                        by one, in a plain loop, for any model and loss whatever they compute
    ``checkpoint``      a file to write the run to, every ``checkpoint_every`` steps (an epoch)
    ``earlier``         "composed": runs that the weights come from (:mod:`tacit.training.past`) are part of
                        the guarantee. "disjoint": they were on other people, which is then an assumption
    ``random_state``    makes a run reproducible, and its guarantee void, for tests
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
        autocast: torch.dtype | None = None,
        examples: str = "together",
        callbacks: Iterable[Callback] = (),
        progress: bool | str | None = None,
        checkpoint: PATH | None = None,
        checkpoint_every: int | None = None,
        earlier: str = "composed",
        random_state: int | None = None,
    ) -> None:
        check_model(model)
        check_sound(model)
        self._group = group_for(model)
        if not isinstance(plan, Plan):
            raise InvalidValue("plan", type(plan), "a tacit.training.Plan")
        _check_optimizer(model, optimizer)
        if physical_batch is not None:
            _validate.count("physical_batch", physical_batch, 1)
        if autocast not in (None, torch.bfloat16, torch.float16):
            raise InvalidValue("autocast", autocast, "torch.bfloat16, torch.float16 or None")
        self.model, self.optimizer = model, optimizer
        self.schedule, self.callbacks = schedule, tuple(callbacks)
        self._views = _validate.count("views", views, 1)
        self._augment, self._progress = augment, progress
        self._source = Source(self._group.seed(random_state))
        self._core = PrivateStep(
            model, per_example(loss), plan, self._source,
            physical_batch=physical_batch, views=self._views, autocast=autocast, group=self._group,
            alone=_validate.choice("examples", examples, EXAMPLES) == "alone",
        )  # fmt: skip
        self._average = _averaged(model, average)
        self._tail = average == "tail"
        self._checkpoint = None
        if checkpoint is not None:
            every = plan.steps_per_epoch if checkpoint_every is None else checkpoint_every
            self._checkpoint = Checkpoint(checkpoint, _validate.count("checkpoint_every", every, 1))
        place = None if self._checkpoint is None else self._checkpoint.place
        self._account = Account(plan, ledger, label, self._noise, self._group, place, earlier)
        self._trace: past.Trace | None = None
        self._waiting: int | None = None
        self._begun = self._stopping = self._finished = False
        self._taken = 0
        self._fault: Exception | None = None
        self.seen: Seen | None = None

    @property
    def _noise(self) -> str:
        if self._source.seeded:
            return "seeded"
        double = all(each.dtype == torch.float64 for each in self.model.parameters() if each.requires_grad)
        return "float64" if double else "float32"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InvalidValue(
            "trainer", "copied or pickled", "begun once, where it was made: its steps are paid for once",
            "Copy the model, or write a checkpoint and go on from it.",
        )  # fmt: skip

    @property
    def plan(self) -> Plan:
        """What the run does, as it is charged."""
        return self._account.plan

    @property
    def clip_norm(self) -> float:
        """The current clip_norm, which only :class:`Quantile` moves; released, hence public."""
        return self._core.clip_norm

    @property
    def step_number(self) -> int:
        """Steps taken: counted by the trainer alone, since charges and checkpoints go by it."""
        return self._taken

    @property
    def guarantee(self) -> Guarantee:
        """What may be promised about the model, the average and every checkpoint of this run.

        It is that of all steps charged, taken or not. A run charged by the epoch and stopped
        early is charged for the epochs begun. Once a fault was found, this raises
        :class:`tacit.errors.GuaranteeVoid`.
        """
        self._check_sound()
        return self._account.guarantee(stopped=self._finished and self.step_number < self.plan.steps)

    def epsilon(self) -> float:
        """ε of the steps taken so far."""
        self._check_sound()
        if self.step_number == 0:
            return 0.0
        return self._account.epsilon(self.step_number)

    def stop(self) -> None:
        """End the run after the current step; what is not charged yet stays in the budget."""
        self._stopping = True

    def fit(self, dataset: Any, *, resume: bool = False) -> Trainer:
        """Train on a data set: (inputs, targets), a map-style data set or a DataLoader of one.

        With ``resume`` a run goes on from its checkpoint, if there is one. Ctrl-C ends the run after the
        current step, with a checkpoint; a second one at once.
        """
        shown = self._progress if self._group.rank == 0 else False
        with self._group.failing(), Turn(self.model), Interrupts(self.stop), Bar(self, shown) as bar:
            for parts in self._steps(dataset, resume=resume):
                with self._group.failing():
                    self._take(parts)
                bar.show()
        return self

    def batches(self, dataset: Any, *, resume: bool = False) -> Iterator[Pair]:
        """Batches as the plan draws them, for a loop of your own: one :meth:`step` for each.

        ``for inputs, targets in trainer.batches(dataset): trainer.step(inputs, targets)``. A batch may
        be empty; take the step all the same. End the loop early by :meth:`stop`: after ``break`` the model
        is not averaged, and a checkpoint counts its whole block as taken.
        """
        for parts in self._steps(dataset, resume=resume, own_loop=True):
            with self._group.failing():
                inputs, targets = _joined(list(parts))
                self._waiting = tree.examples(inputs, targets)
                yield inputs, targets
                # Not held on to while the next batch is read.
                del inputs, targets

    def step(self, inputs: Any, targets: Any) -> None:
        """Take the step for the batch last drawn by :meth:`batches`; inputs may be transformed row by row."""
        with self._group.failing(), Turn(self.model):
            self._step(inputs, targets)

    def _step(self, inputs: Any, targets: Any) -> None:
        if self._waiting is None or self._finished:
            raise InvalidValue(
                "trainer.step", "called without a batch", "called once for each batch of trainer.batches",
                "The sampler makes the guarantee: draw batches with trainer.batches(dataset).",
            )  # fmt: skip
        if tree.examples(inputs, targets) != self._waiting:
            raise InvalidValue(
                "inputs", "another number of examples", "the batch that was drawn, transformed row by row"
            )
        if self._core.physical_batch is None and self._waiting and self._group.size == 1:
            self._fit_to_memory((inputs, targets))
        self._waiting = None
        self._take([(inputs, targets)])

    def _save(self, path: PATH, *, overwrite: bool, evaluations: Sequence[Any]) -> None:
        """Write the model's weights and the guarantee into one safetensors file, for :func:`tacit.save`.

        Of several processes the first writes it. A sharded model has to be saved by all of them.
        """
        self._check_sound()
        whole = self._group.gathered(self.model.state_dict())
        if self._group.rank == 0:
            write(path, whole, kept_facts(self.model, self.guarantee, evaluations), overwrite=overwrite)

    @contextmanager
    def _finding(self) -> Iterator[None]:
        """A fault found within takes the guarantee from the run, and from a model that it has changed."""
        try:
            yield
        except (NotIsolated, SelfTestFailed) as fault:
            self._fault = fault
            if self._taken:
                mark_unsound(self.model, fault)
                past.void(self.model, self._account.run)
            raise

    def _check_sound(self) -> None:
        if self._fault is not None:
            raise unsound("This run", self._fault)

    def _fit_to_memory(self, pair: Pair | None) -> None:
        with self._finding(), self._group.whole(self.model):
            self._core.physical_batch = max(1, fitting_batch(self._core, pair) // self._views)

    def _steps(self, dataset: Any, *, resume: bool, own_loop: bool = False) -> Iterator[Iterable[Pair]]:
        """The parts of each batch, to be taken as a step before the next is asked for."""
        with self._group.failing():
            yield from self._agreed_steps(dataset, resume=resume, own_loop=own_loop)

    def _agreed_steps(self, dataset: Any, *, resume: bool, own_loop: bool) -> Iterator[Iterable[Pair]]:
        if group_for(self.model).size != self._group.size:
            raise InvalidValue(
                "torch.distributed", "initialised later", "initialised before the trainer is made"
            )
        examples = examples_of(dataset)
        with Turn(self.model):
            if self._begun:
                raise InvalidValue(
                    "trainer", "a run already begun", "fitted once",
                    "Make a new trainer, with a plan of its own, to train further.",
                )  # fmt: skip
            self._begun = True
        plan = self.plan
        self._group.agree(facts_of(self, len(examples), resume))
        if plan.relation is Relation.REPLACE_ONE and len(examples) != plan.population:
            raise InvalidValue(
                "dataset", len(examples), f"as long as the plan's population, {plan.population}",
                "Under replace_one the number of examples is public; give it in the plan.",
            )  # fmt: skip
        examples = self._group.share(examples, plan.sampler)
        self._group.align(self.model)
        start = self._begin(resume=resume)
        stages = list(self._stages(start))
        if stages:
            self._pay(stages[0][1])
        draw = disordered(self._source, plan.sampler.draws(self._source, len(examples)))
        if self._core.physical_batch is None and not own_loop:
            self._fit_to_memory(first_pair(examples))
        size = self._core.physical_batch or max(1, len(examples))
        try:
            for first, last in stages:
                if self._stops():
                    break
                self._pay(last)
                parts = examples.batches(map(draw, range(first, last)), size)
                for number in range(first, last):
                    if number > first and self._stops():
                        break
                    self._check_sound()
                    if self._checkpoint and self._checkpoint.due(number):
                        self._checkpoint.begin(self, number, last)
                    yield next(parts)
                    self._check_taken(number)
        except GeneratorExit:
            # What was taken lies within the block that the last checkpoint reserved.
            self._finished = True
            self._group.leave()
            raise
        self._finish()

    def _pay(self, last: int) -> None:
        """Charge, and let the weights say so: whoever goes on from them goes on from this run."""
        if last > self._account.paid:
            self._account.pay(last)
        past.mark(self.model, self._account.history)
        if self._trace is None:
            self._trace = past.Trace(self._account.run, self.model)

    def _check_taken(self, number: int) -> None:
        if self._waiting is not None or self.step_number != number + 1:
            self._finished = True
            raise InvalidValue(
                "trainer.step", "not taken", "called once for each batch, whatever is in it",
                "A step left out, or broken off, for what a batch holds is not covered by the guarantee.",
            )  # fmt: skip

    def _stops(self) -> bool:
        return self._group.any(self._stopping)

    def _begin(self, *, resume: bool) -> int:
        """Open the account or the checkpoint; the number of the first step."""
        if self._checkpoint is None and resume:
            raise InvalidValue("resume", resume, "used with a checkpoint", "Give Trainer a checkpoint=.")
        self._account.inherit(self._group.together(lambda: past.of(self.model, self.optimizer)))
        if self._checkpoint is None or not self._group.together(self._checkpoint.path.exists):
            self._account.open()
            if self._checkpoint is not None:
                self._checkpoint.write(self, 0, 0)
            return 0
        if not resume:
            raise InvalidValue(
                "checkpoint", str(self._checkpoint.path), "a file that does not exist yet",
                "Pass resume=True to go on with that run, or delete the file.",
            )  # fmt: skip
        self._taken = self._checkpoint.read(self)
        past.mark(self.model, self._account.history)
        return self._taken

    def _stages(self, start: int) -> Iterator[tuple[int, int]]:
        first = 0
        for steps in self.plan.stages():
            last = first + steps
            if last > start:
                yield max(first, start), last
            first = last

    def _take(self, parts: Iterable[Pair]) -> None:
        self._account.check_process()
        self._let_gradients_go()
        with self._finding():
            self.seen = self._core.release(map(self._viewed, parts))
        self._let_gradients_go(frozen=True)
        self.optimizer.step()
        self._let_gradients_go()
        self._taken += 1
        if self._trace is not None:
            self._trace.note()
        if self.schedule is not None:
            self.schedule.step()
        if self._average is not None and (not self._tail or 2 * self.step_number > self.plan.steps):
            self._average.update_parameters(self.model)
        if self.callbacks:
            progress = Progress(self)
            for callback in self.callbacks:
                callback(progress)

    def _let_gradients_go(self, *, frozen: bool = False) -> None:
        """Of all that the optimiser moves, or of what no gradient was released for."""
        for group in self.optimizer.param_groups:
            for each in group["params"]:
                if not (frozen and each.requires_grad):
                    each.grad = None

    def _viewed(self, pair: Pair) -> Pair:
        return viewed(pair, self._views, self._augment, alone=self._core.alone)

    def _finish(self) -> None:
        self._finished = True
        self._check_sound()
        if self._checkpoint is not None:
            self._checkpoint.end(self, self.step_number)
        if self._average is not None and int(self._average.n_averaged):
            with torch.no_grad():
                for mine, averaged in zip(
                    self.model.parameters(), self._average.module.parameters(), strict=True
                ):
                    mine.copy_(averaged)
        if self._trace is not None:
            self._trace.note(past.state_of(self.optimizer))


def _averaged(model: nn.Module, average: float | str | None) -> AveragedModel | None:
    if average is None:
        return None
    if sharding.is_sharded(model):
        raise InvalidValue("average", average, "None for a sharded model, which cannot be copied")
    if average == "tail":
        return AveragedModel(model, multi_avg_fn=get_swa_multi_avg_fn())  # type: ignore[no-untyped-call]
    if isinstance(average, str):
        raise InvalidValue("average", average, "a decay in (0, 1), 'tail' or None")
    decay = _validate.open_probability("average", average)
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]


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


def _joined(parts: list[Pair]) -> Pair:
    return parts[0] if len(parts) == 1 else joined(parts)


register_writer(Trainer, Trainer._save)
