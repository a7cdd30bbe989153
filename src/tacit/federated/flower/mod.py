"""The client mod: what a client does to its update before anything leaves it."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord

from tacit.errors import InvalidValue, TacitError
from tacit.federated.flower import silos
from tacit.federated.flower.messages import (
    METRICS,
    RECORD,
    UPDATE,
    Instruction,
    check_carried,
    refusal,
    reply,
    without_instruction,
)
from tacit.federated.flower.records import Arrays, Layout
from tacit.federated.plan import FederatedPlan
from tacit.federated.reports import Reports
from tacit.federated.updates import Updates, accepted, within
from tacit.ledger import Ledger, Payment
from tacit.randomness import Source

if TYPE_CHECKING:
    from tacit.federated.flower.masking import Masking

__all__ = ["Clipped", "clipped"]

Next = Callable[[Message, Context], Message]
_logger = logging.getLogger(__name__)
_LEAST_NORM, _MOST_NORM = 1e-100, 1e100
_REFUSES = "The client refuses. Its own log says why."


class Refused(Exception):
    """Why a client sends nothing: a public reason, with what to do."""


class Clipped:
    """A Flower mod that clips a client's update, and randomizes, encodes or masks it where the plan says so.

    ``ClientApp(mods=[clipped])`` takes the public plan from the server's message. That is right where the
    server is trusted anyway (``trust="server"``), or where each silo has protected its rows by itself
    (``"silo"``). A client that does not trust the server pins the plan that it agreed to,
    ``ClientApp(mods=[clipped(plan)])``: it refuses a message with any other plan, and sends at most
    ``plan.participations`` reports in one run. With ``ledger``, a ledger of the client's own, the client
    charges each run that it takes part in before it sends its first report, so that a server that starts
    ever new runs comes to an end of its budget. Under ``"silo"`` the Trainer charges the silo's ledger.

    Guarantee: every reply is a function of the update clipped to clip_norm, with the protection that
    :class:`tacit.federated.FederatedPlan` states for its trust. A train function that raises, or returns
    arrays of another shape or with NaN or infinity, counts as a zero update: the server cannot tell the
    difference where it is not trusted. A server that is not trusted cannot choose clip_norm either, unless
    the plan adapts it. No text of an exception leaves the client. The number of examples and all metrics
    that the plan does not buy stay on the client, and messages that ask for anything else than training,
    such as an evaluation, are refused.

    >>> from flwr.clientapp import ClientApp
    >>> plan = FederatedPlan(clients=100, cohort=10, rounds=5, epsilon=4.0, delta=1e-5, trust="nobody")
    >>> app = ClientApp(mods=[clipped(plan)])
    >>> clipped, clipped(plan)
    (clipped, clipped(5 rounds of 10 of 100 clients (at most 1 round each), ...))
    """

    def __init__(self, plan: FederatedPlan | None = None, ledger: Ledger | None = None) -> None:
        if plan is not None:
            check_carried(plan)
            if plan.trust == "silo" and ledger is not None:
                raise InvalidValue(
                    "ledger", "given", "None under trust='silo'",
                    "Give the ledger to FederatedPlan.silo: its Trainer charges what the silo's rows cost.",
                )  # fmt: skip
        self.plan, self._ledger = plan, ledger
        self.__name__ = "clipped"

    def __repr__(self) -> str:
        return "clipped" if self.plan is None else f"clipped({self.plan})"

    @overload
    def __call__(self, plan: FederatedPlan, /, *, ledger: Ledger | None = None) -> Clipped: ...

    @overload
    def __call__(self, message: Message, context: Context, call_next: Next, /) -> Message: ...

    def __call__(self, *given: Any, ledger: Ledger | None = None) -> Any:
        """The mod with a plan pinned; or the reply to a message, as Flower calls a mod."""
        if len(given) == 1:
            return Clipped(given[0], ledger)
        if len(given) != 3:
            raise InvalidValue(
                "plan", "missing", "a tacit.federated.FederatedPlan",
                "Write mods=[clipped] for the server's plan, or mods=[clipped(plan)] for a pinned one.",
            )  # fmt: skip
        message, context, call_next = given
        try:
            return self._answer(message, context, call_next)
        except Refused as refused:
            return refusal(message, str(refused))
        except TacitError as error:
            _logger.warning("Nothing was sent: %s", error)
            return refusal(message, _REFUSES)
        except Exception as error:
            # Flower would send the text of the exception to the server.
            _logger.warning("Nothing was sent, because of %s.", type(error).__name__)
            return refusal(message, _REFUSES)

    def _answer(self, message: Message, context: Context, call_next: Next) -> Message:
        instruction = Instruction.read(message)
        if message.metadata.message_type != MessageType.TRAIN or instruction is None:
            raise Refused(
                "A client of tacit answers to the rounds of tacit.federated.private alone: wrap the "
                "strategy, and buy what clients measure as metrics of the plan."
            )
        trust = str(instruction.plan.get("trust"))
        if self.plan is not None and _text(self.plan.to_dict()) != _text(instruction.plan):
            raise Refused(
                "The server's plan is not the one that this client agreed to: pin the same on both sides."
            )
        if trust in ("server", "silo"):
            return self._update(instruction, message, context, call_next)
        if self.plan is None:
            raise Refused(
                f"Under trust={trust!r} a client does not take its plan from the server: use clipped(plan)."
            )
        return self._protected(self.plan, instruction, message, context, call_next)

    def _update(
        self, instruction: Instruction, message: Message, context: Context, call_next: Next
    ) -> Message:
        """The clipped update, for a server that is trusted; or an update that a silo has protected."""
        layout, clip_norm = Layout.of(_model_in(message)), agreed_clip_norm(self.plan, instruction.facts)
        if self.plan is not None:
            self._pay(self.plan, context)
        answer = _Trained(message, context, call_next, layout)
        if instruction.plan["trust"] == "silo":
            missing = answer.update and silos.shortfall(answer.records, instruction.plan)
            if missing:
                raise Refused(missing)
            return reply(message, {UPDATE: layout.update(answer.update or _zeros(layout))})
        updates = Updates(layout.shapes)
        vector = updates.flatten(answer.update or _zeros(layout))
        vector = np.zeros(layout.dimension) if vector is None else vector
        record = layout.update(updates.unflatten(accepted(vector, clip_norm)))
        bought = [str(each["name"]) for each in instruction.plan["metrics"]]
        metrics = MetricRecord({name: answer.metrics[name] for name in bought if name in answer.metrics})
        told = None
        if instruction.plan["clipping"] != "fixed":
            told = ConfigRecord({"unclipped": within(vector, clip_norm)})
        return reply(message, {UPDATE: record, METRICS: metrics if bought else None, RECORD: told})

    def _protected(
        self,
        plan: FederatedPlan,
        instruction: Instruction,
        message: Message,
        context: Context,
        call_next: Next,
    ) -> Message:
        """A report that is safe to send to a server that is not trusted."""
        if plan.trust == "aggregator":
            said = self._stage(plan, instruction, message, context, call_next)
            return reply(message, {RECORD: ConfigRecord({"payload": said})})
        layout = Layout.of(_model_in(message))
        reports = Reports(plan, Updates(layout.shapes), agreed_clip_norm(plan, instruction.facts))
        self._pay(plan, context)
        answer = _Trained(message, context, call_next, layout)
        report = reports.vector(answer.update or _zeros(layout))
        noisy = reports.updates.unflatten(reports.randomized(report, Source()))
        return reply(message, {UPDATE: layout.update(noisy)})

    def _stage(
        self,
        plan: FederatedPlan,
        instruction: Instruction,
        message: Message,
        context: Context,
        call_next: Next,
    ) -> bytes:
        """The client's part of one stage of secure aggregation."""
        from tacit.federated.flower.masking import Masking

        if instruction.stage == "keys":
            agreed_clip_norm(plan, instruction.facts)
            masking = Masking.begun(plan, instruction.facts)
            self._pay(plan, context)
            said = masking.client.advertise().to_bytes()
        else:
            masking = Masking.kept(context, instruction.facts)
            given = instruction.payload[0] if len(instruction.payload) == 1 else b""
            match instruction.stage:
                case "shares":
                    said = masking.client.share(given).to_bytes()
                case "masked":
                    layout = Layout.of(_model_in(message))
                    said = self._masked(
                        plan, masking, given, _Trained(message, context, call_next, layout), layout
                    )
                case "unmask":
                    return masking.client.unmask(given).to_bytes()
                case _:
                    raise Refused("There is no such stage of secure aggregation.")
        masking.keep(context)
        return said

    @staticmethod
    def _masked(
        plan: FederatedPlan, masking: Masking, inbox: bytes, answer: _Trained, layout: Layout
    ) -> bytes:
        """The report, clipped, rounded, with its share of the noise, under all masks."""
        at = masking.occurrence
        reports = Reports(plan, Updates(layout.shapes), at.clip_norm)
        if reports.dimension != at.dimension:
            raise Refused("The model has another size than the server said.")
        report = reports.vector(
            answer.update or _zeros(layout), answer.metrics, weight=plan.weight(masking.client.number)
        )
        encoded = at.encoder(plan).encode(report, Source(), cohort=at.asked)
        return masking.client.masked(encoded, inbox).to_bytes()

    def _pay(self, plan: FederatedPlan, context: Context) -> None:
        """Count a report before rows are read; the first one charges the run to the client's ledger."""
        kept: Mapping[str, Any] = context.state.config_records.get(RECORD) or {}
        sent = int(kept.get("reports", 0))
        if sent >= (plan.participations or plan.rounds):
            raise Refused("This client has sent as many reports as the plan allows.")
        if sent == 0 and self._ledger is not None:
            payment = Payment.agreed(self._ledger, relation=plan.relation, unit=plan.unit)
            label, noise = "reports to a federation", plan.noise_kind
            with payment.charge(plan.event, label, noise=noise, delta=plan.delta):
                pass
        context.state[RECORD] = ConfigRecord({"reports": sent + 1})


class _Trained:
    """What the train function made of a message: an update and metrics, or nothing that can be used."""

    def __init__(self, message: Message, context: Context, call_next: Next, layout: Layout) -> None:
        self.update: Arrays | None = None
        self.metrics: dict[str, Any] = {}
        self.records: Any = {}
        before = layout.read(_model_in(message))
        counted = context.state.config_records.get(RECORD)
        try:
            answer = call_next(without_instruction(message), context)
            if answer.has_error():
                return
            self.records = answer.content
            for record in answer.content.metric_records.values():
                self.metrics.update(record)
            arrays = list(answer.content.array_records.values())
        except (Exception, SystemExit) as error:
            _logger.warning("The train function raised %s: its update counts as zero.", type(error).__name__)
            return
        finally:
            if counted is not None:
                # A train function that replaces its state must not make the client forget what it sent.
                context.state[RECORD] = counted
        after = layout.read(arrays[0]) if len(arrays) == 1 else None
        if after is not None and before is not None:
            with np.errstate(all="ignore"):
                self.update = [one - other for one, other in zip(after, before, strict=True)]


def _model_in(message: Message) -> ArrayRecord:
    records = list(message.content.array_records.values())
    if len(records) != 1:
        raise Refused("The server must send one ArrayRecord, the model.")
    return records[0]


def agreed_clip_norm(plan: FederatedPlan | None, facts: Mapping[str, Any]) -> float:
    """The clip_norm that the server states, refused where the pinned plan does not allow it.

    A norm at the edge of float64 would make the arithmetic of a report fail for some updates and not for
    others, which the server would see.
    """
    value = facts.get("clip_norm")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise Refused("The server must send a clip_norm above 0.")
    if plan is not None and plan.clipping == "fixed" and value != plan.clip_norm:
        raise Refused("The server's clip_norm is not the one of the plan that this client agreed to.")
    if not _LEAST_NORM <= value <= _MOST_NORM:
        raise Refused("The server's clip_norm must lie between 1e-100 and 1e100.")
    return float(value)


def _zeros(layout: Layout) -> Arrays:
    return [np.zeros(shape) for shape in layout.shapes]


def _text(plan: Mapping[str, Any]) -> str:
    return json.dumps(dict(plan), sort_keys=True)


clipped = Clipped()
