"""Where private rows come from, and how each value is cleaned, row by row."""
