"""Cells: public partitions of the rows, whole numbers that the engine adds up in them, and their noise."""

__all__: list[str] = []
