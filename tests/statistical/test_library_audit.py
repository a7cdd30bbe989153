"""The whole library, audited: every case of the registry beside its broken twin, as one table.

Each case is run on worst-case neighbours, with the numbers of runs of the battery, and so is its twin,
which claims the same and adds less noise or spends more. A sound case must stay below its claim, and the
twin must be refuted, each with confidence 1 − 10⁻⁶. The seeds are those of the battery, but for linear
models, whose claims, runs and attack were chosen by looking at runs with those seeds. With
``WRITE_AUDITS=1`` in the environment, the test that finishes last writes the table to docs/audits.md.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

from contract.estimator_cases import CLAIMING
from contract.registry import Case, audited, registered
from statistical import cluster_audits

pytestmark = pytest.mark.audit

PAGE = Path(__file__).resolve().parents[2] / "docs" / "audits.md"
WRITES = os.environ.get("WRITE_AUDITS", "") not in ("", "0")

SECTIONS = {
    "contract.cases": "Mechanisms",
    "contract.table_questions": "Questions about tables",
    "contract.table_cases": "Questions about tables",
    "contract.estimator_cases": "Linear models, by place of noise, and what they buy",
    "contract.weight_cases": "Linear models with class weights",
    "contract.split_cases": "Splits of a data set",
    "contract.boosting_cases": "Boosting",
    "contract.classical_cases": "Naive Bayes and trees",
    "statistical.cluster_audits": "k-means and principal components",
    "contract.synthesis_cases": "Synthetic tables",
    "contract.search_cases": "Search for parameters",
    "contract.label_cases": "Labels",
    "contract.pate_cases": "Aggregators of PATE",
    "contract.pate_road_cases": "PATE from rows: teachers, and neighbours",
    "contract.local_cases": "Local mechanisms: reports of single people",
    "contract.record_cases": "Local mechanisms: reports of single people",
    "contract.shuffled_cases": "Shuffled reports",
    "contract.local_number_cases": "Local mechanisms: means, vectors and models",
    "contract.federated_cases": "Federations, by who is trusted",
    "contract.silo_cases": "Federations, by who is trusted",
    "contract.secure_cases": "Sums with noise in shares, through secure aggregation",
    "statistical.test_evaluation": "Evaluations",
    "contract.training_cases": "Training, by clipping rule",
    "contract.tuning_cases": "Tuned transformers: one step",
    "contract.prompt_cases": "Prompts: votes, answers in context, generated tokens",
}
"""Titles of the parts of the table, by the module in which mechanisms are made."""
CLAIMED, FITS = 2.5, 700
"""The ε that linear models claim here, and how often each neighbour is fitted. The battery audits each place
of noise once, at ε = 1, of which so few runs prove little. Here a twin without noise shows an ε of 2.9."""
OFTEN = {
    "CountPurchase_pure": 4000, "BoundsPurchase_pure": 3000, "BoundsPurchase_approximate": 1500,
    "CurvaturePurchase_pure": 1500, "ClassPurchase": 3000, "labels_bins_bought": 1200,
    "boosting_classification_pure": 1000, "components_wishart_pure": 1000, "components_sulq_pure": 1000,
}  # fmt: skip
"""More runs than those of the battery, where they take little time."""


def remade(case: Case) -> Case:
    """The case as it is audited here: with a larger claim, or with more runs."""
    if case.name in CLAIMING:
        case = CLAIMING[case.name](CLAIMED)
    runs = FITS if case.name in CLAIMING else OFTEN.get(case.name)
    if runs is None or case.pair is None:
        return case
    return replace(case, pair=replace(case.pair, runs=(runs, runs)))


MADE = {name: case for name, case in registered().items() if case.make is not None}
MADE |= {case.name: case for case in cluster_audits.CASES}
MADE = {name: remade(case) for name, case in MADE.items()}
AUDITED = [name for name, case in MADE.items() if case.pair is not None]

HEADER = "| release | ε claimed | δ | runs | ε ≥ | ε ≥ of the broken twin |"
ABOUT = """# Audits of the whole library

`WRITE_AUDITS=1 make audit` made this page. Every mechanism, question, estimator with each place of noise,
evaluation, aggregator and training run of the library is run many times on two worst-case neighbours, and an
attack guesses which of the two it was. Its guesses prove a lower bound on ε, with confidence 1 − 10⁻⁶ in each
row. Beside it is the same attack on a *broken twin*, which claims the same ε and has less noise or spends
more: mostly two thirds of the noise, and up to 100 times the ε for fits of models, which take long and are
run less often. Every bound in the column “ε ≥” is at most the claim, and every twin is refuted.

A bound below the claim is no proof of it: with few runs even a perfect attack shows little, and a bound of 0
says only that nothing was refuted. What the audit is able to find is shown by the twin. Bounds of 0 remain
where a fit spends its ε on many passes or parts of which the last one alone is attacked (descents for δ > 0,
adaptive least squares, k-means, principal components), and where a run takes so long that there are few.
“Runs” are those on both neighbours together; where the threshold is chosen on runs, half of them choose it,
and the other half is counted. The neighbours differ by one row more or less; by a row that is replaced, where
the name says so and for labels, of which one differs; or by all rows of a person. Some names also say what is
wrong with the twin (“overspending”, “unpaid”, “less noise”).
"""


@dataclass(frozen=True)
class Row:
    """One line of the table: the claim, and the lower bounds on ε of the case and of its twin."""

    name: str
    section: str
    delta: float
    claimed: float
    runs: int
    sound: float
    twin: float

    def __str__(self) -> str:
        facts = (self.name.replace("_", " "), f"{self.claimed:.3g}", f"{self.delta:g}", f"{self.runs:,}")
        return f"| {' | '.join(facts)} | {self.sound:.3g} | {self.twin:.3g} |"


def section_of(case: Case) -> str:
    """The part of the table, from where the function is written that makes the mechanism."""
    return SECTIONS[getattr(case.make, "func", case.make).__module__]


def measured(name: str) -> Row:
    """The case and its twin, each on its neighbours."""
    case = MADE[name]
    assert case.pair is not None
    first = 5 if name in CLAIMING else 1
    sound, twin = audited(case, seed=first), audited(case, case.broken, seed=first + 1)
    runs = sum(case.pair.runs)
    return Row(name, section_of(case), case.delta, case.epsilon, runs, sound.epsilon, twin.epsilon)


def page(rows: list[Row]) -> str:
    """The table, one part for each title that has rows."""
    text = [ABOUT]
    for title in dict.fromkeys(SECTIONS.values()):
        own = [str(row) for row in rows if row.section == title]
        if own:
            text += [f"## {title}", "", HEADER, "|---|---|---|---|---|---|", *own, ""]
    left_out = {name: case.left_out["pair"] for name, case in MADE.items() if name not in AUDITED}
    if left_out:
        text += ["## Without an audit of its own", ""]
        text += [f"- {name.replace('_', ' ')}: {why}." for name, why in left_out.items()]
    return "\n".join(text).rstrip() + "\n"


def keep(row: Row, run: str) -> None:
    """Store a row for the others of the same test run; whoever completes the table writes the page."""
    folder = Path(tempfile.gettempdir()) / f"tacit-audits-{run}"
    folder.mkdir(exist_ok=True)
    part = folder / f"{AUDITED.index(row.name)}.part"
    part.write_text(json.dumps(asdict(row)), encoding="utf-8")
    part.rename(part.with_suffix(".json"))
    stored = [folder / f"{place}.json" for place in range(len(AUDITED))]
    if all(path.exists() for path in stored):
        rows = [Row(**json.loads(path.read_text(encoding="utf-8"))) for path in stored]
        PAGE.write_text(page(rows), encoding="utf-8")


@pytest.mark.parametrize("name", AUDITED)
def test_sound_below_its_claim_and_twin_above_it(name: str, testrun_uid: str) -> None:
    row = measured(name)
    if WRITES:
        keep(row, testrun_uid)
    assert row.sound <= row.claimed, row
    assert row.twin > row.claimed, row


def test_every_part_has_a_title() -> None:
    assert {section_of(case) for case in MADE.values()} <= set(SECTIONS.values())


@pytest.mark.skipif(WRITES, reason="the page is being written")
def test_the_page_is_about_what_there_is_now() -> None:
    """A case that was added or removed since the page was written is noticed."""
    shown = PAGE.read_text(encoding="utf-8")
    for name in AUDITED:
        assert f"| {name.replace('_', ' ')} |" in shown, f"{name} is missing: run WRITE_AUDITS=1 make audit"
