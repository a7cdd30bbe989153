"""Linkage: a person in a table without names, found from a few ratings or visits that somebody knows of.

Narayanan and Shmatikov (2008) found people among published film ratings. Here the ratings, and visits to
places (a person was there, or was not), are generated; an adversary knows eight entries of a person, dates
and ratings roughly. In the table without names almost everybody is found.

With ε for everything that one person entered, there is no such table. Two releases are possible instead,
and both are attacked: for ratings, a noisy count of each film, from which records are drawn that are
nobody's; for visits, every person's own row by randomized response, ε divided among all places. Neither
gives anybody away, and at a small ε the rows of visits are useless as well: counts are the better release.

A record that is drawn has a place in the table like any other, so one name in a thousand is right by chance.

Prints a table, and writes attack_linkage.png to out/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from showing import EPSILONS, Array, arguments, lines, printed, saved, title_of

from tacit import attacks, mechanisms

FILMS, PLACES, RATED, KNOWN = 400, 120, 25, (2, 4, 6, 8)
DAYS = 1000
Records = list[dict[int, tuple[float, float]]]


def popularity(items: int) -> Array:
    """Few films are seen by many: the share of the k-th falls as 1/(k + 10)."""
    weights = 1 / (np.arange(items) + 10.0)
    return np.asarray(weights / weights.sum())


def rated(people: int, shares: Array, rng: np.random.Generator) -> Records:
    """Ratings of 1 to 5 on a day, RATED films for each person."""
    records = []
    for _ in range(people):
        films = rng.choice(len(shares), RATED, replace=False, p=shares)
        records.append({int(film): (float(rng.integers(1, 6)), float(rng.integers(DAYS))) for film in films})
    return records


def drawn_from_counts(records: Records, epsilon: float, rng: np.random.Generator) -> Records:
    """Records of nobody: films by their noisy counts, ratings and days at random.

    One person adds at most 1 to the counts of RATED films, so their ℓ1 sensitivity is RATED.
    """
    counts = np.zeros(FILMS)
    for record in records:
        counts[list(record)] += 1
    noisy = mechanisms.Laplace(float(RATED), epsilon, random_state=int(rng.integers(2**31)))
    kept = np.clip(np.asarray(noisy(counts)), 1e-3, None)
    return rated(len(records), np.asarray(kept / kept.sum()), rng)


def visited(people: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """1 where a person was at a place, 0 elsewhere."""
    shares = np.minimum(popularity(PLACES) * 12, 0.9)
    return (rng.random((people, PLACES)) < shares).astype(np.int64)


def responses(visits: NDArray[np.int64], epsilon: float, seed: int) -> NDArray[np.int64]:
    """Each bit by randomized response with ε/PLACES, so that a whole row costs its person ε."""
    ask = mechanisms.RandomizedResponse(epsilon / PLACES, random_state=seed)
    return np.asarray(ask(visits.ravel())).reshape(visits.shape).astype(np.int64)


def as_records(visits: NDArray[np.int64]) -> Records:
    return [{int(place): (1.0, 0.0) for place in np.flatnonzero(row)} for row in visits]


def found(truth: Records, table: Records, entries: int, targets: int, rng: np.random.Generator) -> float:
    """The share of ``targets`` people whom the scoreboard names, rightly, from so many known entries."""
    right = 0
    for person in range(targets):
        items = rng.permutation(sorted(truth[person]))[:entries]
        known: Mapping[int, tuple[float, float]] = {
            int(item): (
                truth[person][int(item)][0],
                truth[person][int(item)][1] + float(rng.integers(-14, 15)),
            )
            for item in items
        }
        right += attacks.scoreboard(known, table).record == person
    return right / targets


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__, argv)
    rng = np.random.default_rng(1)
    people, targets = (60, 5) if given.quick else (1000, 60)
    ratings, visits = rated(people, popularity(FILMS), rng), visited(people, rng)
    curves: dict[str, list[list[float]]] = {"ratings": [], "visits": []}
    for epsilon in EPSILONS:
        films = ratings if epsilon is None else drawn_from_counts(ratings, epsilon, rng)
        rows = visits if epsilon is None else responses(visits, epsilon, int(rng.integers(2**31)))
        places = as_records(rows)
        curves["ratings"].append([found(ratings, films, k, targets, rng) for k in KNOWN])
        curves["visits"].append([found(as_records(visits), places, k, targets, rng) for k in KNOWN])
    names = [title_of(each) for each in EPSILONS]
    printed(
        f"Linkage: {people} generated people; share of {targets} who are named rightly",
        ("release", *(f"{kind}, {k} known" for kind in curves for k in KNOWN[1::2])),
        [
            (name, *(f"{curves[kind][place][column]:.0%}" for kind in curves for column in (1, 3)))
            for place, name in enumerate(names)
        ],
    )
    figure = Figure(figsize=(9, 3.6))
    for place, (kind, shares) in enumerate(curves.items()):
        ax = figure.add_subplot(1, 2, place + 1)
        lines(ax, list(KNOWN), shares, names)
        ax.set(xlabel="entries that are known of a person", ylabel="people who are found", ylim=(-0.03, 1.03))
        ax.set_title(f"Linkage of {kind}")
    saved(figure, given.out, "attack_linkage.png")


if __name__ == "__main__":
    main()
