"""Private synthetic tables: rows that resemble a private table, made from noisy counts of it alone.

The rooms, in the order in which a fit passes them:

``domain``      codes the columns of a schema into finitely many public cells, and back into values
``prices``      divides (ε, δ) between the steps, and states the event of all of them
``counting``    the passes over private rows
``merging``     merges cells that are mostly noise
``selection``   chooses the pair of columns that is measured next
``inference``   fits a graphical model to what was measured, on the trees of ``junction``
``generation``  draws rows from the model

Only ``counting`` and ``selection`` see private numbers; all others work on what was released.
"""

from tacit.estimators.synthetic.histogram import HistogramSynthesizer
from tacit.estimators.synthetic.marginals import MarginalSynthesizer

__all__ = ["HistogramSynthesizer", "MarginalSynthesizer"]
