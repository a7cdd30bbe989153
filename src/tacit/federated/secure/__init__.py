"""Secure aggregation: a server learns the sum of the clients' vectors, and no vector (Bonawitz et al. 2017).

Each pair of clients agrees on a mask that one adds and the other subtracts, and each client adds a mask of
its own. What the server receives from one client is uniform, whatever the vector; in the sum the pairwise
masks cancel. Clients share the secrets behind both masks with each other (Shamir). When all vectors have
arrived, they give the server the shares of the own masks of those that sent a vector, and of the mask keys
of those that did not, and never both of one client: either alone leaves the other mask on its vector.

**Guarantee.** Computational secrecy at 128 bits: keys, seeds and shares have 256 bits, X25519 has a
security of 128. A server that follows the protocol and reads everything, together with fewer than
``threshold`` clients, learns of the others the sum of their vectors, who took part and nothing else (on a
sparse graph, but for a stated probability). Each client gives its shares only for a list of at least
``threshold`` survivors, and only if the threshold is more than half of the clients that it was told of. A
server that follows the protocol therefore opens no sum of fewer clients, whatever else goes wrong.

**What is not covered** is a server that departs from the protocol. It relays all public keys; one that lies
about them, or invents clients (Sybils) to make up the threshold, can surround a client and learn its
vector. So can one that tells clients different things: with five clients and a threshold of three it needs
no accomplice to withhold the shares of two clients from a third and to name other survivors to each
(tests/federated/test_secure_lies.py does it). That each client checks its own list and answers once makes
such an attack harder, and does not prevent it; Bonawitz et al. 2017 prevent it by keys that somebody else
certifies and one more step in which clients sign the list. Clients that lie can make the sum anything:
nothing here bounds a vector. Timing and traffic are visible. The sum itself is protected only by the noise
in it (:mod:`tacit.federated.distributed`).

====================  ======================================  ============================
step                  client                                  server
====================  ======================================  ============================
keys                  ``advertise()``                         ``keys(messages)``
shares                ``share(roster)``                       ``shares(messages)``
masked vectors        ``masked(vector, inbox)``               ``masked(messages)``
unmasking             ``unmask(survivors)``                   ``unmask(messages)`` → sum
====================  ======================================  ============================

Above some hundred clients use a sparse graph, ``degree=degree_for(…)`` (Bell et al. 2020), see
:mod:`tacit.federated.secure.graph`. The package ``cryptography`` is needed (``pip install
"tacit[federated]"``).

>>> aggregate([[1, 2], [3, 4], [5, 6]], bits=16).total.tolist()
[9, 12]

References: Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning";
Bell et al. 2020, "Secure single-server aggregation with (poly)logarithmic overhead".
"""

from __future__ import annotations

from tacit._extras import needed as _needed

with _needed("Rounds of secure aggregation"):
    from tacit.federated.secure.client import SecureClient
    from tacit.federated.secure.graph import Risks, degree_for, risks
    from tacit.federated.secure.keys import Occasion
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
    from tacit.federated.secure.server import STAGES, Aggregated, SecureServer, aggregate

__all__ = [
    "STAGES",
    "Aggregated",
    "InboxMessage",
    "KeysMessage",
    "MaskedMessage",
    "Message",
    "Occasion",
    "Risks",
    "RosterMessage",
    "SecureClient",
    "SecureServer",
    "SharesMessage",
    "SurvivorsMessage",
    "UnmaskMessage",
    "aggregate",
    "degree_for",
    "risks",
]
