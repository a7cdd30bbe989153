"""Audits on the page of a model: what attacks have proved about its ε, beside what it claims."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tacit.audit import AuditResult
from tacit.guarantee import Guarantee
from tacit.report.page import Section

__all__ = ["audited"]

EXPLAINED = (
    "An audit attacks the method that made the model, on data made for it, and turns right and wrong guesses "
    "into a lower bound on ε. A bound above the claim refutes it with the stated confidence. A bound below "
    "the claim proves nothing: a stronger attack might find more."
)


def audited(results: Sequence[AuditResult], guarantee: Guarantee) -> list[Section]:
    """A section with a row for each audit; none without audits.

    Audits that claim nothing themselves are held against the guarantee of the model, if they are about the
    same promise: the same δ, relation and unit. Replacing a row shows up to twice the ε of adding one, and
    the rows of a person more than one row, so that another audit refutes nothing.
    """
    if not results:
        return []
    heads = ("method", "ε at least", "δ", "confidence", "claimed ε", "verdict")
    return [Section("Audits", [EXPLAINED], table=(heads, [_row(each, guarantee) for each in results]))]


def _row(result: AuditResult, guarantee: Guarantee) -> list[str]:
    found, verdict = result, result.verdict
    if found.claimed is None:
        differing = _differing(found, guarantee)
        if differing:
            verdict = f"compared with no claim: {differing}"
        else:
            found = found.against(guarantee.epsilon)
            verdict = found.verdict
    claimed = "none" if found.claimed is None else f"{found.claimed:.4g}"
    return [
        f"{found.method}, assuming: {found.assumption}", f"{found.epsilon:.4g}", f"{found.delta:g}",
        f"{found.confidence:g}", claimed, verdict,
    ]  # fmt: skip


def _differing(result: AuditResult, guarantee: Guarantee) -> str:
    """Why an audit says nothing about a guarantee, in words; empty if it does."""
    if math.isinf(guarantee.epsilon):
        return "the model promises no finite ε"
    if result.delta != guarantee.delta:
        return f"the audit is at another δ than {guarantee.delta:g}"
    promised = {"relation": str(guarantee.relation), "unit": str(guarantee.unit)}
    for name, theirs in promised.items():
        ours = getattr(result, name)
        if ours is None:
            return f"the audit does not say its {name}; tacit audit takes --{name}"
        if ours != theirs:
            return f"the {name} of the audit is {ours}, that of the guarantee {theirs}"
    return ""
