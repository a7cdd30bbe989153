"""Whatever was fitted, in a file with its guarantee: save, load, describe."""
