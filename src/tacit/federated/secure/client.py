"""A client's part in secure aggregation."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit import _validate
from tacit.errors import InvalidValue, MessageRefused
from tacit.federated.secure.graph import majority, neighbours
from tacit.federated.secure.keys import KEY, KeyPair, Occasion, Stream, check_number, derived, opened, sealed
from tacit.federated.secure.messages import (
    InboxMessage,
    KeysMessage,
    MaskedMessage,
    Message,
    RosterMessage,
    SharesMessage,
    SurvivorsMessage,
    UnmaskMessage,
)
from tacit.federated.secure.shamir import MOST_HOLDERS, split
from tacit.randomness import Source

__all__ = ["SecureClient"]

ANOTHER = "Leave this round, and take part in the next with a new SecureClient."


def check_degree(degree: int | None) -> int | None:
    """A degree that both ends of a round accept: even, between 4 and 254, or None for all."""
    if degree is None:
        return None
    if _validate.count("degree", degree, 4) % 2 or degree >= MOST_HOLDERS:
        raise InvalidValue("degree", degree, "even, and at most 254")
    return degree


class SecureClient:
    """One client in one round; a new one is made for each round.

    ``threshold`` is how many clients a sum that may be opened has, at the fewest: more than half of those
    that take part. ``on`` names session and round, ``dimension`` and ``bits`` the vectors, ``degree`` the
    graph (None: all mask with all). They are public and agreed beforehand; a server that departs from them
    is refused. The four steps are taken in order and once. The client refuses
    (:class:`~tacit.errors.MessageRefused`) a list of keys without itself, with a key twice or of fewer than
    ``threshold`` clients; shares that their sender did not seal for it in this round; a list of survivors
    that is too short, lacks the client itself or differs from an earlier one. It gives for each neighbour
    one share, of the self-mask or of the mask key, never both.
    """

    def __init__(
        self,
        number: int,
        threshold: int,
        *,
        on: Occasion,
        dimension: int,
        bits: int,
        degree: int | None = None,
        random_state: int | Source | None = None,
    ) -> None:
        self.number = check_number(number)
        self.threshold = _validate.count("threshold", threshold, 2)
        self.on, self.degree = on, check_degree(degree)
        self.dimension, self.bits = (
            _validate.count("dimension", dimension, 1),
            _validate.count("bits", bits, 1),
        )
        self._source = random_state if isinstance(random_state, Source) else Source(random_state)
        self._stream = Stream(self.dimension, self.bits)
        self._cipher, self._mask = KeyPair.drawn(self._source), KeyPair.drawn(self._source)
        self._seed = self._source.words(KEY, np.uint8).tobytes()
        self._done = 0
        self._roster: RosterMessage | None = None
        self._near: tuple[int, ...] = ()
        self._exchanged: dict[int, bytes] = {}
        self._held: dict[int, bytes] = {}
        self._opened: tuple[tuple[int, ...], UnmaskMessage] | None = None

    def advertise(self) -> KeysMessage:
        """The client's public keys of this round."""
        self._step(1, "advertise")
        self._done = 1
        return KeysMessage(self.on, self.number, self._cipher.public, self._mask.public)

    def share(self, roster: RosterMessage | bytes) -> SharesMessage:
        """Sealed shares of the client's two secrets, for its neighbours, once the keys of all are known."""
        given = self._message(RosterMessage, roster)
        self._step(2, "share")
        self._check(given)
        self._roster = given
        holders = sorted((*self._near, self.number))
        needed = self.threshold if len(holders) == len(given.clients) else majority(len(holders))
        pairs = zip(
            split(self._mask.to_bytes(), len(holders), needed, self._source),
            split(self._seed, len(holders), needed, self._source),
            strict=True,
        )
        boxes = {}
        for holder, (of_key, of_seed) in zip(holders, pairs, strict=True):
            if holder == self.number:
                self._held[holder] = of_key + of_seed
                continue
            public = given.keys[holder][0]
            ends = (self.number, self._cipher.public), (holder, public)
            exchanged = self._exchanged[holder] = self._cipher.exchanged(public)
            key = derived(exchanged, b"share", self.on, *ends)
            boxes[holder] = sealed(key, of_key + of_seed, self.on.to_bytes())
        self._done = 2
        return SharesMessage(self.on, self.number, boxes)

    def masked(self, vector: ArrayLike, inbox: InboxMessage | bytes) -> MaskedMessage:
        """The vector modulo 2^bits, masked towards every neighbour whose shares are in the inbox, and by
        itself.
        """
        values = np.asarray(vector)
        if values.shape != (self.dimension,) or values.dtype.kind not in "iu":
            raise InvalidValue(
                "vector", f"{values.dtype} of shape {values.shape}", f"{self.dimension} whole numbers"
            )
        given = self._message(InboxMessage, inbox)
        self._step(3, "masked")
        roster = self._roster
        if roster is None or not set(given.boxes) <= set(self._near):
            raise MessageRefused("The inbox has shares of clients that are no neighbours.", ANOTHER)
        complete = len(self._near) + 1 == len(roster.clients)
        if len(given.boxes) + 1 < (self.threshold if complete else majority(len(self._near) + 1)):
            raise MessageRefused("Too few neighbours sent shares.", ANOTHER, got=len(given.boxes))
        total = values.astype(self._stream.word)
        self._stream.add(total, self._seed)
        for sender, box in given.boxes.items():
            cipher, mask = roster.keys[sender]
            ends = (sender, cipher), (self.number, self._cipher.public)
            key = derived(self._exchanged[sender], b"share", self.on, *ends)
            self._held[sender] = opened(key, box, self.on.to_bytes(), sender)
            pair = self._mask.pairwise(self.number, sender, mask, self.on)
            (self._stream.add if self.number < sender else self._stream.subtract)(total, pair)
        self._done = 3
        self._exchanged = {}
        total &= self._stream.word.type((1 << self.bits) - 1)
        return MaskedMessage(self.on, self.number, total, self.bits)

    def unmask(self, survivors: SurvivorsMessage | bytes) -> UnmaskMessage:
        """For each neighbour that sent shares: the share of its self-mask if it survived, else that of its
        mask key.
        """
        given = self._message(SurvivorsMessage, survivors)
        if self._opened is not None:
            if self._opened[0] == given.clients:
                return self._opened[1]
            raise MessageRefused("A second list of survivors differs from the first.", ANOTHER)
        self._step(4, "unmask")
        alive = set(given.clients)
        known = set(self._roster.clients) if self._roster else set()
        if len(alive) != len(given.clients) or not alive <= known or self.number not in alive:
            raise MessageRefused("The list of survivors is not one of this round.", ANOTHER)
        if len(alive) < self.threshold:
            raise MessageRefused(
                f"Only {len(alive)} of at least {self.threshold} clients are in the sum.",
                ANOTHER,
                got=len(alive),
            )
        if not (alive & set(self._near)) <= set(self._held):
            raise MessageRefused("A client is said to survive that sent no shares.", ANOTHER)
        of_seed = {owner: both[KEY:] for owner, both in self._held.items() if owner in alive}
        of_key = {owner: both[:KEY] for owner, both in self._held.items() if owner not in alive}
        self._forget()
        self._done = 4
        self._opened = given.clients, UnmaskMessage(self.on, self.number, of_seed, of_key)
        return self._opened[1]

    def to_bytes(self) -> bytes:
        """The client between two steps, for a program that ends after each. It holds the secret keys.

        Whoever keeps it replaces it after each step: a client that is restored twice can be made to take a
        step twice.
        """
        facts = {
            "number": self.number, "threshold": self.threshold, "dimension": self.dimension,
            "bits": self.bits, "degree": self.degree, "session": self.on.session.hex(),
            "round": self.on.round, "done": self._done, "cipher": self._cipher.to_bytes().hex(),
            "mask": self._mask.to_bytes().hex(), "seed": self._seed.hex(),
            "roster": self._roster.to_bytes().hex() if self._roster else None,
            "held": {str(owner): both.hex() for owner, both in self._held.items()},
            "exchanged": {str(near): secret.hex() for near, secret in self._exchanged.items()},
        }  # fmt: skip
        return json.dumps(facts).encode()

    @classmethod
    def from_bytes(cls, kept: bytes) -> SecureClient:
        """The client that :meth:`to_bytes` wrote down, before its next step."""
        try:
            return cls._restored(json.loads(kept))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise MessageRefused("These bytes are not a client that to_bytes() wrote.", ANOTHER) from None

    @classmethod
    def _restored(cls, facts: dict[str, Any]) -> SecureClient:
        client = cls(
            facts["number"], facts["threshold"], on=Occasion(bytes.fromhex(facts["session"]), facts["round"]),
            dimension=facts["dimension"], bits=facts["bits"], degree=facts["degree"],
        )  # fmt: skip
        client._cipher, client._mask = (KeyPair.of(bytes.fromhex(facts[name])) for name in ("cipher", "mask"))
        client._seed = bytes.fromhex(facts["seed"])
        if facts["roster"] is not None:
            roster = RosterMessage.from_bytes(bytes.fromhex(facts["roster"]))
            client._check(roster)
            client._roster = roster
        client._exchanged = {int(near): bytes.fromhex(secret) for near, secret in facts["exchanged"].items()}
        client._held = {int(owner): bytes.fromhex(both) for owner, both in facts["held"].items()}
        client._done = facts["done"]
        return client

    def _forget(self) -> None:
        """Replace the secrets of a round that is over by fresh ones, so that no later theft opens it."""
        self._held, self._exchanged = {}, {}
        self._cipher, self._mask = KeyPair.drawn(self._source), KeyPair.drawn(self._source)
        self._seed = self._source.words(KEY, np.uint8).tobytes()

    def _check(self, roster: RosterMessage) -> None:
        """Refuse a list of clients and keys on which the client's secrets would not be safe."""
        clients = roster.clients
        if list(clients) != sorted(set(clients)) or self.number not in clients:
            raise MessageRefused("The list of clients lacks this one, or names one twice.", ANOTHER)
        if len(clients) < self.threshold or 2 * self.threshold <= len(clients):
            raise MessageRefused(
                f"A threshold of {self.threshold} of {len(clients)} clients is no majority, or too large.",
                ANOTHER,
                got=len(clients),
            )
        self._near = neighbours(clients, self.on, self.degree)[self.number]
        if set(roster.keys) - {self.number} != set(self._near):
            raise MessageRefused("The list has other keys than those of this client's neighbours.", ANOTHER)
        if len(self._near) >= MOST_HOLDERS:
            raise MessageRefused(
                "So many clients need a sparse graph.", "Agree on a degree.", got=len(clients)
            )
        keys = [key for number in self._near for key in roster.keys[number]]
        if len({*keys, self._cipher.public, self._mask.public}) != len(keys) + 2:
            raise MessageRefused("A public key is in the list twice.", ANOTHER)

    def _message(self, kind: type[Any], given: Message | bytes) -> Any:
        message = given if isinstance(given, Message) else kind.from_bytes(given)
        if not isinstance(message, kind) or message.on != self.on or message.number != self.number:
            raise MessageRefused("The message is of another kind or round, or for another client.", ANOTHER)
        return message

    def _step(self, step: int, name: str) -> None:
        """Begin a step, which sets ``_done`` when it ends: after one that was refused there is no other."""
        if self._done != step - 1:
            raise MessageRefused(
                f"{name}() is step {step} of a round, and steps are taken once, in order.", ANOTHER
            )
        self._done = -1
