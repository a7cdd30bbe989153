"""Private gradient boosting over public bins, and how to read what it finds.

Trees are fixed before any row is read: each number has a binary tree over its bins, each category a leaf for
every value. A round adds up, over every split of every tree, how wrong the model still is about the rows on
either side; noise is added; all splits move a step. A row lies in one cell of each column and pulls with at
most ½, so one row can move all these sums together by no more than a number that is known beforehand. No
split is chosen by looking at the data, so nothing is spent on choosing; what the noise drowns stays flat.

What has to be known publicly is declared: bounds of the numbers, the codes of categories (a ``Preprocessor``
with a schema hands both over), the classes, and the number of rows if it is not to be bought.

>>> import numpy as np
>>> from tacit.estimators import GradientBoosting
>>> rng = np.random.default_rng(1)
>>> X = np.column_stack([rng.uniform(18, 90, 20_000), rng.integers(0, 3, 20_000)])  # an age, a code 0, 1 or 2
>>> ill = (np.abs(X[:, 0] - 50) > 20) & (X[:, 1] > 0)  # the young and the old, but for those with code 0
>>> y = np.where(rng.uniform(size=20_000) < 0.1, ~ill, ill)
>>> model = GradientBoosting(
...     1.0, 1e-6, classes=[False, True], bounds=([18, 0], [90, 3]), categories=[None, 3],
...     population=20_000, random_state=1,
... )
>>> print(model.plan(2))
ε = 1, δ = 1e-06, add_remove of one row
  boosting     ε = 1
  101 rounds, trees of 8 levels, 2 columns
  noise 40.66 per split in each round, of residuals up to 0.5

With ``interactions=0``, the default, the score is a constant plus one function of each column. These shape
functions were released, and may be published and plotted; ``tacit report`` draws them.

>>> age, code = model.fit(X, y).shape_functions_
>>> middle = np.searchsorted(age.edges, 50)
>>> age.effects[[5, middle, -5], 0].round(1).tolist(), code.effects[:, 0].round(1).tolist()
([2.4, -2.3, 2.7], [-2.7, 1.4, 1.3])

``interactions=3`` adds three pairs of columns, chosen by noisy sums over all pairs, for a tenth of the
budget. On Adult that gained nothing up to ε = 2 (``benchmarks/results/classical.md``).
"""

__all__: list[str] = []
