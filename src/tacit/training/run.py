"""TrainingRun: the order in which a run is agreed on, charged, sampled, taken and written down.

1. The processes of the run, if there are several, agree on its facts and start from the same weights.
2. The account is opened, or the checkpoint of an earlier process is read.
3. A stage, which is the run or an epoch of it, is charged; only then is an example read.
4. The sampler draws the rows of each step, and the step turns them into a noisy gradient for the optimiser.
5. A checkpoint claims and reserves the next block of steps whenever the last one is used up.
6. At the end the claim is settled, and the model is given the average of its weights, if one was asked for.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader

from tacit.errors import InvalidValue, NotIsolated, SelfTestFailed
from tacit.relations import Relation
from tacit.training import past
from tacit.training.batches import tree
from tacit.training.batches.dataset import Examples, Pair, examples_of, replaced
from tacit.training.batches.memory import fitting_batch
from tacit.training.batches.units import require_units
from tacit.training.batches.views import Augment, joined, viewed
from tacit.training.checkpoint import Checkpoint
from tacit.training.isolation.checking import mark_unsound, unsound
from tacit.training.isolation.confinement import trusting_threads
from tacit.training.parallel.distributed import process_group_of
from tacit.training.parallel.turns import Turn
from tacit.training.sampling import disordered
from tacit.training.schedules import Schedule
from tacit.training.state import RunState
from tacit.training.step import PrivateDiagnostics


class TrainingRun:
    """The steps of one run, each taken by :meth:`take` before :meth:`steps` gives the next."""

    def __init__(
        self, state: RunState, checkpoint: Checkpoint | None, augment: Augment | None,
        *, trusted_threads: bool,
    ) -> None:  # fmt: skip
        self.state, self.checkpoint = state, checkpoint
        self._trusted_threads = trusted_threads
        self.finished = self.stopping = False
        self.diagnostics: PrivateDiagnostics | None = None
        self._augment = augment
        self._begun = False
        self._handed_out: int | None = None
        self._fault: Exception | None = None
        self._trace: past.Trace | None = None

    def steps(self, dataset: Any, *, resume: bool, own_loop: bool = False) -> Iterator[Iterable[Pair]]:
        """The parts of each batch, to be taken as a step before the next batch is asked for."""
        with self.state.group.failing():
            yield from self._steps(dataset, resume=resume, own_loop=own_loop)

    def _steps(self, dataset: Any, *, resume: bool, own_loop: bool) -> Iterator[Iterable[Pair]]:
        state, core = self.state, self.state.core
        if core.individual is not None and (own_loop or self.checkpoint is not None):
            raise InvalidValue(
                "plan.accounting", "individual", "'worst-case' with a checkpoint, or with a loop of your own",
                "What each example has spent is private, and kept in no file; and Trainer.fit knows which "
                "examples are in a batch.",
            )  # fmt: skip
        examples = self._agreed(dataset, resume=resume)
        if not examples.in_order and (core.individual is not None or own_loop):
            raise InvalidValue(
                "dataset", type(dataset), "one whose batches are in the order of the draw, and of one shape",
                "A loop of your own and accounting='individual' need it: Texts(..., by_length=False).",
            )  # fmt: skip
        self._begin(resume=resume)
        self._trace = past.Trace(state.account.run, state.model, state.optimizer)
        stages = list(self._stages())
        if stages:
            self._pay(stages[0][1])
        draw = disordered(core.source, state.plan.sampler.draws(core.source, len(examples)))
        if core.individual is not None:
            draw = core.individual.begin(len(examples), draw)
        if core.physical_batch is None and not own_loop:
            self._fit_to_memory(examples.like())
        size = core.physical_batch or max(1, len(examples))
        try:
            for first, last in stages:
                if self._stops():
                    break
                self._pay(last)
                parts = examples.batches(map(draw, range(first, last)), size)
                for number in range(first, last):
                    if number > first and self._stops():
                        break
                    self.check_sound()
                    if self.checkpoint and self.checkpoint.due(number):
                        self.checkpoint.begin(state, last)
                    yield next(parts)
                    self._check_taken(number)
        except GeneratorExit:
            # The steps that were taken lie within the block that the last checkpoint reserved.
            self.finished = True
            state.group.leave()
            raise
        self._finish()

    def _agreed(self, dataset: Any, *, resume: bool) -> Examples:
        """The rows that this process samples, once all processes agree on the run and its first weights."""
        state, plan = self.state, self.state.plan
        if process_group_of(state.model).size != state.group.size:
            raise InvalidValue(
                "torch.distributed", "initialised later", "initialised before the trainer is made"
            )
        examples = examples_of(dataset)
        require_units(examples, plan.unit)
        if isinstance(dataset, DataLoader) and state.group.rank == 0:
            warnings.warn(replaced(dataset, plan), UserWarning, stacklevel=2)
        with Turn(state.model):
            if self._begun:
                raise InvalidValue(
                    "trainer", "a run already begun", "fitted once",
                    "Make a new trainer, with a plan of its own, to train further.",
                )  # fmt: skip
            self._begun = True
        if state.group.size > 1:
            state.group.agree(state.agreed_facts(len(examples), resume=resume))
        if plan.relation is Relation.REPLACE_ONE and len(examples) != plan.population:
            raise InvalidValue(
                "dataset", len(examples), f"as long as the plan's population, {plan.population}",
                "Under replace_one the number of examples is public; give it in the plan.",
            )  # fmt: skip
        examples = state.group.share(examples, plan.sampler)
        state.group.align(state.model)
        return examples

    def _begin(self, *, resume: bool) -> None:
        """Open the account of a new run, or go on with the run in the checkpoint."""
        state, checkpoint = self.state, self.checkpoint
        if checkpoint is None and resume:
            raise InvalidValue("resume", resume, "used with a checkpoint", "Give Trainer a checkpoint=.")
        state.account.inherit(state.group.together(lambda: past.of(state.model, state.optimizer)))
        if checkpoint is None or not state.group.together(checkpoint.path.exists):
            state.account.open()
            if checkpoint is not None:
                checkpoint.write(state, 0)
            return
        if not resume:
            raise InvalidValue(
                "checkpoint", str(checkpoint.path), "a file that does not exist yet",
                "Pass resume=True to go on with that run, or delete the file.",
            )  # fmt: skip
        checkpoint.read(state)
        past.mark(state.model, state.account.history)

    def _stages(self) -> Iterator[tuple[int, int]]:
        """The first step of each charge, and the step behind its last, for the steps that are left."""
        first, start = 0, self.state.taken
        for steps in self.state.plan.stages():
            last = first + steps
            if last > start:
                yield max(first, start), last
            first = last

    def _pay(self, last: int) -> None:
        """Charge for the steps before ``last``, and mark the model's weights as coming from this run."""
        state = self.state
        state.account.pay(last)
        past.mark(state.model, state.account.history)

    def _fit_to_memory(self, pair: Pair | None) -> None:
        core = self.state.core
        with self._finding_faults(), self.state.group.whole(self.state.model):
            core.physical_batch = max(1, fitting_batch(core, pair) // core.views)

    def _stops(self) -> bool:
        return self.state.group.any(self.stopping)

    def hand_out(self, parts: Iterable[Pair]) -> Pair:
        """The batch in one piece, for a loop of the user's own, which has to take the step for it."""
        given = list(parts)
        inputs, targets = given[0] if len(given) == 1 else joined(given)
        self._handed_out = tree.examples(inputs, targets)
        return inputs, targets

    def take_back(self, inputs: Any, targets: Any) -> None:
        """Refuse anything but the batch that was handed out last, transformed row by row."""
        if self._handed_out is None or self.finished:
            raise InvalidValue(
                "trainer.step", "called without a batch", "called once for each batch of trainer.batches",
                "The sampler makes the guarantee: draw batches with trainer.batches(dataset).",
            )  # fmt: skip
        if tree.examples(inputs, targets) != self._handed_out:
            raise InvalidValue(
                "inputs", "another number of examples", "the batch that was drawn, transformed row by row"
            )
        if self.state.core.physical_batch is None and self._handed_out and self.state.group.size == 1:
            self._fit_to_memory((inputs, targets))
        self._handed_out = None

    def take(self, parts: Iterable[Pair]) -> None:
        """Take one step: release a private gradient, and hand it to the optimiser."""
        state = self.state
        state.account.check_process()
        self._count_arrivals()
        self._drop_gradients()
        with self._finding_faults():
            self.diagnostics = state.core.release(map(self._viewed, parts))
        self._drop_gradients(frozen=True)
        state.optimizer.step()
        self._drop_gradients()
        state.taken += 1
        if self._trace is not None:
            self._trace.note()
        if state.schedule is not None:
            self._follow(state.schedule)
        if state.average is not None:
            state.average.update(state.model, state.taken, state.plan.steps)

    def arrived(self) -> tuple[past.Run, ...]:
        """The runs that the model's weights come from now, as far as this process can tell."""
        return () if self._trace is None else self._trace.arrived()

    def _count_arrivals(self) -> None:
        """Count the runs whose weights other code has put into the model since the last step."""
        account, group = self.state.account, self.state.group
        found = account.unknown(self.arrived())
        if group.any(bool(found)):
            first = group.together(lambda: found)
            if {run.number for run in found} - {run.number for run in first}:
                raise InvalidValue("model", "of another run in one process", "the same in every process")
            account.arrive(first)
            past.mark(self.state.model, account.history)

    def _follow(self, schedule: Schedule) -> None:
        """Move the learning rate; a private evaluation that moves it is one more source of the weights."""
        state = self.state
        known = len(state.account.metrics)
        schedule.follow(state.taken, state.model, state.account)
        if len(state.account.metrics) > known:
            past.mark(state.model, state.account.history)

    def _viewed(self, pair: Pair) -> Pair:
        core = self.state.core
        if self.state.plan.unit.rows > 1:
            return pair
        return viewed(pair, core.views, self._augment, alone=core.alone)

    def _drop_gradients(self, *, frozen: bool = False) -> None:
        """Drop the gradients of all parameters that the optimiser moves, or of the frozen ones alone.

        No gradient was released for a frozen parameter, so that any it has was computed by other code.
        """
        for group in self.state.optimizer.param_groups:
            for each in group["params"]:
                if not (frozen and each.requires_grad):
                    each.grad = None

    def _check_taken(self, number: int) -> None:
        if self._handed_out is not None or self.state.taken != number + 1:
            self.finished = True
            raise InvalidValue(
                "trainer.step", "not taken", "called once for each batch, whatever is in it",
                "A step left out, or broken off, for what a batch holds is not covered by the guarantee.",
            )  # fmt: skip

    def _finish(self) -> None:
        state = self.state
        self.finished = True
        self.check_sound()
        self._count_arrivals()
        if self.checkpoint is not None:
            self.checkpoint.end(state)
        if state.average is not None:
            state.average.put_into(state.model)
        if self._trace is not None:
            self._trace.note(past.state_of(state.optimizer))

    @contextmanager
    def _finding_faults(self) -> Iterator[None]:
        """A fault found within takes the guarantee from the run, and from a model that it has changed."""
        try:
            with trusting_threads(self._trusted_threads):
                yield
        except (NotIsolated, SelfTestFailed) as fault:
            self._fault = fault
            if self.state.taken:
                mark_unsound(self.state.model, fault)
                past.void(self.state.model, self.state.account.run)
                if self.checkpoint is not None:
                    self.checkpoint.void(fault)
                    self.state.account.forfeit()
            raise

    def check_sound(self) -> None:
        """Raise :class:`tacit.errors.GuaranteeVoid` if a fault was found in this run."""
        if self._fault is not None:
            raise unsound("This run", self._fault)
