"""Private decision trees: one tree with chosen splits, and ensembles with random ones."""

__all__: list[str] = []
