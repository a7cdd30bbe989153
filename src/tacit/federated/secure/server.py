"""The server's part in secure aggregation, and the whole protocol in one process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.errors import InvalidValue, MessageRefused, RoundAborted
from tacit.federated.secure.client import SecureClient, check_degree
from tacit.federated.secure.graph import majority, neighbours
from tacit.federated.secure.keys import KeyPair, Occasion, Stream, check_number
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
from tacit.federated.secure.shamir import recovered, weights
from tacit.randomness import Source

__all__ = ["STAGES", "Aggregated", "SecureServer", "aggregate"]

STAGES = ("keys", "shares", "masked", "unmask")
"""The messages that a client sends, in order."""

M = TypeVar("M", bound=Message)
_weights = lru_cache(4096)(weights)


class SecureServer:
    """The server in one round: it carries messages between clients and learns the sum of their vectors.

    ``clients`` are the numbers of those that are invited. Each step takes what arrived from clients, as
    messages or bytes, and returns what to send to whom; the last returns the sum modulo 2^bits. A message
    that is malformed, of another round, from a stranger or a second one of the same client is left out and
    listed in ``refused``; who is left out has dropped out. Where fewer than ``threshold`` clients are left,
    :class:`~tacit.errors.RoundAborted` is raised and nothing is opened.
    """

    def __init__(
        self,
        clients: Iterable[int],
        threshold: int,
        dimension: int,
        bits: int,
        *,
        on: Occasion,
        degree: int | None = None,
    ) -> None:
        self.clients = tuple(sorted({check_number(number) for number in clients}))
        self.threshold = _validate.count("threshold", threshold, 2)
        self.on, self.degree = on, check_degree(degree)
        self.dimension, self.bits = (
            _validate.count("dimension", dimension, 1),
            _validate.count("bits", bits, 1),
        )
        self.refused: list[tuple[str, str]] = []
        self._stream = Stream(self.dimension, self.bits)
        self._keys: dict[int, KeysMessage] = {}
        self._near: dict[int, tuple[int, ...]] = {}
        self._shared: tuple[int, ...] = ()
        self._survivors: tuple[int, ...] = ()
        self._total = np.zeros(self.dimension, dtype=self._stream.word)

    def keys(self, messages: Iterable[KeysMessage | bytes]) -> dict[int, RosterMessage]:
        """What each client that sent keys is told: who takes part, and its neighbours' keys."""
        own, seen = KeyPair.drawn(Source()), set[bytes]()
        for message in self._accepted(KeysMessage, messages, self.clients):
            both = {message.cipher_key, message.mask_key}
            if len(both) < 2 or both & seen or not all(own.can_exchange(key) for key in both):
                self.refused.append(("KeysMessage", "a key that is not one of X25519, or of another client"))
                continue
            seen |= both
            self._keys[message.number] = message
        taking_part = self._enough(self._keys, "sent keys")
        if 2 * self.threshold <= len(taking_part):
            raise InvalidValue("threshold", self.threshold, f"more than half of {len(taking_part)} clients")
        self._near = neighbours(taking_part, self.on, self.degree)
        known = {number: (m.cipher_key, m.mask_key) for number, m in self._keys.items()}
        return {
            number: RosterMessage(
                self.on, number, taking_part, {near: known[near] for near in self._near[number]}
            )
            for number in taking_part
        }

    def shares(self, messages: Iterable[SharesMessage | bytes]) -> dict[int, InboxMessage]:
        """What each client that shared its secrets is given: the sealed shares of its neighbours."""
        sent = {}
        for message in self._accepted(SharesMessage, messages, tuple(self._keys)):
            if set(message.boxes) == set(self._near[message.number]):
                sent[message.number] = message.boxes
            else:
                self.refused.append(("SharesMessage", "shares for other clients than the neighbours"))
        self._shared = self._enough(sent, "shared their secrets")
        return {
            number: InboxMessage(
                self.on, number, {near: sent[near][number] for near in self._near[number] if near in sent}
            )
            for number in self._shared
        }

    def masked(self, messages: Iterable[MaskedMessage | bytes]) -> dict[int, SurvivorsMessage]:
        """What each client whose vector arrived is told: whose vectors are in the sum. Vectors are added as
        they come.
        """
        arrived = set()
        for message in self._accepted(MaskedMessage, messages, self._shared):
            if message.bits == self.bits and message.vector.shape == (self.dimension,):
                np.add(self._total, message.vector.astype(self._stream.word, copy=False), out=self._total)
                arrived.add(message.number)
            else:
                self.refused.append(("MaskedMessage", "a vector of another size"))
        self._survivors = self._enough(arrived, "sent a vector")
        return {number: SurvivorsMessage(self.on, number, self._survivors) for number in self._survivors}

    def unmask(self, messages: Iterable[UnmaskMessage | bytes]) -> NDArray[np.uint64]:
        """The sum of the survivors' vectors, modulo 2^bits, once enough of them gave their shares."""
        answers = {m.number: m for m in self._accepted(UnmaskMessage, messages, self._survivors)}
        self._enough(answers, "gave their shares")
        alive = set(self._survivors)
        for owner in self._shared:
            if owner in alive:
                given = {
                    n: m.self_shares[owner] for n, m in self._asked(owner, answers) if owner in m.self_shares
                }
                self._stream.subtract(self._total, self._recovered(owner, given))
            else:
                given = {
                    n: m.key_shares[owner] for n, m in self._asked(owner, answers) if owner in m.key_shares
                }
                self._remove_pairs(owner, self._recovered(owner, given))
        self._total &= self._stream.word.type((1 << self.bits) - 1)
        return self._total.astype(np.uint64)

    def _asked(self, owner: int, answers: Mapping[int, UnmaskMessage]) -> list[tuple[int, UnmaskMessage]]:
        return [(number, answers[number]) for number in self._holders(owner) if number in answers]

    def _holders(self, owner: int) -> list[int]:
        return sorted((*self._near[owner], owner))

    def _recovered(self, owner: int, given: Mapping[int, bytes]) -> bytes:
        """A secret of the owner from the shares of enough holders."""
        holders = self._holders(owner)
        needed = self.threshold if len(holders) == len(self._keys) else majority(len(holders))
        if len(given) < needed:
            raise RoundAborted(
                "Too few neighbours of a client are left to open its mask.", "Run the round again."
            )
        chosen = sorted(given)[:needed]
        place = {holder: i for i, holder in enumerate(holders, 1)}
        return recovered([given[number] for number in chosen], _weights(tuple(place[n] for n in chosen)))

    def _remove_pairs(self, owner: int, secret: bytes) -> None:
        """Take out what survivors masked towards a client that left."""
        pair = KeyPair.of(secret)
        if pair.public != self._keys[owner].mask_key:
            raise RoundAborted("The shares of a mask key do not fit together.", "Run the round again.")
        for other in self._near[owner]:
            if other in self._survivors:
                key = pair.pairwise(owner, other, self._keys[other].mask_key, self.on)
                (self._stream.subtract if other < owner else self._stream.add)(self._total, key)

    def _accepted(self, kind: type[M], messages: Iterable[Any], among: Sequence[int]) -> Iterable[M]:
        """Those messages that are of this kind and round, one for each of these clients."""
        left = set(among)
        for given in messages:
            try:
                message = given if isinstance(given, Message) else kind.from_bytes(given)
            except MessageRefused as refusal:
                self.refused.append((kind.__name__, refusal.problem))
                continue
            if not isinstance(message, kind) or message.on != self.on:
                self.refused.append((kind.__name__, "of another kind, session or round"))
            elif message.number not in left:
                self.refused.append((kind.__name__, "from a stranger, or a second one"))
            else:
                left.remove(message.number)
                yield message

    def _enough(self, clients: Iterable[int], did: str) -> tuple[int, ...]:
        found = tuple(sorted(clients))
        if len(found) < self.threshold:
            raise RoundAborted(
                f"Only {len(found)} of at least {self.threshold} clients {did}; nothing was opened.",
                "Run the round again with another cohort.",
                got=len(found),
                threshold=self.threshold,
            )
        return found


@dataclass(frozen=True)
class Aggregated:
    """The sum of the survivors' vectors modulo 2^bits, and who they are."""

    total: NDArray[np.uint64]
    survivors: tuple[int, ...]


def aggregate(
    vectors: Mapping[int, ArrayLike] | Sequence[ArrayLike],
    *,
    bits: int,
    threshold: int | None = None,
    drop: Mapping[int, str] | None = None,
    degree: int | None = None,
    on: Occasion | None = None,
    random_state: int | Source | None = None,
) -> Aggregated:
    """The whole protocol in one process, with real keys: for tests, simulations and benchmarks.

    ``drop`` names clients and the message that they no longer send, one of :data:`STAGES`. ``threshold`` is
    two thirds of the clients unless it is given.

    >>> aggregate([[1, 2], [3, 4], [250, 250]], bits=8, random_state=1).total.tolist()
    [254, 0]
    >>> aggregate([[1, 2], [3, 4], [250, 250]], bits=8, drop={2: "masked"}, random_state=1).total.tolist()
    [4, 6]
    """
    given = dict(vectors) if isinstance(vectors, Mapping) else dict(enumerate(vectors))
    leaves = {
        number: STAGES.index(_validate.choice("drop", stage, STAGES))
        for number, stage in (drop or {}).items()
    }
    source = random_state if isinstance(random_state, Source) else Source(random_state)
    size = len(given)
    if size < 2:
        raise InvalidValue("vectors", size, "those of two clients or more")
    if not leaves.keys() <= given.keys():
        raise InvalidValue("drop", sorted(set(leaves) - set(given)), "clients that have a vector")
    shape = np.shape(next(iter(given.values())))
    if len(shape) != 1:
        raise InvalidValue("vectors", f"of shape {shape}", "one-dimensional")
    needed = -(-2 * size // 3) if threshold is None else threshold
    at = on or Occasion(source.words(16, np.uint8).tobytes(), 0)
    dimension = shape[0]
    server = SecureServer(given, needed, dimension, bits, on=at, degree=degree)
    clients = {
        number: SecureClient(
            number, needed, on=at, dimension=dimension, bits=bits, degree=degree, random_state=source
        )
        for number in given
    }

    def stays(number: int, stage: int) -> bool:
        return leaves.get(number, len(STAGES)) > stage

    rosters = server.keys(client.advertise() for number, client in clients.items() if stays(number, 0))
    inboxes = server.shares(clients[n].share(roster) for n, roster in rosters.items() if stays(n, 1))
    lists = server.masked(clients[n].masked(given[n], inbox) for n, inbox in inboxes.items() if stays(n, 2))
    total = server.unmask(clients[n].unmask(survivors) for n, survivors in lists.items() if stays(n, 3))
    return Aggregated(total, tuple(lists))
