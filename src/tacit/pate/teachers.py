"""Teachers: each learns from its own rows alone, and votes on the public queries.

**Sensitivity.** A vote must be a function of the teacher's own rows and of random numbers that depend on no
row. So every teacher is a fresh copy of the estimator with a seed of its own, drawn before any row is read;
the global generators of Python, NumPy and, where it is loaded, PyTorch are set from that seed for each
teacher. What is left to assume is that the estimator keeps no state of its own between two fits, which is
among the assumptions of every guarantee (:data:`STATELESS`).

Code of others that fails on somebody's row must not decide an error. A teacher that has no row votes at
random; one whose rows are all of one class votes for that class, untrained; one that raises, or whose
predictions are not declared classes, votes at random where it has no answer. A teacher that ends its worker
process is asked once more in a process of its own, and votes at random if it ends that one too. What teachers
warn of, print or log is thrown away.
"""

from __future__ import annotations

import io
import logging
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from tacit import _validate
from tacit.data.given import column, places
from tacit.errors import InvalidValue
from tacit.evaluation.alone import silence

__all__ = ["STATELESS", "Votes", "check_estimator", "checked_jobs", "collect_votes", "fresh", "trained_votes"]

STATELESS = "the teachers' class keeps no state from one fit to the next"
"""An assumption of every guarantee that rests on teachers."""

Int64 = NDArray[np.int64]
Tell = Callable[[int, int], None]
"""Is told how many of how many teachers are done."""


@dataclass(frozen=True)
class Votes:
    """What is the same for all teachers: public."""

    teacher: Any
    queries: NDArray[Any]
    classes: tuple[Any, ...]


def check_estimator(name: str, estimator: Any) -> None:
    """Refuse, before anything is charged, what cannot be fitted or would charge a ledger for every fit."""
    for needed in ("fit", "predict"):
        if not callable(getattr(estimator, needed, None)):
            raise InvalidValue(name, type(estimator).__name__, f"an estimator with the method {needed}")
    if isinstance(estimator, type):
        raise InvalidValue(name, estimator.__name__, "an estimator, not its class", "Call the class.")
    if getattr(estimator, "ledger", None) is not None:
        advice = "Leave out its ledger=: the answers are charged, and nothing else is released."
        raise InvalidValue(name, type(estimator).__name__, "an estimator without a ledger", advice)
    clone(estimator, safe=False)


def fresh(estimator: Any, seed: int) -> Any:
    """A copy that is not fitted, with every ``random_state`` that it has set to the seed."""
    made = clone(estimator, safe=False)
    if hasattr(made, "get_params"):
        names = [name for name in made.get_params() if name.rpartition("__")[2] == "random_state"]
        made.set_params(**dict.fromkeys(names, seed))
    return made


@contextmanager
def _alone(seed: int) -> Iterator[None]:
    """Global generators at the seed and nothing shown; both as they were afterwards."""
    torch, level, nowhere = sys.modules.get("torch"), logging.root.manager.disable, io.StringIO()
    with silence(), redirect_stdout(nowhere), redirect_stderr(nowhere):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        if torch is not None:
            torch.manual_seed(seed)
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(level)


def trained_votes(public: Votes, rows: NDArray[Any], labels: Int64, seed: int) -> Int64:
    """The class that one teacher votes for, for each query: a function of its own rows. Never raises.

    ``labels`` are places among the classes.
    """
    votes = np.random.default_rng(seed).integers(0, len(public.classes), len(public.queries))
    if not len(labels):
        return votes
    if (labels == labels[0]).all():
        return np.full(len(public.queries), labels[0], dtype=np.int64)
    try:
        with _alone(seed):
            targets = np.array(public.classes)[labels]
            teacher = fresh(public.teacher, seed)
            teacher.fit(rows, targets)
            found = places(column("predictions", teacher.predict(public.queries.copy())), public.classes)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return votes
    return np.where(found >= 0, found, votes) if found.shape == votes.shape else votes


def collect_votes(
    public: Votes,
    parts: Sequence[tuple[NDArray[Any], Int64]],
    seeds: Sequence[int],
    *,
    weights: Sequence[int] | None = None,
    n_jobs: int | None = 1,
    tell: Tell | None = None,
) -> Int64:
    """Counts of votes, one row for each query and one column for each class. PRIVATE: nothing of it is kept.

    ``parts`` are the rows and labels of each teacher, ``seeds`` theirs, and ``weights`` how many votes each
    of them has, 1 unless told. ``n_jobs`` processes train them, None for one on each core; with 1 they are
    trained here, one after the other. An estimator that is defined in a script or a notebook is sent along.
    """
    jobs = checked_jobs(n_jobs)
    counts = np.zeros((len(public.queries), len(public.classes)), dtype=np.int64)
    asked = np.arange(len(public.queries))
    for done, (place, votes) in enumerate(_trained(public, parts, seeds, jobs), 1):
        counts[asked, votes] += 1 if weights is None else weights[place]
        if tell is not None:
            tell(done, len(parts))
    return counts


def checked_jobs(n_jobs: int | None) -> int:
    """How many processes to use; None stands for one on each core."""
    if n_jobs is None:
        import joblib

        return int(joblib.cpu_count())
    return _validate.count("n_jobs", n_jobs, 1)


def _trained(public: Votes, parts: Any, seeds: Sequence[int], jobs: int) -> Iterator[tuple[int, Int64]]:
    """The number and the votes of each teacher, as they finish."""
    if jobs == 1:
        for place, (rows, labels) in enumerate(parts):
            yield place, trained_votes(public, rows, labels, seeds[place])
        return
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    missing = set(range(len(parts)))
    many = Parallel(
        n_jobs=jobs, backend="loky", return_as="generator_unordered", batch_size=1, max_nbytes=None
    )
    try:
        for place, votes in many(delayed(_numbered)(i, public, *parts[i], seeds[i]) for i in sorted(missing)):
            missing.remove(place)
            yield place, votes
    except TerminatedWorkerError:
        yield from _one_by_one(public, parts, seeds, sorted(missing))


def _numbered(place: int, public: Votes, rows: Any, labels: Any, seed: int) -> tuple[int, Int64]:
    return place, trained_votes(public, rows, labels, seed)


def _one_by_one(
    public: Votes, parts: Any, seeds: Sequence[int], those: Sequence[int]
) -> Iterator[tuple[int, Int64]]:
    """The votes of teachers that may end their process, in a process that trains nobody else at that time.

    A teacher that ends it votes at random, as one without rows does.
    """
    from joblib.externals.loky import ProcessPoolExecutor
    from joblib.externals.loky.process_executor import BrokenProcessPool

    left = list(those)
    while left:
        with ProcessPoolExecutor(max_workers=1) as pool:
            while left:
                rows, labels = parts[left[0]]
                ended = False
                try:
                    votes: Int64 = pool.submit(trained_votes, public, rows, labels, seeds[left[0]]).result()
                except BrokenProcessPool:
                    ended, votes = True, trained_votes(public, rows[:0], labels[:0], seeds[left[0]])
                yield left.pop(0), votes
                if ended:
                    break
