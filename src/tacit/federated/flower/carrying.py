"""Secure aggregation over Flower, on the server: the stages of a round, carried by its messages.

A client that does not answer a stage, or refuses it, has dropped out. Where too few are left, nothing is
opened and the round is given up; it stays charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import Message

from tacit.errors import RoundAborted
from tacit.federated.flower.masking import Occurrence
from tacit.federated.flower.messages import payload_of
from tacit.federated.rounds import Round
from tacit.federated.secure import KeysMessage, MaskedMessage, SharesMessage, UnmaskMessage

__all__ = ["Carrying"]

Ask = Callable[[str, Mapping[str, Any], Mapping[int, bytes]], Iterable[tuple[int, Message]]]
"""Sends a stage, with its facts and the bytes for each client, and gives replies with their clients."""


class Carrying:
    """One round of secure aggregation. ``ask`` carries a stage to clients, and brings back their replies."""

    def __init__(self, one: Round, session: str, ask: Ask) -> None:
        self._one, self._ask = one, ask
        self._at: Occurrence | None = None
        if 2 <= len(one.cohort) <= one.plan.largest_cohort:
            self._at = Occurrence(
                session, one.number, len(one.cohort), one.clip_norm, one.reports.dimension, one.rotation_seed
            )
            self._server = self._at.server(one.plan, one.cohort)

    @property
    def facts(self) -> dict[str, Any]:
        """The public facts of the round, which go with every stage."""
        return {} if self._at is None else self._at.facts()

    def inboxes(self) -> dict[int, bytes]:
        """The first two stages; what each client that is left gets with the model. Empty if too few are."""
        if self._at is None:
            return {}
        try:
            asked = dict.fromkeys(self._one.cohort, b"")
            rosters = self._server.keys(_said(KeysMessage, self._ask("keys", self.facts, asked)))
            told = {client: roster.to_bytes() for client, roster in rosters.items()}
            boxes = self._server.shares(_said(SharesMessage, self._ask("shares", self.facts, told)))
        except RoundAborted:
            self._at = None
            return {}
        return {client: inbox.to_bytes() for client, inbox in boxes.items()}

    def open(self, replies: Iterable[tuple[int, Message]]) -> None:
        """Take the masked reports, have the survivors unmask their sum, and hand it to the round."""
        if self._at is None:
            return
        try:
            lists = self._server.masked(_said(MaskedMessage, replies))
            told = {client: each.to_bytes() for client, each in lists.items()}
            total = self._server.unmask(_said(UnmaskMessage, self._ask("unmask", self.facts, told)))
        except RoundAborted:
            return
        self._one.opened(np.asarray(total), tuple(lists))


def _said(kind: Any, replies: Iterable[tuple[int, Message]]) -> Iterable[Any]:
    """The messages of a stage, each from the client that it names: nobody speaks for another."""
    for client, reply in replies:
        payload = payload_of(reply)
        if payload is None:
            continue
        try:
            message = kind.from_bytes(payload)
        except Exception:
            continue
        if message.number == client:
            yield message
