"""Private principal components: second moments with noise, the exponential mechanism, and the estimator."""

__all__: list[str] = []
