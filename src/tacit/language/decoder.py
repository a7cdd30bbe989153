"""A decoder with a prompt: class probabilities, next-token probabilities and completions from a few examples.

**What a prompt's output depends on.** Everything here is computed for one prompt at a time: a key-value
cache holds one prompt. That of a private prompt is made in the call that uses it and dropped when that call
ends; only that of a public prompt is kept (:class:`~tacit.language.PublicPrompt`). Public questions are
answered in batches on top of it, which are cut by the public questions alone. So the output for one prompt
is a function, bit by bit, of that prompt's demonstrations and of public facts, and never of what another
prompt holds: no batch of several prompts rounds one by the length or the content of another.

**Lengths.** Each text is cut to its first ``text_tokens`` tokens, by itself. A prompt of as many
demonstrations as are allowed has to fit into the context window with its question, or the parameters are
refused before any row is read. So no demonstration pushes another one out of a prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.language.template import (
    CHARACTERS,
    Demonstration,
    Template,
    attempted,
    clean_text,
    declared_words,
    several,
)
from tacit.language.weights import positions_of

__all__ = ["Decoder", "Prompter", "Questions", "softmax"]

Float64 = NDArray[np.float64]

BATCH = 16
"""So many public questions are answered at once."""
CONTENT_FREE = "N/A"
"""The text that says nothing, on which a prompt's leaning to one class is measured."""


@dataclass(frozen=True, eq=False)
class Questions:
    """Public questions, as tokens: the same for all prompts."""

    tokens: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.tokens)

    def batches(self) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Places and padded tokens of questions of about the same length."""
        order = sorted(range(len(self.tokens)), key=lambda place: len(self.tokens[place]))
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            width = len(self.tokens[places[-1]])
            padded = [[*self.tokens[place], *[0] * (width - len(self.tokens[place]))] for place in places]
            yield places, torch.tensor(padded)


class Prompter:
    """A decoder and a template: prompts of demonstrations whose labels are texts.

    ``model`` is what :func:`tacit.language.pretrained` returns, or anything with ``model`` and
    ``tokenizer`` of transformers. ``shots`` is how many demonstrations a prompt holds at most,
    ``text_tokens`` and ``label_tokens`` how many tokens of each text and of each label are read; a
    completion has at most as many tokens as a label.
    """

    def __init__(
        self,
        model: Any,
        template: Template | str,
        *,
        shots: int = 1,
        text_tokens: int = 64,
        label_tokens: int = 32,
    ) -> None:
        if not hasattr(model, "model") or not hasattr(model, "tokenizer"):
            advice = 'Read one: tacit.language.pretrained("smollm2").'
            raise InvalidValue("model", type(model).__name__, "a pretrained language model", advice)
        self.network, self.tokenizer = model.model, model.tokenizer
        self.head = self.network.get_output_embeddings()
        if self.head is None:
            raise InvalidValue("model", type(self.network).__name__, "a decoder, with a head for tokens")
        self.template = Template.of(template)
        self.shots = _validate.count("shots", shots)
        self.text_tokens = _validate.count("text_tokens", text_tokens, 1)
        self.label_tokens = _validate.count("label_tokens", label_tokens, 1)
        before, between, after = self.template.parts
        self._blank = " " if before.endswith(" ") else ""
        self._gap = " " if between.endswith(" ") else ""
        self._before = self._plain(before.rstrip(" "))
        self._between = self._plain(between.rstrip(" "))
        self._after = self._plain(after)
        start = getattr(self.tokenizer, "bos_token_id", None)
        self._instruction = [
            *([] if start is None else [int(start)]),
            *self._plain(self.template.instruction),
        ]
        if not self._instruction:
            self._instruction = self._plain("\n")[:1]
        if self.longest > self.window:
            advice = "Take fewer shots=, or fewer tokens of each text."
            needed = f"such that a full prompt has at most {self.window} tokens"
            raise InvalidValue("shots", f"{self.shots} ({self.longest} tokens)", needed, advice)

    @property
    def window(self) -> int:
        """How many tokens the model can read."""
        return positions_of(self.network, 1024)

    @property
    def longest(self) -> int:
        """How many tokens a full prompt, its question and the completion have at most."""
        return len(self._instruction) + (self.shots + 1) * self._longest_shot

    @property
    def room(self) -> int:
        """How many demonstrations fit into the window with a question, however long they are."""
        return (self.window - len(self._instruction)) // self._longest_shot - 1

    @property
    def _longest_shot(self) -> int:
        written = len(self._before) + len(self._between) + len(self._after)
        return written + self.text_tokens + self.label_tokens

    # ------------------------------------------------------------------ tokens

    def _plain(self, text: str, most: int | None = None) -> list[int]:
        """The tokens of a text, the first ``most`` of a private one: of more, a tokenizer logs how many."""
        cut: dict[str, Any] = {} if most is None else {"truncation": True, "max_length": most}
        return [int(each) for each in self.tokenizer(text, add_special_tokens=False, **cut)["input_ids"]]

    def _cut(self, blank: str, text: Any, most: int) -> list[int]:
        cleaned = clean_text(text)
        if not cleaned:
            return []
        nothing: list[int] = []
        return attempted(lambda: self._plain(f"{blank}{cleaned[: CHARACTERS * most]}", most), nothing)[:most]

    def text(self, text: Any) -> list[int]:
        """The first tokens of one text; none for what is no text or what the tokenizer fails on."""
        return self._cut(self._blank, text, self.text_tokens)

    def label(self, label: Any) -> list[int]:
        """The first tokens of one label."""
        return self._cut(self._gap, label, self.label_tokens)

    def prompt(self, demonstrations: Sequence[tuple[Any, Any]]) -> list[int]:
        """The tokens of a prompt; demonstrations beyond ``shots`` are left out."""
        tokens = list(self._instruction)
        for text, label in demonstrations[: self.shots]:
            tokens += [*self._before, *self.text(text), *self._between, *self.label(label), *self._after]
        return tokens

    def question(self, text: Any) -> list[int]:
        """The tokens of a question, which begins where the prompt ends."""
        return [*self._before, *self.text(text), *self._between]

    # ------------------------------------------------------------------ one sequence at a time

    @torch.inference_mode()
    def next_token(self, tokens: Sequence[int], among: Sequence[int] | None = None) -> Float64:
        """Probabilities of the next token, of all or renormalised among some; one sequence at a time."""
        hidden = self.network.base_model(input_ids=torch.tensor([list(tokens)])).last_hidden_state[0, -1]
        weights = self.head.weight if among is None else self.head.weight[list(among)]
        scores = weights @ hidden
        bias = getattr(self.head, "bias", None)
        if bias is not None:
            scores = scores + (bias if among is None else bias[list(among)])
        return softmax(scores.double().numpy())

    @torch.inference_mode()
    def likelihood(self, tokens: Sequence[int], continuation: Sequence[int]) -> float:
        """ln of the probability that a sequence goes on with these tokens."""
        whole = torch.tensor([[*tokens, *continuation]])
        hidden = self.network.base_model(input_ids=whole).last_hidden_state[0, len(tokens) - 1 : -1]
        logs = torch.log_softmax(self.head(hidden).double(), dim=-1)
        return float(logs[torch.arange(len(continuation)), list(continuation)].sum())

    @torch.inference_mode()
    def complete(self, tokens: Sequence[int], stop: str = "\n") -> str:
        """Go on greedily for at most ``label_tokens`` tokens, up to the first ``stop`` after some text."""
        cache, given, made = DynamicCache(), torch.tensor([list(tokens)]), []
        end = getattr(self.tokenizer, "eos_token_id", None)
        for _ in range(self.label_tokens):
            hidden = self.network.base_model(input_ids=given, past_key_values=cache, use_cache=True)
            scores = self.head(hidden.last_hidden_state[0, -1])
            if not bool(torch.isfinite(scores).all()):
                break
            token = int(scores.argmax())
            if token == end:
                break
            made.append(token)
            if stop in self.decode(made).lstrip():
                break
            given = torch.tensor([[token]])
        return self.decode(made).strip().partition(stop)[0].strip()

    def decode(self, tokens: Sequence[int]) -> str:
        """Tokens as text."""
        plain = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        return str(self.tokenizer.decode(list(tokens), **plain))


@dataclass(eq=False)
class Shown:
    """What a decoder makes of a prompt: keys and values, and the prompt's leaning where it is known."""

    cache: Any
    leaning: Float64 | None = None


class Decoder(Prompter):
    """A decoder, a template and a verbalizer: class probabilities given some demonstrations.

    The probability of a class is that of the first token of its word after the question, among the words of
    all classes. A demonstration is a text and the place of its class.

    ``calibrate`` takes away the leaning of a prompt towards one of the words, which is larger in a small
    decoder than what the text says. The leaning is the mean logarithm of the probabilities over some texts,
    and is subtracted. With True it is that of one text that says nothing (Zhao, Wallace, Feng, Klein and
    Singh 2021, "Calibrate before use"). With a list of public texts it is that of these texts (Zhou, Wan,
    Proleev, Mincu, Chen, Heller and Roy 2024, "Batch calibration"), whose classes should be about as
    frequent as those of the questions. With False nothing is subtracted. Either way the probabilities depend
    on the prompt's own demonstrations and on public texts.
    """

    def __init__(
        self,
        model: Any,
        template: Template | str,
        verbalizer: Any,
        *,
        shots: int = 1,
        text_tokens: int = 64,
        calibrate: bool | Sequence[str] = True,
    ) -> None:
        self.words = declared_words(verbalizer)
        super().__init__(model, template, shots=shots, text_tokens=text_tokens, label_tokens=8)
        self._labels = [self._cut(self._gap, word, self.label_tokens) for word in self.words.values()]
        self._first = [each[0] if each else -1 for each in self._labels]
        if len(set(self._first)) < len(self._first) or -1 in self._first:
            advice = "Choose words that begin with different tokens."
            raise InvalidValue(
                "verbalizer", list(self.words.values()), "told apart by their first token", advice
            )
        given = [CONTENT_FREE] if calibrate is True else several("calibrate", calibrate or ())
        self.reference = self.prepare(given)

    @property
    def classes(self) -> list[Any]:
        """The declared classes."""
        return list(self.words)

    def label(self, label: Any) -> list[int]:
        """The tokens of the word of a class, by its place."""
        return self._labels[label]

    def prepare(self, texts: Sequence[Any]) -> Any:
        """Public texts as questions."""
        return Questions(tuple(tuple(self.question(text)) for text in several("texts", texts)))

    @torch.inference_mode()
    def shown(self, demonstrations: Sequence[Demonstration], *, public: bool = False) -> Any:
        """What the decoder makes of a prompt, which ``answers`` reads and leaves as it is.

        The leaning of a ``public`` prompt, which will be asked again and again, is measured at once.
        """
        made = DynamicCache()
        prompt = torch.tensor([self.prompt(demonstrations)])
        self.network.base_model(input_ids=prompt, past_key_values=made, use_cache=True)
        shown = Shown(made)
        if public:
            shown.leaning = self._leaning(shown, self.reference, self._scores(shown, self.reference))
        return shown

    def answers(self, shown: Any, questions: Any) -> Float64:
        """Class probabilities by what the decoder made of a prompt, one row for each question."""
        scores = self._scores(shown, questions)
        leaning = self._leaning(shown, questions, scores) if shown.leaning is None else shown.leaning
        return softmax(scores - leaning)

    def _leaning(self, shown: Shown, questions: Questions, scores: Float64) -> Float64:
        """The mean score of each word over the texts of reference; those among the questions have theirs."""
        known = dict(zip(questions.tokens, scores, strict=True))
        others = Questions(tuple(each for each in self.reference.tokens if each not in known))
        known |= zip(others.tokens, self._scores(shown, others), strict=True)
        every = [known[each] for each in self.reference.tokens]
        return np.mean(every, axis=0) if every else np.zeros(len(self._first))

    def _scores(self, shown: Shown, questions: Questions) -> Float64:
        """Logarithms of the words' probabilities, one row for each question; NaN where one is not finite."""
        weights, bias = self.head.weight[self._first], getattr(self.head, "bias", None)
        scores = np.empty((len(questions), len(self._first)))
        for places, hidden in self._last(shown.cache, questions):
            found = hidden @ weights.T
            scores[places] = (found if bias is None else found + bias[self._first]).double().numpy()
        return np.log(np.maximum(softmax(scores), 1e-300))

    def probabilities(self, demonstrations: Sequence[Demonstration], questions: Any) -> Float64:
        """Class probabilities, one row for each question; NaN where the model's numbers are not finite."""
        return self.answers(self.shown(demonstrations), questions)

    @torch.inference_mode()
    def _last(self, kept: Any, questions: Questions) -> Iterator[tuple[list[int], torch.Tensor]]:
        """The hidden state after each question, on top of the prompt's keys and values.

        A question is padded on the right: attention is causal, so its last token sees no padding.
        """
        base = self.network.base_model
        for places, tokens in questions.batches():
            cache = _copies(kept, len(places))
            hidden = base(input_ids=tokens, past_key_values=cache, use_cache=True).last_hidden_state
            ends = [len(questions.tokens[place]) - 1 for place in places]
            yield places, hidden[torch.arange(len(places)), ends]


def softmax(scores: Float64) -> Float64:
    """Probabilities along the last axis; NaN where a score is not finite."""
    with np.errstate(all="ignore"):
        raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def _copies(cache: Any, times: int) -> Any:
    """A cache of the same keys and values for a batch; the original stays as it is."""
    made = DynamicCache()
    for layer, each in enumerate(cache.layers):
        made.update(each.keys.expand(times, -1, -1, -1), each.values.expand(times, -1, -1, -1), layer)
    return made
