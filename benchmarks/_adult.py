"""The questions of benchmarks/tables_error.py about Adult: what is public, what is asked, what is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import tacit

ADULT = Path(__file__).parent.parent.parent / "shared" / "data" / "adult"
NAMES = [
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation",
    "relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country",
    "income",
]  # fmt: skip
MOST_ROWS = 100_000
BOUNDS = {"age": (17, 90), "fnlwgt": (0, 1_500_000), "hours_per_week": (1, 99), "capital_gain": (0, 99_999)}
EDGES = np.linspace(17, 90, 21).tolist()
CATEGORIES = {
    "education": (
        "10th", "11th", "12th", "1st-4th", "5th-6th", "7th-8th", "9th", "Assoc-acdm", "Assoc-voc",
        "Bachelors", "Doctorate", "HS-grad", "Masters", "Preschool", "Prof-school", "Some-college",
    ),
    "occupation": (
        "Adm-clerical", "Armed-Forces", "Craft-repair", "Exec-managerial", "Farming-fishing",
        "Handlers-cleaners", "Machine-op-inspct", "Other-service", "Priv-house-serv", "Prof-specialty",
        "Protective-serv", "Sales", "Tech-support", "Transport-moving",
    ),
    "sex": ("Female", "Male"),
}  # fmt: skip
Numbers = NDArray[np.float64]


def adult(folder: Path) -> pd.DataFrame:
    for name in ("adult.data.xz", "adult.data"):
        if (folder / name).exists():
            table = pd.read_csv(folder / name, names=NAMES, skipinitialspace=True, na_values="?")
            return table[[*BOUNDS, *CATEGORIES]]
    raise SystemExit(f"No adult.data in {folder}: name a folder that has it with --adult.")


def schema(public_rows: int | None) -> tacit.Schema:
    """``missing`` only says that every row has a number, which makes a public n worth something."""
    numbers = {
        name: tacit.Column("integer", bounds=bounds, missing=None if public_rows is None else bounds[0])
        for name, bounds in BOUNDS.items()
    }
    names = {name: tacit.Column("category", categories=labels) for name, labels in CATEGORIES.items()}
    return tacit.Schema(columns={**numbers, **names}, population=public_rows)


@dataclass(frozen=True)
class Question:
    """One statistic: for tacit a call, for the peers a name with options, and the truth."""

    name: str
    ask: Callable[..., Any]
    truth: Numbers
    statistic: str = ""
    columns: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    settings: tuple[bool, ...] = (False, True)
    """Whether n is public, in the settings that are compared."""
    diffprivlib: tuple[bool, ...] = ()
    """The settings in which diffprivlib's answer holds."""
    non_negative: bool = False
    """Whether negative counts are made 0, as diffprivlib's are; tacit keeps their total, too."""

    def answer(self, table: Any, epsilon: float) -> Numbers:
        """tacit's."""
        release = self.ask(table, epsilon=epsilon)
        return numbers_of((release.non_negative() if self.non_negative else release).value)

    def errors(self, answers: Any) -> Numbers:
        """The mean absolute error of each repetition."""
        found = np.asarray(answers, dtype=float).reshape(-1, self.truth.size)
        return np.abs((np.maximum(found, 0) if self.non_negative else found) - self.truth).mean(axis=1)

    def for_peer(self, public_rows: int | None) -> dict[str, Any]:
        return {
            "statistic": self.statistic,
            "columns": list(self.columns),
            "public_rows": public_rows,
            "most_rows": MOST_ROWS,
            **self.options,
        }


def numbers_of(value: Any) -> Numbers:
    return truth_of(value.to_numpy() if hasattr(value, "to_numpy") else value)


def truth_of(values: Any) -> Numbers:
    return np.atleast_1d(np.asarray(values, dtype=float)).ravel()


def clipped(data: pd.DataFrame, name: str) -> Numbers:
    return data[name].clip(*BOUNDS[name]).to_numpy(dtype=float)


def table_of(data: pd.DataFrame, names: tuple[str, ...]) -> Numbers:
    """The true counts in every cell; rows with a missing name are in none."""
    known = data[list(names)].dropna()
    codes = [pd.Categorical(known[name], categories=CATEGORIES[name]).codes for name in names]
    sizes = [len(CATEGORIES[name]) for name in names]
    flat = np.ravel_multi_index(codes, sizes)
    return np.bincount(flat, minlength=int(np.prod(sizes))).astype(float)


def candidates(name: str) -> list[int]:
    """The candidates tacit chooses among: whole steps of a power of two, at most 2^16 of them."""
    low, high = BOUNDS[name]
    step = 1
    while (high - low) / step > 2**16:
        step *= 2
    return list(range(low, high + 1, step))


def compared(data: pd.DataFrame) -> list[Question]:
    """What all three libraries are asked."""
    questions = [
        Question(
            f"mean {name}",
            lambda table, name=name, **cost: table.mean(name, **cost),
            truth_of(clipped(data, name).mean()),
            "mean",
            (name,),
            {"bounds": BOUNDS[name]},
            diffprivlib=(True,),
        )
        for name in ("age", "hours_per_week", "capital_gain")
    ]
    questions += [
        Question(
            f"quantile {q} {name}",
            lambda table, name=name, q=q, **cost: table.quantile(name, q, confidence=None, **cost),
            truth_of(np.quantile(clipped(data, name), q, method="inverted_cdf")),
            "quantile",
            (name,),
            {"bounds": BOUNDS[name], "q": q, "candidates": candidates(name)},
            diffprivlib=(False, True),
        )
        for name in ("age", "fnlwgt")
        for q in (0.5, 0.25, 0.75, 0.1)
    ]
    counts = {
        "histogram age, 20 bins": Question(
            "",
            lambda table, **cost: table.histogram("age", EDGES, **cost),
            truth_of(np.histogram(clipped(data, "age"), EDGES)[0]),
            "histogram",
            ("age",),
            {"edges": EDGES},
        )
    }
    for names in (("education",), ("occupation", "sex")):
        counts[f"table {' × '.join(names)}"] = Question(
            "",
            lambda table, names=names, **cost: table.crosstab(list(names), **cost),
            table_of(data, names),
            "crosstab",
            names,
            {"keys": {name: CATEGORIES[name] for name in names}},
        )
    for name, each in counts.items():
        plain = replace(each, name=name, settings=(False,))
        above = replace(plain, name=f"{name}, no negatives", diffprivlib=(False,), non_negative=True)
        questions += [plain, above]
    return questions


def covered(data: pd.DataFrame) -> list[Question]:
    """What tacit's intervals are checked on."""
    numbers = ("age", "hours_per_week", "capital_gain")
    by_sex = [clipped(data[data.sex == sex], "age").mean() for sex in CATEGORIES["sex"]]
    questions = [Question("count", lambda table, **cost: table.count(**cost), truth_of(len(data)))]
    for name in numbers:
        values = clipped(data, name)
        for statistic, truth in (
            ("sum", values.sum()),
            ("mean", values.mean()),
            ("variance", values.var(ddof=1)),
        ):
            questions.append(
                Question(
                    f"{statistic} {name}",
                    lambda table, name=name, ask=statistic, **cost: getattr(table, ask)(name, **cost),
                    truth_of(truth),
                )
            )
    questions.append(
        Question(
            "mean age by sex", lambda table, **cost: table.mean("age", by="sex", **cost), truth_of(by_sex)
        )
    )
    for each in compared(data):
        if each.statistic == "quantile":
            name, q = each.columns[0], each.options["q"]
            ask = lambda table, name=name, q=q, **cost: table.quantile(name, q, **cost)  # noqa: E731
            questions.append(Question(each.name, ask, each.truth))
        elif each.statistic != "mean" and not each.non_negative:
            questions.append(each)
    return questions
