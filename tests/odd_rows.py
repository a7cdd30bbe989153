"""Rows that are odd in ordinary ways, for estimators that must survive them."""

import numpy as np


def odd_rows(rng, size, width):
    """Rows of zeros and sevens, of which every third is all zeros and every third does not count."""
    x = np.where(rng.random((size, width)) < 0.5, 0.0, 7.0)
    x[::3] = 0.0
    x[1::3, 0] = np.nan
    return x
