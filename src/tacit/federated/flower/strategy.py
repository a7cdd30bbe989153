"""The private strategy: any of Flower's averaging strategies, inside the rounds of a FederatedPlan."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from tacit.errors import InvalidValue, TacitError
from tacit.federated.flower.inner import Inner
from tacit.federated.flower.messages import (
    RECORD,
    UPDATE,
    Instruction,
    check_carried,
    clipped_in,
    numbers_in,
)
from tacit.federated.flower.nodes import Nodes
from tacit.federated.flower.records import Arrays, Layout
from tacit.federated.flower.saved import Saved
from tacit.federated.plan import FederatedPlan
from tacit.federated.rounds import Round, Rounds
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger

if TYPE_CHECKING:
    from tacit.federated.flower.carrying import Carrying

__all__ = ["PrivateStrategy", "private"]

_PAUSE = 0.2
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class PrivateStrategy(Strategy):
    """A Flower strategy whose models satisfy the guarantee of its plan. :func:`private` makes it.

    Guarantee: that of :class:`tacit.federated.FederatedPlan`, for all models, metrics and clip_norms of a
    run. The cohort is drawn by :class:`tacit.federated.Rounds` over the plan's clients, and a client
    without a node, or whose node does not answer, counts as a zero update. Of a reply only the update and
    the metrics that the plan buys are read, and each only once for a client of the cohort; the number of
    examples never is. The wrapped strategy sees the private mean and nothing else.

    Secret, under Poisson sampling: who is in a cohort. Nothing here logs a node or a number of replies;
    Flower's SuperLink does, so its log has to be kept as secret as the updates.
    """

    def __init__(
        self,
        strategy: Strategy,
        plan: FederatedPlan,
        ledger: Ledger | None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        label: str = "federated learning",
        random_state: int | None = None,
    ) -> None:
        check_carried(plan)
        self.plan = plan
        self.timeout: float = 3600
        """How many seconds a round waits for replies; ``start`` sets it."""
        self._inner = Inner(strategy, plan.clients)
        self._options: dict[str, Any] = {
            "ledger": ledger, "checkpoint": checkpoint, "label": label, "random_state": random_state,
        }  # fmt: skip
        self._nodes = Nodes(plan.clients)
        self._rounds: Rounds | None = None
        self._asking: _Asking | None = None
        self._layout: Layout | None = None

    # ------------------------------------------------------------------------------- what Flower calls

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Run the rounds of the plan, or the first ``num_rounds`` of them, and return the last model.

        With a checkpoint, a run that was broken off goes on with its next round and its last model; a round
        in whose middle the server was killed is not repeated, since it is paid for once. ``initial_arrays``
        must be public. ``evaluate_fn`` gets released models, and must use public data: what it computes
        from others' data is not covered by the guarantee. ``evaluate_config`` is not used: clients are not
        evaluated.
        """
        last = self.plan.rounds if num_rounds is None else num_rounds
        if not 0 < last <= self.plan.rounds:
            raise InvalidValue(
                "num_rounds", last, f"between 1 and {self.plan.rounds}, the rounds of the plan",
                "Make a plan for more rounds: its noise is computed for their number.",
            )  # fmt: skip
        self.timeout = timeout
        config = ConfigRecord() if train_config is None else train_config
        rounds, arrays = self._open(initial_arrays, config)
        log(INFO, "Starting %s around %s:", type(self).__name__, self._inner.name)
        self.summary()
        result = Result()
        result.arrays = arrays
        if evaluate_fn and rounds.number == 0:
            self._evaluate(evaluate_fn, 0, arrays, result)
        self._wait_for_nodes(grid)
        while rounds.number < last:
            current = rounds.number + 1
            log(INFO, "[ROUND %s/%s]", current, last)
            messages = list(self.configure_train(current, arrays, config, grid))
            replies = self._replies(grid, messages)
            arrays, metrics = self.aggregate_train(current, replies)
            result.arrays = arrays
            if metrics is not None:
                result.train_metrics_clientapp[current] = metrics
            if evaluate_fn:
                self._evaluate(evaluate_fn, current, arrays, result)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Pay for the round, draw its cohort, and make a message for each client of it that has a node."""
        rounds, _ = self._open(arrays, config)
        present = set(grid.get_node_ids())
        self._nodes.meet(present)
        content = self._inner.request(server_round, arrays, config)
        self._keep(rounds, arrays)
        one = rounds.begin()
        self._asking = asking = _Asking(one, server_round, content, secrets.token_hex(16))
        if self.plan.trust != "aggregator":
            facts = {"clip_norm": one.clip_norm}
            return self._messages(asking, "update", facts, dict.fromkeys(one.cohort, b""), present)
        asking.carrying = carrying = self._carrying(asking, grid)
        return self._messages(asking, "masked", carrying.facts, carrying.inboxes(), present)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord | None]:
        """Release the private mean of the updates, and the model that the wrapped strategy makes of it."""
        asking = self._asking
        if asking is None or asking.number != server_round:
            raise TacitError(
                f"Round {server_round} was not configured.", "Call configure_train first.", round=server_round
            )
        self._asking = None
        if asking.carrying is not None:
            asking.carrying.open(self._known(asking, replies))
        else:
            for client, message in self._known(asking, replies):
                self._receive(asking, client, message)
        mean = asking.one.finish()
        released = asking.one.metrics
        model = self._next(asking.sent, mean, server_round, released)
        return model, MetricRecord({**released}) if released else None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """No message: what clients measure is private. Buy it with the plan's ``metrics``."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        """Nothing: see :meth:`configure_evaluate`."""

    def summary(self) -> None:
        """Log the plan in words."""
        for line in self.plan.describe().splitlines():
            log(INFO, "\t%s", line)

    @property
    def guarantee(self) -> Guarantee:
        """What may be promised about all models, once the first round was paid for."""
        if self._rounds is None:
            advice = "plan.guarantee() tells what the run will promise."
            raise InvalidValue("rounds", "not begun", "begun first", advice)
        return self._rounds.guarantee

    # ------------------------------------------------------------------------------- one after the other

    def _open(self, arrays: ArrayRecord, config: ConfigRecord) -> tuple[Rounds, ArrayRecord]:
        """The rounds, and the model with which they go on: the given one unless a checkpoint has another."""
        if self._rounds is not None:
            return self._rounds, arrays
        self._layout = Layout.of(arrays)
        self._rounds = rounds = Rounds(self.plan, self._layout.shapes, **self._options)
        if not rounds.state:
            return rounds, arrays
        saved = Saved.from_arrays(rounds.state)
        if Layout.of(saved.model) != self._layout:
            raise InvalidValue(
                "checkpoint", str(self._options["checkpoint"]), "of a model with the same arrays",
                "Name another checkpoint, or give the model that the run began with.",
            )  # fmt: skip
        self._nodes = Nodes(self.plan.clients, saved.nodes)
        self._inner.restore(saved.strategy)
        if rounds.pending is None:
            return rounds, saved.model
        content = self._inner.request(rounds.number, saved.model, config)
        sent = next(iter(content.array_records.values()))
        return rounds, self._next(sent, rounds.pending, rounds.number, rounds.metrics)

    def _keep(self, rounds: Rounds, arrays: ArrayRecord) -> None:
        rounds.state = Saved(arrays, self._nodes.known, self._inner.state()).to_arrays()

    def _messages(
        self,
        asking: _Asking,
        stage: str,
        facts: Mapping[str, Any],
        payload: Mapping[int, bytes],
        present: set[int],
    ) -> list[Message]:
        """A message for each of these clients that has a node; the model goes with the stages that train."""
        made = []
        for client, said in payload.items():
            node = self._nodes.node_of(client)
            if node is None or node not in present:
                continue
            instruction = Instruction(
                self.plan.to_dict(),
                stage,
                asking.one.number,
                {**facts, "client": client},
                (said,) if said else (),
            )
            records = {} if stage in ("keys", "shares", "unmask") else asking.content
            content = RecordDict({**records, RECORD: instruction.record()})
            made.append(Message(content, node, MessageType.TRAIN, group_id=asking.ticket))
        return made

    def _carrying(self, asking: _Asking, grid: Grid) -> Carrying:
        """Secure aggregation of this round, whose stages go through the grid."""
        from tacit.federated.flower.carrying import Carrying

        def ask(
            stage: str, facts: Mapping[str, Any], payload: Mapping[int, bytes]
        ) -> list[tuple[int, Message]]:
            asking.ticket = secrets.token_hex(16)
            messages = self._messages(asking, stage, facts, payload, set(grid.get_node_ids()))
            replies = self._replies(grid, messages)
            found = list(self._known(asking, replies))
            asking.ticket = secrets.token_hex(16)
            return found

        return Carrying(asking.one, secrets.token_hex(16), ask)

    def _replies(self, grid: Grid, messages: list[Message]) -> Iterable[Message]:
        """The replies to these messages; none where Flower fails over the bytes that a client sent."""
        try:
            return list(grid.send_and_receive(messages, timeout=self.timeout)) if messages else []
        except (ArithmeticError, AttributeError, DecodeError, LookupError, TypeError, ValueError):
            log(WARNING, "Flower could not read a reply: the replies to this message count as missing.")
            return []

    def _known(self, asking: _Asking, replies: Iterable[Message]) -> Iterator[tuple[int, Message]]:
        """The replies to this stage of this round that carry something, with the clients they are from."""
        for message in replies:
            try:
                client = self._nodes.client_of(message.metadata.src_node_id)
                usable = not message.has_error() and message.has_content()
                if client is not None and usable and message.metadata.group_id == asking.ticket:
                    yield client, message
            except Exception:
                continue

    def _receive(self, asking: _Asking, client: int, message: Message) -> None:
        """Hand one reply to the round; no reply raises, whatever is in it."""
        records = message.content
        asking.one.receive(
            client, self._update_in(records, asking), numbers_in(records), **clipped_in(records)
        )

    def _update_in(self, records: RecordDict, asking: _Asking) -> Arrays | None:
        layout = self._known_layout
        if UPDATE in records:
            return layout.read(records.get(UPDATE))
        if self.plan.trust != "server" or len(records.array_records) != 1:
            return None
        trained = layout.read(next(iter(records.array_records.values())))
        if trained is None:
            return None
        with np.errstate(all="ignore"):
            return [after - before for after, before in zip(trained, self._public(asking.sent), strict=True)]

    @property
    def _known_layout(self) -> Layout:
        if self._layout is None:
            raise TacitError("No round was configured.", "Call configure_train first.")
        return self._layout

    def _next(
        self, sent: ArrayRecord, mean: Arrays, server_round: int, metrics: dict[str, float]
    ) -> ArrayRecord:
        layout = self._known_layout
        moved = [one + change for one, change in zip(self._public(sent), mean, strict=True)]
        made = self._inner.next_model(server_round, layout.model(moved, sent), metrics)
        return layout.model(self._public(made), sent)

    def _public(self, model: ArrayRecord) -> Arrays:
        """The learned arrays of a model that the wrapped strategy sends or makes."""
        arrays = self._known_layout.read(model)
        if arrays is None:
            raise TacitError(
                f"{self._inner.name} works with arrays of other names or shapes than the first model's.",
                "Wrap a strategy that keeps them, such as FedAvg.", strategy=self._inner.name,
            )  # fmt: skip
        return arrays

    def _wait_for_nodes(self, grid: Grid) -> None:
        """Wait for as many nodes as the wrapped strategy asks for; those that are missing count as zeros."""
        end = time.monotonic() + self.timeout
        while len(set(grid.get_node_ids())) < self._inner.least_nodes and time.monotonic() < end:
            time.sleep(_PAUSE)

    @staticmethod
    def _evaluate(function: Evaluate, number: int, arrays: ArrayRecord, result: Result) -> None:
        found = function(number, arrays)
        if found is not None:
            log(INFO, "\tRound %s, on the server: %s", number, found)
            result.evaluate_metrics_serverapp[number] = found


class _Asking:
    """A round whose clients are being asked."""

    def __init__(self, one: Round, number: int, content: RecordDict, ticket: str) -> None:
        self.one, self.number, self.content, self.ticket = one, number, content, ticket
        self.carrying: Carrying | None = None

    @property
    def sent(self) -> ArrayRecord:
        return next(iter(self.content.array_records.values()))


def private(
    strategy: Strategy,
    plan: FederatedPlan,
    ledger: Ledger | None,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    label: str = "federated learning",
    random_state: int | None = None,
) -> PrivateStrategy:
    """Wrap a Flower strategy so that its models satisfy the guarantee of ``plan``, charged to ``ledger``.

    FedAvg, FedAvgM, FedAdam, FedAdagrad, FedYogi and FedProx, and strategies derived from them, work from
    the private mean; those that compare single updates are refused. Clients use the mod
    :data:`tacit.federated.clipped`; under ``trust="server"`` they may do without, since the server clips
    again what they send. The number of clients, the cohort and the rounds are those of the plan:
    ``fraction_train`` and ``num-examples`` have no effect, ``min_available_nodes`` says how many nodes the
    first round waits for.

    ``ledger`` must protect clients (``tacit.Ledger.open(…, unit=tacit.federated.CLIENT)``). The whole run
    is charged when its first round begins, before any client is asked. ``checkpoint`` names a file from
    which a server that was killed goes on. ``random_state`` is for tests, and the guarantee says so.

    Guarantee and papers: :class:`tacit.federated.FederatedPlan`.

    >>> import numpy as np
    >>> from flwr.app import ArrayRecord, Message, RecordDict
    >>> from flwr.clientapp import ClientApp
    >>> from flwr.serverapp import ServerApp
    >>> from flwr.serverapp.strategy import FedAvg
    >>> from tacit.federated import FederatedPlan
    >>> from tacit.federated.flower import clipped, run_in_process
    >>> plan = FederatedPlan(clients=50, cohort=25, rounds=4, clip_norm=1.0, epsilon=8.0, delta=1e-3,
    ...                      trust="server")
    >>> client_app, server_app = ClientApp(mods=[clipped]), ServerApp()
    >>> @client_app.train()
    ... def train(message, context):
    ...     moved = [array + 1 for array in message.content["arrays"].to_numpy_ndarrays()]
    ...     return Message(RecordDict({"arrays": ArrayRecord(moved)}), reply_to=message)
    >>> @server_app.main()
    ... def main(grid, context):
    ...     strategy = private(FedAvg(), plan, None, random_state=1)
    ...     context.state["model"] = strategy.start(grid, ArrayRecord([np.zeros(3)])).arrays
    ...     print(strategy.guarantee.epsilon)
    >>> model = run_in_process(server_app, client_app, plan.clients).state["model"]
    8.0
    >>> model.to_numpy_ndarrays()[0].shape
    (3,)
    """
    return PrivateStrategy(
        strategy, plan, ledger, checkpoint=checkpoint, label=label, random_state=random_state
    )
