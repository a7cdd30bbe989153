"""What a server that departs from the protocol can do, which the guarantee excludes, and what it cannot."""

import numpy as np
import pytest

from tacit.errors import InvalidValue, MessageRefused
from tacit.federated.secure import (
    InboxMessage,
    Occasion,
    SecureClient,
    SecureServer,
    SurvivorsMessage,
    aggregate,
    degree_for,
    risks,
)
from tacit.federated.secure.keys import KeyPair, Stream
from tacit.federated.secure.shamir import recovered, weights

ON = Occasion(b"s" * 16, 1)
CLIENTS, THRESHOLD, BITS = 5, 3, 16
SECRET = np.array([7, 11, 13, 17])


def attacked(told: dict[int, tuple[int, ...]]) -> np.ndarray:
    """What is left of client 0's masked vector after all that the answers to these lists give away.

    Client 0 was given the shares of clients 1 and 2 alone, so that no other mask is on its vector.
    """
    clients = {i: SecureClient(i, THRESHOLD, on=ON, dimension=4, bits=BITS) for i in range(CLIENTS)}
    server = SecureServer(range(CLIENTS), THRESHOLD, 4, BITS, on=ON)
    keys = {i: client.advertise() for i, client in clients.items()}
    rosters = server.keys(keys.values())
    inboxes = server.shares([clients[i].share(roster) for i, roster in rosters.items()])
    inboxes[0] = InboxMessage(ON, 0, {i: inboxes[0].boxes[i] for i in (1, 2)})
    sent = [clients[i].masked(SECRET * (i == 0), inbox) for i, inbox in inboxes.items()]
    answers = {i: clients[i].unmask(SurvivorsMessage(ON, i, listed)) for i, listed in told.items()}

    def opened(owner: int, kind: str) -> bytes | None:
        given = {i: getattr(a, kind)[owner] for i, a in answers.items() if owner in getattr(a, kind)}
        chosen = sorted(given)[:THRESHOLD]
        if len(chosen) < THRESHOLD:
            return None
        return recovered([given[i] for i in chosen], weights(tuple(i + 1 for i in chosen)))

    left, stream = sent[0].vector.copy(), Stream(4, BITS)
    seed = opened(0, "self_shares")
    if seed is not None:
        stream.subtract(left, seed)
    for other in (1, 2):
        secret = opened(other, "key_shares")
        if secret is not None:
            stream.subtract(left, KeyPair.of(secret).pairwise(other, 0, keys[0].mask_key, ON))
    return left & np.uint16(2**BITS - 1)


def test_a_server_that_tells_clients_different_things_learns_a_vector_as_the_documentation_says() -> None:
    """If this fails because clients have come to refuse it, the documentation promises too little."""
    lies = {1: (0, 1, 3, 4), 2: (0, 2, 3, 4), 3: (0, 3, 4), 4: (0, 3, 4)}
    assert np.array_equal(attacked(lies), SECRET)


@pytest.mark.parametrize("listed", [(0, 1, 2, 3, 4), (0, 3, 4), (0, 1, 3, 4)])
def test_with_one_list_for_all_the_same_server_learns_nothing(listed: tuple[int, ...]) -> None:
    told = {i: listed for i in listed if i}
    assert not np.array_equal(attacked(told), SECRET)


def test_a_client_does_not_answer_to_survivors_whose_shares_were_withheld_from_it() -> None:
    with pytest.raises(MessageRefused, match="sent no shares"):
        attacked({0: (0, 3, 4)})


def test_a_client_whose_round_is_over_keeps_no_secret_of_it() -> None:
    clients = {i: SecureClient(i, 2, on=ON, dimension=1, bits=8) for i in range(3)}
    server = SecureServer(range(3), 2, 1, 8, on=ON)
    rosters = server.keys([client.advertise() for client in clients.values()])
    inboxes = server.shares([clients[i].share(roster) for i, roster in rosters.items()])
    client = clients[0]
    secrets = [client._mask.to_bytes(), client._cipher.to_bytes(), client._seed]
    lists = server.masked([clients[i].masked(np.array([i]), inbox) for i, inbox in inboxes.items()])
    before = client.to_bytes()
    assert server.unmask([clients[i].unmask(each) for i, each in lists.items()]).tolist() == [3]
    for secret in secrets:
        assert secret.hex().encode() in before
        assert secret.hex().encode() not in client.to_bytes()
    with pytest.raises(MessageRefused):
        SecureClient.from_bytes(client.to_bytes()).unmask(SurvivorsMessage(ON, 0, (0, 1)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: SecureClient(2**32, 2, on=ON, dimension=1, bits=8),
        lambda: SecureServer([0, 1, 2**32], 2, 1, 8, on=ON),
        lambda: SecureServer(["a", "b"], 2, 1, 8, on=ON),
        lambda: aggregate([], bits=8),
        lambda: aggregate([1, 2, 3], bits=8),
        lambda: aggregate([[1], [2], [3]], bits=8, drop={7: "masked"}),
        lambda: risks(100, 11, colluding=1, dropouts=1),
        lambda: risks(5, 100, colluding=1, dropouts=1),
        lambda: risks(100, 10, colluding=-1, dropouts=1),
        lambda: degree_for(100, colluding=1, dropouts=-1),
    ],
)
def test_usual_mistakes_are_refused_in_terms_of_what_was_given(call) -> None:
    with pytest.raises(InvalidValue):
        call()


@pytest.mark.parametrize("kept", [b"", b"junk", b"{}", b"[]", b'{"number": 1}'])
def test_bytes_that_are_no_client_are_refused(kept: bytes) -> None:
    with pytest.raises(MessageRefused):
        SecureClient.from_bytes(kept)
