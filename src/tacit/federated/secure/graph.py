"""Who masks with whom: everybody with everybody, or each client with a few random neighbours.

With n clients the complete graph costs each of them n − 1 key agreements and masks. Bell, Bonawitz, Gascón,
Lepoint and Raykova 2020 ("Secure single-server aggregation with (poly)logarithmic overhead") show that a
sparse random graph is enough: clients stand on a ring in random order, and each masks with the ``degree``/2
next ones on either side, which also hold the shares of its secrets. The order is a hash of session, round
and number, so every client checks its neighbours by itself.

What may go wrong then has a probability, which :func:`risks` bounds for ``colluding`` clients that tell the
server everything and ``dropouts`` that leave, neither chosen with knowledge of the order:

* *privacy*: some client has as many colluding neighbours as it takes to recover its mask key; or the honest
  clients that stay fall apart into groups whose sums the server learns apart, for which degree/2 clients in
  a row must have left or colluded;
* *success*: too few neighbours of some client stay to open its mask, and the round is lost.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln
from scipy.stats import hypergeom

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.federated.secure.keys import Occasion
from tacit.federated.secure.shamir import MOST_HOLDERS

__all__ = ["Risks", "degree_for", "majority", "neighbours", "risks"]


def majority(holders: int) -> int:
    """The fewest shares of so many that two disjoint sets of holders cannot both have."""
    return holders // 2 + 1


@lru_cache(16)
def neighbours(clients: tuple[int, ...], on: Occasion, degree: int | None) -> dict[int, tuple[int, ...]]:
    """The neighbours of each client, in increasing order; all others where ``degree`` is None."""
    if degree is None or degree >= len(clients) - 1:
        return {number: tuple(other for other in clients if other != number) for number in clients}
    salt = b"tacit ring" + on.to_bytes()
    ring = sorted(clients, key=lambda number: hashlib.sha256(salt + struct.pack("<I", number)).digest())
    size, half = len(ring), degree // 2
    near = [offset for offset in range(-half, half + 1) if offset]
    return {
        number: tuple(sorted(ring[(place + offset) % size] for offset in near))
        for place, number in enumerate(ring)
    }


@dataclass(frozen=True)
class Risks:
    """Upper bounds of the probabilities that a round on a sparse graph is not secret, and that it fails."""

    privacy: float
    success: float


def risks(clients: int, degree: int, *, colluding: int, dropouts: int) -> Risks:
    """What a round on a sparse graph risks; see the module.

    >>> found = risks(1000, 64, colluding=100, dropouts=100)
    >>> found.privacy < 1e-12, found.success < 1e-12
    (True, True)
    """
    size, threshold = _validate.count("clients", clients, 2) - 1, majority(degree + 1)
    if not 2 <= _validate.count("degree", degree) <= size or degree % 2:
        raise InvalidValue("degree", degree, f"even, between 2 and {size} other clients")
    _validate.count("colluding", colluding), _validate.count("dropouts", dropouts)
    recovered = clients * float(hypergeom.sf(threshold - 1, size, min(colluding, size), degree))
    gone = min(colluding + dropouts, clients)
    half = degree // 2
    apart = 0.0
    if gone >= half:
        log_run = (
            gammaln(gone + 1) - gammaln(gone - half + 1) - gammaln(clients + 1) + gammaln(clients - half + 1)
        )
        apart = clients * float(np.exp(log_run))
    lost = clients * float(hypergeom.sf(degree - threshold, size, min(dropouts, size), degree))
    return Risks(min(1.0, recovered + apart), min(1.0, lost))


@lru_cache(16)
def degree_for(
    clients: int, *, colluding: int, dropouts: int, privacy: float = 2.0**-40, success: float = 2.0**-20
) -> int | None:
    """The smallest degree that keeps both :func:`risks` below these limits; None where only all will do.

    >>> degree_for(1000, colluding=50, dropouts=50), degree_for(20, colluding=5, dropouts=5)
    (34, None)
    """
    _validate.count("clients", clients, 2)
    for degree in range(4, min(clients - 1, MOST_HOLDERS), 2):
        found = risks(clients, degree, colluding=colluding, dropouts=dropouts)
        if found.privacy <= privacy and found.success <= success:
            return degree
    if clients > MOST_HOLDERS:
        raise InvalidValue(
            "clients", clients, "255 or fewer", "So many may not collude or leave on a sparse graph."
        )
    return None
