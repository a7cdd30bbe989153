"""Statistics: which cells each one needs, and how value and interval are read off them."""

__all__: list[str] = []
