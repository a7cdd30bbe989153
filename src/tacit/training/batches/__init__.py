"""Batches: how a data set is read, what a batch looks like, and how much of one fits into memory.

:mod:`.dataset` reads the rows that the sampler drew; :mod:`.tree` handles inputs and targets that are tensors
in tuples, lists and mappings; :mod:`.views` makes augmented copies of each example; :mod:`.memory` finds how
many examples can be computed at once.
"""

__all__: list[str] = []
