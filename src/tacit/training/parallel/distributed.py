"""Several processes that train one model together, started with ``torchrun``.

The script is the one for a single process, with ``torch.distributed.init_process_group("gloo")`` before
the trainer is made, and is the same in every process: each makes the same model, plan and trainer and
passes the same whole data set, not a part of it. Process r of W samples rows r, r + W, r + 2W, … and reads no
others (but row 0, for its shape), so that no example is in two processes; clips by itself; adds its share
of the noise; and the results of all are added up. Weights are those of process 0 from the start.

Guarantee: that of one process, unchanged. Each example is drawn by one process alone, with the plan's
probability and independently of all others, so what is added up is the sum over one sample of the whole
data set, and moves by at most the sensitivity Δ. Each process adds N(0, (zΔ)²/W) noise to its part, from
a source of its own, and the sum of W such shares is N(0, (zΔ)²) exactly. The run is charged once.

Who is trusted: all processes and the network between them, as one curator. What a process sends has only
its own share of the noise, so whoever sees it alone sees a noise multiplier of z/√W, and where t
processes leave out or disclose their shares the sum is left with z·√(1 − t/W). Holders of data who
do not trust each other need secure aggregation, and a z chosen for the shares that can be relied on
(distributed noise: Dwork et al. 2006; Kairouz, Liu and Steinke 2021).

FSDP2: the parameters of a model under ``fully_shard`` are made whole for the length of a step, so that
every process can clip its own examples, however many they are; gradients and optimiser state stay sharded.

===================  =================================================================================
fails in one         the others raise too, at the next exchange, and take no further step
ledger               process 0 charges; if it is refused, all raise before any example is read
stop, Ctrl-C         in any of them ends the run of all after the same step
checkpoint, file     written and read by process 0
a loop of your own   must take the same steps everywhere: leave it by ``trainer.stop()``
private diagnostics  and private costs are of the examples of this process alone
===================  =================================================================================
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DataParallel, DistributedDataParallel

from tacit import _validate
from tacit.errors import EngineFailed, InvalidValue
from tacit.training.batches.dataset import Examples, Pair
from tacit.training.parallel import sharding
from tacit.training.sampling import Fixed, RowNumbers, Sampler

Result = TypeVar("Result")


class ProcessGroup:
    """The processes that train one model together; in this base class there is one, which agrees with itself.

    >>> alone = process_group_of(nn.Linear(2, 1))
    >>> alone.size, alone.together(lambda: "done"), alone.any(False)
    (1, 'done', False)
    """

    rank = 0
    size = 1

    def seed(self, random_state: int | None) -> int | None:
        """The seed of this process: every process needs noise and samples of its own."""
        return random_state

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Refuse facts that are not the same in all processes."""

    def align(self, model: nn.Module) -> None:
        """Give all processes the weights of process 0."""

    def share(self, examples: Examples, sampler: Sampler) -> Examples:
        """The rows that this process samples."""
        return examples

    def together(self, act: Callable[[], Result]) -> Result:
        """Let process 0 alone run ``act``; all processes get its result, or raise its error."""
        return act()

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return flag

    def leave(self) -> None:
        """Take part in no further exchange: the other processes raise, unless they leave here too."""

    def total(self, sums: list[Tensor], like: Iterable[Tensor], count: float) -> tuple[list[Tensor], float]:
        """Sums and count added up over the processes, the sums sharded as the parameters ``like`` are."""
        return sums, count

    def whole(self, model: nn.Module) -> AbstractContextManager[None]:
        """A context within which the parameters of a sharded model are whole and plain."""
        return nullcontext()

    def failing(self) -> AbstractContextManager[None]:
        """A context in which an error in this process ends the run in all processes."""
        return nullcontext()

    def gathered(self, state: Mapping[str, Any]) -> dict[str, Tensor]:
        """The tensors of a model's state, whole where they were sharded."""
        return {name: each for name, each in state.items() if isinstance(each, Tensor)}

    def spread(self, state: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Shard the whole tensors of a saved state as those of model and optimiser are."""


ONE_PROCESS = ProcessGroup()


class TorchProcesses(ProcessGroup):
    """The processes of ``torch.distributed``.

    Everything exchanged begins with the same few numbers: who failed, who wants to stop, and a count. A
    process that fails sends them at once, whatever the others are about to exchange. After that nothing is
    exchanged any more, and process 0 acts alone: it writes the last checkpoint.
    """

    def __init__(self, model: nn.Module) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._device = next(model.parameters()).device
        self._raised: Exception | None = None
        self._over = False

    def seed(self, random_state: int | None) -> int | None:
        if random_state is None:
            return None
        return _validate.count("random_state", random_state) * self.size + self.rank

    def agree(self, facts: Mapping[str, Any]) -> None:
        self._over = False
        self._exchange()
        found: list[Any] = [None] * self.size
        with self._talking():
            dist.all_gather_object(found, {name: repr(value) for name, value in facts.items()})
        for name in facts:
            values = [each.get(name) for each in found]
            if len(set(values)) > 1:
                self._raised = InvalidValue(
                    name, " and ".join(sorted(set(values))), "the same in every process",
                    "Run one script in all of them; each samples its own rows of the same whole data set.",
                )  # fmt: skip
                raise self._raised

    def align(self, model: nn.Module) -> None:
        self._exchange()
        with torch.no_grad(), self._talking():
            for each in (*model.parameters(), *model.buffers()):
                if not sharding.is_shard(each):
                    held = each.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
                    dist.broadcast(held.view(torch.uint8), src=0)
                    each.copy_(held.view(each.shape))

    def share(self, examples: Examples, sampler: Sampler) -> Examples:
        if isinstance(sampler, Fixed):
            raise InvalidValue(
                "sampling", "fixed", "'poisson', 'shuffle', 'cyclic' or 'ordered' in several processes",
                "Which rows make up a batch of a fixed size cannot be drawn by each process alone.",
            )  # fmt: skip
        return _Part(examples, self.rank, self.size)

    def together(self, act: Callable[[], Result]) -> Result:
        if not self._over:
            self._exchange()
        result, error = None, None
        if self.rank == 0:
            try:
                result = act()
            except Exception as caught:
                error = caught
        if not self._over:
            sent = [_packed(result, error) if self.rank == 0 else b""]
            with self._talking():
                dist.broadcast_object_list(sent, src=0, device=self._device)
            if self.rank:
                result, error = _unpacked(sent[0])
        if error is not None:
            self._raised = error
            raise error
        return result  # type: ignore[return-value]

    def any(self, flag: bool) -> bool:
        return self._exchange(stop=flag)[0]

    def leave(self) -> None:
        if not self._over:
            self._exchange(failed=True)

    def total(self, sums: list[Tensor], like: Iterable[Tensor], count: float) -> tuple[list[Tensor], float]:
        _, count = self._exchange(count=count)
        parameters = list(like)
        with self._talking():
            plain = [number for number, each in enumerate(parameters) if not sharding.is_shard(each)]
            for dtype in dict.fromkeys(sums[number].dtype for number in plain):
                chosen = [number for number in plain if sums[number].dtype == dtype]
                flat = torch.cat([sums[number].reshape(-1) for number in chosen])
                dist.all_reduce(flat)
                sizes = [sums[number].numel() for number in chosen]
                for number, part in zip(chosen, torch.split(flat, sizes), strict=True):
                    sums[number] = part.view(parameters[number].shape)
            for number, each in enumerate(parameters):
                if sharding.is_shard(each):
                    sums[number] = sharding.scattered(sums[number], each)
        return sums, count

    @contextmanager
    def whole(self, model: nn.Module) -> Iterator[None]:
        if not sharding.is_sharded(model):
            yield
            return
        self._exchange()
        with sharding.unsharded(model):
            yield

    @contextmanager
    def failing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self._over and error is not self._raised:
                with suppress(RuntimeError):
                    self._exchange(failed=True)
            raise

    def gathered(self, state: Mapping[str, Any]) -> dict[str, Tensor]:
        tensors = super().gathered(state)
        if not any(map(sharding.is_shard, tensors.values())):
            return tensors
        if self._over:
            raise EngineFailed(
                "A sharded model can be written by all processes together only.",
                "End the run by trainer.stop() in place of leaving the loop.",
            )
        self._exchange()
        with self._talking():
            return {
                name: each.full_tensor() if sharding.is_shard(each) else each  # type: ignore[attr-defined]
                for name, each in tensors.items()
            }

    def spread(self, state: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if sharding.is_sharded(model):
            sharding.spread(state, model, optimizer)

    def _exchange(
        self, *, stop: bool = False, count: float = 0.0, failed: bool = False
    ) -> tuple[bool, float]:
        """Whether any process wants to stop, and the sum of counts; raises where another one failed."""
        told = torch.zeros(self.size + 2, dtype=torch.float64)
        told[0], told[1], told[2 + self.rank] = stop, count, failed
        told = told.to(self._device)
        with self._talking():
            dist.all_reduce(told)
        found = told.tolist()
        if any(found[2:]):
            self._over = True
            if not failed:
                ranks = ", ".join(str(rank) for rank, each in enumerate(found[2:]) if each)
                raise EngineFailed(
                    f"Process {ranks} of {self.size} failed or left its loop, which ended the run in all.",
                    "See the error raised there; trainer.stop() ends a run in order.",
                )
        return found[0] > 0, found[1]

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """After an error within, nothing is exchanged any more: the processes may be out of step."""
        try:
            yield
        except Exception:
            self._over = True
            raise


class _Part(Examples):
    """The rows of a data set that one process samples: rank, rank + size, rank + 2·size, …"""

    def __init__(self, examples: Examples, rank: int, size: int) -> None:
        self.examples, self.rank, self.size = examples, rank, size
        self.in_order = examples.in_order

    def __len__(self) -> int:
        return len(range(self.rank, len(self.examples), self.size))

    def batches(self, draws: Iterable[RowNumbers], size: int) -> Iterator[Iterator[Pair]]:
        return self.examples.batches((rows * self.size + self.rank for rows in draws), size)

    def like(self) -> Pair | None:
        return self.examples.like()


def process_group_of(model: nn.Module) -> ProcessGroup:
    """The processes that train this model: those of ``torch.distributed``, or this one alone.

    Refused: a model wrapped in ``DistributedDataParallel``, which would average raw gradients; one sharded by
    other means than FSDP2 over all processes; and a run under ``torchrun`` that has not joined the
    others, of which each would train and charge by itself.
    """
    for name, layer in model.named_modules():
        if isinstance(layer, DataParallel | DistributedDataParallel) or (
            type(layer).__name__ == "FullyShardedDataParallel"
        ):
            raise InvalidValue(
                f"layer {name!r}" if name else "model", type(layer).__name__, "the plain module",
                "Pass the module inside; the trainer adds up what the processes clipped by itself.",
            )  # fmt: skip
    if not dist.is_available():
        return ONE_PROCESS
    if not dist.is_initialized():
        if dist.is_torchelastic_launched() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise InvalidValue(
                "torch.distributed", "several processes that do not know of each other",
                "initialised before the trainer is made",
                'Call torch.distributed.init_process_group("gloo") first.',
            )  # fmt: skip
        return ONE_PROCESS
    shards = sharding.shards(model)
    if dist.get_world_size() == 1 and not shards:
        return ONE_PROCESS
    for shard in shards:
        shard.reshard()
    held = {id(each) for shard in shards for each in shard.parameters()}
    for name, each in model.named_parameters():
        if sharding.is_shard(each) and (
            id(each) not in held or each.device_mesh.size() != dist.get_world_size()  # type: ignore[attr-defined]
        ):
            raise InvalidValue(
                f"parameter {name!r}", "otherwise", "sharded by fully_shard over all processes",
                "Tensor and pipeline parallel models are not supported.",
            )  # fmt: skip
    return TorchProcesses(model)


def _packed(result: Any, error: Exception | None) -> bytes:
    """A result or an error; errors that cannot be sent as they are keep their message."""
    if error is None:
        return pickle.dumps((result, None))
    try:
        sent = pickle.dumps((None, (type(error), error.args, error.__dict__)))
        _unpacked(sent)
    except Exception:
        return pickle.dumps((None, (EngineFailed, (str(error),), {})))
    return sent


def _unpacked(sent: bytes) -> tuple[Any, Exception | None]:
    result, failed = pickle.loads(sent)
    if failed is None:
        return result, None
    kind, args, fields = failed
    error: Exception = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return None, error
