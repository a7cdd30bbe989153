"""No attempt draws noise anew: whoever is killed between charge and release leaves the same to the next.

The battery of the road that is taken exactly once: each kind of request is carried out, killed just before
its release is stored, and carried out again. The twin without a stored seed draws anew and is caught.
"""

from __future__ import annotations

import json
import math
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from serve.conftest import Study
from tacit import events, mechanisms
from tacit.randomness import Source, drawn_from
from tacit.serve import carrying, seeds, worker
from tacit.serve.actions import asking
from tacit.serve.store import requests


class Killed(BaseException):
    """Nothing in the service catches it, as nothing catches SIGKILL."""


QUESTIONS = {
    "questions": ["count() by sex", "mean(age) by income", "median(age)", "sum(age)", "variance(age)"],
    "epsilon": 0.5,
}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "questions": ("questions", QUESTIONS),
    "naive bayes": ("fit", {"model": "naive-bayes", "target": "income", "epsilon": 0.5}),
    "trees": ("fit", {"model": "random-trees", "target": "income", "epsilon": 0.5, "exclude": ["sex"]}),
    "clusters": ("fit", {"model": "kmeans", "n_clusters": 2, "epsilon": 0.5, "delta": 1e-8}),
    "a test on rows that are set aside": (
        "fit",
        {"model": "naive-bayes", "target": "income", "epsilon": 0.3, "test_share": 0.3, "test_epsilon": 0.2},
    ),
    "a synthetic table": ("synthesize", {"method": "marginals", "rows": 200, "bins": 4, "epsilon": 0.5}),
}
MODELS = ["naive-bayes", "random-trees", "kmeans", "marginals"]


def released(
    study: Study, kind: str, body: dict[str, Any], *, own_grant: bool = True
) -> Iterator[dict[str, Any]]:
    """The release that an attempt has computed when it is killed, and the one that the next stores."""
    if own_grant:
        study.grant(models=MODELS, delta=1e-7)
    genuine, kept = carrying._end, []

    def killed(service: Any, held: Any, state: str, result: Any, entry: Any) -> Any:
        assert state == "done", result
        kept.append(content(study, held, result))
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(carrying, "_end", killed)
        if kind != "questions":
            asking.start(study.service, study.ada, "people", kind, body, "key")
        with pytest.raises(Killed):
            asking.ask(study.service, study.ada, "people", body, "key") if kind == "questions" else (
                worker.once(study.service)
            )
    assert genuine is carrying._end
    yield kept[0]
    later = replace(study.service, clock=lambda: time.time() + 2 * requests.LEASE)
    assert worker.once(later)
    with study.service.database.read() as connection:
        (found,) = requests.listed(connection, "ada", 10)
    assert found.state == "done", found.result
    yield content(study, found, found.result)


def content(study: Study, held: Any, result: Any) -> dict[str, Any]:
    """What was released: numbers and files."""
    told = json.loads(json.dumps(result))
    for name in told.get("files", ()):
        place = study.service.folder(held.id, held.attempt) / name
        told[name] = repr(place.read_bytes())
        if name.endswith(".tacit"):
            told[name] = _model(place)
        elif name.endswith(".safetensors"):
            told[name] = _network(place)
    return dict(told)


def _network(place: Any) -> str:
    """Weights and metadata, which the format writes in any order."""
    whole = place.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    return repr((json.dumps(json.loads(whole[8 : 8 + size]), sort_keys=True), whole[8 + size :]))


def _model(place: Any) -> str:
    """All that a model file says of the model, but when it was written."""
    import zipfile

    with zipfile.ZipFile(place) as file:
        return repr({one: file.read(one) for one in sorted(file.namelist())})


@pytest.mark.parametrize("name", REQUESTS)
def test_the_same_release(study: Study, name: str) -> None:
    first, second = released(study, *REQUESTS[name])
    assert first == second
    charges = 2 if "test_share" in REQUESTS[name][1] else 1
    assert study.entries() == charges
    assert not study.service.seeds.kept()


@pytest.mark.parametrize("name", ["questions", "naive bayes"])
def test_a_twin_that_draws_anew_is_caught(study: Study, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps no seed. The same comparison as above fails."""
    monkeypatch.setattr(seeds.Seeds, "keep", lambda self, request, seed: seed)
    monkeypatch.setattr(seeds.Seeds, "find", lambda self, request: seeds.new())
    first, second = released(study, *REQUESTS[name])
    assert first != second


def test_a_request_that_has_lost_its_seed_fails(study: Study) -> None:
    """It was charged: it is not drawn again."""
    study.grant()
    drawn = released(study, "questions", {"questions": ["count()"], "epsilon": 0.5})
    next(drawn)
    (number,) = study.service.seeds.kept()
    study.service.seeds.forget(number)
    with pytest.raises(AssertionError, match="could not be computed"):
        next(drawn)
    assert study.entries() == 1


def test_a_seed_is_for_its_owner_and_the_first_one_counts(study: Study) -> None:
    kept = study.service.seeds
    first = kept.keep("aa", seeds.new())
    assert kept.keep("aa", seeds.new()) == first == kept.find("aa")
    assert stat.S_IMODE(os.stat(kept.place("aa")).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(kept.place("aa").parent).st_mode) == 0o700
    kept.place("bb").parent.mkdir()
    kept.place("bb").write_bytes(b"torn")
    assert kept.find("bb") is None
    assert kept.kept().count("aa") == 1
    carrying.forget_seeds(study.service)  # there are no such requests
    assert not kept.kept()
    assert list(kept.folder.iterdir()) == []


def test_a_seed_is_forgotten_when_its_process_was_killed_after_the_end(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.grant()

    def killed(*given: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(seeds.Seeds, "forget", killed)
        with pytest.raises(Killed):
            asking.ask(study.service, study.ada, "people", {"questions": ["count()"], "epsilon": 0.1}, "key")
    assert len(study.service.seeds.kept()) == 1
    carrying.forget_seeds(study.service)
    assert not study.service.seeds.kept()


def test_no_draft_of_a_seed_is_left(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is killed while the seed is written leaves a second name of it; it goes with the first."""
    study.grant()

    def killed(place: Any, *given: Any, **options: Any) -> None:
        raise Killed

    body = {"questions": ["count()"], "epsilon": 0.1}
    with monkeypatch.context() as patch:
        patch.setattr(seeds.Path, "unlink", killed)
        with pytest.raises(Killed):
            asking.ask(study.service, study.ada, "people", body, "key")
    (number,) = study.service.seeds.kept()
    later = replace(study.service, clock=lambda: time.time() + 2 * requests.LEASE)
    assert asking.ask(later, study.ada, "people", body, "key")["state"] == "done"
    folder = study.service.seeds.place(number).parent
    assert not study.service.seeds.kept()
    assert not folder.exists()
    folder.mkdir()
    (folder / ".seed-0123").write_bytes(seeds.new())  # of a process that was killed after the end
    carrying.forget_seeds(study.service)
    assert not folder.exists()


def test_the_seed_of_a_request_that_goes_on_is_kept(study: Study) -> None:
    drawn = released(study, "questions", {"questions": ["count()"], "epsilon": 0.5})
    next(drawn)
    carrying.forget_seeds(study.service)
    assert len(study.service.seeds.kept()) == 1


def test_streams_are_of_their_own(study: Study) -> None:
    """Copies share a stream, and other processes have none: the same bits are never used twice."""
    import copy
    import pickle

    def bits(source: Source) -> int:
        return source.bits(256)

    with drawn_from(seeds.streams(bytes(32))):
        one, other = Source(), Source()
        drawn = [bits(one), bits(other), bits(copy.deepcopy(one)), bits(copy.copy(one)), bits(one.apart())]
        far = pickle.loads(pickle.dumps(one))
        drawn += [bits(far), bits(one)]
        assert not one.seeded
        assert mechanisms.Laplace(sensitivity=1.0, epsilon=0.5).noise == "exact"
    assert len(set(drawn)) == len(drawn)
    with drawn_from(seeds.streams(bytes(32))):
        assert bits(Source()) == drawn[0]
    read, write = os.pipe()
    with drawn_from(seeds.streams(bytes(32))):
        source = Source()
        if os.fork() == 0:
            os.write(write, source.bits(256).to_bytes(32, "little"))
            os._exit(0)
        os.wait()
        assert int.from_bytes(os.read(read, 32), "little") != source.bits(256) == drawn[0]
    with drawn_from(seeds.streams(bytes(32))):
        if os.fork() == 0:
            os.write(write, Source().bits(256).to_bytes(32, "little"))
            os._exit(0)
        os.wait()
        assert int.from_bytes(os.read(read, 32), "little") != Source().bits(256) == drawn[0]
    for end in (read, write):
        os.close(end)


def test_noise_from_streams_has_its_distribution() -> None:
    """The exact samplers, driven by AES in counter mode: by mean, spread and tail, at 1e-6 each."""
    size = 200_000
    with drawn_from(seeds.streams(bytes(range(32)))):
        noise = mechanisms.Laplace(sensitivity=1.0, epsilon=0.5)(np.zeros(size))
    scale = 2.0
    assert abs(noise.mean()) < 5 * scale * math.sqrt(2 / size)
    assert abs(np.abs(noise).mean() - scale) < 5 * scale / math.sqrt(size)
    beyond = (np.abs(noise) > scale * math.log(100)).mean()
    assert abs(beyond - 0.01) < 5 * math.sqrt(0.01 * 0.99 / size)
    assert mechanisms.Laplace(sensitivity=1.0, epsilon=0.5).event == events.Laplace(2.0)
