"""The page about a ledger: what it says is what the ledger says, and it says if the record does not hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tacit import events, jobs
from tacit.errors import TacitError
from tacit.ledger import Budget, Ledger
from tacit.relations import Unit
from tampering import tamper


@pytest.fixture(params=["basic", "renyi", "gaussian"])
def study(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "study.db"
    with Ledger.open(path, Budget(3.0, 1e-6), unit=Unit("patient_id", 3), filter=request.param) as ledger:
        ledger.charge(events.Gaussian(20.0), label="mean <age>", delta=2e-7)
        scope = ledger.parallel("region", partitions=["north", "south"])
        scope.charge("north", events.Laplace(8.0), label="count", noise="exact")
    return path


def text_of(page: str) -> str:
    words = re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    return " ".join(words.replace("\N{NO-BREAK SPACE}", " ").replace("\N{NON-BREAKING HYPHEN}", "-").split())


def test_the_page_says_what_the_ledger_says(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    page = jobs.report(study, out=out, unit_name="patient", responsible="Dr. Who").read_text()
    told = text_of(page)
    with Ledger.open(study) as ledger:
        rule, spent, entries, head = ledger.filter, ledger.spent(), ledger.entries(), ledger.head()
    for words in (
        "one patient (known by patient_id), with all of its rows, of which at most 3 count",
        "with and without the data of any one patient",
        "budget is ε = 3, δ = 10⁻⁶",
        f"2 charges spent ε = {spent.epsilon:.3g}"[:-1],
        "mean &lt;age&gt;",
        "region north: count",
        entries[0].time[:10],
        f"{rule}: the",
        "verified on 20",
        head,
        f"by tacit {entries[0].version}",
        "Dr. Who",
    ):
        assert words in told
    assert "<script" not in page
    assert "src=" not in page
    assert "NOT VERIFIED" not in told


def test_a_record_that_does_not_hold_is_told_at_the_top(study: Path, tmp_path: Path) -> None:
    tamper(study, "UPDATE tacit_entries SET label = 'innocent' WHERE number = 2")
    with pytest.warns(UserWarning, match="Entry 2 has been edited"):
        jobs.report(study, out=tmp_path / "page.html")
    told = text_of((tmp_path / "page.html").read_text())
    assert "This ledger does not verify" in told
    assert "NOT VERIFIED" in told
    assert "Entry 2 has been edited" in told


def test_every_dataset_is_on_the_page_and_an_empty_one_too(study: Path, tmp_path: Path) -> None:
    Ledger.open(study, Budget(1.0), dataset="hospital", relation="replace_one").close()
    told = text_of(jobs.report(study, out=tmp_path / "all.html").read_text())
    assert "Who is protected: default" in told
    assert "Nothing about “hospital” has been charged: the whole budget of ε = 1, δ = 0 remains" in told
    assert "how many there are is public" in told
    one = text_of(jobs.report(study, out=tmp_path / "one.html", dataset="hospital").read_text())
    assert "mean" not in one


def test_a_page_replaces_no_ledger_and_takes_no_model_options(study: Path, tmp_path: Path) -> None:
    with pytest.raises(TacitError, match="used by the job itself"):
        jobs.report(study, out=study, overwrite=True)
    with pytest.raises(TacitError, match="is a ledger"):
        jobs.report(study, out=tmp_path / "page.html", ledger=study)
