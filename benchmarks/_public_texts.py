"""Public texts to start from: phrases of film reviews and of news, put together from lists of words.

The lists (``_public_texts.toml``) were written from general knowledge of English, in the spelling that SST-2
is known for, without looking at a row of it or of AG News. They were not changed after a private run.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np

LISTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

Labelled = tuple[list[str], list[int]]


def reviews(count: int, seed: int = 0) -> Labelled:
    """So many phrases, each 0 for blame or 1 for praise, some of them with a negation or a concession."""
    lists, drawn, texts, labels = LISTS["reviews"], np.random.default_rng(seed), [], []
    good, bad, nouns = (lists[name].split() for name in ("good", "bad", "nouns"))
    praise, blame, frames, not_good, not_bad = (
        lists[name].splitlines() for name in ("praise", "blame", "frames", "not_good", "not_bad")
    )

    def one(among: list[str]) -> str:
        return among[drawn.integers(len(among))]

    for _ in range(count):
        label = int(drawn.integers(2))
        words, others, saying, no = (good, bad, praise, not_bad) if label else (bad, good, blame, not_good)
        parts = {"a": one(words), "b": one(words), "z": one(others), "n": one(nouns), "m": one(nouns)}
        parts |= {"p": one(saying), "no": one(no).format(**parts)}
        texts.append(one(frames).format(**parts))
        labels.append(label)
    return texts, labels


def news(count: int, seed: int = 0) -> Labelled:
    """So many phrases of news, by topic: World, Sports, Business, Sci/Tech."""
    lists, drawn = LISTS["news"], np.random.default_rng(seed)
    words, frames = [each.split() for each in lists["topics"].values()], lists["frames"].splitlines()
    labels = [int(each) for each in drawn.integers(len(words), size=count)]
    texts = [
        frames[drawn.integers(len(frames))].format(*drawn.choice(words[label], 4, replace=False))
        for label in labels
    ]
    return texts, labels


PUBLIC = {"sst2": reviews, "agnews": news}
