"""A page about a ledger, for whoever is responsible for the data.

Who is protected, what was released when, what it cost, what remains, and whether the record holds. Everything
comes from the ledger, and from no data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tacit.errors import LedgerCorrupted
from tacit.events import Event
from tacit.guarantee import ceiling, floor
from tacit.ledger import Ledger, Line
from tacit.ledger.budget import RULES
from tacit.relations import Relation, Unit
from tacit.report.membership import odds, percent_up
from tacit.report.numbers import counted, small, up
from tacit.report.page import Fact, Fold, Section, Summary, render
from tacit.report.summary import written
from tacit.report.wording import called, protected, suspicion, tree_of

__all__ = ["Verification", "ledger_page"]

EXPLAINED = {
    "basic": "Every release has an ε and a δ. The rule is to add them up: the total is the sum, which "
    "anybody can "
    "check by hand in the list below. A release is refused when either sum would exceed the budget.",
    "renyi": "Releases are added up by their Rényi divergence, a finer measure than ε, and the sum is "
    "translated into one ε at the budget's δ. So the total is less than the sum of the single ε's. A "
    "release is "
    "refused when the total would exceed the budget.",
    "gaussian": "Every release is as private as Gaussian noise of a certain size, measured by μ². The μ² "
    "add up, "
    "and the sum is translated into one ε at the budget's δ. A release is refused when the total would "
    "exceed "
    "the budget.",
}


@dataclass(frozen=True)
class Verification:
    """Whether the chain of entries held, when it was recomputed."""

    when: datetime
    head: str | None
    problem: str | None = None

    @classmethod
    def of(cls, ledger: Ledger) -> Verification:
        """Recompute the whole ledger now."""
        now = datetime.now(UTC)
        try:
            return cls(now, ledger.verify())
        except LedgerCorrupted as error:
            return cls(now, None, error.problem)

    @property
    def words(self) -> str:
        """The result in a sentence."""
        when = f"{_time(self.when)} UTC"
        if self.problem is not None:
            return f"NOT VERIFIED on {when}: {self.problem} The numbers on this page cannot be relied on."
        return (
            f"verified on {when}: every entry follows the one before it, and every total is that of "
            "the entries"
        )


def ledger_page(
    ledgers: Sequence[Ledger],
    verification: Verification,
    *,
    responsible: str | None = None,
    unit_name: str | None = None,
    place: str | None = None,
) -> str:
    """The page about these datasets of one ledger, as text: self-contained, no scripts.

    ``unit_name`` is what people call one of those who are protected, where the ledger does not say. ``place``
    is what the ledger is called, if not by its location.
    """
    first = ledgers[0]
    sections = [
        section
        for ledger in ledgers
        for section in _dataset(ledger, _unit(ledger, unit_name), len(ledgers) > 1)
    ]
    facts: list[Fact] = []
    for ledger in ledgers:
        facts += _box(ledger, _unit(ledger, unit_name), f" of “{ledger.dataset}”" if len(ledgers) > 1 else "")
    facts += [
        ("Record", verification.words),
        ("This page", written()),
        ("Responsible", responsible or "not named; --responsible names somebody"),
    ]
    lead = f"The privacy ledger {place or first.location}: what was released, at what cost, and what remains."
    sentence = " ".join(_sentence(ledger, _unit(ledger, unit_name)) for ledger in ledgers)
    if verification.problem is not None:
        sentence = f"This ledger does not verify: it was altered or damaged. {sentence}"
    return render("Privacy ledger", lead, [*sections, _record(verification)], Summary(sentence, facts))


def _unit(ledger: Ledger, name: str | None) -> Unit:
    return replace(ledger.unit, name=ledger.unit.name or name)


def _sentence(ledger: Ledger, unit: Unit) -> str:
    charges = len(ledger.entries())
    if not charges:
        whole = _pair(ledger.budget.epsilon, ledger.budget.delta)
        return f"Nothing about “{ledger.dataset}” has been charged: the whole budget of {whole} remains."
    spent = ledger.spent()
    if spent.noise == "seeded":
        return f"Noise of releases about “{ledger.dataset}” was seeded, for a test: they promise nothing."
    share = spent.epsilon / ledger.budget.epsilon
    known = suspicion(unit, f"one given {called(unit)} was in the data")
    return (
        f"{counted(charges, 'charge')} spent ε = {up(spent.epsilon)} of the {ledger.budget.epsilon:g} that "
        "may be "
        f"spent on “{ledger.dataset}”, {percent_up(share)} of the budget: whoever knows all of these "
        "releases can "
        f"become at most {percent_up(odds(spent))} sure that {known}, if 50% sure before."
    )


def _box(ledger: Ledger, unit: Unit, of: str) -> list[Fact]:
    spent = ledger.spent()
    rule = ledger.filter
    return [
        (f"Protects{of}", protected(unit)),
        (f"Budget{of}", _pair(ledger.budget.epsilon, ledger.budget.delta)),
        (f"Spent{of}", _pair(spent.epsilon, spent.delta)),
        (f"Remains{of}", _remains(ledger)),
        (f"Rule{of}", "fixed by the first charge" if rule is None else f"{rule}: {RULES[rule]}"),
    ]


def _remains(ledger: Ledger) -> str:
    left = f"ε = {float(floor(ledger.remaining(), 4)):g}"
    if ledger.filter in ("renyi", "gaussian"):
        return f"{left}, at the δ of the budget"
    return f"{left}, δ = {small(float(floor(ledger.remaining_delta(), 4)))}"


def _dataset(ledger: Ledger, unit: Unit, several: bool) -> list[Section]:
    about = f": {ledger.dataset}" if several else ""
    lines = ledger.history()
    sections = [Section(f"Who is protected{about}", _people(ledger, unit))]
    if not lines:
        return [*sections, Section(f"What was released{about}", ["Nothing was charged so far."])]
    rule = ledger.filter or "basic"
    shares = [[part.label, str(part.charges), f"{part.share:.1%}"] for part in ledger.by_label()]
    sections += [
        Section(
            f"What was released, and what it cost{about}",
            [EXPLAINED[rule], *_reading(ledger)],
            table=_list(lines, rule),
            fold=_noise(lines, ledger.spent().event, unit),
        ),
        Section(f"What it was spent on{about}", table=(("what", "charges", "share of the cost"), shares)),
        Section(f"What remains{about}", [_left(ledger)]),
    ]
    return sections


def _people(ledger: Ledger, unit: Unit) -> list[str]:
    whom = called(unit)
    if ledger.relation is Relation.ADD_REMOVE:
        change = f"with and without the data of any one {whom}; that includes whether one took part at all"
    elif unit.part is not None:
        change = f"with any one {whom}, and with any other {unit.part} in its place"
    else:
        change = (
            f"with the data of any one {whom}, and with other data in their place; how many there are is "
            "public"
        )
    words = [
        f"Protected is {protected(unit)}. All releases together look nearly the same {change}. How nearly, "
        "ε and δ "
        "say: the probability of every outcome changes by a factor of at most e^ε, apart from a "
        "probability of δ.",
        f"The budget is {_pair(ledger.budget.epsilon, ledger.budget.delta)}. The ledger refuses whatever "
        "would exceed it, before any data are read.",
    ]
    assumed = ledger.spent().assumptions
    if assumed:
        words.append("This assumes that " + ", and that ".join(assumed) + ".")
    return words


def _reading(ledger: Ledger) -> list[str]:
    """What the columns mean."""
    if ledger.filter in ("renyi", "gaussian"):
        return [f"“In all” is what had been spent after the release, at δ = {small(ledger.budget.delta)}."]
    if any(line.entry.scope for line in ledger.history()):
        return [
            "“In all” is the sum up to then. Releases about parts that share nobody do not add up: of each "
            "such "
            "group, written before the colon, only the costliest part counts"
            + (", or the two costliest." if ledger.relation is Relation.REPLACE_ONE else ".")
        ]
    return ["“In all” is the sum up to then."]


def _list(lines: Sequence[Line], rule: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    rows = []
    for line in lines:
        entry = line.entry
        where = "" if entry.scope is None else f"{entry.scope} {entry.partition}: "
        own = [entry.cost.epsilon, entry.cost.delta]
        if rule == "gaussian":
            own = [entry.cost.renyi, entry.cost.epsilon]
        in_all = [line.epsilon] if rule in ("renyi", "gaussian") else [line.epsilon, line.delta]
        day = _time(datetime.fromisoformat(entry.time))[:10]
        rows.append([where + entry.label, day, *map(_cell, (*own, *in_all))])
    columns = {
        "basic": ("ε", "δ", "ε in all", "δ in all"),
        "renyi": ("ε alone", "δ alone", "ε in all"),
        "gaussian": ("μ²", "ε alone", "ε in all"),
    }[rule]
    return ("what", "when", *columns), rows


def _noise(lines: Sequence[Line], whole: Event, unit: Unit) -> Fold:
    rows = [
        [entry.label, str(entry.number), _time(datetime.fromisoformat(entry.time)), entry.noise,
         entry.version, entry.hash[:16]]
        for entry in (line.entry for line in lines)
    ]  # fmt: skip
    return Fold(
        "What was done to the data, and the entries",
        ["The facts from which every ε can be computed anew:"],
        tree=tree_of(whole, unit),
        table=(("what", "entry", "when (UTC)", "noise", "tacit", "hash begins"), rows),
    )


def _left(ledger: Ledger) -> str:
    fixed = ledger.fixed_in_advance().epsilon
    text = f"{_remains(ledger)} may still be spent; what would exceed it is refused."
    if fixed < ledger.spent().epsilon:
        text += (
            " Had all releases been fixed before the first one was made, they would have cost ε = "
            f"{up(fixed)} at "
            f"δ = {small(ledger.budget.delta)}; the higher figure also holds if results decided what was "
            "asked next."
        )
    return text


def _record(verification: Verification) -> Section:
    words = (
        "Every entry contains a fingerprint (a hash) of the entry before it, so that no entry can be "
        "changed or "
        "removed without notice. Somebody who can write the file could compute all fingerprints anew; to "
        "rule that "
        "out, the head, which is the number of entries and the last fingerprint, is kept elsewhere and "
        "compared: "
        "tacit ledger verify --head."
    )
    stated = f"The record was {verification.words}." if verification.problem is None else verification.words
    head = [] if verification.head is None else [("Head", verification.head)]
    return Section("Whether the record holds", [stated, words], facts=head)


def _time(when: datetime) -> str:
    """Day and time, which no line breaks apart."""
    return f"{when:%Y-%m-%d %H:%M}".replace("-", "\N{NON-BREAKING HYPHEN}").replace(" ", "\N{NO-BREAK SPACE}")


def _pair(epsilon: float, delta: float) -> str:
    return f"ε = {up(epsilon)}, δ = {small(float(ceiling(delta, 4)))}"


def _cell(value: float) -> str:
    return small(float(ceiling(value, 4))) if math.isfinite(value) else "∞"
