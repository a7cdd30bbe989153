"""Flower apps for the tests: a model of two arrays, clients that move it, and faults of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tacit.federated import FederatedPlan
from tacit.federated.flower import ProcessGrid, clipped

SHAPES = ((3, 2), (4,))
Train = Callable[[Message, Context], Message]


def model(value: float = 0.0) -> ArrayRecord:
    """Two arrays of one value, of single and double precision."""
    first, second = (np.full(shape, value) for shape in SHAPES)
    return ArrayRecord({"weight": Array(first.astype(np.float32)), "bias": Array(second)})


def plan(**changed: Any) -> FederatedPlan:
    """All of ten clients in every round, with so little noise that it can be neglected."""
    facts: dict[str, Any] = {
        "clients": 10, "cohort": 10, "rounds": 3, "clip_norm": 1.0, "noise_multiplier": 1e-6, "delta": 1e-5,
        "trust": "server",
    }  # fmt: skip
    return FederatedPlan(**{**facts, **changed})


def answered(message: Message, arrays: ArrayRecord, **numbers: float) -> Message:
    """A reply as train functions of Flower make them."""
    metrics = MetricRecord({"num-examples": 7, **numbers})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def moved(message: Message, by: float) -> ArrayRecord:
    """The model that the server sent, with every number moved."""
    sent = message.content["arrays"]
    return ArrayRecord(
        {name: Array(array.numpy() + array.numpy().dtype.type(by)) for name, array in sent.items()}
    )


def app(train: Train, *, mods: Iterable[Any] = (clipped,)) -> ClientApp:
    """A ClientApp with one train function."""
    made = ClientApp(mods=list(mods))
    made.train()(train)
    return made


def number_of(context: Context) -> int:
    return int(context.node_config["partition-id"])


def steady(message: Message, context: Context) -> Message:
    """A train function that moves every number by a hundredth of the client's number plus one."""
    return answered(message, moved(message, 0.01 * (number_of(context) + 1)), loss=0.5)


def _raises(message: Message) -> Message:
    raise ValueError("a secret row: 4711")


def _with(message: Message, **arrays: Any) -> Message:
    return answered(message, ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()}))


def _garbage(message: Message) -> Message:
    broken = Array(dtype="float64", shape=(4,), stype="numpy.ndarray", data=b"\x93NUMPY no array at all")
    return answered(message, ArrayRecord({"weight": Array(np.ones((3, 2), np.float32)), "bias": broken}))


def _boasting(message: Message) -> Message:
    """An array whose header promises 10¹⁵ numbers."""
    header = (
        b"\x93NUMPY\x01\x00v\x00"
        + b"{'descr': '<f8', 'fortran_order': False, 'shape': (10**15,), }".replace(
            b"10**15", b"1000000000000000"
        ).ljust(117)
        + b"\n"
    )
    broken = Array(dtype="float64", shape=(4,), stype="numpy.ndarray", data=header)
    return answered(message, ArrayRecord({"weight": Array(np.ones((3, 2), np.float32)), "bias": broken}))


WEIGHT, BIAS = np.ones((3, 2), np.float32), np.ones(4)
FAULTS: dict[str, Callable[[Message], Message]] = {
    "NaN": lambda message: answered(message, moved(message, np.nan)),
    "infinity": lambda message: answered(message, moved(message, -np.inf)),
    "one NaN": lambda message: _with(message, weight=WEIGHT, bias=np.array([0, np.nan, 0, 0])),
    "wrong shape": lambda message: _with(message, weight=WEIGHT, bias=np.ones(5)),
    "a number for an array": lambda message: _with(message, weight=WEIGHT, bias=np.float64(1)),
    "too few arrays": lambda message: _with(message, weight=WEIGHT),
    "other names": lambda message: _with(message, weights=WEIGHT, biases=BIAS),
    "complex numbers": lambda message: _with(message, weight=WEIGHT, bias=BIAS + 1j),
    "whole numbers": lambda message: _with(message, weight=WEIGHT, bias=np.ones(4, np.int64)),
    "no array": lambda message: answered(message, ArrayRecord()),
    "nothing": lambda message: Message(RecordDict(), reply_to=message),
    "two records": lambda message: Message(
        RecordDict({"arrays": model(1.0), "more": model(1.0)}), reply_to=message
    ),
    "bytes that are no array": _garbage,
    "a header that promises too much": _boasting,
    "an error": lambda message: Message(Error(2, "a secret row: 4711"), reply_to=message),
    "an exception": _raises,
    "another record": lambda message: Message(
        RecordDict({"tacit": ConfigRecord({"plan": 1})}), reply_to=message
    ),
}
"""Replies that count as zero."""
LONG: dict[str, Callable[[Message], Message]] = {
    "norm 1e9": lambda message: answered(message, moved(message, 1e9)),
    "norm 1e300": lambda message: _with(message, weight=WEIGHT * 0, bias=np.full(4, 1e300)),
}
"""Replies that are clipped."""


def one_faulty(fault: Callable[[Message], Message] | None, who: int = 3) -> Train:
    """Clients that train steadily, but for one."""

    def train(message: Message, context: Context) -> Message:
        if number_of(context) != who:
            return steady(message, context)
        return fault(message) if fault is not None else answered(message, moved(message, 0.0))

    return train


class TrickyGrid(ProcessGrid):
    """A grid that repeats replies, holds some back for the next round, and sends those of strangers."""

    def __init__(self, client_app: ClientApp, clients: int) -> None:
        super().__init__(client_app, clients)
        self.sent: list[Message] = []
        self.received: list[Message] = []
        self.twice: set[int] = set()
        self.late: set[int] = set()
        self._held: list[Message] = []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        messages = list(messages)
        self.sent += messages
        replies, self._held = [*self._held], []
        for reply in super().send_and_receive(messages, timeout=timeout):
            node = reply.metadata.src_node_id
            (self._held if node in self.late else replies).append(reply)
            if node in self.twice:
                replies.append(reply)
        self.received += replies
        return replies
