"""A Flower app in one process: the same ServerApp and ClientApp, with no network and no other process.

For tests and small studies. Flower's simulation runtime and its deployment run the same apps.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from tacit import _validate
from tacit.federated.flower.messages import with_content

__all__ = ["ProcessGrid", "run_in_process"]


class ProcessGrid(Grid):
    """A grid whose nodes are contexts in this process; a message is answered when it is sent.

    Every node has a context of its own with ``partition-id`` and ``num-partitions`` in its configuration,
    as in Flower's simulation. An exception in the ClientApp becomes an error reply, as it does in Flower.
    """

    def __init__(
        self, client_app: ClientApp, clients: int, run_config: Mapping[str, Any] | None = None
    ) -> None:
        self._app = client_app
        self._run = Run.create_empty(run_id=secrets.randbits(63))
        TaskIdentity.run_id, TaskIdentity.task_id = self._run.run_id, 1
        TaskIdentity.node_id = SUPERLINK_NODE_ID
        self._contexts = {
            1000 + number: Context(
                self._run.run_id,
                1000 + number,
                {"partition-id": number, "num-partitions": clients},
                RecordDict(),
                dict(run_config or {}),
            )
            for number in range(_validate.count("clients", clients))
        }
        self._sent = 0
        self._replies: dict[str, Message] = {}

    def set_run(self, run: Run) -> None:
        """Name the run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run of this process."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """A message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """All nodes: none ever leaves."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Have every message answered at once, and keep the replies."""
        numbers = []
        for message in messages:
            self._sent += 1
            number = str(self._sent)
            message.metadata.__dict__["_message_id"] = number
            self._replies[number] = self.answer(message)
            numbers.append(number)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies to these messages, each once."""
        return [self._replies.pop(number) for number in message_ids if number in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """The replies to these messages."""
        return self.pull_messages(list(self.push_messages(messages)))

    def answer(self, message: Message) -> Message:
        """The reply of one node to one message."""
        context = self._contexts[message.metadata.dst_node_id]
        handed_over = with_content(message, _copied(message.content))
        try:
            return self._app(handed_over, context)
        except Exception:
            reason = "The ClientApp raised an exception."
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def run_in_process(
    server_app: ServerApp, client_app: ClientApp, clients: int, run_config: Mapping[str, Any] | None = None
) -> Context:
    """Run a Flower app with ``clients`` nodes in this process, and return the context of its server.

    >>> import numpy as np
    >>> from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    >>> from flwr.serverapp.strategy import FedAvg
    >>> client_app, server_app = ClientApp(), ServerApp()
    >>> @client_app.train()
    ... def train(message, context):
    ...     moved = [array + 1 for array in message.content["arrays"].to_numpy_ndarrays()]
    ...     counted = MetricRecord({"num-examples": 1})
    ...     return Message(RecordDict({"arrays": ArrayRecord(moved), "metrics": counted}), reply_to=message)
    >>> @server_app.main()
    ... def main(grid, context):
    ...     result = FedAvg(fraction_evaluate=0.0).start(grid, ArrayRecord([np.zeros(2)]), num_rounds=3)
    ...     context.state["model"] = result.arrays
    >>> run_in_process(server_app, client_app, 4).state["model"].to_numpy_ndarrays()
    [array([3., 3.])]
    """
    grid = ProcessGrid(client_app, clients, run_config)
    context = Context(grid.run.run_id, SUPERLINK_NODE_ID, {}, RecordDict(), dict(run_config or {}))
    server_app(grid, context)
    return context


def _copied(content: RecordDict) -> RecordDict:
    """The same records in a dictionary of their own, so that no client changes what another one gets."""
    return RecordDict({name: copy.copy(record) for name, record in content.items()})
