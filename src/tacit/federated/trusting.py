"""Who is trusted with what: the four answers, in the words that guarantees and descriptions use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.guarantee import ceiling
from tacit.relations import Unit

if TYPE_CHECKING:
    from tacit.federated.plan import FederatedPlan

__all__ = ["CLIENT", "TRUSTS"]

CLIENT = Unit("client", name="client")
"""One client with all that it holds: what a ledger of a federation protects.

>>> print(CLIENT)
client
"""

TRUSTS = ("server", "aggregator", "nobody", "silo")

_WORDS = {
    "server": (
        "The server is trusted with the clients' updates. It clips them again, adds them up and adds the "
        "noise; whoever sees the models, and nothing else, learns little about any one client."
    ),
    "aggregator": (
        "The server is trusted to follow the protocol, and not with any update. Each client clips, rounds, "
        "adds its share of the noise and masks what it sends; the server can open only the noisy sum. It "
        "sees who takes part."
    ),
    "nobody": (
        "Nobody is trusted. Each client randomises its own update before it sends it. The server sees who "
        "takes part, and every randomised report."
    ),
    "silo": (
        "Each silo is trusted with its own rows, and protects them by DP-SGD before anything leaves it. What "
        "the server does with the models is post-processing. The silos themselves are not hidden."
    ),
}

_COMMON = "a client's update depends on its own rows and on released models alone"


def assumptions_of(trust: str, plan: FederatedPlan, *, hidden: bool = True) -> tuple[str, ...]:
    """What the guarantee of a federation rests on besides its event.

    ``hidden`` is false for a promise that holds against those who see Poisson cohorts, too.
    """
    if trust == "silo":
        return (
            "each silo trains by its own plan at this ε and δ and charges its own ledger",
            "a row stands in one silo: what rows that stand in several lose adds up",
        )
    found = [_COMMON]
    if plan.sampling == "poisson":
        secret = ", and kept secret with all that tells it" if hidden else " without looking at any row"
        found.append(f"who is in a cohort is drawn by the server{secret}")
    else:
        found.append(f"a client sends at most {plan.participations} reports, one for a round")
    if plan.weights:
        found.append("the weights of the clients are public")
    if trust == "server":
        found.append("the server keeps updates, cohorts and its diagnostics to itself")
    if trust != "server":
        found.append("whether a client answers does not depend on its rows: one that fails sends zeros")
    if trust == "aggregator":
        found.append(
            f"of every {plan.cohort} clients that are asked, at least {plan.honest} whose reports are in the "
            "opened sum are honest: they add their noise and tell it nobody"
        )
        found.append("that a client took part is not hidden: it is compared with one that sends zeros")
        found.append("the server follows the protocol of secure aggregation, and breaks no cryptography")
    if trust == "nobody" and plan.shuffler:
        found.append(
            f"reports are mixed by a trusted shuffler, which passes on none unless {plan.quorum} honest "
            "clients have sent one"
        )
    return tuple(found)


def told(plan: FederatedPlan) -> str:
    """A plan in words."""
    lines = [str(plan) + ".", _WORDS[plan.trust]]
    if plan.trust != "silo":
        lines.append(plan.guarantee().statement())
    else:
        lines.append(
            f"Each silo promises (ε = {ceiling(plan.epsilon, 6)}, δ = {float(ceiling(plan.delta, 6)):g}) for "
            f"each of its rows, under {plan.relation}. "
            + "Assuming: "
            + "; ".join(assumptions_of("silo", plan))
            + "."
        )
    if plan.trust == "aggregator":
        lines.append(
            f"A round in which fewer than {plan.quorum} of {plan.cohort} clients survive is given up, and "
            "stays charged."
        )
    if plan.metrics:
        lines.append("Released beside the model: " + ", ".join(each.name for each in plan.metrics) + ".")
    return "\n".join(lines)
