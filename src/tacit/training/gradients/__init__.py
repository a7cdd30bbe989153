"""Per-example gradients: their norms, and the sum of the clipped ones, without storing each."""

__all__: list[str] = []
