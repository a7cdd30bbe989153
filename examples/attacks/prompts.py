"""Prompts: what the demonstrations of a prompt give away, and what a published prompt does.

A hospital puts notes of patients into the prompt of a language model. Two attacks look at answers alone:

* membership: texts are asked about, and those that are in the prompt get surer answers, compared with
  the model without a prompt;
* extraction: the model is asked to go on with the beginning of the note, and the secret in it is ranked among
  49 others by its likelihood.

The same attacks are tried on a prompt of PromptPATE, which consists of public texts with noisy labels, and
against a text of the private generator. Membership is attacked on MiniLM with prototypes, extraction on
SmolLM2; with --quick the decoder is tiny and random, to see that it runs.

Prints two tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from showing import arguments, printed

from tacit import attacks
from tacit.language import Decoder, ExposedPrompt, PrivateGenerator, PromptPATE, Prototypes, pretrained

TEMPLATE, WORDS = "Note: {text}\nWard: {label}\n\n", {0: "heart", 1: "lungs"}
SIGNS = (("chest pain", "murmur", "palpitations", "swollen legs"), ("cough", "wheezing", "asthma", "fever"))
GIVEN = ("Ana", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gil", "Hana", "Ivo", "Jane")
SECRETS = 49


def notes(count: int, seed: int) -> tuple[list[str], list[int]]:
    """Made-up notes with the ward that they belong to."""
    generator = np.random.default_rng(seed)
    wards = generator.integers(0, 2, count).tolist()
    rows = [
        f"{GIVEN[generator.integers(10)]}, {generator.integers(20, 90)}, has "
        f"{SIGNS[ward][generator.integers(4)]} since {generator.integers(2, 30)} days"
        for ward in wards
    ]
    return rows, wards


def membership(quick: bool) -> None:
    """Each of many prompts of four notes, asked about its own notes and about others."""
    encoder = pretrained("minilm")
    prompted = Prototypes(encoder, TEMPLATE, WORDS, shots=4)
    prompts = 5 if quick else 40
    rows, wards = notes(8 * prompts, 1)
    public, _ = notes(40 if quick else 80, 2)
    plain = ExposedPrompt(prompted)
    scores: dict[str, list[float]] = {"in": [], "out": [], "kept": [], "not kept": []}
    for start in range(0, len(rows), 8):
        texts, places = rows[start : start + 8], wards[start : start + 8]
        secret = ExposedPrompt(prompted, list(zip(texts[:4], places[:4], strict=True)))
        found = attacks.calibrated(secret.signal(texts, places), plain.signal(texts, places))
        scores["in"] += found[:4].tolist()
        scores["out"] += found[4:].tolist()
    half = len(rows) // 2
    private = PromptPATE(
        encoder, TEMPLATE, WORDS, n_teachers=half // 4, shots=4, prompt_shots=4, epsilon=2.0, delta=1e-5,
        n_queries=8, n_answers=6,
    ).fit(rows[:half], wards[:half], public)  # fmt: skip
    shown = ExposedPrompt(prompted, list(private.prompt_.demonstrations))
    found = attacks.calibrated(shown.signal(rows, wards), plain.signal(rows, wards))
    scores["kept"], scores["not kept"] = found[:half].tolist(), found[half:].tolist()
    table = []
    for name, ins, outs in (("secret prompt", "in", "out"), ("PromptPATE, ε = 2", "kept", "not kept")):
        result = attacks.MembershipScores.of(scores[ins], scores[outs])
        low, high = result.auroc_interval()
        table.append((name, f"{result.auroc:.2f} ({low:.2f} to {high:.2f})", str(result.found(0.1))))
    printed("Was this note in the prompt?", ("prompt", "AUROC", "found at 10% of false alarms"), table)


def extraction(quick: bool) -> None:
    """The code word of a planted note, ranked among others, and asked for."""
    model: Any = pretrained("smollm2") if not quick else _tiny()
    decoder = Decoder(model, TEMPLATE, WORDS, shots=2, text_tokens=24)
    generator = np.random.default_rng(3)
    drawn = generator.choice(10_000, 5 if quick else SECRETS + 1, replace=False)
    codes = [f"{number:04d}" for number in drawn]
    planted, said = f"Ana, the safe opens with {codes[0]}", "Ana, the safe opens with"
    rows, wards = notes(60, 4)
    maker = PrivateGenerator(
        model, "Ward: {label}\nNote: {text}\n\n", WORDS, sampling_rate=0.1, tokens=8, epsilon=2.0, delta=1e-5,
        text_tokens=24,
    )  # fmt: skip
    made = maker.generate([planted, *rows], [0, *wards])
    table = []
    for name, shown in (
        ("no prompt", []),
        ("secret prompt", [(planted, 0)]),
        ("generated, ε = 2", made.demonstrations([0, 1])),
    ):
        prompt = ExposedPrompt(decoder, shown)
        chances = [prompt.likelihood(code, after=said) for code in codes]
        asked = attacks.extract(prompt.complete, codes[0], [said, "Ana, the safe"])
        table.append((name, str(attacks.exposure(chances[0], chances[1:])), "yes" if asked.found else "no"))
    printed("The code in a planted note", ("prompt", "rank among codes", "said when asked"), table)


def _tiny() -> Any:
    """A tiny random decoder with the tokenizer of MiniLM."""
    from types import SimpleNamespace

    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = pretrained("minilm").tokenizer
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=512, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    kind: Any = LlamaForCausalLM
    return SimpleNamespace(model=kind(config).eval(), tokenizer=tokenizer, is_decoder=True)


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__, argv)
    membership(given.quick)
    extraction(given.quick)


if __name__ == "__main__":
    main()
