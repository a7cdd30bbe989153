"""Secure aggregation: sums are exact for every pattern of dropouts, and a server learns nothing else."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from tacit.errors import InvalidValue, MessageRefused, RoundAborted
from tacit.federated.secure import (
    STAGES,
    InboxMessage,
    MaskedMessage,
    Occasion,
    RosterMessage,
    SecureClient,
    SecureServer,
    SurvivorsMessage,
    aggregate,
    degree_for,
    risks,
    shamir,
)
from tacit.federated.secure.graph import majority, neighbours
from tacit.federated.secure.keys import Stream
from tacit.randomness import Source

ON = Occasion(bytes(range(16)), 4)
ALARM = 1e-6


def vectors(count: int, dimension: int = 5, bits: int = 18) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 2**bits, size=(count, dimension))


def left(count: int, drop: dict[int, str], stage: str) -> set[int]:
    """Those of ``count`` clients that still send the message of this stage."""
    return {i for i in range(count) if i not in drop or STAGES.index(drop[i]) > STAGES.index(stage)}


def check_pattern(given: np.ndarray, drop: dict[int, str], threshold: int, degree: int | None = None) -> bool:
    """The sum is that of the clients whose vectors arrived, or the round is aborted for want of clients."""
    count = len(given)
    enough = len(left(count, drop, "unmask")) >= threshold
    if not enough:
        with pytest.raises(RoundAborted):
            aggregate(list(given), bits=18, threshold=threshold, drop=drop, degree=degree, random_state=1)
        return False
    result = aggregate(list(given), bits=18, threshold=threshold, drop=drop, degree=degree, random_state=1)
    assert set(result.survivors) == left(count, drop, "masked")
    assert np.array_equal(result.total, given[list(result.survivors)].sum(axis=0) % 2**18)
    return True


def test_sums_are_exact_for_every_pattern_of_dropouts_of_four_clients() -> None:
    given = vectors(4)
    opened = [
        check_pattern(given, {i: stage for i, stage in enumerate(stages) if stage != "stays"}, 3)
        for stages in product((*STAGES, "stays"), repeat=4)
    ]
    assert sum(opened) == 1 + 4 * 4, "all stay, or one of four leaves at one of four stages"


@pytest.mark.parametrize("count", [9, 14])
def test_sums_are_exact_for_random_patterns_up_to_the_threshold_and_refused_beyond(count: int) -> None:
    random, given, threshold = np.random.default_rng(count), vectors(count), count // 2 + 1
    outcomes = set()
    for leaving in (1, count - threshold, count - threshold, count - threshold + 1):
        gone = random.choice(count, size=leaving, replace=False)
        outcomes.add(check_pattern(given, {int(i): str(random.choice(STAGES)) for i in gone}, threshold))
    assert outcomes == {True, False}


@pytest.mark.parametrize("bits", [1, 7, 8, 16, 18, 31, 32, 33, 64])
def test_any_modulus_up_to_64_bits(bits: int) -> None:
    given = np.random.default_rng(bits).integers(0, 2**bits - 1, size=(3, 4), dtype=np.uint64, endpoint=True)
    result = aggregate(list(given), bits=bits, drop={1: "masked"}, threshold=2)
    expected = [(int(a) + int(b)) % 2**bits for a, b in zip(given[0], given[2], strict=True)]
    assert result.total.tolist() == expected


def test_a_sparse_graph_gives_the_same_sums() -> None:
    given = vectors(40)
    drop = {3: "keys", 9: "shares", 11: "masked", 20: "masked", 30: "unmask"}
    assert check_pattern(given, drop, 30, degree=12)
    near = neighbours(tuple(range(40)), ON, 12)
    assert all(len(around) == 12 and i not in around for i, around in near.items())
    assert all(i in near[j] for i, around in near.items() for j in around)
    assert near != neighbours(tuple(range(40)), Occasion(ON.session, 5), 12), (
        "each round has a graph of its own"
    )


def test_a_round_on_a_sparse_graph_is_lost_if_the_neighbours_of_a_client_leave() -> None:
    near = neighbours(tuple(range(20)), ON, 4)
    drop = dict.fromkeys(near[0][:3], "masked")
    with pytest.raises((RoundAborted, MessageRefused)):
        aggregate(list(vectors(20)), bits=18, threshold=11, drop=drop, degree=4, on=ON)


def test_risks_of_a_sparse_graph_against_simulation() -> None:
    clients, degree, colluding, leaving = 30, 8, 9, 9
    bound = risks(clients, degree, colluding=colluding, dropouts=leaving)
    random = np.random.default_rng(5)
    lost = recovered = 0
    runs, ring = 4000, np.arange(clients)
    offsets = [o for o in range(-degree // 2, degree // 2 + 1) if o]
    around = (ring[:, None] + offsets) % clients
    for _ in range(runs):
        order = random.permutation(clients)
        bad, gone = order[:colluding], order[colluding : colluding + leaving]
        recovered += (np.isin(around, bad).sum(axis=1) >= majority(degree + 1)).any()
        lost += (np.isin(around, gone).sum(axis=1) > degree - majority(degree + 1)).any()
    slack = 5 * np.sqrt(0.25 / runs)
    assert recovered / runs <= bound.privacy + slack
    assert lost / runs <= bound.success + slack
    assert lost / runs > 0.02, "the simulation sees failures"
    assert degree_for(1000, colluding=100, dropouts=100) > degree_for(1000, colluding=20, dropouts=20)
    with pytest.raises(InvalidValue):
        degree_for(1000, colluding=499, dropouts=400)


# ------------------------------------------------------------------ what a server sees


class Round:
    """A round in which every message can be looked at, and changed, on its way."""

    def __init__(self, count: int = 5, threshold: int = 3, dimension: int = 6, bits: int = 8) -> None:
        self.clients = {
            i: SecureClient(i, threshold, on=ON, dimension=dimension, bits=bits) for i in range(count)
        }
        self.server = SecureServer(range(count), threshold, dimension, bits, on=ON)
        self.dimension = dimension

    def rosters(self) -> dict[int, RosterMessage]:
        return self.server.keys([client.advertise() for client in self.clients.values()])

    def inboxes(self) -> dict[int, InboxMessage]:
        return self.server.shares([self.clients[i].share(m) for i, m in self.rosters().items()])

    def masked(self, value: int = 0) -> dict[int, MaskedMessage]:
        vector = np.full(self.dimension, value)
        return {i: self.clients[i].masked(vector, inbox) for i, inbox in self.inboxes().items()}

    def lists(self) -> dict[int, SurvivorsMessage]:
        return self.server.masked(self.masked().values())


def chi_square(value: int) -> float:
    """The p-value of uniformity of what one client sends, for an update that is constant."""
    sent = Round(count=3, threshold=2, dimension=50_000).masked(value)[1].vector
    return float(stats.chisquare(np.bincount(sent, minlength=256)).pvalue)


@pytest.mark.parametrize("value", [0, 1, 128, 255])
def test_what_the_server_receives_from_one_client_is_uniform_whatever_the_update(value: int) -> None:
    assert chi_square(value) > ALARM


def test_the_test_of_uniformity_has_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks that are biased by one value in fifty are found."""
    stretched = Stream._stretched

    def biased(self, key):
        words = stretched(self, key)
        words[::50] = 7
        return words

    monkeypatch.setattr(Stream, "_stretched", biased)
    assert chi_square(0) < ALARM


def test_masks_are_fresh_and_partly_opened_masks_still_hide() -> None:
    """The same clients, twice, send different vectors; and one mask, taken off, leaves a uniform one."""
    one, other = (Round(count=3, threshold=2, dimension=2000).masked(5)[1].vector for _ in range(2))
    assert (one == other).mean() < 0.02
    kept = Round(count=3, threshold=2, dimension=50_000)
    sent = kept.masked(0)[1].vector.copy()
    Stream(50_000, 8).subtract(sent, kept.clients[1]._seed)
    assert stats.chisquare(np.bincount(sent, minlength=256)).pvalue > ALARM
    again = sent.copy()
    for other_client in (0, 2):
        key = kept.clients[1]._mask.pairwise(1, other_client, kept.clients[other_client]._mask.public, ON)
        (Stream(50_000, 8).subtract if other_client > 1 else Stream(50_000, 8).add)(again, key)
    assert not again.any(), "with all three masks taken off the update is left: they are what hides it"


def test_no_client_gives_both_shares_of_one_client() -> None:
    lists = Round.lists(run := Round())
    for i, message in lists.items():
        answer = run.clients[i].unmask(message)
        assert not set(answer.self_shares) & set(answer.key_shares)
        assert set(answer.self_shares) == set(range(5))
        without = SurvivorsMessage(ON, i, tuple(j for j in range(5) if j != (i + 1) % 5))
        with pytest.raises(MessageRefused):
            run.clients[i].unmask(without)
        assert run.clients[i].unmask(message) == answer, "the same list again gives the same shares"


@pytest.mark.parametrize("count", [5, 6])
def test_a_server_that_tells_clients_different_lists_opens_no_client_twice(count: int) -> None:
    """It needs the threshold of both kinds of shares of client 0, and each client gives one of one kind."""
    threshold = count // 2 + 1
    for honest_lists in range(count + 1):
        run = Round(count=count, threshold=threshold)
        run.lists()
        everybody, without = tuple(range(count)), tuple(range(1, count))
        kinds = {"self": 0, "key": 0}
        for i in range(count):
            told = everybody if i < honest_lists else without
            try:
                answer = run.clients[i].unmask(SurvivorsMessage(ON, i, told))
            except MessageRefused:
                assert i == 0, "only client 0 sees that the list lacks itself"
                continue
            kinds["self"] += 0 in answer.self_shares
            kinds["key"] += 0 in answer.key_shares
        assert min(kinds.values()) < threshold
        assert sum(kinds.values()) <= count < 2 * threshold


def test_fewer_shares_than_the_threshold_tell_nothing_and_as_many_tell_all() -> None:
    source = Source(random_state=9)
    seen = np.zeros(256)
    for _ in range(4000):
        shares = shamir.split(b"\x2a", 5, 3, source)
        seen[shares[3][0] ^ shamir._products()[7, shares[0][0]]] += 1  # any function of two shares
    assert stats.chisquare(seen).pvalue > ALARM
    secret = bytes(range(32))
    for holders, threshold in ((1, 1), (5, 3), (255, 128)):
        shares = shamir.split(secret, holders, threshold, source)
        chosen = tuple(range(holders - threshold + 1, holders + 1))
        assert shamir.recovered([shares[i - 1] for i in chosen], shamir.weights(chosen)) == secret
    for holders, threshold in ((256, 3), (3, 4), (3, 0)):
        with pytest.raises(InvalidValue):
            shamir.split(secret, holders, threshold, source)
    with pytest.raises(InvalidValue):
        shamir.weights((1, 1))


# ------------------------------------------------------------------ what a client refuses


@pytest.mark.parametrize(
    "change",
    [
        lambda m, run: RosterMessage(ON, 2, (0, 1, 3, 4), m.keys), lambda m, run: RosterMessage(ON, 2, (0,
        1, 2, 2, 3, 4), m.keys), lambda m, run: RosterMessage(ON, 2, (4, 3, 2, 1, 0), m.keys), lambda m,
        run: RosterMessage(ON, 2, (1, 2), {1: m.keys[1]}), lambda m, run: RosterMessage(ON, 2,
        tuple(range(6)), {**m.keys, 5: (b"5" * 32, b"6" * 32)}), lambda m, run: RosterMessage(ON, 2,
        m.clients, {**m.keys, 1: m.keys[0]}), lambda m, run: RosterMessage(ON, 2, m.clients, {**m.keys, 1:
        (run.clients[2]._cipher.public, b"1" * 32)}), lambda m, run: RosterMessage(ON, 2, m.clients, {0:
        m.keys[0], 1: m.keys[1]}), lambda m, run: RosterMessage(ON, 2, m.clients, {**m.keys, 1: (bytes(32),
        b"1" * 32)}),
    ],
    ids=[
        "without itself", "one twice", "not in order", "fewer than the threshold",
        "threshold not a majority", "a key twice", "its own key", "keys missing", "a key of low order",
    ],
)  # fmt: skip
def test_a_client_refuses_a_list_of_keys_that_is_not_safe(change) -> None:
    run = Round()
    roster = run.rosters()[2]
    with pytest.raises(MessageRefused):
        run.clients[2].share(change(roster, run))
    with pytest.raises(MessageRefused):
        run.clients[2].share(roster)  # no second chance with another list


@pytest.mark.parametrize(
    "survivors",
    [(0, 1), (), (0, 1, 3, 4), (0, 1, 2, 9), (2, 2, 2), (0, 1, 1, 2)],
    ids=["too few", "nobody", "without itself", "a stranger", "itself thrice", "one twice"],
)
def test_a_client_refuses_a_list_of_survivors_that_is_not_safe(survivors: tuple[int, ...]) -> None:
    run = Round()
    run.lists()
    with pytest.raises(MessageRefused):
        run.clients[2].unmask(SurvivorsMessage(ON, 2, survivors))
    with pytest.raises(MessageRefused):
        run.clients[2].unmask(SurvivorsMessage(ON, 2, (0, 1, 2, 3, 4)))


def test_a_survivor_that_never_shared_is_refused() -> None:
    run = Round()
    inboxes = run.inboxes()
    inbox = InboxMessage(ON, 2, {i: box for i, box in inboxes[2].boxes.items() if i != 4})
    run.clients[2].masked(np.zeros(6, dtype=int), inbox)
    with pytest.raises(MessageRefused):
        run.clients[2].unmask(SurvivorsMessage(ON, 2, (0, 1, 2, 4)))


def test_steps_are_taken_once_and_in_order() -> None:
    run = Round()
    inboxes, vector = run.inboxes(), np.zeros(6, dtype=int)
    client = run.clients[0]
    with pytest.raises(MessageRefused):
        client.advertise()
    fresh = SecureClient(0, 3, on=ON, dimension=6, bits=8)
    with pytest.raises(MessageRefused):
        fresh.masked(vector, inboxes[0])
    with pytest.raises(MessageRefused):
        fresh.unmask(SurvivorsMessage(ON, 0, (0, 1, 2)))
    run = Round()
    inboxes = run.inboxes()
    run.clients[0].masked(vector, inboxes[0])
    with pytest.raises(MessageRefused):
        run.clients[0].masked(
            vector + 1, inboxes[0]
        )  # two vectors under one mask would tell their difference


@pytest.mark.parametrize("wrong", [np.zeros(5, dtype=int), np.zeros(6), np.zeros((6, 1), dtype=int), "98765"])
def test_a_vector_of_another_kind_is_refused_without_showing_it(wrong) -> None:
    run = Round()
    inbox = run.inboxes()[0]
    with pytest.raises(InvalidValue) as refused:
        run.clients[0].masked(wrong, inbox)
    assert "98765" not in str(refused.value)


@pytest.mark.parametrize(
    "parameters", [{"threshold": 1}, {"bits": 65}, {"bits": 0}, {"degree": 5}, {"degree": 256}]
)
def test_bad_parameters(parameters: dict) -> None:
    good = {"number": 0, "threshold": 3, "on": ON, "dimension": 6, "bits": 8}
    with pytest.raises(InvalidValue):
        SecureClient(**{**good, **parameters})
    with pytest.raises(InvalidValue):
        Occasion(b"short", 0)
    with pytest.raises(InvalidValue):
        Occasion(bytes(16), -1)
