"""Drawing: plain numbers and names become plots.

Nothing here knows what a number means or where it comes from: a :class:`~tacit.drawing.charts.Chart` holds
names, values and intervals, and :func:`~tacit.drawing.charts.figure_of` makes a matplotlib figure of it.
Releases draw themselves with it, and reports and commands do too. matplotlib is imported by ``charts`` and
``files``, so import those where something is drawn.
"""

__all__: list[str] = []
