"""Examples kept apart: what a pass of model and loss did is written down, and proved to keep rows apart."""

__all__: list[str] = []
