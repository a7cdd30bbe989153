"""Sources kept open between requests, seeds that outlive a process, and rows that keep their order."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from serve.conftest import Study
from tacit.data.reading import chosen_rows, prepare
from tacit.errors import EngineFailed, ServiceRefused, TacitError
from tacit.relations import Unit
from tacit.schema import Column, Schema
from tacit.serve import seeds
from tacit.serve.actions import asking

COUNT = {"questions": ["count()"], "epsilon": 0.1}


def test_a_source_that_has_failed_is_not_asked_again(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is that of one request; the next one has a source of its own."""
    study.grant()
    from tacit.data import source

    def broken(*given: Any) -> Any:
        raise RuntimeError("the engine is gone")

    asking.ask(study.service, study.ada, "people", COUNT)
    (kept,) = study.service.keeping._idle
    with monkeypatch.context() as patch:
        patch.setattr(source, "collected", broken)
        patch.setattr(source, "blocks_of", broken)
        with pytest.raises(ServiceRefused):
            asking.ask(study.service, study.ada, "people", COUNT)
    assert kept.failed
    assert not study.service.keeping._idle
    assert asking.ask(study.service, study.ada, "people", COUNT)["state"] == "done"


def test_a_source_remembers_that_a_query_failed() -> None:
    schema = Schema({"age": Column("integer", bounds=(0, 120))})
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "rows.csv"
        place.write_text("age\n1\n")
        opened = prepare(str(place), schema, ["age"])
        assert not opened.failed
        with pytest.raises(EngineFailed):
            opened._silently(lambda: 1 / 0)
        assert opened.failed
        opened.close()


def test_an_attempt_whose_seed_came_second_draws_nothing(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another attempt has kept its seed first: of two draws for one charge one would be shown."""
    study.grant()
    genuine = seeds.Seeds.keep

    def second(self: seeds.Seeds, request: str, seed: bytes) -> bytes:
        genuine(self, request, seeds.new())
        return genuine(self, request, seed)

    monkeypatch.setattr(seeds.Seeds, "keep", second)
    with pytest.raises(TacitError):
        asking.ask(study.service, study.ada, "people", COUNT)
    assert study.entries() == 0


def test_a_seed_that_is_not_whole_is_no_seed(study: Study) -> None:
    kept = study.service.seeds
    kept.place("cc").parent.mkdir(parents=True)
    kept.place("cc").write_bytes(b"torn")
    with pytest.raises(OSError, match="cannot be read"):
        kept.keep("cc", seeds.new())


def test_rows_of_units_come_in_one_order() -> None:
    """Under one key every pass gives the same rows in the same order, however many threads the engine has."""
    random = np.random.default_rng(0)
    size = 60_000
    frame = pd.DataFrame({"age": random.integers(0, 10**9, size), "who": random.integers(0, size // 3, size)})
    schema = Schema({"age": Column("integer", bounds=(0, 10**9))}, unit=Unit("who"))
    source = prepare(frame, schema, ["age"])
    passes = [
        source.run(chosen_rows(source, source.table, ["age"], 2, "secret"))["age"].to_numpy()
        for _ in range(4)
    ]
    other = source.run(chosen_rows(source, source.table, ["age"], 2, "another"))["age"].to_numpy()
    source.close()
    assert all(np.array_equal(passes[0], one) for one in passes[1:])
    assert not np.array_equal(passes[0], other)
