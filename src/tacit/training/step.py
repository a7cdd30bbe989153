"""One private step: clip, add up, add noise, hand the result to the optimiser."""

from __future__ import annotations

import functools
import math
import os
from collections import deque
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tacit.randomness import Source
from tacit.training.batches import tree
from tacit.training.batches.dataset import Pair
from tacit.training.batches.memory import out_of_memory
from tacit.training.clipping import Quantile
from tacit.training.gradients.engine import Clipped, clipped_gradients
from tacit.training.gradients.fallback import Loss
from tacit.training.gradients.losses import unnamed_bounds
from tacit.training.gradients.routes import forget
from tacit.training.gradients.sums import BLOCK, summed, wide
from tacit.training.individual import Individual
from tacit.training.isolation.generators import generators_seeded
from tacit.training.isolation.selftest import check_apart, check_clipping, check_noise, finite_rows
from tacit.training.noise import Ahead, normal
from tacit.training.parallel.distributed import ONE_PROCESS, ProcessGroup
from tacit.training.plan import Plan

_TESTS = 10
_GRID_BITS = 6
_MANY = 1 << 12


class PrivateDiagnostics:
    """Figures about the last batch for the curator, which must not be published: they have no noise.

    Each is computed when it is asked for, and is NaN where the batch was empty.
    """

    def __init__(self, norms: Tensor, losses: Tensor, clip_norm: float) -> None:
        self._norms, self._losses, self._clip_norm = norms, losses, clip_norm

    @property
    def examples(self) -> int:
        """How many examples were in the batch."""
        return len(self._norms)

    @property
    def loss(self) -> float:
        """The mean loss of these examples."""
        return float(self._losses.double().mean()) if len(self._losses) else math.nan

    @property
    def clipped(self) -> float:
        """The share of gradients longer than clip_norm."""
        return float((self._norms > self._clip_norm).double().mean()) if self.examples else math.nan


class PrivateStep:
    """Turns batches into private gradients in ``.grad``, one release at a time.

    Guarantee: what :meth:`release` leaves in the parameters' ``.grad`` is (Σ clipped gradients + N(0, (z·Δ)²
    I)) ÷ batch_size, with the plan's z and Δ: a Gaussian of noise multiplier z, of which the plan's event
    counts the times, rounded so that no last bit tells what it was added to. With correlated noise or
    individual accounting z is the plan's ``step_noise``, and all releases together are one Gaussian of the
    plan's noise multiplier. Nothing else about the batch is kept
    but :class:`PrivateDiagnostics`. The divisor is the plan's batch_size, not the number of examples in the
    batch. Of several processes (``group``) each clips its own examples and adds its share of the noise; the
    sum over all is what is released.

    An example whose gradient is not finite adds nothing. Every pass is proved to keep examples apart, so that
    none changes what another adds (:mod:`tacit.training.isolation`); a pass that cannot be proved, and every
    pass if ``alone``, computes one example at a time. The step also tests itself, at the first batch of two
    or more examples and ten times in a run: on a few rows, one example must not change another's loss or
    gradient, the clipped gradient must be that of plain backpropagation, and, the first time, the noise must
    have the stated variance.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, plan: Plan, source: Source, *,
        physical_batch: int | None = None, views: int = 1, autocast: torch.dtype | None = None,
        group: ProcessGroup = ONE_PROCESS, alone: bool = False,
    ) -> None:  # fmt: skip
        self.group, self.alone = group, alone
        self.model, self.loss, self.plan, self.source = model, loss, plan, source
        self.views, self.autocast = views, autocast
        self.clip_norm = plan.clip_norm
        self.physical_batch = physical_batch
        self._rule = plan.rule
        self._test_due = True
        self._releases = 0
        self._noise_tested = False
        self.individual = Individual(plan.rule, plan) if plan.accounting == "individual" else None
        self._correlation = plan.correlation.coefficients[1:]
        self._past_noise: deque[Tensor] = deque(maxlen=len(self._correlation))

    @property
    def noise_kind(self) -> str:
        """How exact the noise is, as the guarantee states it: "float32", "float64" or "seeded"."""
        if self.source.seeded:
            return "seeded"
        double = all(each.dtype == torch.float64 for each in self.model.parameters() if each.requires_grad)
        return "float64" if double else "float32"

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the fresh noise on the sum, in units of the sensitivity of the step."""
        if isinstance(self.plan.clipping, Quantile):
            return self.plan.clipping.noise_for_sum(self.plan.noise_multiplier, self.plan.batch_size)
        return self.plan.step_noise

    def release(self, parts: Iterable[Pair]) -> PrivateDiagnostics:
        """The private gradient of one batch, given in parts, in every trainable parameter's ``.grad``."""
        # Random layers draw from a generator of their own: how much they draw depends on the batch.
        with generators_seeded(self.source.bits(63)), self.group.whole(self.model):
            ahead = self._drawn_ahead()
            total, norms, losses = self._summed(parts)
        diagnostics = PrivateDiagnostics(norms, losses, self.clip_norm)
        self._add_noise(total, norms, ahead)
        tests = self._releases * _TESTS // self.plan.steps
        self._releases += 1
        if self._releases * _TESTS // self.plan.steps > tests:
            self._test_due = True
        return diagnostics

    def _summed(self, parts: Iterable[Pair]) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Clipped sum, norms and losses of a batch."""
        total: dict[str, Tensor] = {}
        norms: list[Tensor] = []
        losses: list[Tensor] = []
        if self.individual is not None:
            self.individual.next_batch()
        for inputs, targets in parts:
            if self._test_due and tree.examples(inputs, targets) > self.views:
                with unnamed_bounds():
                    self._test(inputs, targets)
            waiting = [(inputs, targets)]
            del inputs, targets
            while waiting:
                clipped, waiting = self._first(waiting)
                norms.append(clipped.norms)
                if clipped.losses is not None:
                    losses.append(clipped.losses)
                if not total:
                    total = clipped.total
                else:
                    torch._foreach_add_(list(total.values()), list(clipped.total.values()))
        if self.individual is not None:
            self.individual.end_batch()
        return total, _joined(norms), _joined(losses)

    def _first(self, waiting: list[Pair]) -> tuple[Clipped, list[Pair]]:
        """The clipped sum of as many examples as fit into memory, and the examples that are left."""
        (inputs, targets), *rest = waiting
        while True:
            size = self.views * min(BLOCK, self.physical_batch or BLOCK)
            some, more = tree.cut(inputs, targets, size)
            try:
                return self._clipped(*some), more + rest
            except RuntimeError as error:
                examples = tree.examples(*some) // self.views
                if not out_of_memory(error) or examples < 2:
                    raise
                self.physical_batch = examples // 2

    def _clipped(self, inputs: Any, targets: Any) -> Clipped:
        if self.individual is not None:
            self.individual.next_rows(tree.examples(inputs, targets) // self.views)
        with unnamed_bounds():
            clipped = clipped_gradients(
                self.model, self.loss, inputs, targets, self.clip_norm,
                rule=self.individual or self._rule, views=self.views, autocast=self.autocast,
                alone=self.alone, expected=self.plan.batch_size,
            )  # fmt: skip
        if self.individual is not None:
            self.individual.paid()
        return clipped

    def _test(self, inputs: Any, targets: Any) -> None:
        """Compare a few of these examples together and alone, and one of them with plain backpropagation."""
        forget(self.model)
        facts = (self.views, self.autocast)
        if self.alone:
            rows = torch.randperm(tree.examples(inputs, targets) // self.views)[:1].tolist()
        else:
            rows = finite_rows(self.model, self.loss, inputs, targets, *facts)
            if len(rows) < 2:
                return
        self._test_due = False
        entries = [self.views * row + view for row in rows for view in range(self.views)]

        def pick(leaf: Any) -> Any:
            return leaf[torch.tensor(entries, device=leaf.device)] if tree.batched(leaf) else leaf

        some_inputs, some_targets = tree.mapped(pick, (inputs, targets))
        if not self.alone:
            check_apart(self.model, self.loss, some_inputs, some_targets, *facts)
        check_clipping(
            self.model, self.loss, some_inputs, some_targets, self.views, self._rule, self.clip_norm,
            self.alone, self.autocast,
        )  # fmt: skip

    @property
    def _steps(self) -> tuple[float, float]:
        """The grid of the released numbers, and this process's standard deviation in steps of it."""
        scale = self.noise_multiplier * self.plan.sensitivity / self.plan.clip_norm * self.clip_norm
        step = _grid(scale)
        return step, scale / math.sqrt(self.group.size) / step

    def _drawn_ahead(self) -> Ahead | None:
        """The noise of a large model is drawn beside the work on the gradients, if a core is left for it."""
        if torch.get_num_threads() >= _cores() or self.source.seeded:
            return None
        trained = [each for each in self.model.parameters() if each.requires_grad]
        count = sum(each.numel() for each in trained)
        if count < _MANY:
            return None
        return Ahead(self.source, count, _precision(trained), self._steps[1])

    def _add_noise(self, total: dict[str, Tensor], norms: Tensor, ahead: Ahead | None) -> None:
        parameters = {name: each for name, each in self.model.named_parameters() if each.requires_grad}
        if not total:
            total = {
                name: torch.zeros(
                    each.shape, dtype=summed(each.dtype, self.plan.batch_size), device=each.device
                )
                for name, each in parameters.items()
            }
        sums = list(total.values())
        step, steps = self._steps
        noisy = self._noise(sums, _precision(parameters.values()), steps, ahead)
        torch._foreach_add_(noisy, sums, alpha=1 / step)
        if not self._noise_tested:
            self._noise_tested = True
            added = [(new - old / step).flatten() for new, old in zip(noisy, sums, strict=True)]
            check_noise(torch.cat(added) / steps)
        owners = [parameters[name] for name in total]
        noisy, count = self.group.total(noisy, owners, self._noisy_count(norms))
        for kind in {type(each) for each in noisy}:
            alike = [each for each in noisy if type(each) is kind]
            torch._foreach_round_(alike)
            torch._foreach_mul_(alike, step / self.plan.batch_size)
        for parameter, each in zip(owners, noisy, strict=True):
            parameter.grad = each if each.dtype == parameter.dtype else each.to(parameter.dtype)
        if isinstance(self.plan.clipping, Quantile):
            step = _grid(self._count_scale(self.plan.clipping))
            count = step * round(count / step)
            self.clip_norm = self.plan.clipping.moved(self.clip_norm, count, self.plan.batch_size)

    def _noise(
        self, like: list[Tensor], kind: torch.dtype, scale: float, ahead: Ahead | None
    ) -> list[Tensor]:
        """Noise for each of these tensors, drawn as one in the precision ``kind``."""
        sizes = [each.numel() for each in like]
        drawn = normal(self.source, sum(sizes), kind, scale) if ahead is None else ahead.result()
        if self._correlation:
            drawn = self._correlated(drawn)
        parts, wider = drawn.split_with_sizes(sizes), summed(drawn.dtype, self.plan.batch_size)
        return [part.view(each.shape).to(each.device, wider) for part, each in zip(parts, like, strict=True)]

    def _correlated(self, fresh: Tensor) -> Tensor:
        """Fresh noise less its share of the noise of earlier steps (:mod:`tacit.training.correlation`).

        The noise of earlier steps, with which the released gradients could be undone, is in this object alone
        and in no checkpoint. It is dropped, and correlation begins anew, where other parameters are trained.
        """
        if self._past_noise and self._past_noise[0].shape != fresh.shape:
            self._past_noise.clear()
        for coefficient, earlier in zip(self._correlation, self._past_noise, strict=False):
            fresh.sub_(earlier, alpha=coefficient)
        self._past_noise.appendleft(fresh)
        return fresh.clone()

    def _noisy_count(self, norms: Tensor) -> float:
        """The count that moves clip_norm, Σ 1[‖g‖ ≤ C] − ½, with this process's share of the noise."""
        if not isinstance(self.plan.clipping, Quantile):
            return 0.0
        finite = norms[norms.isfinite()]
        count = float((finite <= self.clip_norm).sum()) - len(finite) / 2
        spread = self._count_scale(self.plan.clipping) / math.sqrt(self.group.size)
        return count + spread * float(normal(self.source, 1, torch.float64))

    def _count_scale(self, clipping: Quantile) -> float:
        """Standard deviation of the noise on the count, whose sensitivity is ½, or 1 for replacing."""
        return clipping.count_noise * self.plan.batch_size * self.plan.sensitivity / self.plan.clip_norm


@functools.cache
def _cores() -> int:
    return os.cpu_count() or 1


def _joined(parts: list[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if parts else torch.empty(0)


def _precision(trained: Iterable[Tensor]) -> torch.dtype:
    """The precision that noise is drawn in for these parameters."""
    return functools.reduce(torch.promote_types, (wide(each.dtype) for each in trained))


def _grid(scale: float) -> float:
    """The spacing of the released numbers, a power of 2, given the standard deviation of their noise.

    The last bits of a noisy sum depend on the sum, and tell sums apart (Mironov 2012). After rounding to a
    grid of a sixty-fourth of the noise or less, every sum can give every number of the grid, with
    probabilities that the errors of floating point hardly change; the rounding is negligible beside the
    noise.
    """
    return 2.0 ** (math.floor(math.log2(scale)) - _GRID_BITS)
