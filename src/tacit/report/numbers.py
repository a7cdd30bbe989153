"""How pages write numbers.

>>> up(1.00001), number(0.12345), counted(2, "charge")
('1.001', '0.123', '2 charges')
"""

from __future__ import annotations

from tacit.guarantee import Guarantee, above

__all__ = ["capital", "counted", "ends", "number", "price", "small", "up"]

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def up(value: float) -> str:
    """Four digits, from above, without trailing zeros."""
    return above(value, 4)


def number(value: float | None) -> str:
    """Three digits after the point, or four in all for large numbers."""
    return "unknown" if value is None else f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"


def ends(interval: tuple[float, float]) -> str:
    """The two ends of an interval, on one line."""
    return "\u00a0to\u00a0".join(map(number, interval))


def price(guarantee: Guarantee) -> str:
    """ε from above, and δ if there is any."""
    return f"ε = {up(guarantee.epsilon)}" + (f", δ = {guarantee.delta:g}" if guarantee.delta else "")


def counted(many: int, what: str) -> str:
    """So many of something, with an s if there is not just one."""
    return f"{many} {what}" + ("" if many == 1 else "s")


def capital(text: str) -> str:
    """The text with its first letter large."""
    return text[:1].upper() + text[1:]


def small(value: float) -> str:
    """A number as people write it: tiny ones with a power of ten.

    >>> small(1e-6), small(2.5e-7), small(0.25)
    ('10⁻⁶', '2.5·10⁻⁷', '0.25')
    """
    if not 0 < value < 1e-3:
        return f"{value:g}"
    digits, _, power = f"{value:.3e}".partition("e")
    factor = f"{float(digits):g}"
    return ("" if factor == "1" else f"{factor}·") + "10" + str(int(power)).translate(RAISED)
