"""Noise in shares, audited where a server sees it: in the opened sum.

One client's update is as long as clipping allows, or zero; the other honest clients add nothing but their
shares, and the colluding ones nothing at all, which is the least noise that the guarantee counts on. The
twin sizes the shares for nine honest clients where there are four: two thirds of the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ive

from contract.registry import SECRET, Case, Make, Noise, Pair, register
from tacit import audit, events
from tacit.errors import InvalidValue
from tacit.federated.distributed import DistributedNoise
from tacit.federated.secure import aggregate
from tacit.federated.skellam import skellam
from tacit.randomness import Source

COHORT, HONEST = 9, 4
DIMENSION, BITS = 8, 20
MULTIPLIER = 1.0


class SecureSum:
    """The sum of the updates of ``HONEST`` clients with shares that were sized for ``sized_for`` of them.

    With ``keys``, each client encodes its update, and the sum goes through the whole protocol of secure
    aggregation. Without, the shares of the clients that add nothing else are drawn as one, and added to
    what the first sends: the same distribution, in less time.
    """

    def __init__(
        self,
        random_state: int | Source | None,
        *,
        sized_for: int = HONEST,
        dimension: int = DIMENSION,
        relation: str = "add_remove",
        keys: bool = True,
    ) -> None:
        self.source = random_state if isinstance(random_state, Source) else Source(random_state)
        shared = DistributedNoise(1.0, BITS, COHORT, sized_for, MULTIPLIER, relation=relation)
        self.encoder, self.event, self.keys = shared.encoder(dimension, seed=3), shared.event, keys
        self.noise = "seeded" if self.source.seeded else "exact"
        self.nothing = np.zeros(dimension)

    def total(self, update: Any) -> np.ndarray:
        first = self.encoder.encode(update, self.source)
        if self.keys:
            others = [self.encoder.encode(self.nothing, self.source) for _ in range(HONEST - 1)]
            return aggregate([first, *others], bits=BITS, random_state=self.source).total
        share = self.encoder.noise.share(self.encoder.dimension)
        others = skellam(self.source, (HONEST - 1) * share, self.encoder.width)
        return (first + others.view(np.uint64)) % np.uint64(2**BITS)

    def __call__(self, update: Any) -> np.ndarray:
        return self.encoder.decode(self.total(update))


def maker(**parameters: Any) -> Make:
    return lambda seed: SecureSum(seed, **parameters)


UPDATE = np.zeros(DIMENSION)
UPDATE[0] = 1.0


def runs(make: Make, update: Any, count: int, seed: int | None) -> np.ndarray:
    """The first number of many sums: the update points there, and the rest is noise on its own."""
    made = make(seed)
    made.keys = False
    return np.array([made(update)[0] for _ in range(count)])


def drawn(make: Make, count: int, seed: int | None) -> np.ndarray:
    """The noise of as many numbers of one sum, in steps of the grid: the sum of four shares."""
    made = make(seed)
    wide = made.encoder.noise.encoder(count, seed=3)
    made.encoder, made.nothing, made.keys = wide, np.zeros(count), False
    steps = made.total(made.nothing)[:count].astype(np.int64)
    return np.where(steps >= 2 ** (BITS - 1), steps - 2**BITS, steps).astype(float)


def distribution(relation: str) -> Callable[[np.ndarray, float], np.ndarray]:
    def cdf(points: np.ndarray, factor: float) -> np.ndarray:
        noise = DistributedNoise(1.0, BITS, COHORT, HONEST, MULTIPLIER, relation=relation)
        variance = float(HONEST * noise.share(Noise.runs)) * factor**2
        reach = int(12 * np.sqrt(variance) + 40)
        upto = np.cumsum(ive(np.abs(np.arange(-reach, reach + 1)), variance))
        at = np.clip(np.floor(points).astype(int) + reach, 0, 2 * reach)
        return np.where(np.floor(points) < -reach, 0.0, upto[at])

    return cdf


def bad(**parameters: Any) -> Callable[[], Any]:
    good = {"clip_norm": 1.0, "bits": BITS, "summands": COHORT, "honest": HONEST, "noise_multiplier": 1.0}
    return lambda: DistributedNoise(**{**good, **parameters})


WRONG: dict[str, tuple[Any, ...]] = {
    "clip_norm": (0.0, -1.0, np.nan, "1", None, True),
    "bits": (0, 63, 1.5, None),
    "honest": (0, COHORT + 1, None),
    "noise_multiplier": (0.0, -1.0, np.inf, 1e-12, None),
    "relation": ("neither",),
}
BAD = (
    *((f"{name} = {v!r}", bad(**{name: v}), InvalidValue) for name, values in WRONG.items() for v in values),
    ("a total of text", lambda: SecureSum(1).encoder.decode(np.full(1024, SECRET)), InvalidValue),
    ("a total of floats", lambda: SecureSum(1).encoder.decode(np.full(1024, float(SECRET))), InvalidValue),
)

for relation, opposite, threshold in (
    ("add_remove", np.zeros(DIMENSION), 1.25),
    ("replace_one", -UPDATE, 1.5),
):
    register(
        Case(
            name=f"secure_sum_{relation}",
            event=events.Gaussian(MULTIPLIER),
            delta=0.1,
            relation=relation,
            make=maker(relation=relation),
            broken=maker(relation=relation, sized_for=COHORT),
            data=UPDATE,
            pair=Pair(
                UPDATE, opposite, score=np.ravel, run=runs, runs=(3000, 3000), rule=audit.Fixed(threshold)
            ),
            noise=Noise(drawn, distribution(relation)),
            bad_inputs=BAD,
            covers=frozenset({"DistributedNoise", "SecureSum"}),
        )
    )
