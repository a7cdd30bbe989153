"""The data of benchmarks/linear.py, prepared by public rules alone.

Every category, bound and norm below is a constant of this file, taken from what is published about the
data (``adult.names``; the description of KDD Cup 99's features and the services its records may name;
census top-codes; what a wine can be) and not from the rows. Rows are bounded to them, so that every
library is given the same matrix and the same facts:

=============  =======================================================================  ==============
problem        features                                                                 target
=============  =======================================================================  ==============
adult          8 categorical as one-hot (missing: all zeros), 5 numbers in [−1, 1],     income > 50K
               capital gain and loss by log1p; fnlwgt, a survey weight, is left out
kddcup99       3 categorical as one-hot, 38 numbers in [0, 1], long-tailed by log1p     attack
mnist          784 pixels / 255                                                         1, and not 0
california     8 numbers in [−1, 1], the four totals by log1p                           value, 100 k$
wine           11 measurements in [−1, 1], and red = 1, white = −1                      quality
=============  =======================================================================  ==============

Adult and MNIST have test rows of their own; elsewhere a quarter, drawn by a fixed seed, is for testing.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _linear_problem import Array, Problem
from numpy.typing import NDArray

DATA = Path(__file__).parent.parent.parent / "shared" / "data"

ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation",
    "relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country",
    "income",
)  # fmt: skip
ADULT_CATEGORIES = {
    "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay "
    "Never-worked",
    "education": "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th "
    "Masters 1st-4th 10th Doctorate 5th-6th Preschool",
    "marital_status": "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
    "Married-AF-spouse",
    "occupation": "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
    "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv "
    "Protective-serv Armed-Forces",
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "native_country": "United-States Cambodia England Puerto-Rico Canada Germany "
    "Outlying-US(Guam-USVI-etc) India Japan Greece South China Cuba Iran Honduras Philippines Italy Poland "
    "Jamaica Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti Columbia "
    "Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador Trinadad&Tobago Peru Hong "
    "Holand-Netherlands",
}
ADULT_BOUNDS = {
    "age": (17, 90),
    "education_num": (1, 16),
    "capital_gain": (0, 99_999),
    "capital_loss": (0, 5_000),
    "hours_per_week": (1, 99),
}
ADULT_LOGARITHMS = ("capital_gain", "capital_loss")

KDD_NAMES = (
    "duration protocol_type service flag src_bytes dst_bytes land wrong_fragment urgent hot "
    "num_failed_logins logged_in num_compromised root_shell su_attempted num_root num_file_creations "
    "num_shells num_access_files num_outbound_cmds is_host_login is_guest_login count srv_count serror_rate "
    "srv_serror_rate rerror_rate srv_rerror_rate same_srv_rate diff_srv_rate srv_diff_host_rate "
    "dst_host_count dst_host_srv_count dst_host_same_srv_rate dst_host_diff_srv_rate "
    "dst_host_same_src_port_rate dst_host_srv_diff_host_rate dst_host_serror_rate dst_host_srv_serror_rate "
    "dst_host_rerror_rate dst_host_srv_rerror_rate label"
)
KDD_COLUMNS = KDD_NAMES.split()
KDD_CATEGORIES = {
    "protocol_type": "icmp tcp udp",
    "service": "IRC X11 Z39_50 aol auth bgp courier csnet_ns ctf daytime discard domain domain_u echo eco_i "
    "ecr_i efs exec finger ftp ftp_data gopher harvest hostnames http http_2784 http_443 http_8001 imap4 "
    "iso_tsap klogin kshell ldap link login mtp name netbios_dgm netbios_ns netbios_ssn netstat nnsp nntp "
    "ntp_u other pm_dump pop_2 pop_3 printer private red_i remote_job rje shell smtp sql_net ssh sunrpc "
    "supdup systat telnet tftp_u tim_i time urh_i urp_i uucp uucp_path vmnet whois",
    "flag": "OTH REJ RSTO RSTOS0 RSTR S0 S1 S2 S3 SF SH",
}
KDD_LONG = {
    "duration": 86_400, "src_bytes": 2**30, "dst_bytes": 2**30, "hot": 1_000, "num_compromised": 1_000,
    "num_root": 1_000, "num_file_creations": 1_000,
}  # fmt: skip
"""From 0 to these, by log1p; a connection may last a day."""
KDD_SHORT = {
    "wrong_fragment": 3, "urgent": 5, "num_failed_logins": 5, "su_attempted": 2, "num_shells": 5,
    "num_access_files": 10, "num_outbound_cmds": 10, "count": 511, "srv_count": 511, "dst_host_count": 255,
    "dst_host_srv_count": 255,
}  # fmt: skip
"""From 0 to these: counts within windows are capped. All other numbers are rates and flags, up to 1."""

CALIFORNIA_BOUNDS = {
    "longitude": (-124.5, -114.0),
    "latitude": (32.5, 42.0),
    "housing_median_age": (0, 52),
    "total_rooms": (0, 50_000),
    "total_bedrooms": (0, 10_000),
    "population": (0, 50_000),
    "households": (0, 10_000),
    "median_income": (0, 15),
}
CALIFORNIA_LOGARITHMS = ("total_rooms", "total_bedrooms", "population", "households")
CALIFORNIA_TARGET = (0.0, 5.0)

WINE_BOUNDS = {
    "fixed_acidity": (3, 16),
    "volatile_acidity": (0, 2),
    "citric_acid": (0, 2),
    "residual_sugar": (0, 70),
    "chlorides": (0, 0.7),
    "free_sulfur_dioxide": (0, 300),
    "total_sulfur_dioxide": (0, 450),
    "density": (0.98, 1.04),
    "ph": (2.5, 4.5),
    "sulphates": (0, 2),
    "alcohol": (8, 15),
}
WINE_TARGET = (0.0, 10.0)
NORMS = {"adult": math.sqrt(13), "kddcup99": 4.0, "mnist": 10.0}
"""Rows are scaled down to these ℓ2 norms; on Adult that is the largest there can be."""


def one_hot(values: pd.Series[Any], names: Sequence[str]) -> Array:
    """A column for each declared category; a row of any other value is zero everywhere."""
    codes = pd.Categorical(values, categories=list(names)).codes
    return np.vstack([np.zeros(len(names)), np.eye(len(names))])[codes.astype(int) + 1]


def scaled(values: Any, bounds: tuple[float, float], into: tuple[float, float], logarithm: bool) -> Array:
    """Clipped to its bounds, which are then moved to ``into``; by log1p if so."""
    numbers = np.clip(np.asarray(values, dtype=float), *bounds)
    low, high = bounds
    if logarithm:
        numbers, low, high = np.log1p(numbers), math.log1p(low), math.log1p(high)
    return into[0] + (numbers - low) / (high - low) * (into[1] - into[0])


def within(rows: Array, norm: float) -> Array:
    """Rows scaled down to the norm where they are longer."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(1.0, lengths / norm))


def assembled(
    table: pd.DataFrame,
    categories: dict[str, str],
    bounds: dict[str, tuple[float, float]],
    logarithms: Sequence[str],
    into: tuple[float, float],
) -> tuple[tuple[str, ...], Array]:
    """The matrix of a table, and the names of its columns."""
    names: list[str] = []
    parts = []
    for column, listed in categories.items():
        labels = listed.split()
        parts.append(one_hot(table[column], labels))
        names += [f"{column}={label}" for label in labels]
    for column, limits in bounds.items():
        parts.append(scaled(table[column], limits, into, column in logarithms)[:, None])
        names.append(column)
    return tuple(names), np.hstack(parts)


def limits(names: Sequence[str], into: tuple[float, float]) -> tuple[Array, Array]:
    """Bounds of each feature: one-hot columns are 0 or 1."""
    low = [0.0 if "=" in name else into[0] for name in names]
    return np.array(low), np.full(len(names), into[1])


def divided(rows: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of training and of test rows, three to one."""
    order = np.random.default_rng(seed).permutation(rows)
    return order[rows // 4 :], order[: rows // 4]


def adult(folder: Path = DATA, seed: int = 0) -> Problem:
    """Income above 50K; the published split, whatever the seed."""
    parts: list[Array] = []
    names: tuple[str, ...] = ()
    for name, skipped in (("adult.data.xz", 0), ("adult.test.xz", 1)):
        table = pd.read_csv(
            folder / "adult" / name,
            names=ADULT_COLUMNS,
            skipinitialspace=True,
            na_values="?",
            skiprows=skipped,
        )
        names, rows = assembled(table, ADULT_CATEGORIES, ADULT_BOUNDS, ADULT_LOGARITHMS, (-1.0, 1.0))
        parts += [within(rows, NORMS["adult"]), table["income"].str.startswith(">").to_numpy(dtype=float)]
    return Problem("adult", names, *parts, *limits(names, (-1.0, 1.0)), NORMS["adult"])


def kddcup99(folder: Path = DATA, seed: int = 0, rows: int | None = 100_000) -> Problem:
    """Attack or normal, of so many records drawn from the 494,021 of the 10 % file; None takes all."""
    file = folder / "kddcup99" / "kddcup.data_10_percent.gz"
    table = pd.read_csv(file, header=None, names=KDD_COLUMNS)
    if rows is not None:
        table = table.sample(rows, random_state=seed).reset_index(drop=True)
    numbers = [name for name in KDD_COLUMNS[:-1] if name not in KDD_CATEGORIES]
    bounds = {name: (0.0, float({**KDD_LONG, **KDD_SHORT}.get(name, 1))) for name in numbers}
    names, matrix = assembled(table, KDD_CATEGORIES, bounds, tuple(KDD_LONG), (0.0, 1.0))
    matrix, labels = within(matrix, NORMS["kddcup99"]), (table["label"] != "normal.").to_numpy(dtype=float)
    train, test = divided(len(matrix), seed)
    parts = (matrix[train], labels[train], matrix[test], labels[test])
    return Problem("kddcup99", names, *parts, *limits(names, (0.0, 1.0)), NORMS["kddcup99"])


def mnist(folder: Path = DATA, seed: int = 0) -> Problem:
    """1 against 0; the published split, whatever the seed."""
    parts: list[Array] = []
    for name in ("train", "t10k"):
        images, labels = (
            np.frombuffer(gzip.decompress((folder / "mnist" / f"{name}-{kind}.gz").read_bytes()), np.uint8)
            for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
        )
        chosen = labels[8:] <= 1
        rows = images[16:].reshape(-1, 784)[chosen] / 255.0
        parts += [within(rows, NORMS["mnist"]), labels[8:][chosen].astype(float)]
    names = tuple(f"pixel {place}" for place in range(784))
    return Problem("mnist", names, *parts, np.zeros(784), np.ones(784), NORMS["mnist"])


def california(folder: Path = DATA, seed: int = 0) -> Problem:
    """Median house value in units of 100,000 dollars, top-coded at 5."""
    table = pd.read_csv(folder / "california-housing" / "cal_housing.data.xz")
    names, rows = assembled(table, {}, CALIFORNIA_BOUNDS, CALIFORNIA_LOGARITHMS, (-1.0, 1.0))
    values = table["median_house_value"].to_numpy(dtype=float) / 1e5
    return regression("california", names, rows, values, CALIFORNIA_TARGET, seed)


def wine(folder: Path = DATA, seed: int = 0) -> Problem:
    """Quality of red and white wines together."""
    files = [folder / "wine-quality" / f"winequality-{colour}.csv.xz" for colour in ("red", "white")]
    red, white = (np.loadtxt(file, delimiter=",") for file in files)
    both = np.vstack([red, white])
    table = pd.DataFrame(both[:, :-1], columns=list(WINE_BOUNDS))
    names, rows = assembled(table, {}, WINE_BOUNDS, (), (-1.0, 1.0))
    colour = np.repeat([1.0, -1.0], [len(red), len(white)])
    return regression("wine", (*names, "red"), np.c_[rows, colour], both[:, -1], WINE_TARGET, seed)


def regression(
    name: str, names: tuple[str, ...], rows: Array, values: Array, target: tuple[float, float], seed: int
) -> Problem:
    """A regression on features in [−1, 1]; training targets are clipped, test targets are not."""
    train, test = divided(len(rows), seed)
    parts = (rows[train], np.clip(values[train], *target), rows[test], values[test])
    return Problem(name, names, *parts, *limits(names, (-1.0, 1.0)), math.sqrt(len(names)), target)


CLASSIFICATION: dict[str, Callable[..., Problem]] = {"adult": adult, "kddcup99": kddcup99, "mnist": mnist}
REGRESSION: dict[str, Callable[..., Problem]] = {"california": california, "wine": wine}
