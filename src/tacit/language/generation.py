"""Private next-token generation: synthetic demonstrations that may be put into any prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate, accounting, events
from tacit.data import given
from tacit.errors import InvalidValue
from tacit.guarantee import Guarantee
from tacit.language.aggregating import on_grid
from tacit.language.decoder import Prompter
from tacit.language.in_context import gaussian_delta, promised
from tacit.language.template import LABEL, TEXT, Template, attempted, clean_text, declared_words
from tacit.ledger import Payment
from tacit.mechanisms import Gaussian
from tacit.randomness import Source, bernoulli
from tacit.relations import Relation, Unit, norm_sensitivity

__all__ = ["PrivateGenerator", "Synthetic", "TokenVote"]

Float64 = NDArray[np.float64]
Reads = Callable[[], tuple[Any, Any]]


@dataclass(frozen=True, eq=False)
class Synthetic:
    """Made-up demonstrations that may be published, with their guarantee."""

    texts: tuple[str, ...]
    labels: tuple[Any, ...]
    guarantee: Guarantee

    def demonstrations(self, classes: Sequence[Any]) -> list[tuple[str, int]]:
        """The texts with the places of their classes, for a prompt."""
        places = {each: place for place, each in enumerate(classes)}
        return [(text, places[label]) for text, label in zip(self.texts, self.labels, strict=True)]

    def __str__(self) -> str:
        rows = zip(self.labels, self.texts, strict=True)
        return "\n".join([*(f"{label}: {text}" for label, text in rows), str(self.guarantee)])


@dataclass(frozen=True)
class TokenVote:
    """One token: a secret Poisson sample of demonstrations votes on the public shortlist, and noise is added.

    ``chances`` is a function from a demonstration's place to its probabilities among the shortlist. A
    demonstration that is not sampled is not asked.

    Relation and sensitivity: a demonstration in the sample adds its own probability vector to the sum,
    which is computed from that demonstration alone, has numbers from 0 to 1 that sum to 1 at most, and
    hence a length of 1 at most. Under ``replace_one`` the sum moves by √2 at most; the noise is scaled to
    2, for the event requires twice what one that enters the sample does. The sum is never divided by the
    number of those that were sampled, which is private: with one demonstration more or less every vector
    would be divided otherwise. Event: ``PoissonSampled(sampling_rate, Gaussian(noise_multiplier))``. An
    empty sample is an ordinary one: noise alone. The noise, and the sample, are exact.
    """

    sampling_rate: float
    noise_multiplier: float
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampling_rate", _validate.probability("sampling_rate", self.sampling_rate))
        object.__setattr__(self, "relation", Relation.of(self.relation))
        Gaussian(1.0, noise_multiplier=self.noise_multiplier)

    @property
    def event(self) -> events.Event:
        """What one token costs."""
        return events.PoissonSampled(self.sampling_rate, events.Gaussian(self.noise_multiplier))

    def __call__(
        self, population: int, chances: Callable[[int], Float64], shortlist: int, source: Source
    ) -> Float64:
        """The noisy sum of the sampled demonstrations' probabilities, one number for each token."""
        summed = np.zeros(shortlist)
        for place in np.flatnonzero(bernoulli(source, Fraction(self.sampling_rate), population)).tolist():
            summed += _simplex(chances(place), shortlist)
        moved = norm_sensitivity(1.0, self.relation)
        return Gaussian(moved, noise_multiplier=self.noise_multiplier, random_state=source)(summed)


def _simplex(chances: Float64, shortlist: int) -> Float64:
    """Probabilities on the grid; zeros for what is none: not finite, negative, or of another shape."""
    found = np.asarray(chances, dtype=np.float64)
    if found.shape != (shortlist,) or not np.isfinite(found).all() or (found < 0).any():
        return np.zeros(shortlist)
    return on_grid(found / max(float(found.sum()) * (1 + 2.0**-40), 1.0))


class PrivateGenerator:
    """Synthetic demonstrations, token by token, from noisy next-token probabilities of private ones.

    For each token a fresh, secret Poisson sample of the private demonstrations of a class is drawn. Each
    sampled demonstration makes a prompt of its own, followed by the text so far, and the model's
    probabilities of the next token are added up on a public shortlist, with Gaussian noise. The largest sum
    is the next token. The shortlist is the ``top_k`` most probable tokens of the same prompt without a
    demonstration.

    **Relation, sensitivity.** See :class:`TokenVote`: 1 under ``add_remove``, noise for 2 under
    ``replace_one``.

    **Event.** ``tokens`` tokens for each of ``texts_per_class`` texts:
    ``Repeat(PoissonSampled(sampling_rate, Gaussian(z)), tokens × texts_per_class)``. Each class reads its own
    demonstrations alone, so the event of all is ``Parallel`` over the classes. The charge is for all tokens,
    before any demonstration is read; that a text may end early is post-processing.

    The published code draws subsets of a fixed size by a seed and accounts for Poisson sampling; here the
    sample is what the event says. The sum of one-demonstration prompts has a smaller sensitivity than the
    mean over prompts of several, where a demonstration turns one vector into another (√2 rather than 1).

    Parameters
    ----------
    model, template, verbalizer
        A decoder of :func:`tacit.language.pretrained`; how a demonstration is written, ``{label}`` first,
        as in ``"Topic: {label}\\nNews: {text}\\n\\n"``; the word for each class.
    sampling_rate
        The chance of each demonstration of a class to be sampled for a token; with ``population`` of them
        about ``sampling_rate × population`` are asked, and each costs one pass of the model.
    tokens, texts_per_class, top_k
        The length of a text, how many texts are made of each class, the length of the shortlist.
    prior
        The public probabilities without a demonstration count like so many sampled ones: post-processing.
    epsilon, delta, noise_multiplier
        The budget, or the noise; ε is then what the noise costs at ``delta``.

    Tang, Shin, Inan, Manoel, Mireshghallah, Lin, Gopi, Kulkarni and Sim 2024, "Privacy-preserving in-context
    learning with differentially private few-shot generation".

    >>> from tacit import language
    >>> maker = language.PrivateGenerator(
    ...     language.pretrained("smollm2"), "Topic: {label}\\nNews: {text}\\n\\n", {0: "World", 1: "Sports"},
    ...     sampling_rate=0.01, tokens=24, epsilon=4.0, delta=1e-5,
    ... )                                          # doctest: +SKIP
    >>> print(maker.generate(texts, labels))       # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        template: str,
        verbalizer: Any,
        *,
        sampling_rate: float,
        tokens: int = 50,
        texts_per_class: int = 1,
        top_k: int = 100,
        prior: float = 1.0,
        epsilon: float | None = None,
        delta: float = 1e-5,
        noise_multiplier: float | None = None,
        instruction: str = "",
        text_tokens: int = 64,
        relation: Relation | str = "add_remove",
        ledger: Any = None,
        label: str | None = None,
        random_state: int | None = None,
    ) -> None:
        self.words = declared_words(verbalizer)
        self.tokens = _validate.count("tokens", tokens, 1)
        self.texts_per_class = _validate.count("texts_per_class", texts_per_class, 1)
        longest = max(_validate.count("text_tokens", text_tokens, 1), self.tokens)
        self.prompter = Prompter(
            model, _turned(template, instruction), shots=1, text_tokens=8, label_tokens=longest
        )
        self.vocabulary = int(self.prompter.head.weight.shape[0])
        self.top_k = _validate.count("top_k", top_k, 2)
        if self.top_k > self.vocabulary:
            raise InvalidValue("top_k", top_k, f"at most {self.vocabulary}, the tokens of the model")
        self.prior = _validate.non_negative("prior", prior)
        self.delta, self.relation = gaussian_delta(delta), Relation.of(relation)
        self.ledger, self.label, self.random_state = ledger, label, random_state
        if (epsilon is None) is (noise_multiplier is None):
            raise InvalidValue("epsilon", epsilon, "given, or noise_multiplier=, and not both")
        rate = _validate.probability("sampling_rate", sampling_rate)
        if noise_multiplier is None:
            noise_multiplier = accounting.calibrate(
                lambda z: self._event(TokenVote(rate, z, self.relation)),
                epsilon=_validate.epsilon(epsilon), delta=self.delta, relation=self.relation,
            )  # fmt: skip
        self.vote = TokenVote(rate, noise_multiplier, self.relation)

    def _event(self, vote: TokenVote) -> events.Event:
        one = events.Repeat(vote.event, self.tokens * self.texts_per_class)
        return events.Parallel((one,) * len(self.words))

    @property
    def event(self) -> events.Event:
        """What is charged: all tokens of all texts, whether or not a text ends early."""
        return self._event(self.vote)

    def generate(self, texts: Any, labels: Any) -> Synthetic:
        """Make texts of every class from private demonstrations, which are charged for first."""
        shown = given.column("texts", texts)
        told = given.column("labels", labels, len(shown))
        return self.generate_rows(lambda: (shown, told))

    def generate_rows(self, read: Reads) -> Synthetic:
        """As ``generate``, from demonstrations that ``read`` fetches, once, after the charge."""
        payment = Payment.agreed(self.ledger, relation=self.relation, unit=Unit(), rows_alone=True)
        source = Source(self.random_state)
        guarantee = promised(self.event, self.delta, payment, source)
        label = self.label or f"{len(self.words) * self.texts_per_class} synthetic texts"
        made, classes = [], []
        with payment.charge(self.event, label, noise=guarantee.noise, delta=self.delta):
            shown, told = read()
            texts = given.column("texts", shown)
            places = given.places(given.column("labels", told, len(texts)), list(self.words))
            for place, (name, word) in enumerate(self.words.items()):
                mine = [self._shot(word, texts[row]) for row in np.flatnonzero(places == place).tolist()]
                for _ in range(self.texts_per_class):
                    made.append(self._text(word, mine, source))
                    classes.append(name)
        return Synthetic(tuple(made), tuple(classes), guarantee)

    def _shot(self, word: str, text: Any) -> list[int] | None:
        """The prompt of one demonstration; None for what is no text, which adds nothing to a sum."""
        return self.prompter.prompt([(word, text)]) if clean_text(text) else None

    def _text(self, word: str, shots: list[list[int] | None], source: Source) -> str:
        """One text, of ``tokens`` tokens at most, from released tokens and votes."""
        asked, nothing = self.prompter.question(word), self.prompter.prompt([])
        end, made = getattr(self.prompter.tokenizer, "eos_token_id", None), list[int]()
        for _ in range(self.tokens):
            public = np.nan_to_num(self.prompter.next_token([*nothing, *asked, *made]))
            among = np.argsort(-public, kind="stable")[: self.top_k].tolist()
            chances = partial(self._chances, shots, [*asked, *made], among)
            votes = self.vote(len(shots), chances, self.top_k, source)
            share = public[among] / max(float(public[among].sum()), 1e-300)
            token = among[int(np.argmax(votes + self.prior * share))]
            if token == end:
                break
            made.append(token)
            if "\n" in self.prompter.decode(made).lstrip():
                break
        return self.prompter.decode(made).strip().partition("\n")[0].strip()

    def _chances(
        self, shots: list[list[int] | None], sofar: list[int], among: list[int], place: int
    ) -> Float64:
        """Next-token probabilities after one demonstration and the text so far, from that one alone."""
        shot, nothing = shots[place], np.zeros(len(among))
        if shot is None:
            return nothing
        return attempted(lambda: self.prompter.next_token([*shot, *sofar], among), nothing)


def _turned(pattern: Any, instruction: str) -> Template:
    """A template in which the class is given and the text is what the model goes on with.

    >>> _turned("Topic: {label}\\nNews: {text}", "").question("Sports")
    'Topic: Sports\\nNews:'
    """
    if not isinstance(pattern, str) or not 0 <= pattern.find(LABEL) < pattern.find(TEXT):
        advice = r'Write it like "Topic: {label}\nNews: {text}\n\n".'
        raise InvalidValue("template", pattern, "{label} and then {text}, each of them once", advice)
    swapped = pattern.replace(LABEL, "\0").replace(TEXT, LABEL).replace("\0", TEXT)
    return Template(swapped, instruction)
