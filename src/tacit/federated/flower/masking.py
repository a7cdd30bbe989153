"""Secure aggregation over Flower, on the client: its part in the four stages of a round.

The client's keys and shares live between the stages in Flower's Context, which stays on the client's
machine. What the server said in the first stage about the round (its number, how many clients are asked,
clip_norm and the public seed of the rotation) is kept there too and holds until its end: a later stage
cannot change it.

Why the noise in an opened sum suffices. Each client sizes its share of noise for the number of clients that
are asked, and lets the sum be opened only with :meth:`Occurrence.threshold` clients, which is never fewer
than the plan needs for that number. So a server that names another number than it asked changes both alike.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from flwr.app import ConfigRecord, Context

from tacit.errors import InvalidValue, MessageRefused
from tacit.federated.distributed import DistributedNoise, Encoder
from tacit.federated.plan import FederatedPlan
from tacit.federated.secure import Occasion, SecureClient, SecureServer, degree_for

__all__ = ["STAGES", "Masking", "Occurrence", "check_graph"]

STAGES = ("keys", "shares", "masked", "unmask")
_KEPT = "tacit.masking"
_ALL_WITH_ALL = 100
_NEXT = "Leave this round."


@dataclass(frozen=True)
class Occurrence:
    """The public facts of one round of secure aggregation, as the server states them in its first stage."""

    session: str
    round: int
    asked: int
    clip_norm: float
    dimension: int
    rotation: int

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Occurrence:
        """Facts in a message of the server's, refused where they are not such."""
        try:
            whole = {name: facts[name] for name in ("round", "asked", "dimension", "rotation")}
            found = cls(session=str(facts["session"]), clip_norm=float(facts["clip_norm"]), **whole)
            proper = all(type(value) is int and value >= 0 for value in whole.values())
            bytes.fromhex(found.session)
        except (KeyError, TypeError, ValueError):
            proper = False
        if not (proper and found.asked > 1 and found.dimension > 0 and 0 < found.clip_norm < math.inf):
            raise MessageRefused(
                "The server's message does not describe a round of secure aggregation.", _NEXT
            )
        return found

    def facts(self) -> dict[str, Any]:
        """What :meth:`of` reads."""
        return asdict(self)

    @property
    def on(self) -> Occasion:
        """The session and round to which all keys belong."""
        return Occasion(bytes.fromhex(self.session), self.round)

    def threshold(self, plan: FederatedPlan) -> int:
        """How many clients an opened sum has, at the fewest: as many as its noise needs, and a majority."""
        return _threshold(plan, self.asked)

    def degree(self, plan: FederatedPlan) -> int | None:
        """With how many others a client masks: with all of up to 100 clients, then on a sparse graph.

        The graph is made for as many colluding clients as the plan allows, and for a tenth at least.
        """
        return _degree(plan, self.asked)

    def encoder(self, plan: FederatedPlan) -> Encoder:
        """What all clients of the round encode their reports with."""
        return _encoder(plan.distributed(self.clip_norm), self.dimension, self.rotation)

    def server(self, plan: FederatedPlan, clients: tuple[int, ...]) -> SecureServer:
        """The server of the round."""
        width = self.encoder(plan).width
        return SecureServer(
            clients, self.threshold(plan), width, plan.bits, on=self.on, degree=self.degree(plan)
        )

    def client(self, plan: FederatedPlan, number: int) -> SecureClient:
        """A client of the round, with keys that are drawn anew."""
        width = self.encoder(plan).width
        return SecureClient(
            number,
            self.threshold(plan),
            on=self.on,
            dimension=width,
            bits=plan.bits,
            degree=self.degree(plan),
        )


def _threshold(plan: FederatedPlan, asked: int) -> int:
    return max(plan.needed(asked), asked // 2 + 1)


def _degree(plan: FederatedPlan, asked: int) -> int | None:
    if asked <= _ALL_WITH_ALL:
        return None
    colluding = max(plan.quorum - plan.honest, asked // 10)
    return degree_for(asked, colluding=colluding, dropouts=asked - _threshold(plan, asked))


def check_graph(plan: FederatedPlan) -> None:
    """Refuse, before a round is paid for, a plan for whose cohorts no sparse graph is safe enough."""
    for asked in {plan.cohort, plan.largest_cohort}:
        try:
            _degree(plan, asked)
        except InvalidValue:
            raise InvalidValue(
                "dropouts", plan.dropouts, f"fewer, with cohorts of up to {plan.largest_cohort} clients",
                "No sparse graph of secure aggregation bears so many that leave or collude; plan for fewer "
                "dropouts, for more honest clients, or for a cohort of at most 255.",
            ) from None  # fmt: skip


@lru_cache(2)
def _encoder(noise: DistributedNoise, dimension: int, rotation: int) -> Encoder:
    """An encoder holds public facts alone, so that many clients in one process may share it."""
    return noise.encoder(dimension, rotation)


class Masking:
    """A client's part in a round, taken up again at each stage."""

    def __init__(self, occurrence: Occurrence, client: SecureClient) -> None:
        self.occurrence, self.client = occurrence, client

    @classmethod
    def begun(cls, plan: FederatedPlan, facts: Mapping[str, Any]) -> Masking:
        """A client at its first stage; what it kept of an earlier round is not used again."""
        number, occurrence = facts.get("client"), Occurrence.of(facts)
        if (
            type(number) is not int
            or not 0 <= number < plan.clients
            or occurrence.asked > plan.largest_cohort
        ):
            raise MessageRefused(
                "The round has more clients than the plan, or no number for this one.", _NEXT
            )
        return cls(occurrence, occurrence.client(plan, number))

    @classmethod
    def kept(cls, context: Context, facts: Mapping[str, Any]) -> Masking:
        """The client of an earlier stage of the same round, which is forgotten until :meth:`keep`.

        So after a stage that was refused there is no other, and none is taken twice.
        """
        kept: Mapping[str, Any] | None = context.state.config_records.get(_KEPT)
        if kept is None:
            raise MessageRefused("This client has not begun a round.", _NEXT)
        del context.state[_KEPT]
        found = cls(Occurrence.of(json.loads(kept["occurrence"])), SecureClient.from_bytes(kept["client"]))
        if found.occurrence != Occurrence.of(facts):
            raise MessageRefused("The server changed the facts of a round in its middle.", _NEXT)
        return found

    def keep(self, context: Context) -> None:
        """Keep the client for its next stage."""
        facts = json.dumps(self.occurrence.facts())
        context.state[_KEPT] = ConfigRecord({"occurrence": facts, "client": self.client.to_bytes()})
