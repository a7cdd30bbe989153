"""Plan: the public facts of a training run, and the noise and guarantee that follow from them.

This module needs no PyTorch: :class:`tacit.training.Trainer`, the report and ``tacit plan`` share one plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tacit import _validate, accounting, events
from tacit.accounting import filters
from tacit.errors import CalibrationError, InvalidValue
from tacit.guarantee import Guarantee, above
from tacit.relations import Relation, Unit, norm_sensitivity, require_whole_rows
from tacit.training.clipping import CLIPPINGS, Clipping, Quantile, checked_clip_norm, clipping_of
from tacit.training.correlation import MOST_BANDS, Correlation, optimised
from tacit.training.sampling import Cyclic, Fixed, Ordered, Poisson, Sampler, Shuffle

SAMPLINGS = ("poisson", "shuffle", "fixed", "cyclic", "ordered")
PARTS = ("shuffle", "cyclic", "ordered")
"""Where the batches of an epoch are parts of the data."""
NOISES = ("independent", "correlated")
ACCOUNTINGS = ("worst-case", "individual")
CHARGES = ("run", "epoch")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run of DP-SGD will do, fixed before any data are seen.

    Give a target ``epsilon`` with ``delta``, and the plan computes the noise; or give
    ``noise_multiplier``, and it computes ``epsilon``. Everything here is public: ``population`` is the number
    of examples as far as the public knows it, and is never read from the data.

    Guarantee. A step sums gradients clipped to ``clip_norm`` over a sample of the data, adds
    Gaussian noise of standard deviation ``noise_multiplier`` × ``sensitivity``, and updates the
    model, which is post-processing. The sensitivity is ``clip_norm`` where an example is added or removed
    and twice that where one is replaced. ``event`` says how the steps compose: see
    :mod:`tacit.training.sampling`. Abadi et al. 2016; the total is computed from privacy-loss
    distributions. With correlated noise or individual accounting ``noise_multiplier`` is that of the whole
    run, which is one Gaussian release, and the noise of a step has standard deviation ``step_noise`` ×
    ``sensitivity``.

    Steps. An epoch is population ÷ batch_size steps, and ``epochs`` of them are rounded, once, to the nearest
    whole number of steps. Batches are samples of their own, so there is no rest of the data that would
    need one more step: rounding up would only add noise and cost. With "shuffle", "cyclic" and "ordered" the
    batches are the parts of an epoch, and each epoch is rounded to whole steps. ``steps`` is the number that
    the trainer takes and the ledger is charged for.

    ==================  ================================================================================
    ``batch_size``      expected examples in a step; the sampling rate is batch_size ÷ population. With
                        batch_size = population every step sees all examples: DP gradient descent
    ``epochs, steps``   how long the run is: give one of the two
    ``sampling``        "poisson"; without amplification "shuffle", "cyclic", where an example has one place
                        in all epochs, or "ordered", by the order of the rows; or "fixed" batches. "fixed" and
                        "ordered" need ``relation="replace_one"``, where the number of examples is public
    ``noise``           "independent" in each step; or "correlated", so that steps take back noise of earlier
                        ones (:mod:`tacit.training.correlation`), which needs cyclic or ordered sampling
    ``bands``           how many steps correlated noise reaches, each of which holds one more copy of the
                        parameters in memory; at most the steps of an epoch and of the run, 32 if not given
    ``clipping``        "flat": the whole gradient to clip_norm. "per-layer": the gradient of each of k
                        parameters to clip_norm/√k. "automatic": every gradient normalised to just under
                        clip_norm (Bu et al. 2023, AUTO-S). Or a :class:`Quantile`, which moves clip_norm
    ``unit``            who is protected: a row; or a unit with several rows, which are sampled and clipped
                        as one example (:class:`ByUnit`), so that population and batch_size count units
    ``accounting``      "worst-case": every gradient is paid for as if it had norm clip_norm. "individual":
                        each example pays for its own gradients, and leaves when its budget is spent
                        (:mod:`tacit.training.individual`); without amplification by sampling
    ``participations``  how many steps at norm clip_norm the budget of an example covers in individual
                        accounting; the epochs, rounded up, if not given
    ``charge``          "run": the whole run is charged at its start, at the tightest price. "epoch": each
                        epoch at its start, so that a run stopped early leaves the rest of the budget;
                        this needs a filter, hence more noise for the same ε
    ==================  ================================================================================

    >>> plan = Plan(population=60000, batch_size=256, epochs=15, clip_norm=1.0, epsilon=2.0, delta=1e-5)
    >>> plan.steps, round(plan.noise_multiplier, 2)
    (3516, 0.84)
    >>> print(plan)
    3516 steps on 256 of 60000 examples (poisson), clip_norm 1, noise_multiplier 0.8388: ε = 2 at δ = 1e-05
    """

    population: int
    batch_size: int
    epochs: float | None = None
    steps: int = 0
    clip_norm: float = 1.0
    epsilon: float = 0.0
    delta: float
    noise_multiplier: float = 0.0
    sampling: str = "poisson"
    clipping: str | Quantile = "flat"
    relation: Relation | str = "add_remove"
    unit: Unit = field(default_factory=Unit)
    charge: str = "run"
    noise: str = "independent"
    bands: int | None = None
    accounting: str = "worst-case"
    participations: int | None = None

    def __post_init__(self) -> None:
        self._set("population", _validate.count("population", self.population, 1))
        self._set("batch_size", _validate.count("batch_size", self.batch_size, 1))
        if self.batch_size > self.population:
            raise InvalidValue("batch_size", self.batch_size, f"at most the population, {self.population}")
        self._set("delta", _validate.delta(self.delta))
        if self.delta == 0:
            raise InvalidValue(
                "delta", self.delta, "above 0, as the noise is Gaussian", "Use 1e-5 or 1/population²."
            )
        self._set("clip_norm", checked_clip_norm(self.clip_norm))
        self._set("relation", Relation.of(self.relation))
        require_whole_rows(self.unit)
        _validate.choice("sampling", self.sampling, SAMPLINGS)
        _validate.choice("charge", self.charge, CHARGES)
        if not isinstance(self.clipping, Quantile):
            _validate.choice("clipping", self.clipping, CLIPPINGS)
        if self.sampling == "ordered" and self.unit.rows > 1:
            raise InvalidValue(
                "sampling", self.sampling, "another where a unit has several rows",
                "The rows of a unit are drawn together, so they have no order of their own.",
            )  # fmt: skip
        if self.sampling in ("fixed", "ordered") and self.relation is not Relation.REPLACE_ONE:
            raise InvalidValue(
                "sampling", self.sampling, "'poisson', 'shuffle' or 'cyclic' under add_remove",
                "Fixed and ordered batches need relation='replace_one', where the number of rows is public.",
            )  # fmt: skip
        self._count_steps()
        self._check_correlation()
        self._check_individual()
        self._find_noise()
        _validate.warn_if_weak(self.epsilon, self.delta, self.population, stacklevel=4)
        if isinstance(self.clipping, Quantile):
            self.clipping.noise_for_sum(self.noise_multiplier, self.batch_size)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _count_steps(self) -> None:
        if (self.epochs is None) == (self.steps == 0):
            raise InvalidValue("epochs and steps", (self.epochs, self.steps), "given one of the two")
        if self.epochs is None:
            self._set("steps", _validate.count("steps", self.steps, 1))
        else:
            self._set("steps", self.steps_in(self.epochs))

    def _check_correlation(self) -> None:
        if _validate.choice("noise", self.noise, NOISES) == "independent":
            if self.bands is not None:
                raise InvalidValue("bands", self.bands, "left out where noise is independent")
            return
        if self.sampling not in ("cyclic", "ordered"):
            raise InvalidValue(
                "sampling", self.sampling, "'cyclic' or 'ordered' where noise is correlated",
                "The accounting needs examples that are seen once in each epoch, at the same place.",
            )  # fmt: skip
        self._require_one_release("noise")
        most = min(self.steps_per_epoch, self.steps)
        bands = min(MOST_BANDS, most) if self.bands is None else self.bands
        self._set("bands", _validate.count("bands", bands, 1))
        if bands > most:
            of = "an epoch" if most == self.steps_per_epoch else "the run"
            raise InvalidValue("bands", bands, f"at most the steps of {of}, {most}")

    def _check_individual(self) -> None:
        if _validate.choice("accounting", self.accounting, ACCOUNTINGS) == "worst-case":
            if self.participations is not None:
                raise InvalidValue("participations", self.participations, "left out in worst-case accounting")
            return
        self._require_one_release("accounting")
        given = self._epochs_begun(self.steps) if self.participations is None else self.participations
        self._set("participations", _validate.count("participations", given, 1))

    def _require_one_release(self, name: str) -> None:
        if self.charge == "epoch" or isinstance(self.clipping, Quantile):
            wrong = "charge" if self.charge == "epoch" else "clipping"
            raise InvalidValue(
                wrong, getattr(self, wrong),
                f"'run' and a fixed clip_norm with {name}={getattr(self, name)!r}",
                "The whole run is one release: it is charged at once, and has one clip_norm.",
            )  # fmt: skip

    def _epochs_begun(self, steps: int) -> int:
        """How many epochs so many steps begin, in each of which one step sees an example."""
        return -(-steps // self.steps_per_epoch)

    def full_gradients(self, steps: int) -> int:
        """How many gradients of norm clip_norm an example can add to so many steps of one release."""
        if self.participations is not None:
            return min(steps, self.participations)
        return self._epochs_begun(steps)

    @property
    def one_release(self) -> bool:
        """Whether the run as a whole is one Gaussian release, and not a composition of its steps."""
        return self.noise == "correlated" or self.accounting == "individual"

    def _find_noise(self) -> None:
        given = bool(self.epsilon), bool(self.noise_multiplier)
        if given == (True, True) or given == (False, False):
            raise InvalidValue(
                "epsilon and noise_multiplier", (self.epsilon, self.noise_multiplier),
                "one of the two, above 0",
            )  # fmt: skip
        if self.epsilon:
            self._set("epsilon", _validate.epsilon(self.epsilon))
            self._set("noise_multiplier", self._by_filter() if self.charge == "epoch" else self._calibrated())
            if self.spent > self.epsilon:
                raise CalibrationError(
                    f"The noise that was found spends ε = {self.spent!r}, more than {self.epsilon!r}.",
                    "This is a fault in tacit; give noise_multiplier instead, and please report it.",
                    epsilon=self.epsilon, delta=self.delta,
                )  # fmt: skip
        else:
            self._set("noise_multiplier", _validate.positive("noise_multiplier", self.noise_multiplier))
            self._set("epsilon", self.spent)

    def _made(self, noise_multiplier: float, steps: int) -> events.Event:
        if self.one_release:
            seen, all_seen = self.full_gradients(steps), self.full_gradients(self.steps)
            if seen == all_seen:
                return events.Gaussian(noise_multiplier)
            return events.Gaussian(math.nextafter(noise_multiplier * math.sqrt(all_seen / seen), 0.0))
        return self.sampler.event(events.Gaussian(noise_multiplier), steps)

    def _calibrated(self) -> float:
        return accounting.calibrate(
            lambda noise: self._made(noise, self.steps),
            epsilon=self.epsilon, delta=self.delta, relation=self.relation,
        )  # fmt: skip

    def _by_filter(self) -> float:
        """The least noise at which all epochs fit into a ledger's Rényi filter, to 0.1 %."""
        within = filters.RenyiFilter.for_budget(self.epsilon, self.delta / 2, self.relation)
        limit = min(within.limit, self.epsilon)
        stages = self.stages()

        def fits(noise: float) -> bool:
            return math.fsum(within.price(self._made(noise, steps)) for steps in stages) <= limit

        high = 1.0
        while not fits(high):
            high *= 2
            if high > 1e6:
                raise CalibrationError(
                    f"No noise spends epsilon={self.epsilon!r} at delta={self.delta!r}.",
                    "Allow a larger epsilon, or charge the run as a whole.",
                    epsilon=self.epsilon, delta=self.delta,
                )  # fmt: skip
        low = high / 2
        while fits(low):
            low, high = low / 2, low
        while high / low > 1.001:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high

    @property
    def spent(self) -> float:
        """ε of the event, at most ``epsilon``: calibration errs on the private side."""
        return accounting.epsilon(self.event, self.delta, relation=self.relation)

    @property
    def sampling_rate(self) -> float:
        """batch_size ÷ population."""
        return self.batch_size / self.population

    def steps_in(self, epochs: float) -> int:
        """The steps of so many epochs, to the nearest, at least 1.

        That is epochs × population ÷ batch_size for batches that are samples of their own. Where an epoch is
        cut into parts, it is epochs × steps of an epoch: one step more would begin, and pay for, one more.
        """
        each = self.population / self.batch_size
        if self.sampling in PARTS:
            each = max(1, round(each))
        return max(1, round(_validate.positive("epochs", epochs) * each))

    @property
    def steps_per_epoch(self) -> int:
        """The steps of one epoch."""
        return self.steps_in(1)

    @property
    def sampler(self) -> Sampler:
        """How batches are drawn."""
        if self.sampling == "poisson":
            return Poisson(self.sampling_rate)
        if self.sampling != "fixed":
            kinds: dict[str, type[Shuffle]] = {"shuffle": Shuffle, "cyclic": Cyclic, "ordered": Ordered}
            return kinds[self.sampling](self.steps_per_epoch)
        return Fixed(self.batch_size, self.population)

    @property
    def rule(self) -> Clipping:
        """How gradients are clipped."""
        return clipping_of(self.clipping)

    @property
    def sensitivity(self) -> float:
        """How far one example can move the sum of a step, in ℓ2."""
        return norm_sensitivity(self.clip_norm, self.relation)

    @property
    def correlation(self) -> Correlation:
        """How the noise of a step depends on that of the steps before it."""
        return optimised(steps=self.steps, bands=self.bands or 1)

    @property
    def step_noise(self) -> float:
        """Standard deviation of the fresh noise of a step, in units of the sensitivity of the step."""
        if not self.one_release:
            return self.noise_multiplier
        return self.noise_multiplier * self.correlation.sensitivity(self.full_gradients(self.steps))

    @property
    def running_noise(self) -> float:
        """Noise in the sum of all gradients so far: its root mean square over the steps of the run.

        The unit is clip_norm ÷ batch_size. SGD with a constant learning rate moves the weights by this sum,
        so of two plans for the same steps and ε the one with less of it usually learns better.
        """
        ratio = self.correlation.error(self.steps) / self.correlation.sensitivity(1)
        return self.step_noise * ratio * self.sensitivity / self.clip_norm

    @property
    def event(self) -> events.Event:
        """The event of the whole run."""
        return self._made(self.noise_multiplier, self.steps)

    def stages(self) -> tuple[int, ...]:
        """How many steps each charge pays for: all of the run, or those of an epoch."""
        size = self.steps if self.charge == "run" else self.steps_per_epoch
        full, rest = divmod(self.steps, size)
        return (size,) * full + ((rest,) if rest else ())

    def next_start(self, step: int) -> int:
        """The first step, not before this one, at which a run may go on.

        Where the batches of an epoch are parts of the data, drawn together, this is the start of an epoch.
        """
        size = self.steps_per_epoch if isinstance(self.sampler, Shuffle) else 1
        return min(self.steps, -(-step // size) * size)

    def event_of(self, steps: int) -> events.Event:
        """The event of so many steps, from the first on."""
        return self._made(self.noise_multiplier, _validate.count("steps", steps, 1))

    def guarantee(self, noise: str = "float32") -> Guarantee:
        """What may be promised about a model that was trained by this plan."""
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            event=self.event,
            relation=Relation.of(self.relation),
            unit=self.unit,
            noise=noise,
            assumptions=self.assumptions,
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee of a run rests on besides its event."""
        return ASSUMPTIONS if self.accounting == "worst-case" else (*ASSUMPTIONS, KEPT_IN_ORDER)

    def __str__(self) -> str:
        noise = f"noise correlated over {self.bands} steps, " if self.noise == "correlated" else ""
        if self.accounting == "individual":
            noise += f"each example pays for at most {self.participations} gradients of full norm, "
        return (
            f"{self.steps} steps on {self.batch_size} of {self.population} examples ({self.sampling}), "
            f"{noise}clip_norm {self.clip_norm:g}, noise_multiplier {self.noise_multiplier:.4g}: "
            f"ε = {above(self.epsilon, 4)} at δ = {above(self.delta, 6)}"
        )


ASSUMPTIONS = (
    "data set, collate function, augment and loops of one's own accept any example, and treat it by itself",
    "model and loss accept any example, and give none to globals, files, other threads or processes",
    "which examples a step saw, losses and gradient norms stay with the curator",
    "the weights at the start came from no private run but those counted here",
)
"""What the guarantee of every run rests on besides its event."""
KEPT_IN_ORDER = "data set, collate function and augment give the examples of a batch in the order of its rows"
"""What the guarantee rests on, too, where each example pays for its own gradients."""
