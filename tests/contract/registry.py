"""The registry of everything that makes a release, and the checks that each entry inherits.

A :class:`Case` describes one mechanism, question, estimator, evaluation or training run under one standard
parameter, or an event on its own. The checks are plain functions that raise AssertionError: the battery calls
them on every case and expects them to pass, and calls the same functions on deliberately broken twins and
expects them to fail. ``test_coverage.py`` fails if something public makes a release and has no case.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tacit import accounting, audit, events
from tacit.errors import BudgetExceeded, MalformedEvent, UnsupportedEvent
from tacit.ledger import Budget, Ledger
from tacit.randomness import Source
from tacit.relations import Unit

FALSE_ALARM = 1e-6
"""How likely, at most, any single statistical check rejects something sound."""

FRESH, FEW_FRESH = 200, 24
"""How many draws must not all coincide; and how many releases, where the noise cannot be seen alone."""

SECRET = "98765"
"""The digits of a private value in bad inputs, which no error message may show."""

Make = Callable[[int | Source | None], Any]
Release = Callable[[Ledger, Any, Callable[[], Any]], Any]


@dataclass(frozen=True)
class Noise:
    """Where the noise can be seen alone: ``draw(make, runs, seed)`` returns real samples of it, and
    ``cdf(points, factor)`` is P(sample ≤ point) if the noise were ``factor`` times as large.
    """

    draw: Callable[[Make, int, int | None], np.ndarray]
    cdf: Callable[[np.ndarray, float], np.ndarray]
    runs: int = 20_000


@dataclass(frozen=True)
class Pair:
    """Worst-case neighbours, and how to tell them apart.

    ``run(make, data, runs, seed)`` returns one output per independent run. ``score`` turns outputs into
    numbers that are higher on ``value`` than on ``neighbour``, best a log-likelihood ratio. ``runs`` is
    how many are made on each; ``rule`` is how the threshold is chosen.
    """

    value: Any
    neighbour: Any
    score: Callable[[np.ndarray], np.ndarray]
    run: Callable[[Make, Any, int, int | None], np.ndarray]
    runs: tuple[int, int] = (100_000, 100_000)
    rule: audit.Fixed | audit.Split = field(default_factory=lambda: audit.Split(seed=0))


def release(ledger: Ledger, mechanism: Any, data_access: Callable[[], Any]) -> Any:
    """The road every release takes: charge, then touch the data."""
    with ledger.charge(mechanism.event, label=type(mechanism).__name__, noise=mechanism.noise):
        return mechanism(data_access())


@dataclass(frozen=True)
class Case:
    """One entry of the registry.

    ``event`` is what is charged, and ``delta`` the δ at which its ε under ``relation`` is read as the
    claim. What follows is left out for an event without a mechanism: ``make(random_state)`` builds the
    mechanism, ``broken(random_state)`` a twin with less noise (two thirds, where ``noise`` is given) that
    claims the same, ``data`` is what a release reads, ``bad_inputs`` are calls with the error that each must
    raise, ``release`` is the road that charges a ledger. ``covers`` names public things that the case stands
    for, beyond the class of the mechanism. ``left_out`` says why a case has no ``noise`` or ``pair``.
    """

    name: str
    event: events.Event
    delta: float = 0.0
    make: Make | None = None
    broken: Make | None = None
    data: Any = None
    pair: Pair | None = None
    noise: Noise | None = None
    bad_inputs: tuple[tuple[str, Callable[[], Any], type[Exception]], ...] = ()
    relation: str = "add_remove"
    unit: Unit = field(default_factory=Unit)
    release: Release = release
    covers: frozenset[str] = frozenset()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def epsilon(self) -> float:
        """The claim."""
        return accounting.epsilon(self.event, self.delta, relation=self.relation)


REGISTRY: dict[str, Case] = {}


def register(case: Case) -> Case:
    """Add a case; it inherits the battery from then on."""
    assert case.name not in REGISTRY, f"{case.name} is registered twice"
    REGISTRY[case.name] = case
    return case


@dataclass(frozen=True)
class Claiming:
    """A mechanism that claims another event than its own."""

    mechanism: Any
    event: events.Event
    noise: str = "seeded"

    def __call__(self, value: Any) -> Any:
        return self.mechanism(value)


FILLED_BY = (
    "contract.cases", "contract.table_cases", "contract.estimator_cases", "statistical.test_evaluation",
    "contract.weight_cases", "contract.split_cases", "contract.boosting_cases", "contract.classical_cases",
    "contract.label_cases", "contract.synthesis_cases", "contract.search_cases", "contract.pate_cases",
    "contract.pate_road_cases", "contract.local_cases", "contract.local_number_cases",
    "contract.record_cases", "contract.shuffled_cases", "contract.federated_cases", "contract.secure_cases",
    "contract.training_cases", "contract.silo_cases", "contract.tuning_cases", "contract.prompt_cases",
)  # fmt: skip
"""The modules that register cases; the last four need torch, and the last two transformers too."""


def registered() -> dict[str, Case]:
    """Every case, after all modules that register one were imported."""
    left_out = 0 if find_spec("transformers") else 2
    for module in FILLED_BY[: len(FILLED_BY) - (left_out if find_spec("torch") else 4)]:
        import_module(module)
    return REGISTRY


def audited_here() -> list[Case]:
    """The cases that ``make test`` audits: all mechanisms, and the first case of every other module.

    ``make audit`` audits every case, and its twin, with the same runs and seeds or with more. It alone audits
    tuned transformers, whose steps take long and are those of other networks.
    """
    first: dict[str, Case] = {}
    for case in registered().values():
        if case.pair is None:
            continue
        module = getattr(case.make, "func", case.make).__module__
        if module != "contract.tuning_cases":
            first.setdefault(case.name if module == "contract.cases" else module, case)
    return list(first.values())


def check_json(event: events.Event, decode: Callable[[str], events.Event] = events.from_json) -> None:
    """The event survives its JSON form, and no other text passes for an event."""
    text = event.to_json()
    again = decode(text)
    assert again == event, f"{event} came back as {again}"
    assert again.to_json() == text
    for tampered in _tampered(text):
        try:
            accepted = decode(tampered)
        except MalformedEvent:
            continue
        raise AssertionError(f"{tampered} was read as {accepted}")


SIGNED = {"eta"}
"""Fields of events that may be a little below 0."""


def _tampered(text: str) -> Iterator[str]:
    yield from ("", "null", "[]", "0", text[:-1], text + text, "[" * 10_000, f"[{text}]")
    yield text.replace("{", '{"is":"pure",', 1)
    data = json.loads(text)
    for node, _ in _nodes(data):
        for tag in ("unknown", "Gaussian", "os.system", "", None, 7, ["pure"]):
            yield _with(data, node, "is", tag)
        yield _with(data, node, "extra", 1)
        for name in list(node):
            yield _with(data, node, name, ...)
    for node, name in _numbers(data):
        for value in (-1, -1e-9, "1", None, True, [], {}, math.nan, math.inf, -math.inf):
            if not (name in SIGNED and value == -1e-9):
                yield _with(data, node, name, value)
        yield _with(data, node, name, "#").replace('"#"', "1e999")


def _nodes(data: Any) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(data, dict):
        yield data, data["is"]
    for child in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _nodes(child)


def _numbers(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every number in the tree, as its container and key."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        if isinstance(value, (int, float)):
            yield data, key
        yield from _numbers(value)


def _with(data: Any, node: Any, key: Any, value: Any) -> str:
    """The JSON of ``data`` with one value changed, or left out for an ellipsis; ``data`` stays."""
    missing = object()
    before = node.get(key, missing) if isinstance(node, dict) else node[key]
    if value is ...:
        del node[key]
    else:
        node[key] = value
    text = json.dumps(data)
    if before is missing:
        del node[key]
    else:
        node[key] = before
    return text


Epsilon = Callable[..., float]


def check_repetition(event: events.Event, epsilon: Epsilon = accounting.epsilon, delta: float = 1e-5) -> None:
    """Repeat(event, n) costs what n copies cost, for every accountant and relation, and more than fewer.

    Copies that are equal cost exactly the same. Copies that differ in the tenth digit, which no
    accountant can recognise as repetitions, cost nearly the same.
    """
    repeat, compose = events.Repeat, events.Compose
    same = [(repeat(event, n), compose((event,) * n)) for n in (1, 2, 7)]
    same += [
        (repeat(event, 1), event),
        (repeat(repeat(event, 2), 3), compose((event,) * 6)),
        (repeat(compose((event, event)), 2), compose((event, repeat(event, 3)))),
    ]
    for relation in ("add_remove", "replace_one"):
        for method in accounting.METHODS:

            def cost(of: events.Event, relation: str = relation, method: str = method) -> Any:
                try:
                    return epsilon(of, delta, relation=relation, method=method)
                except UnsupportedEvent:
                    return "unsupported"

            where = f"by {method} under {relation}"
            for repeated, listed in same:
                one, other = cost(repeated), cost(listed)
                assert one == other, f"{repeated} costs {one} {where}, {listed} costs {other}"
            once, often = cost(event), cost(repeat(event, 7))
            if "unsupported" in (once, often) or math.isinf(often):
                continue
            assert often > once, f"seven of {event} cost {often} {where}, one costs {once}"
            nearly = cost(compose(_nearly_equal(event, 7)))
            if nearly != "unsupported":
                assert math.isclose(often, nearly, rel_tol=2e-3), f"{often} {where}, listed {nearly}: {event}"


def _nearly_equal(event: events.Event, times: int) -> tuple[events.Event, ...]:
    """Copies of ``event`` whose real parameters differ by parts in 10^10; orders stay as they are."""
    copies = []
    for i in range(times):
        data = json.loads(event.to_json())
        for node, key in _numbers(data):
            if isinstance(node[key], float) and not any(node is n.get("orders") for n, _ in _nodes(data)):
                node[key] *= 1 - i * 1e-10
        copies.append(events.from_json(json.dumps(data)))
    return tuple(copies)


def check_noise(case: Case, make: Make | None = None, seed: int = 1) -> None:
    """The noise has the scale it should have: not two thirds of it, nor one and a half times as much.

    The distance between the empirical and the exact distribution function exceeds
    √(ln(2/FALSE_ALARM)/2n) with at most that probability, whatever the distribution (Dvoretzky,
    Kiefer, Wolfowitz; Massart 1990).
    """
    assert case.noise is not None
    samples = np.sort(case.noise.draw(make or case.make, case.noise.runs, seed))
    allowed = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * samples.size))
    distance = {factor: _distance(samples, case.noise.cdf, factor) for factor in (1.0, 2 / 3, 3 / 2)}
    assert distance[1.0] <= allowed, f"{case.name}: noise is off by {distance[1.0]:.4f} > {allowed:.4f}"
    for factor in (2 / 3, 3 / 2):
        assert distance[factor] > allowed, f"{case.name}: {factor:.3g} × the noise would pass unnoticed"


def _distance(samples: np.ndarray, cdf: Callable[[np.ndarray, float], np.ndarray], factor: float) -> float:
    """sup |empirical − exact| over points, and just below them, where both may jump."""
    points = np.unique(samples)
    upto = np.searchsorted(samples, points, side="right") / samples.size
    before = np.searchsorted(samples, points, side="left") / samples.size
    exact, exact_before = cdf(points, factor), cdf(np.nextafter(points, -np.inf), factor)
    return float(max(np.abs(upto - exact).max(), np.abs(before - exact_before).max()))


def audited(case: Case, make: Make | None = None, seed: int = 1) -> audit.AuditResult:
    """The ε lower bound that runs on the worst-case neighbours prove."""
    pair = case.pair
    assert pair is not None
    maker = make or case.make
    inside = pair.score(pair.run(maker, pair.value, pair.runs[0], 2 * seed))
    outside = pair.score(pair.run(maker, pair.neighbour, pair.runs[1], 2 * seed + 1))
    confidence = 1 - FALSE_ALARM
    guesses = audit.choose_threshold(inside, outside, rule=pair.rule, delta=case.delta, confidence=confidence)
    return audit.clopper_pearson(**guesses.counts(), delta=case.delta, confidence=confidence)


def check_audit(case: Case, make: Make | None = None, seed: int = 1) -> None:
    """No attack on worst-case neighbours proves more than is claimed."""
    result = audited(case, make, seed)
    assert not result.contradicts(case.epsilon), f"{case.name} claims ε = {case.epsilon:.4f}, but {result}"


def check_support(case: Case, make: Make | None = None, seed: int = 1) -> None:
    """The last bits of a release do not tell neighbours apart (Mironov 2012).

    A sum 1 + N in floating point is a multiple of 2^−53 however small it comes out, while 0 + N is not.
    """
    assert case.pair is not None
    pair = replace(case.pair, score=_finer_than_sums, runs=(1500, 1500), rule=audit.Fixed(1.0))
    other_way = replace(pair, value=pair.neighbour, neighbour=pair.value)
    for each in (pair, other_way):
        check_audit(replace(case, pair=each), make, seed)


def _finer_than_sums(outputs: np.ndarray) -> np.ndarray:
    first = outputs.reshape(len(outputs), -1)[:, 0].astype(float)
    return (np.abs(first) < 0.5) & (np.ldexp(first, 53) % 1 != 0)


def check_fresh(case: Case, make: Make | None = None) -> None:
    """Noise is drawn anew in every call, by every object, unless a seed says otherwise."""
    maker = make or case.make

    def drawn(seed: int | None) -> np.ndarray:
        if case.noise is not None:
            return case.noise.draw(maker, FRESH, seed)
        made = maker(seed)
        return np.array([np.ravel(made(case.data)) for _ in range(FEW_FRESH)]).ravel()

    first, second = drawn(3), drawn(4)
    assert not np.array_equal(first, second), "two seeds, one stream"
    assert np.array_equal(first, drawn(3)), "a seed does not reproduce its stream"
    half = first.size // 2
    assert not np.array_equal(first[:half], first[half : 2 * half]), "the stream repeats itself"
    assert not np.array_equal(drawn(None), drawn(None)), "without a seed the stream is still the same"


def check_charged_first(case: Case, path: Path, release: Release | None = None) -> None:
    """A refused charge touches no data; a granted one is on disk before they are touched."""
    release = release or case.release
    poor, rich = path / "poor.db", path / "rich.db"
    touched: list[tuple[events.Event, ...]] = []

    def data_access(location: Path) -> Any:
        with Ledger.open(location) as second:
            touched.append(tuple(entry.event for entry in second.entries()))
        return case.data

    def opened(location: Path, epsilon: float) -> Ledger:
        return Ledger.open(location, Budget(epsilon, case.delta), relation=case.relation, unit=case.unit)

    with opened(poor, case.epsilon / 2) as ledger:
        try:
            release(ledger, case.make(1), lambda: data_access(poor))
        except BudgetExceeded:
            pass
        else:
            raise AssertionError(f"{case.name}: a release beyond the budget was made")
        assert not touched, f"{case.name}: data were touched although the charge was refused"
        assert not ledger.entries()
    with opened(rich, case.epsilon * (1 + 1e-6)) as ledger:
        release(ledger, case.make(1), lambda: data_access(rich))
        assert touched == [(case.event,)], f"{case.name}: entries when the data were touched: {touched}"
        assert [entry.event for entry in ledger.entries()] == [case.event]


def check_bad_inputs(case: Case) -> None:
    """Every bad input is refused with the stated error."""
    assert case.bad_inputs, f"{case.name} lists no bad inputs"
    for what, call, expected in case.bad_inputs:
        try:
            accepted = call()
        except Exception as error:
            raised = error
        else:
            raise AssertionError(f"{case.name}, {what}: accepted, giving {accepted!r:.80}")
        assert isinstance(raised, expected), f"{case.name}, {what}: {type(raised).__name__}: {raised}"
        assert SECRET not in str(raised), f"{case.name}, {what}: a private value in {raised}"
