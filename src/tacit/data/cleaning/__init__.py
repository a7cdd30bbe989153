"""How one value is cleaned: one rule, and the two places that carry it out.

:mod:`~tacit.data.cleaning.rule`
    the rule itself: its docstring says what a value becomes, its constants say exactly what a number, a day
    or a blank is.
:mod:`~tacit.data.cleaning.values`
    carries it out on values in memory, one by one and as arrays; needs NumPy alone.
:mod:`~tacit.data.cleaning.expressions`
    carries it out inside an engine, as Ibis expressions.

A guarantee rests on the two agreeing: bounds that hold in one of them must hold in the other.
``tests/data/test_agreement.py`` compares them on more than 10⁴ odd values, and shows that it would notice.
"""

__all__: list[str] = []
