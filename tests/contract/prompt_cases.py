"""Prompts: votes of private prompts, aggregated answers, and generated tokens.

The twins: a partition that gives a demonstration to all teachers; embeddings that are charged as if one
entered, where one is replaced by another; keywords that are gathered from the answers; a generation that
draws a subset of fixed size and is charged for a Poisson sample; a sum that is divided by how many were
sampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtr

from contract import registry
from contract.registry import Case, Noise, Pair, register
from tacit import audit
from tacit.errors import InvalidValue
from tacit.language.aggregating import EmbeddingMean, KeywordCounts, words_of
from tacit.language.generation import PrivateGenerator, TokenVote
from tacit.language.in_context import InContext
from tacit.language.prompt_pate import PromptPATE
from tacit.ledger import Ledger
from tacit.mechanisms import Gaussian
from tacit.pate import GNMax
from tacit.pate.answering import PrivateRows
from tacit.randomness import Source
from tiny_language import TEMPLATE, WORDS, decoder, encoder

SECRET, DELTA, TEACHERS = registry.SECRET, 0.1, 3
HIDDEN = "the noise is that of a mechanism with a case of its own"

# ------------------------------------------------------------------ votes of prompts

QUERY = "asked"
Rows = tuple[list[str], list[int]]


class GivesToAll(PromptPATE):
    """The twin in which a demonstration is shown by all teachers."""

    def _answers(self, plan: Any, queries: Any, rows: PrivateRows, source: Source, tell: Any) -> Any:
        votes = np.zeros((len(queries), 2), dtype=np.int64)
        votes[:, rows.labels[0]] = TEACHERS
        return plan.aggregator.answer(votes, random_state=source)


def teachers(kind: type[PromptPATE] = PromptPATE, **changed: Any) -> PromptPATE:
    given: dict[str, Any] = {
        "model": encoder(), "template": TEMPLATE, "verbalizer": WORDS, "n_teachers": TEACHERS, "n_queries": 1,
        "aggregator": GNMax(math.sqrt(2)), "epsilon": 50.0, "delta": DELTA, "relation": "replace_one",
    }  # fmt: skip
    return kind(**given | changed)


class Answered:
    """A fit as a mechanism: from demonstrations to the answers to one query."""

    def __init__(self, kind: type[PromptPATE], random_state: int | None) -> None:
        self.model, self.random_state, self.source = teachers(kind), random_state, Source(random_state)
        self.plan = self.model.plan(1)
        self.event = self.plan.event
        self.noise = "seeded" if self.source.seeded else "exact"

    def __call__(self, data: Rows, times: int = 1) -> np.ndarray:
        rows = self.model._rows(*data, None, None, self.model._public([QUERY]))
        queries = np.array([QUERY] * times, dtype=object)
        return np.asarray(self.model._answers(self.plan, queries, rows, self.source, None))


def repeated(make: Any, data: Rows, runs: int, seed: int | None) -> np.ndarray:
    """Independent runs as queries of one fit: the noise of each query is its own."""
    return np.asarray(make(seed)(data, runs))


def fitted(ledger: Ledger, answered: Answered, access: Callable[[], Any]) -> Any:
    model = answered.model.set_params(ledger=ledger, random_state=answered.random_state)
    return model.fit_rows([QUERY], lambda: (*access(), None))


def refused(make: Callable[..., Any], **parameters: Any) -> tuple[str, Callable[[], Any], type[Exception]]:
    return f"{make.__name__}({parameters!r:.60})", partial(make, **parameters), InvalidValue


def fit(**parameters: Any) -> Any:
    return teachers(**parameters).fit([SECRET], [0], [QUERY])


register(
    Case(
        name="prompt_pate",
        event=teachers().plan(1).event,
        delta=DELTA,
        make=partial(Answered, PromptPATE),
        broken=partial(Answered, GivesToAll),
        data=([QUERY], [0]),
        pair=Pair(
            ([QUERY], [0]),
            ([QUERY], [1]),
            lambda labels: (labels == 0).astype(float),
            repeated,
            (20_000, 20_000),
            audit.Split(seed=0),
        ),
        bad_inputs=(
            refused(fit, verbalizer=None),
            refused(fit, template="no place for a text"),
            refused(fit, n_teachers=0),
            refused(fit, epsilon=math.nan),
            refused(fit, relation="both"),
            refused(fit, shots=0),
        ),
        relation="replace_one",
        release=fitted,
        covers=frozenset({"PromptPATE"}),
        left_out={"noise": HIDDEN},
    )
)

# ------------------------------------------------------------------ answers of an ensemble


def in_context(**changed: Any) -> InContext:
    given: dict[str, Any] = {
        "template": "Q:{text}\nA:{label}\n", "encoder": encoder(), "candidates": ["yes", "no"], "members": 1,
        "answer_tokens": 4, "text_tokens": 8, "epsilon": 1.5, "delta": DELTA,
    }  # fmt: skip
    return InContext(decoder(), **given | changed)


BY_WORDS = {"method": "keywords", "vocabulary": ("a", "b", "c", "d"), "words": 2, "candidates": None}
CLAIMED = in_context().event(1)
Z = CLAIMED.event.noise_multiplier  # type: ignore[attr-defined]


class Entering(EmbeddingMean):
    """The twin with noise for an embedding that enters the mean, where one is replaced by another."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(
            "_gaussian", Gaussian(1.0, noise_multiplier=self.noise_multiplier, random_state=self._source)
        )


class Gathered(KeywordCounts):
    """The twin that counts, with noise, the words of the answers: those that nobody used are not there."""

    def __call__(self, answers: Any) -> Any:
        used = {word for answer in answers for word in words_of(answer)}
        return np.where([word in used for word in self.vocabulary], super().__call__(answers), 0.0)


class Aggregated:
    """One question as a mechanism: from the members' embeddings or answers to the noisy aggregate."""

    def __init__(self, kind: Callable[..., Any], settings: dict[str, Any], random_state: Any) -> None:
        self.mechanism, self.settings = kind(random_state=random_state), settings
        self.random_state, self.noise, self.event = random_state, self.mechanism.noise, CLAIMED

    def __call__(self, data: Any) -> Any:
        return self.mechanism(data)


def asked(ledger: Ledger, aggregated: Aggregated, access: Callable[[], Any]) -> Any:
    private = in_context(ledger=ledger, random_state=aggregated.random_state, **aggregated.settings)
    return private.answer_rows(lambda: (["text"], [str(access())]), ["is it?"])


def calls(make: Any, data: Any, runs: int, seed: int | None) -> np.ndarray:
    made = make(seed)
    return np.array([made(data) for _ in range(runs)])


def noise_of(zero: Any, deviation: float) -> Noise:
    """The noise around ``zero``, whose coordinates are independent."""
    width = 4

    def draw(make: Any, runs: int, seed: int | None) -> np.ndarray:
        return calls(make, zero, runs // width, seed).ravel()

    return Noise(draw, lambda points, factor: ndtr(points / (deviation * factor)), 8000)


DIRECTION = np.eye(4)[:1]


def first(outputs: np.ndarray) -> np.ndarray:
    return np.asarray(outputs[:, 0])


def both_ways(outputs: np.ndarray) -> np.ndarray:
    return outputs @ [1.0, 1.0, -1.0, -1.0]


def both_ways_where_seen(outputs: np.ndarray) -> np.ndarray:
    """The difference of the counts; a word that is not listed at all is the surest sign."""
    listed = (outputs != 0) @ [1.0, 1.0, -1.0, -1.0]
    return both_ways(outputs) + 100.0 * listed


BAD = tuple(
    refused(in_context, **each) for each in ({"members": 0}, {"candidates": [SECRET]}, {"epsilon": 0.0})
)

register(
    Case(
        name="in_context_embedding",
        event=CLAIMED,
        delta=DELTA,
        make=partial(Aggregated, partial(EmbeddingMean, 1, Z), {}),
        broken=partial(Aggregated, partial(Entering, 1, Z), {}),
        data=DIRECTION,
        pair=Pair(DIRECTION, -DIRECTION, first, calls, (6000, 6000), audit.Split(seed=0)),
        noise=noise_of(np.zeros((1, 4)), 2 * Z),
        bad_inputs=(
            *BAD,
            ("shape", partial(EmbeddingMean(2, 1.0), [[float(SECRET)]]), InvalidValue),
            ("members", partial(EmbeddingMean, 0, 1.0), InvalidValue),
            ("noise", partial(EmbeddingMean, 2, 0.0), InvalidValue),
        ),
        release=asked,
        covers=frozenset({"InContext", "EmbeddingMean"}),
    )
)
register(
    Case(
        name="in_context_keywords",
        event=CLAIMED,
        delta=DELTA,
        make=partial(Aggregated, partial(KeywordCounts, ("a", "b", "c", "d"), 2, Z), BY_WORDS),
        broken=partial(Aggregated, partial(Gathered, ("a", "b", "c", "d"), 2, Z), BY_WORDS),
        data=["a b"],
        pair=Pair(["a b"], ["c d"], both_ways_where_seen, calls, (6000, 6000), audit.Split(seed=0)),
        noise=noise_of([], 2 * Z),
        bad_inputs=(
            refused(in_context, **BY_WORDS | {"vocabulary": ()}),
            ("vocabulary", partial(KeywordCounts, (SECRET,)), InvalidValue),
            ("words", partial(KeywordCounts, ("a", "b"), 0), InvalidValue),
        ),
        release=asked,
        covers=frozenset({"KeywordCounts"}),
    )
)

# ------------------------------------------------------------------ one generated token


def generator(**changed: Any) -> PrivateGenerator:
    given: dict[str, Any] = {
        "sampling_rate": 0.25, "tokens": 1, "top_k": 4, "noise_multiplier": 0.7, "delta": DELTA,
        "text_tokens": 8,
    }  # fmt: skip
    return PrivateGenerator(decoder(), "L:{label}\nT:{text}\n", WORDS, **given | changed)


class FixedSubset(TokenVote):
    """The twin that draws as many as a sample has on average, at least one, and is charged for a sample."""

    def __call__(self, population: int, chances: Any, shortlist: int, source: Source) -> Any:
        size = min(max(1, round(self.sampling_rate * population)), population)
        subset = np.random.default_rng(source.bits(31)).permutation(population)[:size]
        summed = sum((chances(place) for place in subset.tolist()), np.zeros(shortlist))
        return Gaussian(1.0, noise_multiplier=self.noise_multiplier, random_state=source)(summed)


class Divided(TokenVote):
    """The twin that divides by how many were sampled, and multiplies by a public number, 4."""

    def __call__(self, population: int, chances: Any, shortlist: int, source: Source) -> Any:
        drawn: list[int] = []

        def counted(place: int) -> Any:
            drawn.append(place)
            return chances(place)

        noisy = super().__call__(population, counted, shortlist, source)
        summed = sum((chances(place) for place in drawn), np.zeros(shortlist))
        return noisy - summed + 4 * summed / max(len(drawn), 1)


class Generated:
    """One token as a mechanism: from next-token probabilities of demonstrations to noisy sums."""

    def __init__(self, kind: type[TokenVote], random_state: Any) -> None:
        self.event, self.random_state = generator().event, random_state
        self.vote = kind(0.25, 0.7)
        self.source = random_state if isinstance(random_state, Source) else Source(random_state)
        self.noise = "seeded" if self.source.seeded else "exact"

    def __call__(self, rows: np.ndarray) -> Any:
        return self.vote(len(rows), lambda place: rows[place], 4, self.source)


def generated(ledger: Ledger, made: Generated, access: Callable[[], Any]) -> Any:
    private = generator(ledger=ledger, random_state=made.random_state)
    return private.generate_rows(lambda: ([str(access())], [0]))


BAD_GENERATORS = tuple(
    refused(generator, **each)
    for each in ({"sampling_rate": 0.0}, {"top_k": 1}, {"tokens": 0}, {"epsilon": 1.0}, {"relation": "x"})
)
for name, twin in (("generated_token", FixedSubset), ("generated_token_sum", Divided)):
    register(
        Case(
            name=name,
            event=generator().event,
            delta=DELTA,
            make=partial(Generated, TokenVote),
            broken=partial(Generated, twin),
            data=DIRECTION,
            pair=Pair(
                DIRECTION, DIRECTION[:0], lambda out: out[:, 0], calls, (12_000, 12_000), audit.Split(seed=0)
            ),
            bad_inputs=BAD_GENERATORS,
            release=generated,
            covers=frozenset({"PrivateGenerator", "TokenVote"}),
            left_out={"noise": HIDDEN},
        )
    )
