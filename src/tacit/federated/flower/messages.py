"""Messages: what the private strategy and the client mod tell each other, inside Flower's messages.

An instruction is one ConfigRecord named ``tacit`` in a message of type ``train``: the public plan as JSON,
the stage of the round, its number, and what other clients contribute to a stage of secure aggregation.
Nothing is pickled.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode

from tacit.errors import InvalidValue
from tacit.federated.plan import FederatedPlan

__all__ = [
    "METRICS",
    "RECORD",
    "UPDATE",
    "Instruction",
    "check_carried",
    "clipped_in",
    "numbers_in",
    "payload_of",
    "refusal",
    "reply",
    "with_content",
    "without_instruction",
]

RECORD = "tacit"
"""The name of the record that carries an instruction, or the answer to one."""
UPDATE = "tacit.update"
"""The name of the record in which a client with the mod sends its clipped update."""
METRICS = "tacit.metrics"
"""The name of the record with the metrics that the plan buys."""


@dataclass(frozen=True)
class Instruction:
    """What a client is asked for: an update, or its part of one stage of secure aggregation."""

    plan: Mapping[str, Any]
    stage: str
    round: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    payload: tuple[bytes, ...] = ()

    def record(self) -> ConfigRecord:
        """The instruction as a record of a message."""
        return ConfigRecord(
            {
                "plan": json.dumps(dict(self.plan), sort_keys=True),
                "stage": self.stage,
                "round": self.round,
                "facts": json.dumps(dict(self.facts), sort_keys=True),
                "payload": list(self.payload),
            }
        )

    @classmethod
    def read(cls, message: Message) -> Instruction | None:
        """The instruction in a message, or None where there is none that can be read."""
        try:
            record: Mapping[str, Any] = message.content.config_records[RECORD]
            plan, facts = json.loads(record["plan"]), json.loads(record["facts"])
            payload = tuple(record["payload"])
            stage, number = record["stage"], record["round"]
        except Exception:
            return None
        well_formed = (
            isinstance(plan, dict)
            and isinstance(facts, dict)
            and isinstance(stage, str)
            and isinstance(number, int)
            and all(isinstance(part, bytes) for part in payload)
        )
        return cls(plan, stage, number, facts, payload) if well_formed else None


def check_carried(plan: Any) -> None:
    """Refuse what is no plan, and a plan that counts on somebody whom Flower does not have."""
    if not isinstance(plan, FederatedPlan):
        raise InvalidValue("plan", type(plan).__name__, "a tacit.federated.FederatedPlan")
    if plan.shuffler:
        raise InvalidValue(
            "shuffler", plan.shuffler, "False over Flower, whose server sees which node sent a report",
            "Plan without a shuffler, or mix the reports elsewhere and give them to tacit.federated.Rounds.",
        )  # fmt: skip
    if plan.trust == "aggregator":
        from tacit.federated.flower.masking import check_graph

        check_graph(plan)


def with_content(message: Message, content: RecordDict) -> Message:
    """A message with the same metadata and other records."""
    made = copy.copy(message)
    made.content = content
    return made


def without_instruction(message: Message) -> Message:
    """The message as the wrapped strategy would have sent it."""
    kept = {name: record for name, record in message.content.items() if name != RECORD}
    return with_content(message, RecordDict(kept))


def reply(message: Message, records: Mapping[str, Any]) -> Message:
    """A reply with those of these records that are not None."""
    kept = {name: record for name, record in records.items() if record is not None}
    return Message(RecordDict(kept), reply_to=message)


def payload_of(message: Message) -> bytes | None:
    """The bytes that a client sent for a stage, or None where it sent none."""
    try:
        payload = message.content.config_records[RECORD]["payload"]
    except Exception:
        return None
    return payload if isinstance(payload, bytes) else None


def numbers_in(records: RecordDict) -> dict[str, Any]:
    """The metrics of a client with the mod, or of one without it: the plan decides which are read."""
    found: dict[str, Any] = {}
    try:
        for name, record in records.metric_records.items():
            if name == METRICS or METRICS not in records:
                found.update(record)
    except Exception:
        return {}
    return found


def clipped_in(records: RecordDict) -> dict[str, bool]:
    """Whether the client says that its update was within clip_norm before it clipped it."""
    try:
        return {"unclipped": records.config_records[RECORD]["unclipped"] is True}
    except Exception:
        return {}


def refusal(message: Message, reason: str) -> Message:
    """The reply of a client that refuses; the reason is public and says what to do."""
    return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, reason), reply_to=message)
