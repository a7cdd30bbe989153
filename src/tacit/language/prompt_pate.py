"""PromptPATE: a public prompt that learned from private demonstrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tacit import _validate
from tacit.data import given
from tacit.data.units import unit_numbers
from tacit.errors import InvalidValue
from tacit.language.decoder import Decoder
from tacit.language.encoder import Prototypes
from tacit.language.public_prompt import PublicPrompt, prompted_by
from tacit.language.template import Demonstration, Template, attempted, clean_text, declared_words
from tacit.ledger import Payment
from tacit.models.description import Description
from tacit.models.registry import register
from tacit.pate.answering import Answering, PrivateRows, Queries
from tacit.pate.partition import drawn_teachers
from tacit.pate.planning import AnswerPlan, plan_answers
from tacit.randomness import Source

__all__ = ["PromptPATE", "in_turn"]

PUBLIC_MODEL = "the language model is public: it was trained on nothing that has to be protected"
"""An assumption of every guarantee for prompts."""

REFERENCE = 64
"""So many public queries at most say how far a decoder's prompt leans towards one of the words."""
NEVER_SAVED = ("model", "aggregator", "ledger", "random_state")
"""Parameters that are not written into files."""
SAVED = ("classes_", "queries_", "asked_", "answered_", "answers_", "student_seed_")
"""What is written into files besides the prompt; all of it is public or was released."""

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


class PromptPATE(Answering):
    """A public prompt for a language model, labelled by noisy votes of private prompts.

    Every private demonstration (a text with its label) belongs to one teacher, and a teacher is the model
    with a few of its demonstrations as prompt. The teachers vote on public texts; where they agree, the
    noisy winner becomes the label of the text. Public texts with released labels are candidates for a
    prompt, and the best of them is the prompt that is published.

    **Relation and sensitivity.** Every unit (or demonstration, where no ``units`` are given) draws its
    teacher independently and uniformly (:mod:`tacit.pate.partition`), and a vote is computed from its
    teacher's demonstrations alone (:mod:`tacit.language.decoder`). So a demonstration that is added,
    removed or replaced changes one vote for each public text, under both relations.

    **Event.** ``n_queries`` public texts are asked, until ``n_answers`` of them have a label; the worst
    case is charged before any demonstration is read. For the planned :class:`~tacit.pate.ConfidentGNMax` it
    is ``n_queries`` tests of the threshold and ``n_answers`` noisy maxima. The ε does not depend on the
    votes. Threshold and noise are planned from public facts (:func:`tacit.pate.plan_answers`).

    **The choice of the prompt** reads public texts and released labels and no private demonstration: of
    ``candidates`` prompts, each of ``prompt_shots`` labelled public texts, the one under which the other
    released labels are the most probable. It costs nothing, and :meth:`teach` may be called again.

    A teacher without demonstrations votes as the model without a prompt does, and so does one for whose
    prompt the model raises or gives numbers that are not finite. What is no text, an empty text, or an
    undeclared label contributes nothing.

    Parameters
    ----------
    model
        What :func:`tacit.language.pretrained` returns. A decoder reads demonstrations as a prompt; an encoder
        compares with their mean embeddings (:class:`tacit.language.encoder.Prototypes`).
    template, verbalizer
        How a demonstration is written, ``"Review: {text}\\nSentiment: {label}\\n\\n"``, and the word for each
        class, ``{0: "negative", 1: "positive"}``. Both are public; the classes are those of the verbalizer.
    n_teachers, shots
        How many teachers, and how many of its demonstrations a teacher shows at most: a random choice, with
        all classes in turn.
    prompt_shots, candidates
        How many labelled texts the public prompt has, and how many prompts are tried. None takes all
        labelled texts, for a decoder as many of them as fit into the window however long they are.
    prior
        In the public prompt of an encoder the word of a class counts as so many demonstrations, since the
        released labels are noisy and few; in that of a teacher it counts as one.
    calibrate
        What the leaning of a decoder's prompt towards one of the words is measured on: ``"queries"``, up to
        64 of the public queries, whose classes should then be about as frequent as those of later
        questions; ``"nothing"``, a text that says nothing; None, it stays (:class:`tacit.language.Decoder`).
        It is public post-processing of each prompt's own output: one demonstration still moves one vote.
    text_tokens
        How many tokens of each text are read.
    aggregator, epsilon, delta, n_queries, n_answers
        As for :class:`~tacit.pate.PATEClassifier`.
    relation, rows_per_unit, ledger, label, verbose, random_state
        As for :class:`~tacit.pate.PATEClassifier`.

    Duan, Dziedzic, Papernot and Boenisch 2023, "Flocks of stochastic parrots". Their ε depends on the
    votes, is published without noise and was tuned on the votes; the one here is none of that.

    >>> from tacit import language
    >>> private = PromptPATE(
    ...     language.pretrained("minilm"), "It was {text} {label}", {0: "bad", 1: "good"}, n_teachers=400,
    ...     epsilon=0.5, delta=1e-6,
    ... )                                                                    # doctest: +SKIP
    >>> private.fit(texts, labels, queries=public_texts).predict(["a joy"])  # doctest: +SKIP
    array([1])
    """

    title = "public prompt of private teachers"
    released = ("classes_", "queries_", "asked_", "answered_", "answers_", "prompt_", "student_seed_")

    def __init__(
        self,
        model: Any = None,
        template: Template | str = "{text}\n{label}\n\n",
        verbalizer: Any = None,
        *,
        n_teachers: int = 200,
        shots: int = 1,
        prompt_shots: int | None = 1,
        candidates: int = 20,
        prior: float = 16.0,
        calibrate: str | None = "queries",
        text_tokens: int = 64,
        aggregator: Any = None,
        epsilon: float = 1.0,
        delta: float = 0.0,
        n_queries: int | None = None,
        n_answers: int | None = None,
        relation: str = "add_remove",
        rows_per_unit: int = 1,
        ledger: Any = None,
        label: str | None = None,
        verbose: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.model = model
        self.template = template
        self.verbalizer = verbalizer
        self.n_teachers = n_teachers
        self.shots = shots
        self.prompt_shots = prompt_shots
        self.candidates = candidates
        self.prior = prior
        self.calibrate = calibrate
        self.text_tokens = text_tokens
        self.aggregator = aggregator
        self.epsilon = epsilon
        self.delta = delta
        self.n_queries = n_queries
        self.n_answers = n_answers
        self.relation = relation
        self.rows_per_unit = rows_per_unit
        self.ledger = ledger
        self.label = label
        self.verbose = verbose
        self.random_state = random_state

    @property
    def classes(self) -> list[Any]:
        """The declared classes: those of the verbalizer."""
        return list(declared_words(self.verbalizer))

    def fit(self, texts: Any, labels: Any, queries: Any, units: Any = None) -> Any:
        """Label public ``queries`` by private demonstrations and choose the prompt; the charge comes first.

        ``texts`` and ``labels`` are the private demonstrations, ``queries`` public texts of the same kind,
        and ``units`` names the unit of each demonstration, where one unit may have several.
        """
        asked = self._public(queries)
        shown = given.column("texts", texts)
        told = given.column("labels", labels, len(shown))
        return self._fit(
            asked, units is not None, lambda: self._rows(shown, told, units, None, asked), (), None
        )

    def _planned(self, queries: int, payment: Payment) -> AnswerPlan:
        return plan_answers(
            self.aggregator, queries=queries, teachers=self.n_teachers, classes=len(self.classes),
            epsilon=self.epsilon, delta=self.delta, relation=payment.relation, asked=self.n_queries,
            answers=self.n_answers,
        )  # fmt: skip

    def _check(self) -> None:
        """Refuse, before the charge, prompts that might not fit into the window: those of the teachers, and
        the public one."""
        if self.calibrate is not None:
            _validate.choice("calibrate", self.calibrate, ("queries", "nothing"))
        self._prompted(_validate.count("shots", self.shots, 1))
        _validate.count("candidates", self.candidates, 1)
        if self.prompt_shots is not None:
            self._prompted(_validate.count("prompt_shots", self.prompt_shots, 1))
        _validate.positive("prior", self.prior)

    def _prompted(
        self, shots: int, queries: Sequence[str] | None = None, prior: float = 1.0
    ) -> Decoder | Prototypes:
        """The model as teachers have it, or with another ``prior``; calibrated on public ``queries``."""
        by: Any = {"queries": queries or True, "nothing": True, None: False}[self.calibrate]
        return prompted_by(
            self.model, self.template, self.verbalizer, shots=shots, text_tokens=self.text_tokens,
            prior=prior, calibrate=by,
        )  # fmt: skip

    def _public_prompted(self, shots: int) -> Decoder | Prototypes:
        """The model as the public prompt has it, calibrated on queries: first those that were asked."""
        others = np.setdiff1d(np.arange(len(self.queries_)), self.asked_)
        some = self.queries_[np.concatenate([self.asked_, others])[:REFERENCE]].tolist()
        return self._prompted(max(shots, 1), some, self.prior)

    def _public(self, queries: Any) -> Queries:
        texts = given.column("queries", queries)
        if not len(texts) or not all(clean_text(each) for each in texts.tolist()):
            raise InvalidValue("queries", "none, or one that is empty", "texts, one or more")
        return Queries(np.array([clean_text(each) for each in texts.tolist()], dtype=object), {})

    def _rows(self, X: Any, y: Any, units: Any, groups: Any, asked: Queries) -> PrivateRows:
        texts = given.column("texts", X)
        labels = given.places(given.column("labels", y, len(texts)), self.classes)
        cleaned = [clean_text(each) for each in texts.tolist()]
        usable = np.array([bool(each) for each in cleaned], dtype=bool)
        return PrivateRows(
            np.array([*cleaned, None], dtype=object)[:-1],
            np.where(usable, labels, -1),
            None if units is None else given.column("units", units, len(texts)),
        )

    def _answers(
        self, plan: AnswerPlan, queries: NDArray[Any], rows: PrivateRows, source: Source, tell: Any
    ) -> Int64:
        prompted = self._prompted(self.shots, queries[:REFERENCE].tolist())
        asked = prompted.prepare(queries.tolist())
        teachers = self._partition(plan, rows, source)
        ranks = source.words(len(rows.labels))
        usual = _winners(prompted.probabilities((), asked), np.zeros(len(queries), dtype=np.int64))
        votes = np.zeros((len(queries), len(self.classes)), dtype=np.int64)
        for place in range(plan.teachers):
            mine = np.flatnonzero(teachers == place)
            shown = in_turn(rows.labels[mine], ranks[mine])[: self.shots]
            vote = _vote(prompted, [(rows.matrix[i], int(rows.labels[i])) for i in mine[shown]], asked, usual)
            votes[np.arange(len(queries)), vote] += 1
            if tell is not None:
                tell(place + 1, plan.teachers)
        return np.asarray(plan.aggregator.answer(votes, random_state=source))

    def _partition(self, plan: AnswerPlan, rows: PrivateRows, source: Source) -> Int64:
        """The teacher of each demonstration, −1 for one that counts nowhere."""
        count = len(rows.labels)
        units = np.arange(count) if rows.units is None else unit_numbers(rows.units)
        drawn = drawn_teachers(units, np.zeros(count, dtype=np.int64), [plan.teachers], source)
        return np.where(rows.labels >= 0, drawn, -1)

    def _assumptions(self, plan: AnswerPlan) -> tuple[str, ...]:
        return (PUBLIC_MODEL,)

    def teach(self, student: Any = None) -> Any:
        """Choose the public prompt anew, from public texts and released labels: post-processing.

        Call it after a change of ``prompt_shots`` or ``candidates``. There is no ``student`` to hand in: the
        model with the prompt is the student.
        """
        check_is_fitted(self, "guarantee_")
        if student is not None:
            raise InvalidValue("student", type(student).__name__, "left out: the model is the student")
        labelled = list(zip(self.queries_[self.answered_].tolist(), self.answers_.tolist(), strict=True))
        most = self._prompted(1).room if self.prompt_shots is None else self.prompt_shots
        size = min(most, len(labelled))
        prompted = self._public_prompted(size)
        chosen = tuple(self._best(prompted, labelled, size))
        self.prompt_ = PublicPrompt(prompted.template, prompted.words, chosen, prompted)
        return self

    def onto(self, model: Any) -> Any:
        """A loaded prompt, put onto the language model that reads it.

        Raises :class:`tacit.errors.InvalidValue` for another model than the one that the labels and the
        choice of the prompt come from.
        """
        check_is_fitted(self, "prompt_")
        before, self.model = self.model, model
        try:
            self.prompt_ = self.prompt_.read_by(self._public_prompted(len(self.prompt_.demonstrations)))
        except InvalidValue:
            self.model = before
            raise
        return self

    @property
    def student(self) -> Any:
        """Nothing: the model with the public prompt is the student."""
        return None

    def _best(
        self, prompted: Decoder | Prototypes, labelled: list[Demonstration], size: int
    ) -> list[Demonstration]:
        """The candidate under which the released labels of the other texts are the most probable."""
        labels = np.array([label for _, label in labelled], dtype=np.int64)
        generator = np.random.default_rng(self.student_seed_)

        def draw() -> list[int]:
            ranks = generator.integers(0, 2**63, len(labelled), dtype=np.uint64)
            drawn: list[int] = in_turn(labels, ranks)[:size].tolist()
            return drawn

        if size in (0, len(labelled)):
            return [labelled[place] for place in draw()]
        tried: dict[frozenset[int], tuple[float, list[int]]] = {}
        asked = prompted.prepare([text for text, _ in labelled])
        for _ in range(20 * self.candidates):
            places = draw()
            if frozenset(places) in tried or len(tried) == self.candidates:
                continue
            found = prompted.probabilities([labelled[place] for place in places], asked)
            others = np.setdiff1d(np.arange(len(labelled)), places)
            logs = np.log(np.maximum(np.nan_to_num(found[others, labels[others]]), 1e-9))
            tried[frozenset(places)] = float(logs.mean()), places
        return [labelled[place] for place in max(tried.values(), key=lambda each: each[0])[1]]

    def predict_proba(self, X: Any) -> Float64:
        """Probabilities under the public prompt, one column for each declared class."""
        check_is_fitted(self, "prompt_")
        found: Float64 = self.prompt_.probabilities(given.column("texts", X).tolist())
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each text under the public prompt."""
        chances = self.predict_proba(X)
        return np.asarray(self.classes_[chances.argmax(axis=1)])

    def describe(self, names: Sequence[str] | None = None) -> Description:
        """What the prompt says of itself; all of it is public or was released."""
        check_is_fitted(self, "prompt_")
        facts = (
            ("teachers", f"{self.n_teachers}, of at most {self.shots} demonstrations"),
            ("queries", f"{len(self.asked_)} asked, {len(self.answers_)} answered"),
            ("prompt", str(self.prompt_)),
        )
        return Description(self.title, facts, tuple(self.classes_.tolist()))

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Parameters, what was released, and the digest of the model: no demonstration, and no weights."""
        check_is_fitted(self, "prompt_")
        params = {name: each for name, each in self.get_params(deep=False).items() if name not in NEVER_SAVED}
        template = self.prompt_.template
        params["template"] = [template.pattern, template.instruction]
        params["verbalizer"] = list(map(list, self.prompt_.words.items()))
        found = {name: getattr(self, name) for name in SAVED}
        prompt = [list(each) for each in self.prompt_.demonstrations]
        return {"params": params, "attributes": found, "prompt": prompt, "reader": self.prompt_.reader}, {}

    @classmethod
    def _from_saved(cls, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
        params = dict(state["params"])
        if set(NEVER_SAVED) & set(params) or set(state["attributes"]) != set(SAVED):
            raise ValueError("other contents than those that are saved")
        template = Template(*params.pop("template"))
        words = declared_words(dict(map(tuple, params.pop("verbalizer"))))
        model = cls(None, template, words, **params)
        for name, value in state["attributes"].items():
            setattr(model, name, value)
        prompt = tuple((str(text), int(place)) for text, place in state["prompt"])
        if not all(0 <= place < len(words) for _, place in prompt):
            raise ValueError("a label that is not declared")
        model.prompt_ = PublicPrompt(template, words, prompt, digest=str(state["reader"]))
        return model


def in_turn(labels: Int64, ranks: NDArray[np.uint64]) -> Int64:
    """An order of demonstrations in which the classes take turns, each class by rising rank.

    The class with the smallest rank comes first.

    >>> in_turn(np.array([0, 0, 1, 0]), np.array([5, 1, 3, 2], dtype=np.uint64)).tolist()
    [1, 2, 3, 0]
    """
    order = np.argsort(ranks, kind="stable")
    turns = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        own = order[labels[order] == label]
        turns[own] = np.arange(len(own))
    return order[np.argsort(turns[order], kind="stable")]


def _vote(prompted: Any, demonstrations: list[Demonstration], asked: Any, usual: Int64) -> Int64:
    """One teacher's vote on each question, ``usual`` where it has none. Raises nothing that rows decide."""
    if not demonstrations:
        return usual
    return attempted(lambda: _winners(prompted.probabilities(demonstrations, asked), usual), usual)


def _winners(chances: Float64, otherwise: Int64) -> Int64:
    """The most probable class of each row, the first of several; ``otherwise`` where one is not finite."""
    return np.where(np.isfinite(chances).all(axis=1), np.nan_to_num(chances).argmax(axis=1), otherwise)


register("prompt-pate", PromptPATE, PromptPATE.released)
