"""Where a fit is warned of as one that cannot learn anything, does it? Logistic regression on Adult.

    python benchmarks/learning.py [--runs 6]

For noise at each place, ε and number of rows: the expected norm of the noise over the largest norm of the
signal, by public facts alone; whether ``fit`` warns; and the accuracy on the test half, over that of the
larger class. Rows are drawn anew for every fit.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from tacit import Schema, datasets
from tacit.data.features import known
from tacit.errors import CannotLearn
from tacit.estimators import LogisticRegression, Preprocessor

RESULTS = Path(__file__).parent / "results" / "learning.md"
PLACES = ("objective", "output", "gradient", "functional")
SETTINGS = (
    (1.0, 32_000), (0.1, 32_000), (0.01, 32_000), (1.0, 3_000), (1.0, 1_000), (1.0, 300), (1.0, 100),
    (0.1, 1_000), (0.1, 300),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=6)
    runs = parser.parse_args().runs
    files = datasets.adult()
    maker = Preprocessor(Schema.load(files.schema), target="income")
    (x, y), (xt, yt) = (
        (np.asarray(maker.fit_transform(frame)), maker.target_values(frame))
        for frame in map(pd.read_csv, (files.train, files.test))
    )
    largest = max((yt == label).mean() for label in maker.classes or ())
    generator = np.random.default_rng(0)
    lines = ["| noise | δ | ε | rows | noise / signal | warns | accuracy − larger class |", "|" + "---|" * 7]
    for place in PLACES:
        for delta in (0.0, 1e-6):
            for epsilon, rows in SETTINGS:
                found = []
                for seed in range(runs):
                    taken = generator.choice(len(x), rows, replace=False)
                    model = LogisticRegression(
                        epsilon, delta, noise=place, classes=maker.classes, population=rows, random_state=seed
                    )
                    with warnings.catch_warnings(record=True) as told:
                        warnings.simplefilter("always")
                        model.fit(known(x[taken], maker.features), y[taken])
                    found.append(float((model.predict(xt) == yt).mean()) - largest)
                noise, signal = model._recipe(
                    model._public(maker.features, model._agreed(False))
                ).place.noise_and_signal()
                warned = "yes" if any(each.category is CannotLearn for each in told) else ""
                spread = f"{np.mean(found):+.3f} ({min(found):+.3f} to {max(found):+.3f})"
                cells = (place, f"{delta:g}", f"{epsilon:g}", rows, f"{noise / signal:.3g}", warned, spread)
                line = f"| {' | '.join(map(str, cells))} |"
                print(line, flush=True)
                lines.append(line)
    RESULTS.write_text("\n".join([f"{runs} fits each.", "", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
