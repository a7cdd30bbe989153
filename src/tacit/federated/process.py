"""A whole federation in one process, for tests and small studies.

The rounds, the reports, the noise and the charge are those of a real federation; only the messages are
function calls. Under "aggregator" the encoded reports are added up without masks, which cancel in the sum:
in one process there is nobody to hide them from.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.federated.optimizers import Arrays, Averaging, ServerOptimizer
from tacit.federated.plan import FederatedPlan
from tacit.federated.rounds import PrivateCounts, Round, Rounds
from tacit.guarantee import Guarantee

if TYPE_CHECKING:
    from tacit.ledger import Ledger

__all__ = ["Federation", "RoundProgress", "simulate"]

ClientUpdate = Callable[[int, Arrays], Any]


@dataclass(frozen=True)
class RoundProgress:
    """What a callback sees after a round: released figures, and two that are the curator's alone.

    ``seconds`` and ``private_counts`` depend on the clients' rows and must not be published.
    """

    number: int
    rounds: int
    parameters: Arrays
    clip_norm: float
    metrics: dict[str, float]
    seconds: float
    private_counts: PrivateCounts

    def __str__(self) -> str:
        told = "".join(f", {name} {value:.4g}" for name, value in self.metrics.items())
        return f"round {self.number + 1} of {self.rounds}{told}"


@dataclass(frozen=True)
class Federation:
    """What a federation released: the model, the metrics of all rounds, and the guarantee of all of it.

    Of the rounds before a checkpoint that the run went on from, only the last one's metrics are there.
    """

    parameters: Arrays
    guarantee: Guarantee
    metrics: tuple[dict[str, float], ...] = field(default=())


def simulate(
    plan: FederatedPlan,
    client_update: ClientUpdate,
    initial: Sequence[Any],
    *,
    ledger: Ledger | None = None,
    optimizer: ServerOptimizer | None = None,
    progress: Callable[[RoundProgress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    label: str = "federated learning",
    random_state: int | None = None,
) -> Federation:
    """Run the rounds of a plan in one process, and return the model with its guarantee.

    ``client_update(client, parameters)`` is what a client computes: its local parameters minus the given
    ones, as arrays of the same shapes; or a pair of that and a mapping with its metrics by name. An error in
    it counts as an update of zeros, since it may depend on the client's rows. No error is raised or logged:
    call ``client_update`` once by yourself before the run; under "server" and "silo" the curator also finds
    out from ``RoundProgress.private_counts``. Where the server sees who answers ("aggregator", "nobody"), the
    client sends its noise all the same, because its silence would tell about its rows. ``initial`` are the
    first parameters, which are public.
    ``optimizer`` applies the released update (:class:`tacit.federated.Averaging` by default).

    Guarantee: that of :class:`tacit.federated.Rounds`, in ``.guarantee``. The ledger is charged for the whole
    plan before the first client is asked. A run with a ``checkpoint`` that was killed goes on from it; the
    round in which it was killed is lost, and stays charged. McMahan et al. 2018.

    >>> plan = FederatedPlan(clients=200, cohort=100, rounds=10, clip_norm=1.0, epsilon=5.0, delta=1e-5,
    ...                      trust="server")
    >>> def client_update(client, parameters):
    ...     return [0.5 * (np.array([1.0, -1.0]) - parameters[0])]
    >>> run = simulate(plan, client_update, [np.zeros(2)], random_state=7)
    >>> run.parameters[0].round(1), run.guarantee.epsilon
    (array([ 1., -1.]), 5.0)
    """
    parameters: Arrays = [np.array(each, np.float64) for each in initial]
    moves = Averaging() if optimizer is None else optimizer
    rounds = Rounds(
        plan, [each.shape for each in parameters], ledger=ledger, checkpoint=checkpoint, label=label,
        random_state=random_state,
    )  # fmt: skip
    if rounds.state:
        parameters = _restored(rounds, moves, len(parameters))
        if rounds.pending is not None:
            parameters = moves.move(parameters, rounds.pending)
    released = [rounds.metrics] if rounds.metrics else []
    while not rounds.finished:
        begun = time.perf_counter()
        rounds.state = {f"parameter {place}": each for place, each in enumerate(parameters)}
        rounds.state |= {f"optimizer {name}": each for name, each in moves.state.items()}
        one = rounds.begin()
        _ask(one, client_update, parameters, rounds)
        parameters = moves.move(parameters, one.finish())
        if one.metrics:
            released.append(one.metrics)
        if progress is not None:
            shown = [each.copy() for each in parameters]
            seconds = time.perf_counter() - begun
            progress(
                RoundProgress(
                    one.number, plan.rounds, shown, one.clip_norm, one.metrics, seconds, one.private_counts
                )
            )
    return Federation(parameters, rounds.guarantee, tuple(released))


def _restored(rounds: Rounds, moves: ServerOptimizer, arrays: int) -> Arrays:
    for name, each in rounds.state.items():
        if name.startswith("optimizer "):
            moves.state[name.removeprefix("optimizer ")] = each
    return [rounds.state[f"parameter {place}"] for place in range(arrays)]


def _has_metrics(answer: Any) -> bool:
    """Whether a client's answer is a pair of arrays and metrics, and not a pair of arrays."""
    return isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping)


def _ask(one: Round, client_update: ClientUpdate, parameters: Arrays, rounds: Rounds) -> None:
    """Have every client of the cohort compute and report, as the plan's trust says."""
    encoder = one.encoder() if one.plan.trust == "aggregator" else None
    if encoder is not None and len(one.cohort) > one.plan.largest_cohort:
        return
    total: NDArray[np.uint64] | None = None
    survivors = []
    for client in one.cohort:
        try:
            answer = client_update(client, [each.copy() for each in parameters])
            arrays, metrics = answer if _has_metrics(answer) else (answer, None)
        except Exception:
            arrays = metrics = None
        source = rounds.client_source(one.number, client)
        if one.plan.trust in ("server", "silo"):
            one.receive(client, arrays, metrics)
        elif one.plan.trust == "nobody":
            report = one.reports.randomized(one.reports.vector(arrays), source)
            one.receive(client, rounds.updates.unflatten(report))
        elif encoder is not None:
            report = one.reports.vector(arrays, metrics, weight=one.plan.weight(client))
            encoded = encoder.encode(report, source, cohort=len(one.cohort))
            total = encoded if total is None else total + encoded
            survivors.append(client)
    if total is not None:
        one.opened(total & np.uint64((1 << one.plan.bits) - 1), survivors)
