"""Private in-context learning: free answers to public questions, from private demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit import _validate, accounting, events
from tacit.data import given
from tacit.errors import InvalidValue
from tacit.guarantee import Guarantee
from tacit.language.aggregating import EmbeddingMean, KeywordCounts, words_of
from tacit.language.decoder import Prompter
from tacit.language.encoder import Embedder
from tacit.language.prompt_pate import PUBLIC_MODEL
from tacit.language.template import Template, attempted, clean_text, several
from tacit.ledger import Payment
from tacit.pate.answering import CHOSEN
from tacit.pate.partition import drawn_teachers
from tacit.randomness import Source
from tacit.relations import Relation, Unit

__all__ = ["InContext", "InContextAnswers", "gaussian_delta", "promised"]

Reads = Callable[[], tuple[Any, Any]]
METHODS = ("embedding", "keywords")
PUBLIC_QUESTIONS = "the questions are public: they were chosen without the private demonstrations"


def gaussian_delta(delta: float) -> float:
    """A δ above 0, without which Gaussian noise promises nothing."""
    if _validate.delta(delta) == 0:
        advice = "Choose a small one, well below 1 divided by the number of people, such as delta=1e-5."
        raise InvalidValue("delta", delta, "above 0, as the noise is Gaussian", advice)
    return float(delta)


def promised(event: events.Event, delta: float, payment: Payment, source: Source, *assumed: str) -> Guarantee:
    """The guarantee of ``event`` at ``delta``, made before anything is charged."""
    epsilon = accounting.epsilon(event, delta, relation=payment.relation)
    noise = "seeded" if source.seeded else "exact"
    facts = (CHOSEN, *assumed, PUBLIC_MODEL)
    return Guarantee(epsilon, delta, event, payment.relation, payment.unit, noise, facts)


@dataclass(frozen=True, eq=False)
class InContextAnswers:
    """Answers that may be published, one for each question, with their guarantee.

    ``keywords`` are the released keywords of each question, empty lists where embeddings were aggregated.
    """

    answers: tuple[str, ...]
    keywords: tuple[tuple[str, ...], ...]
    guarantee: Guarantee

    def __str__(self) -> str:
        return "\n".join([*self.answers, str(self.guarantee)])


class InContext:
    """Answers to public questions by an ensemble of private prompts, aggregated with noise.

    The private demonstrations (a text with its answer) are divided among ``members`` prompts; each member
    answers every question, and only a noisy aggregate of the answers is used:

    * ``method="embedding"``: the noisy mean of the answers' sentence embeddings, and the nearest of the
      public ``candidates`` (:class:`~tacit.language.EmbeddingMean`); needs ``encoder``.
    * ``method="keywords"``: noisy counts of the words of a public ``vocabulary``
      (:class:`~tacit.language.KeywordCounts`). The answer is the candidate whose words have the highest mean
      count, or, without candidates, the ``top`` keywords themselves.

    **Relation and sensitivity.** Each demonstration draws its member independently and uniformly, and a
    member's answer is computed from its own demonstrations alone, so that one demonstration that is added,
    removed or replaced changes one member's answer to each question, under both relations.

    **Event.** ``Repeat(Gaussian(z), questions)``, with z calibrated to ε and δ, charged before any
    demonstration is read.

    A member without demonstrations, or for whose prompt the model fails, answers as the model without a
    prompt.

    Parameters
    ----------
    model, template
        A decoder of :func:`tacit.language.pretrained`, and how a demonstration is written: ``{label}`` is the
        answer.
    members, shots
        How many prompts, and how many demonstrations each shows at most.
    encoder, candidates
        An encoder of :func:`tacit.language.pretrained`, and public answers to choose from.
    vocabulary, words, top
        Public keywords, how many of them one answer may count for, and how many are released.
    text_tokens, answer_tokens
        How many tokens of a text, and of an answer, are read or written.

    >>> from tacit import language
    >>> private = language.InContext(
    ...     language.pretrained("smollm2"), "Q: {text}\\nA: {label}\\n\\n",
    ...     encoder=language.pretrained("minilm"), candidates=["yes", "no"], members=20,
    ...     epsilon=2.0, delta=1e-5,
    ... )                                                        # doctest: +SKIP
    >>> private.answer(texts, answers, ["Is it safe?"]).answers  # doctest: +SKIP
    ('yes',)
    """

    def __init__(
        self,
        model: Any,
        template: Template | str,
        *,
        method: str = "embedding",
        members: int = 50,
        shots: int = 1,
        encoder: Any = None,
        candidates: Sequence[str] | None = None,
        vocabulary: Sequence[str] | None = None,
        words: int = 10,
        top: int = 5,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        text_tokens: int = 64,
        answer_tokens: int = 24,
        relation: Relation | str = "add_remove",
        ledger: Any = None,
        label: str | None = None,
        random_state: int | None = None,
    ) -> None:
        self.prompter = Prompter(
            model, template, shots=shots, text_tokens=text_tokens, label_tokens=answer_tokens
        )
        _validate.count("shots", shots, 1)
        self.method = _validate.choice("method", method, METHODS)
        self.members = _validate.count("members", members, 1)
        self.epsilon, self.delta = _validate.epsilon(epsilon), gaussian_delta(delta)
        self.relation, self.ledger, self.label = Relation.of(relation), ledger, label
        self.random_state, self.top = random_state, _validate.count("top", top, 1)
        self.candidates: tuple[str, ...] = tuple(several("candidates", candidates) or ())
        if not all(isinstance(each, str) and each.strip() for each in self.candidates):
            raise InvalidValue("candidates", f"{len(self.candidates)} of them", "texts that are not empty")
        if self.method == "embedding":
            advice = "Give an encoder= and candidates=, two public answers or more to choose from."
            if encoder is None:
                raise InvalidValue("encoder", None, "given for method='embedding'", advice)
            if len(self.candidates) < 2:
                raise InvalidValue("candidates", f"{len(self.candidates)} of them", "two or more", advice)
            self.embedder = encoder if isinstance(encoder, Embedder) else Embedder(encoder)
            self._directions = self.embedder.public(self.candidates)
        else:
            self._counting = KeywordCounts(tuple(several("vocabulary", vocabulary) or ()), words, 1.0)
            counted = set(self._counting.vocabulary)
            if any(counted.isdisjoint(words_of(each)) for each in self.candidates):
                advice = "A candidate without such a word would never be chosen: add a word of it."
                raise InvalidValue("candidates", "one without", "texts with words of the vocabulary", advice)

    def event(self, questions: int) -> events.Event:
        """What so many questions cost: the event that is charged."""
        asked = _validate.count("questions", questions, 1)
        noise = accounting.calibrate(
            lambda z: events.Repeat(events.Gaussian(z), asked),
            epsilon=self.epsilon, delta=self.delta, relation=self.relation,
        )  # fmt: skip
        return events.Repeat(events.Gaussian(noise), asked)

    def answer(self, texts: Any, answers: Any, questions: Sequence[str]) -> InContextAnswers:
        """Answer public ``questions`` from private demonstrations, which are charged for first."""
        shown = given.column("texts", texts)
        told = given.column("answers", answers, len(shown))
        return self.answer_rows(lambda: (shown, told), questions)

    def answer_rows(self, read: Reads, questions: Sequence[str]) -> InContextAnswers:
        """As ``answer``, from demonstrations that ``read`` fetches, once, after the charge."""
        asked = [clean_text(each) for each in several("questions", questions)]
        if not all(asked):
            raise InvalidValue("questions", "one that is empty", "texts")
        event = self.event(len(asked))
        payment = Payment.agreed(self.ledger, relation=self.relation, unit=Unit(), rows_alone=True)
        source = Source(self.random_state)
        guarantee = promised(event, self.delta, payment, source, PUBLIC_QUESTIONS)
        label = self.label or f"answers to {len(asked)} questions"
        noise = event.event.noise_multiplier  # type: ignore[attr-defined]
        with payment.charge(event, label, noise=guarantee.noise, delta=self.delta):
            members = self._members(*read(), source)
            released = [
                self._aggregated(self._replies(members, question), noise, source) for question in asked
            ]
            del members
        answers, keywords = zip(*released, strict=True)
        return InContextAnswers(answers, keywords, guarantee)

    def _members(self, texts: Any, answers: Any, source: Source) -> list[list[tuple[str, str]]]:
        """The demonstrations of each member: a draw for each demonstration by itself."""
        shown = given.column("texts", texts)
        told = given.column("answers", answers, len(shown))
        pairs = [(clean_text(text), clean_text(answer)) for text, answer in zip(shown, told, strict=True)]
        usable = np.array([bool(text and answer) for text, answer in pairs], dtype=bool)
        places = np.where(usable, np.arange(len(pairs)), -1)
        drawn = drawn_teachers(places, np.zeros(len(pairs), dtype=np.int64), [self.members], source)
        order = np.argsort(source.words(len(pairs)), kind="stable")
        parts: list[list[tuple[str, str]]] = [[] for _ in range(self.members)]
        for place in order.tolist():
            text, answer = pairs[place]
            if drawn[place] >= 0 and text and answer:
                parts[drawn[place]].append((text, answer))
        return parts

    def _replies(self, members: list[list[tuple[str, str]]], question: Any) -> list[str]:
        """Each member's answer. PRIVATE: nothing of it is kept."""
        asked = self.prompter.question(question)
        usual = self.prompter.complete([*self.prompter.prompt([]), *asked])

        def reply(demonstrations: list[tuple[str, str]]) -> str:
            if not demonstrations:
                return usual
            made = self.prompter
            return attempted(lambda: made.complete([*made.prompt(demonstrations), *asked]), usual)

        return [reply(each) for each in members]

    def _aggregated(self, replies: list[str], noise: float, source: Source) -> tuple[str, tuple[str, ...]]:
        if self.method == "embedding":
            mean = EmbeddingMean(self.members, noise, random_state=source)
            vectors = np.stack([self.embedder.alone(reply) for reply in replies])
            return self.candidates[mean.nearest(mean(vectors), self._directions)], ()
        counting = KeywordCounts(self._counting.vocabulary, self._counting.words, noise, random_state=source)
        counts = counting(replies)
        found = counting.top(counts, self.top)
        return self._composed(dict(zip(counting.vocabulary, counts.tolist(), strict=True)), found), tuple(
            found
        )

    def _composed(self, counts: dict[str, float], found: list[str]) -> str:
        """An answer from released counts: the candidate with the highest mean count, or the keywords."""
        if not self.candidates:
            return " ".join(found)

        def score(candidate: str) -> float:
            used = [counts[word] for word in words_of(candidate) if word in counts]
            return float(np.mean(used)) if used else -np.inf

        return max(self.candidates, key=score)
