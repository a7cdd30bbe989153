"""FederatedPlan: the public facts of a federation, and the noise and guarantee that follow from them.

This module needs neither Flower nor PyTorch nor cryptography.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from tacit import _validate, accounting, events
from tacit.errors import CalibrationError, InvalidValue
from tacit.federated.facts import PublicFacts, most_often
from tacit.federated.metrics import Metric
from tacit.federated.trusting import assumptions_of, told
from tacit.guarantee import Guarantee, above
from tacit.relations import Relation, norm_sensitivity
from tacit.training.clipping import Quantile
from tacit.training.plan import Plan
from tacit.training.sampling import Poisson

if TYPE_CHECKING:
    from tacit.federated.distributed import DistributedNoise

__all__ = ["FederatedPlan"]


@dataclass(frozen=True, kw_only=True)
class FederatedPlan(PublicFacts):
    """What a federation of clients and a server will do, fixed before any client is asked.

    Give a target ``epsilon`` with ``delta``, and the plan computes the noise; or give ``noise_multiplier``
    (``report_epsilon`` for PrivUnit), and it computes ``epsilon``. With both, the noise must suffice for ε.
    Everything here is public. ``trust`` says who is trusted with what, and so where the noise is added:

    ==============  ===========================================================  ===========================
    trust           who adds noise, and what is protected                        event
    ==============  ===========================================================  ===========================
    "server"        the server, on the sum of updates it has clipped itself;     sampled Gaussian, or
                    the client is protected from whoever sees the models         Gaussian × participations
    "aggregator"    each client a share of it, before secure aggregation; the    the distributed noise of
                    server sees only noisy sums, and who took part               ``honest`` clients
    "nobody"        each client all of it, on its own update                     Gaussian or Pure
                                                                                 × participations
    "silo"          each silo, inside its own DP-SGD; a row is protected, and    (ε, δ) of every silo
                    the federation is post-processing
    ==============  ===========================================================  ===========================

    Guarantee, for one client (a row of one silo for "silo"). A round adds up updates that are clipped to
    ``clip_norm``: a client that is added or removed moves the sum by at most clip_norm, one that is replaced
    by twice that. The sum is divided by the public expected cohort, never by the number of clients that
    answered, so that a client that drops out is a client whose update is zero. Server optimisers are
    post-processing. McMahan et al. 2018, "Learning differentially private recurrent language models".

    ==================  ================================================================================
    ``sampling``        "poisson": each client joins a round by itself with probability cohort ÷ clients,
                        drawn by the server and kept secret: amplified. "rotation": the server chooses as it
                        likes, and a client takes part in at most ``participations`` rounds: no amplification.
                        The default is "poisson" for "server" and "rotation" for all others, whose
                        server sees who takes part
    ``participations``  the most rounds of one client under "rotation", enforced round by round; by default
                        rounds × cohort ÷ clients, rounded up, with which every round is full
    ``dropouts``        "aggregator", or a shuffler: how many of ``cohort`` clients may be lost before the
                        round is given up
    ``honest``          "aggregator": the fewest honest clients, of ``cohort`` that were asked, whose noise is
                        in a sum that is opened; by default all that must survive (``quorum``), which means
                        that none colludes. A Poisson cohort of another size has the same proportions
    ``bits``            "aggregator": bits of a coordinate in transit
    ``randomizer``      "nobody": "gaussian" or "privunit" (pure ε: Bhowmick et al. 2018)
    ``shuffler``        "nobody" with "privunit": somebody trusted mixes the reports before the server sees
                        them, and passes on none if fewer than ``quorum`` came
    ``clipping``        "fixed", or a :class:`tacit.training.Quantile`, which moves clip_norm after each
                        round ("server" and "aggregator"; Andrew et al. 2021)
    ``metrics``         figures that clients report, each a :class:`Metric`, bought by more noise on the
                        updates ("server" and "aggregator")
    ``weights``         one public number in [0, 1] for each client that its clipped update is multiplied
                        by; a number of examples is private and must not be used
    ==================  ================================================================================

    >>> plan = FederatedPlan(clients=6000, cohort=600, rounds=100, clip_norm=1.0, epsilon=2.0, delta=1e-5,
    ...                      trust="server")
    >>> print(plan)
    100 rounds of 600 of 6000 clients (poisson), clip_norm 1, noise_multiplier 2.248: ε = 2 at δ = 1e-05 ...
    >>> FederatedPlan.from_dict(plan.to_dict()) == plan
    True
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._find_noise()
        _validate.warn_if_weak(self.epsilon, self.delta, self.clients, stacklevel=4)

    def _find_noise(self) -> None:
        if self.trust == "silo":
            self._set("epsilon", _validate.epsilon(self.epsilon))
            if self.noise_multiplier or self.report_epsilon:
                raise InvalidValue(
                    "noise_multiplier", self.noise_multiplier, "left out for trust='silo'",
                    "Each silo computes its noise from its own rows: see FederatedPlan.silo.",
                )  # fmt: skip
            return
        name, other = "noise_multiplier", "report_epsilon"
        if self._pure:
            name, other = other, name
        if getattr(self, other):
            raise InvalidValue(other, getattr(self, other), f"left out: the noise is stated by {name}")
        if not (self.epsilon or getattr(self, name)):
            raise InvalidValue(f"epsilon and {name}", (0.0, 0.0), "one of the two, above 0")
        if self.epsilon:
            self._set("epsilon", _validate.epsilon(self.epsilon))
        if self.hidden_cohorts and not self._unhidden < self.delta:
            raise InvalidValue(
                "cohort", self.cohort, f"larger under sampling='poisson', for δ = {self.delta:g}",
                "That a small cohort is given up tells who was drawn. Set sampling='rotation'.",
            )  # fmt: skip
        if not getattr(self, name):
            found = self._calibrated()
            self._set(name, (1 - 1e-12) / found if self._pure else found)
        self._set(name, _validate.positive(name, getattr(self, name)))
        spent = self.spent
        if not self.epsilon:
            self._set("epsilon", spent)
        if spent > self.epsilon:
            raise CalibrationError(
                f"{name}={getattr(self, name)!r} spends ε = {spent!r}, more than {self.epsilon!r}.",
                f"Leave {name} out, and the plan computes it.", epsilon=self.epsilon, delta=self.delta,
            )  # fmt: skip
        self.noise_for_sum  # noqa: B018 - refuses metrics that cost more than a round may

    def _calibrated(self) -> float:
        try:
            return accounting.calibrate(
                self._made, epsilon=self.epsilon, delta=self.delta, relation=self.relation
            )
        except InvalidValue:
            raise CalibrationError(
                f"Less noise than clients can share would do for ε = {self.epsilon!r} at δ = {self.delta!r}.",
                "Ask for a smaller ε, or give noise_multiplier.", epsilon=self.epsilon, delta=self.delta,
            ) from None  # fmt: skip

    def _made(self, noise: float) -> events.Event:
        """The event of the run, if one round has so much noise."""
        if self.sampling == "rotation":
            return events.Repeat(self._round(noise), self.participations)
        if self.trust == "aggregator" and self.sampling_rate < 1:
            sampled = events.Repeat(self._distributed(noise, 1.0).sampled(self.sampling_rate), self.rounds)
            if not self._unhidden:
                return sampled
            return events.Compose((events.Approximate(0.0, self._unhidden), sampled))
        return Poisson(self.sampling_rate).event(self._round(noise), self.rounds)

    @property
    def _unhidden(self) -> float:
        """The probability that a run tells everybody of a client that it was in a cohort ("aggregator").

        Under Poisson sampling a sum of one report is not opened. So where exactly one other client was drawn,
        there is a sum if and only if the client was drawn, too, and amplification fails: δ pays for that.
        """
        others, rate = self.clients - 1, self.sampling_rate
        none_else = 0.0 if rate == 1 else math.exp((others - 1) * math.log1p(-rate))
        alone = others * rate * (1.0 if others == 1 else none_else)
        return min(1.0, self.rounds * self.sampling_rate * alone * (1 + 1e-9))

    def _round(self, noise: float) -> events.Event:
        if self._pure:
            local = events.Pure(1 / noise)
            return events.Shuffled(local, self.quorum) if self.shuffler else local
        if self.trust == "aggregator":
            return self._distributed(noise, 1.0).event
        return events.Gaussian(noise)

    def _distributed(self, noise: float, clip_norm: float) -> DistributedNoise:
        from tacit.federated.distributed import DistributedNoise

        most = self.largest_cohort
        return DistributedNoise(
            clip_norm=clip_norm, bits=self.bits, summands=most,
            honest=max(1, self.honest * most // self.cohort),
            noise_multiplier=noise, relation=str(self.relation),
        )  # fmt: skip

    # ------------------------------------------------------------------------------- what follows

    @property
    def noise_kind(self) -> str:
        """How exact the noise is, as a guarantee states it, where no seed was given."""
        return "float32" if self.trust == "silo" else "float64" if self._pure else "exact"

    @property
    def event(self) -> events.Event:
        """The event of the whole run."""
        if self.trust == "silo":
            return events.Approximate(self.epsilon, self.delta)
        return self._made(1 / self.report_epsilon if self._pure else self.noise_multiplier)

    @property
    def spent(self) -> float:
        """ε of the event, at most ``epsilon``: calibration errs on the private side."""
        return accounting.epsilon(self.event, self.delta, relation=self.relation)

    @property
    def noise_for_sum(self) -> float:
        """The noise multiplier of the updates alone, with which updates, metrics and count have the plan's.

        A metric has noise multiplier ``noise`` × cohort by itself, and the count of a :class:`Quantile`
        2 × count_noise × cohort. Gaussian noise on all of them is one Gaussian whose inverse squared noise
        multiplier is the sum of theirs.
        """
        if not self._extra_multipliers:
            return self.noise_multiplier
        left = self.noise_multiplier**-2 - math.fsum(each**-2 for each in self._extra_multipliers)
        if left <= 0:
            raise InvalidValue(
                "noise of metrics and count_noise", [each / self.cohort for each in self._extra_multipliers],
                f"larger: beside them a round has noise multiplier {self.noise_multiplier:.3g} in all",
                "Metrics, or the count of the Quantile, would cost more than a round may.",
            )  # fmt: skip
        return 1 / math.sqrt(left)

    @property
    def _extra_multipliers(self) -> tuple[float, ...]:
        count = (2 * self.clipping.count_noise,) if isinstance(self.clipping, Quantile) else ()
        return tuple(each * self.cohort for each in (*count, *(metric.noise for metric in self.metrics)))

    def extra_scales(self, clip_norm: float) -> tuple[float, ...]:
        """What the count and each metric, in [−1, 1], are multiplied by to stand beside an update.

        Noise of one deviation on all coordinates then has the noise multiplier of each of them.
        """
        if not self._extra_multipliers:
            return ()
        return tuple(clip_norm * self.noise_for_sum / each for each in self._extra_multipliers)

    def report_norm(self, clip_norm: float) -> float:
        """The largest norm of a report: an update clipped to clip_norm, with count and metrics beside it."""
        scales = self.extra_scales(clip_norm)
        return math.hypot(clip_norm, *scales) * (1 + 2.0**-40) if scales else clip_norm

    def sensitivity(self, clip_norm: float | None = None) -> float:
        """How far, in ℓ2, one client can move the sum of a round."""
        return norm_sensitivity(self.report_norm(clip_norm or self.clip_norm), self.relation)

    def distributed(self, clip_norm: float | None = None) -> DistributedNoise:
        """How clients encode their reports and add their shares of the noise ("aggregator")."""
        if self.trust != "aggregator":
            raise InvalidValue("trust", self.trust, "'aggregator' where clients share the noise")
        return self._distributed(self.noise_multiplier, self.report_norm(clip_norm or self.clip_norm))

    def silo(self, *, population: int, batch_size: int, local_steps: int, **options: Any) -> Plan:
        """The plan by which a silo trains on its own rows, ``local_steps`` steps in each round ("silo").

        ``population`` is the public number of the silo's rows.
        """
        if self.trust != "silo":
            raise InvalidValue("trust", self.trust, "'silo' where silos protect their own rows")
        return Plan(
            population=population, batch_size=batch_size,
            steps=self.rounds * _validate.count("local_steps", local_steps, 1), clip_norm=self.clip_norm,
            epsilon=self.epsilon, delta=self.delta, relation=self.relation, **options,
        )  # fmt: skip

    def guarantee(self, noise: str | None = None) -> Guarantee:
        """What may be promised about all models of this federation, and to whom the promise holds."""
        against = () if not self.hidden_cohorts else (
            "this holds against everyone who does not learn the cohorts, as long as rounds that are given up "
            "because clients drop out tell nothing about them; against the server, which sees the cohorts, "
            f"ε = {above(self.guarantee_against_server().epsilon, 4)} at the same δ",
        )  # fmt: skip
        return Guarantee(
            self.epsilon, self.delta, self.event, Relation.of(self.relation), self.unit,
            noise or self.noise_kind, (*assumptions_of(self.trust, self), *against),
        )  # fmt: skip

    def guarantee_against_server(self, noise: str | None = None) -> Guarantee:
        """What may be promised against the server, where it sees who took part ("aggregator").

        Under Poisson sampling the cohorts, which the server sees, do not depend on the data. A client is in
        more than k of them with probability at most δ/2, and k rounds without amplification cost ε at δ/2.
        """
        if self.trust != "aggregator":
            raise InvalidValue("trust", self.trust, "'aggregator' where the server is not trusted")
        if not self.hidden_cohorts:
            return self.guarantee(noise)
        most = max(1, most_often(self.rounds, self.sampling_rate, self.delta / 2))
        event = events.Compose(
            (events.Approximate(0.0, self.delta / 2), events.Repeat(self._round(self.noise_multiplier), most))
        )
        epsilon = accounting.epsilon(event, self.delta, relation=self.relation)
        return Guarantee(
            epsilon, self.delta, event, Relation.of(self.relation), self.unit, noise or self.noise_kind,
            assumptions_of(self.trust, self, hidden=False),
        )  # fmt: skip

    # ------------------------------------------------------------------------------- in words

    def to_dict(self) -> dict[str, Any]:
        """What :meth:`from_dict` takes, for JSON."""
        made = {each.name: getattr(self, each.name) for each in fields(self)}
        made["relation"], made["weights"] = str(self.relation), list(self.weights)
        made["metrics"] = [asdict(metric) for metric in self.metrics]
        if isinstance(self.clipping, Quantile):
            made["clipping"] = asdict(self.clipping)
        return made

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FederatedPlan:
        """The plan that :meth:`to_dict` wrote; its noise is checked against its ε again."""
        if not isinstance(data, Mapping) or set(data) != {each.name for each in fields(cls)}:
            raise InvalidValue("data", sorted(data) if isinstance(data, Mapping) else data, "a plan's fields")
        given = dict(data)
        try:
            given["metrics"] = tuple(Metric(**each) for each in _listed("metrics", given["metrics"]))
            given["weights"] = tuple(_listed("weights", given["weights"]))
            if isinstance(given["clipping"], Mapping):
                given["clipping"] = Quantile(**given["clipping"])
        except TypeError:
            raise InvalidValue("data", sorted(data), "metrics and clipping as to_dict writes them") from None
        if given["sampling"] == "poisson":
            given["participations"] = 0
        return cls(**given)

    def describe(self) -> str:
        """The plan in words: what happens, who is trusted with what, and what is promised."""
        return told(self)

    def __str__(self) -> str:
        noise = {
            "silo": "noise by each silo's plan",
            "nobody": f"report_epsilon {above(self.report_epsilon, 4)}" if self._pure else "",
        }.get(self.trust, "")
        noise = noise or f"noise_multiplier {self.noise_multiplier:.4g}"
        most = f"{self.participations} round{'s' if self.participations > 1 else ''}"
        how = self.sampling if self.sampling == "poisson" else f"at most {most} each"
        return (
            f"{self.rounds} rounds of {self.cohort} of {self.clients} clients ({how}), "
            f"clip_norm {self.clip_norm:g}, {noise}: "
            f"ε = {above(self.epsilon, 4)} at δ = {above(self.delta, 6)} ({self.trust})"
        )


def _listed(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise InvalidValue(name, value, "a list")
    return value
