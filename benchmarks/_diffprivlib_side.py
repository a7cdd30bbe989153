"""diffprivlib's side of the benchmarks: its tools, on the columns of the same Parquet file, and its models.

Loading reads only the columns the statistic needs, through Arrow, and drops missing values: the tools
take arrays without any. Their clipping, sorting and noise are the computation.
"""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from _side import Refused, serve
from diffprivlib import models, tools

warnings.filterwarnings("ignore")
BOUNDS = (0.0, 200_000.0)


def numbers(file: str, column: str) -> np.ndarray:
    values = pq.read_table(file, columns=[column])[column].drop_null().to_numpy()
    return values[~np.isnan(values)] if values.dtype.kind == "f" else values


def codes(file: str, columns: list[str], keys: list[list[Any]] | None = None) -> list[np.ndarray]:
    """Categories as numbers in the order of their keys, rows with a missing one left out."""
    table = pq.read_table(file, columns=columns).drop_null()
    found = []
    for place, name in enumerate(columns):
        coded = table[name].combine_chunks().dictionary_encode()
        names = coded.dictionary.to_pylist()
        wanted = sorted(names) if keys is None else keys[place]
        places = np.array([wanted.index(each) for each in names])
        found.append(places[coded.indices.to_numpy()])
    return found


def counted(columns: list[np.ndarray], sizes: list[int], epsilon: float, random_state: Any = None) -> Any:
    return tools.histogramdd(
        np.column_stack(columns),
        epsilon=epsilon,
        bins=sizes,
        range=[(-0.5, size - 0.5) for size in sizes],
        random_state=random_state,
    )[0]


INCOME: dict[str, Callable[[np.ndarray, float], Any]] = {
    "count": lambda x, epsilon: tools.count_nonzero(np.ones(len(x), dtype=bool), epsilon=epsilon),
    "sum": lambda x, epsilon: tools.sum(x, epsilon=epsilon, bounds=BOUNDS),
    "mean": lambda x, epsilon: tools.mean(x, epsilon=epsilon, bounds=BOUNDS),
    "variance": lambda x, epsilon: tools.var(x, epsilon=epsilon, bounds=BOUNDS),
    "median": lambda x, epsilon: tools.median(x, epsilon=epsilon, bounds=BOUNDS),
    "histogram": lambda x, epsilon: tools.histogram(x, epsilon=epsilon, bins=20, range=BOUNDS)[0].tolist(),
}


def speed(case: str, file: str, epsilon: float) -> tuple[float, Any]:
    """One statistic from the file, and the seconds of it that went into loading."""
    start = time.perf_counter()
    if case in INCOME:
        values = numbers(file, "income")
        loading = time.perf_counter() - start
        answer = INCOME[case](values, epsilon)
        return loading, answer if isinstance(answer, list) else float(answer)
    if case == "crosstab":
        columns = codes(file, ["sex", "region"])
        loading = time.perf_counter() - start
        return loading, counted(columns, [2, 20], epsilon).tolist()
    raise Refused("not offered")


def repeated(
    file: str, statistic: str, columns: list[str], epsilon: float, repetitions: int, **options: Any
) -> tuple[float, Any]:
    """The same statistic many times, each with fresh noise."""
    state = np.random.RandomState(options.get("seed", 0))
    settings = {"epsilon": epsilon, "random_state": state}
    if statistic == "crosstab":
        keys = list(options["keys"].values())
        coded, sizes = codes(file, columns, keys), [len(each) for each in keys]
        return 0.0, [counted(coded, sizes, epsilon, state).ravel().tolist() for _ in range(repetitions)]
    values = numbers(file, columns[0]).astype(float)
    runs: dict[str, Callable[[], Any]] = {
        "mean": lambda: tools.mean(values, bounds=tuple(options["bounds"]), **settings),
        "quantile": lambda: tools.quantile(values, options["q"], bounds=tuple(options["bounds"]), **settings),
        "histogram": lambda: tools.histogram(values, bins=options["edges"], **settings)[0],
    }
    return 0.0, [np.ravel(runs[statistic]()).astype(float).tolist() for _ in range(repetitions)]


_arrays: dict[str, np.ndarray] = {}


def rows_of(file: str) -> np.ndarray:
    """The array in a file, read once."""
    if file not in _arrays:
        _arrays[file] = np.load(file)
    return _arrays[file].copy()


def clustered(file: str, clusters: int, bounds: list[Any], epsilon: float, seed: int) -> tuple[float, Any]:
    """The centres of k-means."""
    start = time.perf_counter()
    rows = rows_of(file)
    loading = time.perf_counter() - start
    model = models.KMeans(clusters, epsilon=epsilon, bounds=tuple(map(np.array, bounds)), random_state=seed)
    return loading, model.fit(rows).cluster_centers_.tolist()


def components(
    file: str, number: int, bounds: list[float], norm: float, epsilon: float, seed: int, limit: int
) -> tuple[float, Any]:
    """The principal components, about a mean that it buys with half of ε, if it finds them in time."""
    start = time.perf_counter()
    rows = rows_of(file)
    loading = time.perf_counter() - start
    model = models.PCA(number, epsilon=epsilon, bounds=tuple(bounds), data_norm=norm, random_state=seed)
    signal.signal(signal.SIGALRM, late)
    signal.alarm(limit)
    try:
        return loading, model.fit(rows).components_.tolist()
    finally:
        signal.alarm(0)


def late(*_: Any) -> None:
    raise Refused("no answer in time")


if __name__ == "__main__":
    cases = {"speed": speed, "repeated": repeated, "clustered": clustered, "components": components}
    serve("diffprivlib", cases)
