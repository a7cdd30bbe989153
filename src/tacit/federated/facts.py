"""The public facts of a federation: what goes together, and what follows from them without any noise."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from scipy.special import bdtrc

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.federated.metrics import Metric
from tacit.federated.trusting import CLIENT, TRUSTS
from tacit.relations import Relation, Unit
from tacit.training.clipping import Quantile, checked_clip_norm

SAMPLINGS = ("poisson", "rotation")
RANDOMIZERS = ("gaussian", "privunit")
RARE = 1e-6
"""How likely it is, at most, that a Poisson cohort of one round is larger than the plan counts on."""


def most_often(trials: int, rate: float, rare: float) -> int:
    """The smallest number that so many trials succeed more often than with probability ``rare`` at most."""
    return bisect_left(range(trials), -rare, key=lambda number: -float(bdtrc(number, trials, rate)))


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """The fields of :class:`tacit.federated.FederatedPlan`, which explains them, checked."""

    clients: int
    cohort: int
    rounds: int
    clip_norm: float = 1.0
    epsilon: float = 0.0
    delta: float
    trust: str
    noise_multiplier: float = 0.0
    report_epsilon: float = 0.0
    sampling: str = ""
    participations: int = 0
    honest: int = 0
    dropouts: int = 0
    bits: int = 18
    randomizer: str = "gaussian"
    shuffler: bool = False
    relation: Relation | str = ""
    clipping: str | Quantile = "fixed"
    metrics: tuple[Metric, ...] = ()
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _validate.choice("trust", self.trust, TRUSTS)
        for name in ("clients", "cohort", "rounds"):
            self._set(name, _validate.count(name, getattr(self, name), 1))
        if self.cohort > self.clients:
            raise InvalidValue("cohort", self.cohort, f"at most the clients, {self.clients}")
        self._set("clip_norm", checked_clip_norm(self.clip_norm))
        self._set("delta", _validate.delta(self.delta))
        _validate.choice("randomizer", self.randomizer, RANDOMIZERS)
        if self.delta == 0 and not self._pure:
            raise InvalidValue(
                "delta", self.delta, "above 0, as the noise is Gaussian", "Use 1e-5 or 1/clients²."
            )
        self._check_relation()
        self._check_sampling()
        self._check_shares()
        self._check_extras()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_relation(self) -> None:
        usual = Relation.REPLACE_ONE if self.trust == "nobody" else Relation.ADD_REMOVE
        self._set("relation", Relation.of(usual if self.relation == "" else self.relation))
        if self.trust == "nobody" and self.relation is not Relation.REPLACE_ONE:
            raise InvalidValue(
                "relation", str(self.relation), "'replace_one' where nobody is trusted",
                "Whoever receives a report sees that the client takes part; what it sent is protected.",
            )  # fmt: skip

    def _check_sampling(self) -> None:
        if self.sampling == "":
            self._set("sampling", "poisson" if self.trust == "server" else "rotation")
        _validate.choice("sampling", self.sampling, SAMPLINGS)
        if self.sampling == "poisson":
            if self.trust == "nobody":
                raise InvalidValue(
                    "sampling", self.sampling, "'rotation' where nobody is trusted",
                    "The server, which receives the reports, sees who takes part: nothing is amplified.",
                )  # fmt: skip
            if self.participations:
                raise InvalidValue(
                    "participations", self.participations, "left out under sampling='poisson'",
                    "There every client may be drawn in every round. Set sampling='rotation' for a cap.",
                )  # fmt: skip
            return
        enough = -(-self.rounds * self.cohort // self.clients)
        cap = _validate.count("participations", self.participations or enough, 1)
        self._set("participations", min(cap, self.rounds))

    def _check_shares(self) -> None:
        self._set("dropouts", _validate.count("dropouts", self.dropouts))
        if self.shuffler and not self._pure:
            raise InvalidValue(
                "shuffler", self.shuffler, "False, but for trust='nobody' with randomizer='privunit'",
                "Amplification by shuffling is known for pure local reports.",
            )  # fmt: skip
        if self.trust != "aggregator" and (self.honest or (self.dropouts and not self.shuffler)):
            raise InvalidValue(
                "honest and dropouts", (self.honest, self.dropouts), "left out where no noise is shared"
            )
        if self.needs_quorum and self.quorum < 2:
            raise InvalidValue(
                "dropouts", self.dropouts, f"so few that 2 of the {self.cohort} clients of a cohort are left"
            )
        if self.trust == "aggregator":
            self._set("honest", _validate.count("honest", self.honest or self.quorum, 1))
            if self.honest > self.quorum:
                raise InvalidValue(
                    "honest", self.honest, f"at most {self.quorum}, the clients that must survive",
                    "Allow fewer dropouts, or count on fewer honest clients.",
                )  # fmt: skip

    def _check_extras(self) -> None:
        if not isinstance(self.clipping, Quantile):
            _validate.choice("clipping", self.clipping, ("fixed",))
        for name, example in (("metrics", "Metric('loss', 0.0, 10.0)"), ("weights", "1.0")):
            if not isinstance(getattr(self, name), Iterable):
                raise InvalidValue(name, getattr(self, name), "a tuple or list", f"Write ({example},).")
        self._set("metrics", tuple(self.metrics))
        names = [each.name if isinstance(each, Metric) else None for each in self.metrics]
        if None in names or len(set(names)) < len(names):
            raise InvalidValue("metrics", self.metrics, "metrics of different names", "See Metric.")
        if self.trust in ("nobody", "silo") and (self.metrics or isinstance(self.clipping, Quantile)):
            raise InvalidValue(
                "metrics and clipping", (names, str(self.clipping)), f"left out for trust={self.trust!r}",
                "A figure from single local reports says nothing; a silo releases figures by tacit.evaluate.",
            )  # fmt: skip
        weights = tuple(_validate.finite("weights", each) for each in self.weights)
        if weights and (len(weights) != self.clients or not all(0 <= each <= 1 for each in weights)):
            raise InvalidValue("weights", len(weights), f"{self.clients} public numbers in [0, 1]")
        self._set("weights", weights)
        if not self.divisor > 1e-100:
            raise InvalidValue("weights", self.divisor, "such that a cohort is expected to have some weight")

    @property
    def _pure(self) -> bool:
        return self.trust == "nobody" and self.randomizer == "privunit"

    @property
    def unit(self) -> Unit:
        """Who is protected: a client, or a row of one silo."""
        return Unit() if self.trust == "silo" else CLIENT

    @property
    def hidden_cohorts(self) -> bool:
        """Whether amplification is claimed that does not hold against the server."""
        return self.trust == "aggregator" and self.sampling == "poisson"

    @property
    def sampling_rate(self) -> float:
        """cohort ÷ clients."""
        return self.cohort / self.clients

    @property
    def largest_cohort(self) -> int:
        """The size of a cohort; of a Poisson cohort one that is exceeded with probability 10⁻⁶ at most."""
        if self.sampling == "rotation":
            return self.cohort
        return most_often(self.clients, self.sampling_rate, RARE)

    @property
    def needs_quorum(self) -> bool:
        """Whether noise is shared, or reports are mixed, so that too few of them would weaken the promise."""
        return self.trust == "aggregator" or self.shuffler

    @property
    def quorum(self) -> int:
        """How many reports of ``cohort`` clients a round needs where noise is shared or reports are mixed."""
        return self.cohort - self.dropouts

    def needed(self, asked: int) -> int:
        """How many of so many clients must report, or the round is given up; 0 where any number will do.

        Shares of noise are sized for the number of clients that are asked, so that the same proportion of
        them suffices; shuffling hides a report among others by their number.
        """
        if self.trust == "aggregator":
            return max(2, -(-self.quorum * asked // self.cohort))
        return self.quorum if self.shuffler else 0

    def weight(self, client: int) -> float:
        """The public weight of a client, 1 unless the plan has weights."""
        return self.weights[client] if self.weights else 1.0

    @property
    def divisor(self) -> float:
        """What a sum is divided by: the expected cohort, or the expected sum of its public weights."""
        share = math.fsum(self.weights) / self.clients if self.weights else 1.0
        return self.cohort * share
