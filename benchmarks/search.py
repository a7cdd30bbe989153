"""Does a private search pay? Adult at ε = 1: the search beside defaults and beside paying for every fit.

    python benchmarks/search.py [--seeds 10] [--only LogisticRegression DecisionTree] [--delta 0 1e-6]

Five ways to come to one model for (ε, δ) in all, δ = 0 and δ = 1e-6: the estimator as it is shipped; an
entry of the grid that is drawn blindly; ``PrivateSearch``; a search that fits and scores every entry once
and pays for all of them, with the noise that the accountant asks for their composition; and, for reference,
the entry that is best on the test rows in the mean over three seeds, which nobody can know. Grids are wide
on purpose: they hold entries that are bad. Nothing was tuned on the test rows. Writes
``benchmarks/results/search.md``.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tacit import Schema, accounting, datasets, events
from tacit.data.features import known
from tacit.estimators import DecisionTree, LogisticRegression, Preprocessor, PrivateSearch
from tacit.estimators.private import PrivateRows
from tacit.estimators.trials import PrivateScore, held_out
from tacit.randomness import Source

RESULTS = Path(__file__).parent / "results" / "search.md"
EPSILON = 1.0
LAWS = {"logarithmic": 1, "geometric": 3}
"""The distribution of the number of trials, and how many are expected for each entry of the grid."""
HINDSIGHT = 3
"""On so many seeds each entry of the grid is measured by itself."""
SEARCHES: dict[str, tuple[Any, dict[str, list[Any]]]] = {
    "LogisticRegression": (
        LogisticRegression, {"C": [1e-4, 1e-3, 1e-2], "slope": [0.1, 1.0]},
    ),
    "DecisionTree": (DecisionTree, {"depth": [1, 2, 4, 8], "split_share": [0.1, 0.5]}),
}  # fmt: skip


def paid_for_all(search: Any, x: Any, y: Any, seed: int) -> Any:
    """Every entry of the grid, fitted and scored once; the best noisy score wins."""
    public = search._public(x.features, search._agreed(False))
    combinations = search._combinations()

    def made(epsilon: float) -> tuple[list[Any], PrivateScore]:
        inner = dataclasses.replace(public, epsilon=epsilon, delta=public.delta / len(combinations))
        models = [search._candidate(params, search.test_share) for params in combinations]
        recipes = [model.set_params(epsilon=epsilon, delta=inner.delta)._recipe(inner) for model in models]
        return list(zip(models, recipes, strict=True)), PrivateScore.of(models[0], search.scoring, inner)

    def event(noise: float) -> events.Event:
        pairs, score = made(1 / noise)
        return events.Compose(tuple(events.OneOf((recipe.event, score.noise.event)) for _, recipe in pairs))

    own = 1 / accounting.calibrate(event, epsilon=public.epsilon, delta=public.delta)
    pairs, score = made(own)
    source = Source(seed)
    rows = PrivateRows(np.asarray(x), np.asarray(y), None)
    test = held_out(rows, search.test_share, source)
    best, most = None, -1.0
    for model, recipe in pairs:
        model.n_features_in_ = x.shape[1]
        model._carry_out(recipe, rows.part(~test), source)
        if (found := score(model, rows.part(test), source)) > most:
            best, most = model, found
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*", choices=list(SEARCHES), default=list(SEARCHES))
    parser.add_argument("--delta", nargs="*", type=float, default=[0.0, 1e-6])
    options = parser.parse_args()
    seeds = options.seeds
    files = datasets.adult()
    maker = Preprocessor(Schema.load(files.schema), target="income")
    (x, y), (xt, yt) = (
        (maker.fit_transform(frame), maker.target_values(frame))
        for frame in map(pd.read_csv, (files.train, files.test))
    )
    x, xt = known(np.asarray(x), maker.features), known(np.asarray(xt), maker.features)
    classes = sorted(set(np.asarray(yt).tolist()))
    lines = [
        f"Adult, {len(x):,} rows to fit, {len(xt):,} to test, ε = {EPSILON:g}, {seeds} seeds; test accuracy, "
        "mean ± standard deviation. `python benchmarks/search.py`",
        "",
        "| model | entries | δ | shipped | drawn blindly | "
        + " | ".join(f"search, {law}, {times} trials per entry" for law, times in LAWS.items())
        + " | pays for every fit | best in hindsight |",
        "|---|---|---|---|---|" + "---|" * (len(LAWS) + 2),
    ]
    for name in options.only:
        kind, grid = SEARCHES[name]
        for delta in options.delta:
            columns = ("shipped", "blind", *LAWS, "all")
            scores: dict[str, list[float]] = {each: [] for each in columns}
            search = PrivateSearch(kind(classes=classes), grid, EPSILON, delta)
            entries = search._combinations()
            each_entry = np.zeros((len(entries), min(seeds, HINDSIGHT)))

            def accuracy(model: Any) -> float:
                return float((model.predict(xt) == yt).mean())

            def alone(seed: int, params: Any, kind: Any = kind, delta: float = delta) -> float:
                return accuracy(kind(EPSILON, delta, classes=classes, random_state=seed, **params).fit(x, y))

            for seed in range(seeds):
                scores["shipped"].append(alone(seed, {}))
                blind = int(np.random.default_rng(seed).integers(len(entries)))
                scores["blind"].append(alone(seed, entries[blind]))
                if seed < HINDSIGHT:
                    each_entry[:, seed] = [alone(seed, params) for params in entries]
                for law, times in LAWS.items():
                    search.set_params(stopping=law, trials=times * len(entries), random_state=seed)
                    scores[law].append(accuracy(search.fit(x, y)))
                scores["all"].append(accuracy(paid_for_all(search, x, y, seed)))
            best = int(each_entry.mean(axis=1).argmax())
            cells = [f"{np.mean(found):.4f} ± {np.std(found):.4f}" for found in scores.values()]
            hindsight = f"{each_entry[best].mean():.4f} ± {each_entry[best].std():.4f} ({entries[best]})"
            lines.append(f"| {name} | {len(entries)} | {delta:g} | {' | '.join(cells)} | {hindsight} |")
            print(lines[-1], flush=True)
    if set(options.only) == set(SEARCHES) and len(options.delta) > 1:
        RESULTS.write_text("\n".join(["# Private search", "", *lines, ""]))


if __name__ == "__main__":
    main()
