"""Private k-means: passes over the rows, a tree that makes a coreset, and the estimator."""

__all__: list[str] = []
