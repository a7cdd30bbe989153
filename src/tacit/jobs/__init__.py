"""Whole jobs from a file to a release: what is public is settled, the charge is made, then rows are read."""
