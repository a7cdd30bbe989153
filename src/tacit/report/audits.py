"""Audits on the page of a model: what attacks have proved about its ε, beside what it claims."""

from __future__ import annotations

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
    """A section with a row for each audit; none without audits. An audit at another δ is compared with none.

    Audits that claim nothing themselves are held against the guarantee of the model.
    """
    if not results:
        return []
    heads = ("method", "ε at least", "δ", "confidence", "claimed ε", "verdict")
    return [Section("Audits", [EXPLAINED], table=(heads, [_row(each, guarantee) for each in results]))]


def _row(result: AuditResult, guarantee: Guarantee) -> list[str]:
    found = result
    if found.claimed is None and found.delta == guarantee.delta:
        found = found.against(guarantee.epsilon)
    claimed = "none" if found.claimed is None else f"{found.claimed:.4g}"
    return [
        f"{found.method}, assuming: {found.assumption}", f"{found.epsilon:.4g}", f"{found.delta:g}",
        f"{found.confidence:g}", claimed, found.verdict,
    ]  # fmt: skip
