"""A page about a fitted model: what it promises, what it cost, how good it is, what is in it.

Everything comes from the model file and the ledger, and so from what was released: the page reads no data
and needs no budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tacit.audit import AuditResult
from tacit.drawing import trees
from tacit.evaluation import Evaluation
from tacit.report import audits, coefficients, pairs, parts, shape
from tacit.report.facts import Facts, Spending
from tacit.report.membership import Tradeoff, percent_up
from tacit.report.numbers import capital, counted, ends, number, price, up
from tacit.report.page import Branch, Fold, Picture, Section, render
from tacit.report.summary import MAIN, model_summary
from tacit.report.wording import called, protected, tree_of

__all__ = ["model_page"]

FIGURES = {
    "accuracy": "share of rows whose class is predicted correctly",
    "auroc": "probability that a row of the second class gets a higher score than one of the first; 0.5 is "
    "guessing, 1 is best",
    "brier": "mean squared error of the predicted probabilities; 0 is best",
    "calibration error": "how far predicted probabilities are from observed shares; 0 is best",
    "mae": "mean absolute error, in units of the target",
    "rmse": "root of the mean squared error, in units of the target",
    "r2": "share of the target's variance that is explained; 1 is best",
}
"""What the figures of an evaluation mean."""
GROUP_FIGURES = ("accuracy", "positive rate", "true positive rate", "false positive rate")
MARKS = (0.01, 0.1)
MOST_LEAVES, WIDEST_TREE = 40, 920
"""A tree with more leaves is folded away; one that is drawn wider, in pixels, is listed in place of that."""


def model_page(
    facts: Facts,
    spending: Sequence[Spending] = (),
    others: Sequence[Facts] = (),
    closeness: pairs.Closeness | None = None,
    audited: Sequence[AuditResult] = (),
) -> str:
    """The page as text: self-contained, no scripts.

    ``spending`` is what ledgers say, ``others`` are models to draw beside this one, by ε, ``closeness`` is
    how far the rows of a synthesizer are from others, ``audited`` what attacks proved about ε.
    """
    sections = [
        *_promise(facts),
        *audits.audited(audited, facts.guarantee),
        *_charged(facts, spending),
        *_utility(facts),
        *_groups(facts),
        *pairs.closeness(closeness),
        *pairs.dependences(facts),
        *([] if facts.has_no_target else [_against_epsilon(facts, others)]),
        *parts.shown(facts),
        *shape.shown(facts),
        *_tree(facts),
        *([] if facts.description.shapes else coefficients.shown(facts)),
        *_origin(facts),
        *_network(facts),
        *coefficients.listed(facts),
    ]
    title = facts.description.title
    lead = f"A private {title}, {facts.name}: what it promises, what it cost, and how good it is."
    return render(capital(title), lead, sections, model_summary(facts, spending))


def _promise(facts: Facts) -> list[Section]:
    from tacit.report import plots

    guarantee, attack = facts.guarantee, facts.attack
    noise = {
        "exact": "from the system's randomness, exact to the bit",
        "float64": "from the system's randomness, in floating point of 64 bits",
        "float32": "from the system's randomness, in floating point of 32 bits",
        "seeded": "SEEDED: no privacy",
    }[guarantee.noise]
    whom = called(guarantee.unit)
    change = {
        "add_remove": f"add_remove: the data with and without one {whom}",
        "replace_one": f"replace_one: the data with one {whom} replaced by another",
    }[str(guarantee.relation)]
    numbers = [
        ("ε", up(guarantee.epsilon)),
        ("δ", f"{guarantee.delta:g}"),
        ("e^ε", up(math.exp(min(guarantee.epsilon, 700.0))) if facts.private else "∞"),
        ("relation", change),
        ("protects", protected(guarantee.unit)),
        ("noise", noise),
    ]
    promise = Section("What is promised", facts.words, note=guarantee.statement())
    done = Fold(
        "What was done to the data, step by step",
        ["This is the event in the model file. ε and δ follow from it, and anybody can compute them again."],
        tree=tree_of(guarantee.event, guarantee.unit),
    )
    in_numbers = Section("In numbers", facts=numbers, fold=done)
    if not facts.private:
        return [promise, in_numbers]
    stated = Tradeoff.of(guarantee, stated_only=True)
    curves = {"the stated ε and δ alone": stated.curve(), "all that is known of the event": attack.curve()}
    marks = [(rate, attack.missed(rate)) for rate in MARKS]
    drawn = plots.attack_figure(curves, marks)
    about = (
        "An attacker has the model and wants to know whether a certain person was in the data. Every attack "
        "makes two kinds of errors: false alarms, about people who were not in the data, and misses, about "
        "people who were. The curve is the trade-off between them: at a given share of false alarms, no "
        "attack misses fewer. It follows from the noise alone, and holds even for an attacker who knows all "
        "other rows."
    )
    if guarantee.unit.part is not None:
        about = (
            "An attacker has the model and all features, and wants to know which of two labels a certain row "
            "has. Every attack makes two kinds of errors: false alarms, about rows that have the other "
            "label, and misses, about rows that have the suspected one. The curve is the trade-off between "
            "them: at a given share of false alarms, no attack misses fewer. It follows from the noise "
            "alone, and holds even for an attacker who knows all other labels."
        )
        whose = "rows with the other label", "rows with the suspected label"
        drawn = plots.attack_figure(curves, marks, whose)
    rates = [[f"{rate:.1%}", percent_up(attack.power(rate)), f"{rate:.1%}"] for rate in (0.001, *MARKS, 0.5)]
    best = Section(
        "The best attack there can be",
        [about],
        table=(("false alarms", "an attack finds at most", "guessing finds"), rates),
        figure=plots.embedded(
            drawn, "The smallest share that an attack can miss, against its share of false alarms."
        ),
    )
    return [promise, in_numbers, *_profile(facts), best]


def _profile(facts: Facts) -> list[Section]:
    """For a network, whose noise is Gaussian: the other pairs of ε and δ that hold as well."""
    if not facts.is_network:
        return []
    from tacit.report import plots

    points = facts.attack.profile
    about = (
        "The stated ε and δ are one point of a curve: for a smaller δ the guarantee holds with a larger ε, "
        "for a larger δ with a smaller ε. All points hold at once."
    )
    drawn = plots.profile_figure(points, (facts.guarantee.epsilon, facts.guarantee.delta))
    return [
        Section(
            "ε for every δ", [about], figure=plots.embedded(drawn, "δ against ε, as a curve.")
        )
    ]


def _charged(facts: Facts, spending: Sequence[Spending]) -> list[Section]:
    paid = [("Training" if facts.is_network else "Fit", price(facts.guarantee))]
    for one in facts.evaluations:
        cost = "free, on rows declared public" if one.guarantee is None else price(one.guarantee)
        paid.append((capital(one.label), cost))
    unknown = "No ledger was given to this page, so it cannot say what else was spent on the same people."
    sections = [Section("What was charged", [] if spending else [unknown], facts=paid)]
    for each in spending:
        rows = [[label, str(charges), f"{share:.1%}"] for label, charges, share in each.shares]
        whole = (
            f"In {each.location}, “{each.dataset}” has a budget of {each.budget}. "
            f"{capital(counted(len(each.entries), 'charge'))} spent ε = {up(each.spent)} of it in all; "
            f"ε = {each.remaining:.4g} remains."
        )
        table = (("charged on", "charges", "share of cost"), rows) if rows else None
        sections.append(Section(f"In the ledger: {each.dataset}", [whole], table=table))
    return sections


def _utility(facts: Facts) -> list[Section]:
    from tacit.report import plots

    heading, planned = "How good it is", "; ".join(facts.planned)
    expected = [f"Planned, before any row was read: {planned}."] if planned else []
    if facts.has_no_target:
        told = (
            "Measured: nothing. There is no target to measure it by."
            if facts.description.dependences is None
            else "Synthetic rows are compared with public rows by tacit report --against rows.csv "
            "--against-public, and with the private rows, for the curator's eyes alone, with --curator."
        )
        return [Section(heading, [*expected, told])]
    if not facts.evaluations:
        how = (
            "tacit train --test others.npz --test-epsilon 0.2"
            if facts.is_network
            else "tacit fit --test rows.csv --test-epsilon 0.2, or tacit.evaluate"
        )
        missing = (
            "Measured: nothing. The model was not tested on other rows. A test on private rows costs budget: "
            f"{how}."
        )
        return [Section(heading, [*expected, missing])]
    sections = []
    for one in facts.evaluations:
        names = [*(name for name in FIGURES if name in one.figures)]
        names += [name for name in one.figures if name not in names and ":" not in name]
        where, noisy = ("public rows", "") if one.guarantee is None else (
            f"private rows, charged with {price(one.guarantee)}", "; the privacy noise is included"
        )  # fmt: skip
        measured = (
            f"Measured on {where}, to which the model was not fitted. Each interval contains, with "
            f"{one.confidence:.0%} confidence, the value of the figure on the population that the rows are a "
            f"sample of{noisy}.{_baseline(one)}"
        )
        meanings = [(name, FIGURES[name]) for name in names if name in FIGURES]
        rows = [[name, number(one.figures[name]), _ends(one, name)] for name in names]
        sections.append(
            Section(
                heading,
                [*expected, measured],
                fold=Fold("What these figures mean", facts=meanings) if meanings else None,
                table=(("", "value", f"{one.confidence:.0%} interval"), rows),
                figure=plots.embedded(
                    plots.calibration_figure(one.reliability), "Observed share against predicted probability."
                )
                if one.reliability
                else None,
            )
        )
        expected = []
    return sections


def _baseline(one: Evaluation) -> str:
    """How often a constant prediction of the most frequent class would be right, from released counts."""
    if one.reliability:
        known = [line for line in one.reliability if line["observed"] is not None]
        total = sum(float(line["count"] or 0.0) for line in known)
        positive = sum(float(line["count"] or 0.0) * float(line["observed"] or 0.0) for line in known)
        share = positive / total if total > 0 else math.nan
        share = max(share, 1 - share)
    elif one.confusion is not None and (total := sum(map(sum, one.confusion))) > 0:
        share = max(map(sum, one.confusion)) / total
    else:
        return ""
    if not 0 < share <= 1:
        return ""
    return f" A constant prediction of the most frequent class would be right for about {share:.0%} of rows."


def _ends(one: Evaluation, name: str) -> str:
    """The interval of a figure, or that there is none to speak of."""
    known = one.figures[name] is not None and all(map(math.isfinite, one.intervals[name]))
    return ends(one.intervals[name]) if known else one.between(name)


def _groups(facts: Facts) -> list[Section]:
    sections = [_group(one, facts, column) for one in facts.evaluations for column in one.groups]
    about = "A small group has a wide interval: it has few rows, and its counts have as much noise as any."
    return [replace(sections[0], paragraphs=[about]), *sections[1:]] if sections else []


def _group(one: Evaluation, facts: Facts, column: str) -> Section:
    from tacit.report import plots

    parts = one.groups[column]
    declared = facts.preprocessor.schema[column].categories if facts.preprocessor else None
    ordered = dict.fromkeys([*map(str, declared or ()), *parts])
    groups = [group for group in ordered if group in parts and group != "gap"]
    what = [name for name in GROUP_FIGURES if name in parts["gap"]]
    main = what[0]
    rows = []
    for group in (*groups, "gap"):
        values = [number(parts[group].get(name)) for name in what]
        name = f"{column}: {main} gap" if group == "gap" else f"{column}={group}: {main}"
        title = "largest gap" if group == "gap" else group
        rows.append([title, values[0], _ends(one, name), *values[1:]])
    known = {group: value for group in groups if (value := parts[group].get(main)) is not None}
    figure = None
    if known:
        intervals = [one.intervals[f"{column}={group}: {main}"] for group in known]
        title = f"{capital(main)} by {column}, {one.confidence:.0%} intervals"
        drawn = plots.interval_figure(list(known), list(known.values()), intervals, title)
        figure = plots.embedded(drawn, f"{main} by {column}")
    return Section(
        f"By {column}",
        table=((column, main, "interval", *what[1:]), rows),
        figure=figure,
    )


def _against_epsilon(facts: Facts, others: Sequence[Facts]) -> Section:
    from tacit.report import plots

    heading = "Utility against ε"
    for name in MAIN:
        points = {
            (each.guarantee.epsilon, each.name): (value, *one.intervals[name])
            for each in (facts, *others)
            for one in each.evaluations
            if each.private and (value := one.figures.get(name)) is not None
        }
        if len({epsilon for epsilon, _ in points}) < 2:
            continue
        rows = [
            [model, up(epsilon), number(value), ends((low, high))]
            for (epsilon, model), (value, low, high) in sorted(points.items())
        ]
        drawn = plots.utility_figure([(epsilon, *rest) for (epsilon, _), rest in points.items()], name)
        return Section(
            heading,
            ["Each point is a model of its own, fitted and tested with budget, or tested on public rows."],
            table=(("model", "ε", name, "interval"), rows),
            figure=plots.embedded(drawn, f"{name} against ε"),
        )
    alone = (
        "Fewer than two models were tested, so there is no curve. Each further model costs budget of its "
        "own, to fit and to test; tacit report --compare other.tacit draws them beside this one."
    )
    return Section(heading, [alone])


def _tree(facts: Facts) -> list[Section]:
    """The splits of a decision tree: drawn where there is room, else as a list."""
    root = facts.description.tree
    if root is None:
        return []
    about = (
        "From the first question to the answers. Each place says which rows come to it, their most frequent "
        "class with its share, and how many they are. Shares and counts were released with noise; the "
        "smaller a count, the less its share says."
    )
    listed = _branch(root, "All rows")
    if root.leaves > MOST_LEAVES:
        return [Section("The tree", [about], fold=Fold(f"The tree of {root.leaves} leaves", tree=listed))]
    drawn = trees.svg(root)
    width = int(drawn.split('width="', 1)[1].split('"', 1)[0])
    if width > WIDEST_TREE:
        return [Section("The tree", [about], tree=listed)]
    drawn = drawn.replace("<svg ", f'<svg style="max-width:{width}px" ', 1)
    return [Section("The tree", [about], figure=Picture(drawn, "", text="The tree, drawn."), tree=listed)]


def _branch(node: trees.Node, condition: str) -> Branch:
    below = [_branch(child, told) for told, child in node.branches]
    return Branch(f"{condition}: {node.counted}", below)


def _origin(facts: Facts) -> list[Section]:
    if facts.is_network and facts.preprocessor is None:
        return []
    heading = "What it was made from"
    if facts.preprocessor is None:
        number = getattr(facts.model, "n_features_in_", None)
        return [] if number is None else [Section(heading, [f"{counted(number, 'feature')}."])]
    *lines, last = facts.preprocessor.describe().splitlines()
    columns = [(name, done) for name, _, done in (line.rpartition(": ") for line in lines)]
    about = "What is done with each column follows from the schema, and from no row."
    return [Section(heading, [about, last], facts=columns)]


def _network(facts: Facts) -> list[Section]:
    """Settings and the run, where the model tells of them, and the shapes of a network's tensors."""
    described = facts.description
    shapes = [[name, " × ".join(map(str, shape)) or "1"] for name, shape in described.tensors]
    about = (
        "Each step adds up the clipped per-example gradients and adds noise; nothing else that depends on "
        "the examples is kept."
    )
    return [
        *([Section("The run", [about], facts=described.run)] if described.run else []),
        *([Section("What it is", facts=described.facts)] if described.facts else []),
        *([Section("What was trained", table=(("parameter", "shape"), shapes))] if shapes else []),
    ]
