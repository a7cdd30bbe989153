"""The wrapped strategy: Flower's own aggregation, which only ever sees the private mean."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from tacit.errors import InvalidValue, TacitError

__all__ = ["Inner"]

_COMPARES_CLIENTS = (
    "Bulyan",
    "Krum",
    "MultiKrum",
    "FedMedian",
    "FedTrimmedAvg",
    "QFedAvg",
    "FedXgbBagging",
    "FedXgbCyclic",
)
_ADDS_NOISE = (
    "DifferentialPrivacyClientSideAdaptiveClipping",
    "DifferentialPrivacyClientSideFixedClipping",
    "DifferentialPrivacyServerSideAdaptiveClipping",
    "DifferentialPrivacyServerSideFixedClipping",
)


_PLAIN = (bool, int, float, str)


class Inner:
    """A copy of the wrapped strategy, and the two questions that it is asked in a round.

    *What do clients get?* The strategy's own ``configure_train`` is called with a grid that has nodes in
    name only, and the content of its first message goes to the whole cohort: the model, and the
    configuration that a strategy such as FedProx adds. Which clients take part is not its choice.

    *What is the next model?* Its ``aggregate_train`` is called with one reply, the private mean, of weight
    1. Its momentum, its Adam and its learning rate act on that mean: post-processing, which costs nothing.
    """

    def __init__(self, strategy: Any, clients: int) -> None:
        if not isinstance(strategy, Strategy):
            advice = "Pass one of flwr.serverapp.strategy; those of flwr.server.strategy are of the old API."
            raise InvalidValue("strategy", type(strategy).__name__, "a message-based Flower strategy", advice)
        kinds = {kind.__name__ for kind in type(strategy).__mro__}
        if kinds & set(_COMPARES_CLIENTS):
            raise InvalidValue(
                "strategy",
                type(strategy).__name__,
                "a strategy that works from the mean of the updates",
                "It compares the updates of single clients, which nobody sees. Wrap FedAvg, FedAvgM, "
                "FedAdam, FedAdagrad, FedYogi or FedProx.",
            )
        if kinds & set(_ADDS_NOISE):
            raise InvalidValue(
                "strategy",
                type(strategy).__name__,
                "a strategy without noise of its own",
                "Wrap the strategy inside it: the plan does the clipping, the noise and the accounting.",
            )
        self.strategy = copy.copy(strategy)
        self._weighted_by = str(getattr(strategy, "weighted_by_key", "num-examples"))
        if hasattr(strategy, "train_metrics_aggr_fn"):
            vars(self.strategy)["train_metrics_aggr_fn"] = _no_metrics
        least = max(int(getattr(strategy, name, 0)) for name in ("min_available_nodes", "min_train_nodes"))
        self.least_nodes = min(least, clients)
        self._stand_in = _NodesInName(max(least, clients, 1))
        self._request: Message | None = None
        self._given = {name: each for name, each in vars(self.strategy).items() if isinstance(each, _PLAIN)}

    @property
    def name(self) -> str:
        """The name of the wrapped strategy."""
        return type(self.strategy).__name__

    def request(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
        """What every client of the cohort gets."""
        with _quiet():
            messages = iter(self.strategy.configure_train(server_round, arrays, config, self._stand_in))
            first = next(messages, None)
        if first is None or len(first.content.array_records) != 1:
            raise TacitError(
                f"{self.name} sends no message with one ArrayRecord in round {server_round}.",
                "Give it a fraction_train above 0.",
                strategy=self.name,
                round=server_round,
            )
        self._request = first
        return first.content

    def next_model(self, server_round: int, mean: ArrayRecord, metrics: Mapping[str, float]) -> ArrayRecord:
        """The model that the strategy makes of the private mean."""
        if self._request is None:
            raise TacitError("No round was configured.", "Call configure_train before aggregate_train.")
        name = next(iter(self._request.content.array_records))
        told = MetricRecord({**metrics, self._weighted_by: 1.0})
        answer = Message(RecordDict({name: mean, "metrics": told}), reply_to=self._request)
        with _quiet():
            arrays, _ = self.strategy.aggregate_train(server_round, [answer])
        if arrays is None:
            raise TacitError(
                f"{self.name} made no model of the private mean.", "Wrap FedAvg or one of its kin."
            )
        return arrays

    def state(self) -> dict[str, Any]:
        """The attributes that rounds change: arrays, records of arrays, and numbers that are not as given."""
        return {
            name: value
            for name, value in vars(self.strategy).items()
            if _has_arrays(value) or (isinstance(value, _PLAIN) and value != self._given.get(name))
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state` gave."""
        vars(self.strategy).update(state)


class _NodesInName(Grid):
    """A grid that only says how many nodes there are: the plan draws the cohort, not the strategy."""

    def __init__(self, count: int) -> None:
        self._nodes = list(range(1, count + 1))

    def get_node_ids(self) -> Iterable[int]:
        return self._nodes

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, MessageType.TRAIN, ttl=ttl, group_id=group_id)

    def set_run(self, run: Any) -> None:
        self._refuse()

    @property
    def run(self) -> Any:
        self._refuse()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        self._refuse()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self._refuse()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise TacitError(
            "The wrapped strategy tried to talk to clients by itself.",
            "Only the plan's rounds may ask clients for anything: wrap a strategy that does not.",
        )


def _no_metrics(records: list[RecordDict], weighted_by: str) -> MetricRecord:
    return MetricRecord()


def _has_arrays(value: Any) -> bool:
    if isinstance(value, (ArrayRecord, np.ndarray)):
        return True
    if isinstance(value, dict):
        return bool(value) and all(isinstance(name, str) and _is_array(each) for name, each in value.items())
    return isinstance(value, list) and bool(value) and all(_is_array(each) for each in value)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fiub"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Flower from logging the sampling of nodes that are there in name only."""
    logger = logging.getLogger("flwr")
    logger.addFilter(_nothing)
    try:
        yield
    finally:
        logger.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    return False
