"""Messages of secure aggregation: bytes there and back, and everything else refused."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.errors import MessageRefused, RoundAborted
from tacit.federated.secure import (
    InboxMessage,
    KeysMessage,
    MaskedMessage,
    Occasion,
    RosterMessage,
    SecureClient,
    SecureServer,
    SharesMessage,
    SurvivorsMessage,
    UnmaskMessage,
)

ON, ANOTHER = Occasion(b"s" * 16, 4), Occasion(b"s" * 16, 5)
VECTOR = np.array([1, 2, 262_143], dtype=np.uint32)
MESSAGES = [
    KeysMessage(ON, 3, b"a" * 32, b"b" * 32),
    RosterMessage(ON, 3, (1, 2, 3), {1: (b"a" * 32, b"b" * 32), 2: (b"c" * 32, b"d" * 32)}),
    SharesMessage(ON, 3, {1: b"x" * 80, 70_000: b"y" * 80}),
    InboxMessage(ON, 3, {}),
    MaskedMessage(ON, 3, VECTOR, 18),
    SurvivorsMessage(ON, 3, (1, 2, 3)),
    UnmaskMessage(ON, 3, {1: b"s" * 32}, {2: b"k" * 32}),
]
KINDS = [type(message) for message in MESSAGES]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_messages_come_back_and_nothing_else_is_read(message) -> None:
    data = message.to_bytes()
    again = type(message).from_bytes(data)
    assert again.to_bytes() == data
    assert (again.on, again.number) == (ON, 3)
    if not isinstance(message, MaskedMessage):
        assert again == message
    for kind in KINDS:
        if kind is not type(message):
            with pytest.raises(MessageRefused):
                kind.from_bytes(data)
    for wrong in (*(data[:n] for n in range(len(data))), data + b"\0", b"", None, "text", 7):
        with pytest.raises(MessageRefused):
            type(message).from_bytes(wrong)


def test_a_masked_vector_takes_as_few_bytes_as_hold_it_and_none_beyond_its_modulus() -> None:
    data = MESSAGES[4].to_bytes()
    assert len(data) == 28 + 8 + 3 * 3
    assert MaskedMessage.from_bytes(data).vector.tolist() == VECTOR.tolist()
    with pytest.raises(MessageRefused):
        MaskedMessage.from_bytes(data[:-1] + b"\xff")
    huge = data[:28] + (18).to_bytes(4, "little") + (2**32 - 1).to_bytes(4, "little")
    with pytest.raises(MessageRefused):
        MaskedMessage.from_bytes(huge)


def test_numbers_that_do_not_increase_are_refused() -> None:
    for clients in ((2, 1), (1, 1)):
        with pytest.raises(MessageRefused):
            SurvivorsMessage.from_bytes(SurvivorsMessage(ON, 3, clients).to_bytes())
    with pytest.raises(MessageRefused):
        SharesMessage(ON, 3, {1: b"short"}).to_bytes()


def played(change=lambda stage, messages: messages, threshold: int = 3):
    """A round of five clients with vectors (i, i), over bytes; ``change`` alters what arrives at the
    server.
    """
    clients = {i: SecureClient(i, threshold, on=ON, dimension=2, bits=16) for i in range(5)}
    server = SecureServer(range(5), threshold, 2, 16, on=ON)

    def carried(stage: str, messages):
        return change(stage, {i: m.to_bytes() for i, m in messages.items()})

    rosters = server.keys(carried("keys", {i: c.advertise() for i, c in clients.items()}).values())
    sent = carried("shares", {i: clients[i].share(m.to_bytes()) for i, m in rosters.items()})
    inboxes = server.shares(sent.values())
    masked = {}
    for i, inbox in inboxes.items():
        try:
            masked[i] = clients[i].masked(np.array([i, i]), inbox.to_bytes())
        except MessageRefused:
            continue
    lists = server.masked(carried("masked", masked).values())
    answers = {i: clients[i].unmask(m.to_bytes()) for i, m in lists.items()}
    return server.unmask(carried("unmask", answers).values()).tolist(), server.refused, tuple(lists)


def test_a_round_over_bytes() -> None:
    assert played() == ([10, 10], [], (0, 1, 2, 3, 4))


@pytest.mark.parametrize("stage", ["keys", "shares", "masked", "unmask"])
@pytest.mark.parametrize(
    "fault", ["truncated", "of another round", "twice", "from a stranger", "garbage", "of another kind"]
)
def test_a_bad_message_is_left_out_and_the_others_add_up(stage: str, fault: str) -> None:
    def change(now: str, messages: dict[int, bytes]) -> dict[int, bytes]:
        if now != stage:
            return messages
        data = messages[1]
        if fault == "truncated":
            messages[1] = data[:-1]
        elif fault == "of another round":
            messages[1] = data[:20] + ANOTHER.to_bytes()[16:] + data[24:]
        elif fault == "twice":
            messages[10] = data
        elif fault == "from a stranger":
            messages[1] = data[:24] + (77).to_bytes(4, "little") + data[28:]
        elif fault == "garbage":
            messages[1] = b"\x80\x04pickle."
        else:
            messages[1] = b"SURV" + data[4:]
        return messages

    total, refused, survivors = played(change)
    assert len(refused) == 1
    gone = fault != "twice" and stage != "unmask"
    assert survivors == ((0, 2, 3, 4) if gone else (0, 1, 2, 3, 4))
    assert total == ([9, 9] if gone else [10, 10])


@pytest.mark.parametrize("key", [bytes(64), None], ids=["of low order", "of another client"])
def test_a_bad_public_key_drops_its_client_alone(key: bytes | None) -> None:
    def change(now: str, messages: dict[int, bytes]) -> dict[int, bytes]:
        if now == "keys":
            messages[1] = messages[1][:28] + (key or messages[0][28:])
        return messages

    total, refused, survivors = played(change)
    assert (total, len(refused), survivors) == ([9, 9], 1, (0, 2, 3, 4))


def test_a_share_that_was_tampered_with_is_noticed_by_its_receiver_who_leaves() -> None:
    def change(now: str, messages: dict[int, bytes]) -> dict[int, bytes]:
        if now == "shares":
            data = bytearray(messages[1])
            data[-1] ^= 1  # in the box for client 4
            messages[1] = bytes(data)
        return messages

    total, _, survivors = played(change)
    assert survivors == (0, 1, 2, 3)
    assert total == [6, 6]


def test_shares_of_an_earlier_round_or_for_somebody_else_do_not_open() -> None:
    def boxes(on: Occasion, seed: int):
        clients = {
            i: SecureClient(i, 2, on=on, dimension=2, bits=16, random_state=seed + i) for i in range(3)
        }
        server = SecureServer(range(3), 2, 2, 16, on=on)
        rosters = server.keys([c.advertise() for c in clients.values()])
        return clients, server.shares([clients[i].share(m) for i, m in rosters.items()])

    _, earlier = boxes(ON, 10)
    clients, now = boxes(ANOTHER, 10)
    vector = np.zeros(2, dtype=int)
    with pytest.raises(MessageRefused):
        clients[0].masked(vector, earlier[0])
    with pytest.raises(MessageRefused, match="sealed"):
        clients[1].masked(vector, replace(earlier[1], on=ANOTHER))  # the same keys, but of another round
    swapped = InboxMessage(ANOTHER, 2, {0: now[1].boxes[0], 1: now[2].boxes[1]})
    with pytest.raises(MessageRefused, match="sealed"):
        clients[2].masked(vector, swapped)


def test_mask_key_shares_that_do_not_fit_abort_the_round() -> None:
    def change(now: str, messages: dict[int, bytes]) -> dict[int, bytes]:
        if now == "masked":
            del messages[1]
        if now == "unmask":
            data = bytearray(messages[0])
            data[-1] ^= 1  # its share of the mask key of client 1
            messages[0] = bytes(data)
        return messages

    with pytest.raises(RoundAborted, match="fit"):
        played(change)


def test_too_few_are_told_apart_from_enough() -> None:
    def only(keep: int, stage: str):
        return lambda now, messages: dict(list(messages.items())[:keep]) if now == stage else messages

    for stage in ("keys", "shares", "masked", "unmask"):
        assert played(only(3, stage))[0] == ([10, 10] if stage == "unmask" else [3, 3])
        with pytest.raises(RoundAborted) as aborted:
            played(only(2, stage))
        assert (aborted.value.got, aborted.value.threshold) == (2, 3)
