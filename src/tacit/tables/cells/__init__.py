"""Cells: public partitions of the rows, what the engine adds up in them, and the noise they get."""
